"""Gated recurrent units over whole sequences."""

from typing import Any

import numpy as np

from fdbr.ops.nn.recurrent.fused_steps import gru_by_kernel
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_slope
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, over_sequences, there
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.reductions.reduce import sum as sum_over
from fdbr.ops.shape.manipulation import concat
from fdbr.pytrees.typing import ArrayLike

__all__ = ["gru_sequence"]


def _pull(ct: Any, out: Any, h: Any, weight: Any, steps: Any) -> Any:
    """The cotangents of the inputs, of the sums by the states, and of the first states."""
    by_h, by_gates, by_hidden, by_h_end = (0 if x is None else x for x in ct)
    outs, gates, hidden, _ = out
    (r, z, n), axis = parts_of(gates, 3), gates.ndim - 1
    by_r, by_z, by_n = r * (1 - r), z * (1 - z), 1 - n * n
    new = (1 - z) * by_n
    k = [new * hidden * by_r, (previous(outs, h, steps) - n) * by_z, new * r]
    s = bent = 0
    if there(by_gates):
        ct_r, ct_z, ct_n = parts_of(by_gates, 3)
        bent = ct_n * by_n
        s = concat([(ct_r + bent * hidden) * by_r, ct_z * by_z, bent * r], axis=axis)
    if there(by_hidden):
        s = s + concat([0 * r, 0 * z, by_hidden], axis=axis)
    given = s, 0, by_h, by_h_end, 0
    sums, back, first = transposed_recurrence(
        *given, concat(k, axis=axis), z, 0, weight, 0, steps=steps
    )
    by_inputs = concat([sums[..., : -z.shape[-1]], new * back + bent], axis=axis)
    return [by_inputs, sums, first]


def _by_weight(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_slope(shared[1], previous(out[0], h, steps))


def _by_bias(shared: Any, out: Any) -> Any:
    return sum_over(shared[1][..., -out[0].shape[-1] :], axis=-2, keepdims=True)


@over_sequences(
    first=_pull,
    weights=frozenset({"weight", "bias"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[2],
    weight=_by_weight,
    bias=_by_bias,
)
def _gru_sequence(
    xp: Any, inputs: ArrayLike, h: ArrayLike, weight: ArrayLike, bias: ArrayLike, *, steps: Steps
) -> Any:
    """The outputs of all steps, the gates, what ``r`` is multiplied by, and the last states."""
    size, dtype = h.shape[-1], inputs.dtype
    gates = xp.empty(inputs.shape, dtype=dtype)
    outs = xp.empty((*inputs.shape[:-1], size), dtype=dtype)
    hidden = xp.empty(outs.shape, dtype=dtype)
    h = xp.array(h)
    if gru_by_kernel(inputs, h, weight, bias, gates, hidden, outs, steps):
        return outs, gates, hidden, h
    turned = xp.empty((*weight.shape[:-2], weight.shape[-1], weight.shape[-2]), dtype=dtype)
    turned[...] = weight.swapaxes(-1, -2)  # in the order in which products read it
    front, back = slice(2 * size), slice(2 * size, None)
    xp.negative(turned[..., front], out=turned[..., front])
    with np.errstate(over="ignore"):  # where a gate is shut
        for rows, count in steps:
            old, x, gate = h[..., :count, :], inputs[..., rows, :], gates[..., rows, :]
            s = xp.matmul(old, turned)
            shut, n, inner = gate[..., front], gate[..., back], hidden[..., rows, :]
            xp.subtract(s[..., front], x[..., front], out=shut)
            xp.exp(shut, out=shut)
            shut += 1
            xp.reciprocal(shut, out=shut)
            xp.add(s[..., back], bias, out=inner)
            xp.multiply(inner, shut[..., :size], out=n)
            n += x[..., back]
            xp.tanh(n, out=n)
            old -= n
            old *= shut[..., size:]
            old += n
            outs[..., rows, :] = old
    return outs, gates, hidden, h


@in_one_dtype
def gru_sequence(inputs: Any, h: Any, weight: Any, bias: Any, *, steps: Steps) -> tuple[Any, Any]:
    """The outputs of all steps, and the last one of each sequence.

    ``inputs`` are what goes into the gates besides the state, for all elements; ``bias`` of shape
    (1, size), or 0, is what is added to the state's share in ``n``, before the reset gate.
    """
    outs, _, _, h = _gru_sequence(inputs, h, weight, bias, steps=steps)
    return outs, h
