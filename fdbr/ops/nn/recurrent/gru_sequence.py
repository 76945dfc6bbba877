"""Gated recurrent units over whole sequences."""

from typing import Any

import numpy as np

from fdbr.ops.nn.recurrent.fused_steps import gru_by_kernel
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, is_given, over_sequences
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.reductions.reduce import sum as sum_over
from fdbr.ops.shape.manipulation import concat

__all__ = ["gru_sequence"]


def _vjp(ct: Any, out: Any, h: Any, weight: Any, steps: Any) -> Any:
    """Compute the cotangents of inputs, of products with states, and of first states."""
    ct_h, ct_gates, ct_hidden, ct_h_end = (0 if x is None else x for x in ct)
    outs, gates, hidden, _ = out
    (r, z, n), axis = parts_of(gates, 3), gates.ndim - 1
    d_r, d_z, d_n = r * (1 - r), z * (1 - z), 1 - n * n
    new = (1 - z) * d_n
    k = [new * hidden * d_r, (previous(outs, h, steps) - n) * d_z, new * r]
    s: Any = 0
    ct_n_pre: Any = 0
    if is_given(ct_gates):
        ct_r, ct_z, ct_n = parts_of(ct_gates, 3)
        ct_n_pre = ct_n * d_n
        s = concat([(ct_r + ct_n_pre * hidden) * d_r, ct_z * d_z, ct_n_pre * r], axis=axis)
    if is_given(ct_hidden):
        s = s + concat([0 * r, 0 * z, ct_hidden], axis=axis)
    sources = s, 0, ct_h, ct_h_end, 0
    sums, back, first = transposed_recurrence(
        *sources, concat(k, axis=axis), z, 0, weight, 0, steps=steps
    )
    ct_inputs = concat([sums[..., : -z.shape[-1]], new * back + ct_n_pre], axis=axis)
    return [ct_inputs, sums, first]


def _weight_vjp(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_cotangent(shared[1], previous(out[0], h, steps))


def _bias_vjp(shared: Any, out: Any) -> Any:
    return sum_over(shared[1][..., -out[0].shape[-1] :], axis=-2, keepdims=True)


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight", "bias"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[2],
    weight=_weight_vjp,
    bias=_bias_vjp,
)
def _gru_sequence(xp: Any, inputs: Any, h: Any, weight: Any, bias: Any, *, steps: Steps) -> Any:
    """Compute outputs and gates of all steps, the terms that ``r`` multiplies, and last states."""
    size, dtype = h.shape[-1], inputs.dtype
    gates = xp.empty(inputs.shape, dtype=dtype)
    outs = xp.empty((*inputs.shape[:-1], size), dtype=dtype)
    hidden = xp.empty(outs.shape, dtype=dtype)
    h = xp.array(h)
    if gru_by_kernel(inputs, h, weight, bias, gates, hidden, outs, steps):
        return outs, gates, hidden, h
    transposed = xp.empty((*weight.shape[:-2], weight.shape[-1], weight.shape[-2]), dtype=dtype)
    transposed[...] = weight.swapaxes(-1, -2)  # contiguous, as BLAS reads it
    front, back = slice(2 * size), slice(2 * size, None)
    xp.negative(transposed[..., front], out=transposed[..., front])
    with np.errstate(over="ignore"):  # exp overflows where a gate is 0
        for rows, count in steps:
            old, x, gate = h[..., :count, :], inputs[..., rows, :], gates[..., rows, :]
            s = xp.matmul(old, transposed)
            inverse_gate, n, inner = gate[..., front], gate[..., back], hidden[..., rows, :]
            xp.subtract(s[..., front], x[..., front], out=inverse_gate)
            xp.exp(inverse_gate, out=inverse_gate)
            inverse_gate += 1
            xp.reciprocal(inverse_gate, out=inverse_gate)
            xp.add(s[..., back], bias, out=inner)
            xp.multiply(inner, inverse_gate[..., :size], out=n)
            n += x[..., back]
            xp.tanh(n, out=n)
            old -= n
            old *= inverse_gate[..., size:]
            old += n
            outs[..., rows, :] = old
    return outs, gates, hidden, h


@in_one_dtype
def gru_sequence(inputs: Any, h: Any, weight: Any, bias: Any, *, steps: Steps) -> tuple[Any, Any]:
    """Compute the outputs of all steps, and the last output of each sequence.

    ``inputs`` are the contributions of the inputs to the gates, for all elements; ``bias``, of
    shape (1, size) or 0, is added to the state's contribution to ``n``, before the reset gate.
    """
    outs, _, _, h = _gru_sequence(inputs, h, weight, bias, steps=steps)
    return outs, h
