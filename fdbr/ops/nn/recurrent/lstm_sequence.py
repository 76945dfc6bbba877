"""Long short-term memory over whole sequences."""

from typing import Any

import numpy as np

from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.nn.recurrent.fused_steps import lstm_by_kernel
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_slope
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, over_sequences, there
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat
from fdbr.pytrees.typing import ArrayLike

__all__ = ["lstm_sequence"]


def _pull(ct: Any, out: Any, c: Any, weight: Any, hr: Any, steps: Any) -> Any:
    by_h, by_c, by_gates, by_h_end, by_c_end = (0 if x is None else x for x in ct)
    _, cells, gates, _, _ = out
    i, f, g, o = parts_of(gates, 4)
    by_i, by_f, by_g, by_o = i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)
    bent, axis = tanh(cells), gates.ndim - 1
    k: Any = [g * by_i, previous(cells, c, steps) * by_f, i * by_g, bent * by_o]
    s = by_gates * concat([by_i, by_f, by_g, by_o], axis=axis) if there(by_gates) else 0
    a = o * (1 - bent * bent)
    given = s, by_c, by_h, by_h_end, by_c_end
    k = concat(k, axis=axis)
    return list(transposed_recurrence(*given, k, f, a, weight, hr, steps=steps))


def _by_weight(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    return weight_slope(shared[0], previous(out[0], h, steps))


def _by_projection(shared: Any, out: Any) -> Any:
    cells = out[1]
    return weight_slope(shared[2], out[2][..., -cells.shape[-1] :] * tanh(cells))


@over_sequences(
    first=_pull,
    weights=frozenset({"weight", "hr"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[3],
    c=lambda shared: shared[4],
    weight=_by_weight,
    hr=_by_projection,
)
def _lstm_sequence(
    xp: Any,
    inputs: ArrayLike,
    h: ArrayLike,
    c: ArrayLike,
    weight: ArrayLike,
    hr: ArrayLike,
    *,
    steps: Steps,
) -> Any:
    """The outputs, the memories and the gates of all steps, and the last states."""
    size, rows_of = c.shape[-1], inputs.shape[:-1]
    gates = xp.empty(inputs.shape, dtype=inputs.dtype)
    outs = xp.empty((*rows_of, h.shape[-1]), dtype=inputs.dtype)
    cells = xp.empty((*rows_of, size), dtype=inputs.dtype)
    h, c = xp.array(h), xp.array(c)
    if not there(hr) and lstm_by_kernel(inputs, h, c, weight, gates, cells, outs, steps):
        return outs, cells, gates, h, c
    minus = xp.empty((*weight.shape[:-2], weight.shape[-1], weight.shape[-2]), dtype=weight.dtype)
    xp.negative(weight.swapaxes(-1, -2), out=minus)  # in the order in which products read it
    third = slice(2 * size, 3 * size)
    with np.errstate(over="ignore"):  # where a gate is shut
        for rows, count in steps:
            old, kept, s = h[..., :count, :], c[..., :count, :], gates[..., rows, :]
            xp.matmul(old, minus, out=s)
            s -= inputs[..., rows, :]
            g = xp.tanh(s[..., third])
            xp.exp(s, out=s)
            s += 1
            xp.reciprocal(s, out=s)
            xp.negative(g, out=s[..., third])
            i, f, g, o = parts_of(s, 4)
            kept *= f
            kept += i * g
            cells[..., rows, :] = kept
            shown = xp.tanh(kept)
            shown *= o
            old[...] = xp.matmul(shown, hr.swapaxes(-1, -2)) if there(hr) else shown
            outs[..., rows, :] = old
    return outs, cells, gates, h, c


@in_one_dtype
def lstm_sequence(
    inputs: Any, h: Any, c: Any, weight: Any, hr: Any, *, steps: Steps
) -> tuple[Any, Any, Any]:
    """The outputs of all steps, and the last output and memory of each sequence.

    ``inputs`` are what goes into the gates besides the state, for all elements; ``hr`` is the
    weight of a projection, or 0.
    """
    outs, _, _, h, c = _lstm_sequence(inputs, h, c, weight, hr, steps=steps)
    return outs, h, c
