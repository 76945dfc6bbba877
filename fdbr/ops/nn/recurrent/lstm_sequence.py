"""Long short-term memory over whole sequences."""

from typing import Any

import numpy as np

from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.recurrent.fused_steps import lstm_by_kernel
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_cotangent
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, is_given, over_sequences
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat

__all__ = ["lstm_sequence"]


def _vjp(ct: Any, out: Any, c: Any, weight: Any, hr: Any, steps: Any) -> Any:
    ct_h, ct_c, ct_gates, ct_h_end, ct_c_end = (0 if x is None else x for x in ct)
    _, cells, gates, _, _ = out
    i, f, g, o = parts_of(gates, 4)
    d_i, d_f, d_g, d_o = i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)
    tanh_cells, axis = tanh(cells), gates.ndim - 1
    k: Any = [g * d_i, previous(cells, c, steps) * d_f, i * d_g, tanh_cells * d_o]
    s = ct_gates * concat([d_i, d_f, d_g, d_o], axis=axis) if is_given(ct_gates) else 0
    a = o * (1 - tanh_cells * tanh_cells)
    sources = s, ct_c, ct_h, ct_h_end, ct_c_end
    k = concat(k, axis=axis)
    return list(transposed_recurrence(*sources, k, f, a, weight, hr, steps=steps))


def _weight_vjp(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_cotangent(shared[0], previous(out[0], h, steps))


def _projection_vjp(shared: Any, out: Any) -> Any:
    cells = out[1]
    return weight_cotangent(shared[2], out[2][..., -cells.shape[-1] :] * tanh(cells))


@over_sequences(
    first=_vjp,
    weights=frozenset({"weight", "hr"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[3],
    c=lambda shared: shared[4],
    weight=_weight_vjp,
    hr=_projection_vjp,
)
def _lstm_sequence(
    xp: Any,
    inputs: Any,
    h: Any,
    c: Any,
    weight: Any,
    hr: Any,
    *,
    steps: Steps,
) -> Any:
    """Compute the outputs, memories and gates of all steps, and the last states."""
    size, lead = c.shape[-1], inputs.shape[:-1]
    gates = xp.empty(inputs.shape, dtype=inputs.dtype)
    outs = xp.empty((*lead, h.shape[-1]), dtype=inputs.dtype)
    cells = xp.empty((*lead, size), dtype=inputs.dtype)
    h, c = xp.array(h), xp.array(c)
    if not is_given(hr) and lstm_by_kernel(inputs, h, c, weight, gates, cells, outs, steps):
        return outs, cells, gates, h, c
    minus_weight = xp.empty(
        (*weight.shape[:-2], weight.shape[-1], weight.shape[-2]), dtype=weight.dtype
    )
    xp.negative(weight.swapaxes(-1, -2), out=minus_weight)  # contiguous, as BLAS reads it
    slice_of_g = slice(2 * size, 3 * size)
    with np.errstate(over="ignore"):  # exp overflows where a gate is 0
        for rows, count in steps:
            old, memory, s = h[..., :count, :], c[..., :count, :], gates[..., rows, :]
            xp.matmul(old, minus_weight, out=s)
            s -= inputs[..., rows, :]
            g = xp.tanh(s[..., slice_of_g])
            xp.exp(s, out=s)
            s += 1
            xp.reciprocal(s, out=s)
            xp.negative(g, out=s[..., slice_of_g])
            i, f, g, o = parts_of(s, 4)
            memory *= f
            memory += i * g
            cells[..., rows, :] = memory
            output = xp.tanh(memory)
            output *= o
            old[...] = xp.matmul(output, hr.swapaxes(-1, -2)) if is_given(hr) else output
            outs[..., rows, :] = old
    return outs, cells, gates, h, c


@in_one_dtype
def lstm_sequence(
    inputs: Any, h: Any, c: Any, weight: Any, hr: Any, *, steps: Steps
) -> tuple[Any, Any, Any]:
    """Compute the outputs of all steps, and the last output and memory of each sequence.

    ``inputs`` are the contributions of the inputs to the gates, for all elements; ``hr`` is the
    weight of a projection, or 0.
    """
    outs, _, _, h, c = _lstm_sequence(inputs, h, c, weight, hr, steps=steps)
    return outs, h, c
