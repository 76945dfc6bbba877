"""Gated recurrent units that reset the state before its product, over whole sequences."""

from typing import Any

import numpy as np

from fdbr.ops.nn.recurrent.reset_recurrences import by_weight, transposed_reset_recurrence
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, over_sequences, there
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.ops.nn.recurrent.units import parts_of
from fdbr.ops.shape.manipulation import concat
from fdbr.pytrees.typing import ArrayLike

__all__ = ["reset_sequence"]


def _pull(ct: Any, out: Any, h: Any, weight: Any, steps: Any) -> Any:
    by_h, by_gates, by_h_end = (0 if x is None else x for x in ct)
    outs, gates, _ = out
    (r, z, n), axis = parts_of(gates, 3), gates.ndim - 1
    by_r, by_z, by_n = r * (1 - r), z * (1 - z), 1 - n * n
    old = previous(outs, h, steps)
    s = by_gates * concat([by_r, by_z, by_n], axis=axis) if there(by_gates) else 0
    k = concat([(n - old) * by_z, z * by_n], axis=axis)
    given = s, 0, by_h, by_h_end, k, 1 - z, r, old * by_r
    return list(transposed_reset_recurrence(*given, weight, steps=steps))


def _by_weight(shared: Any, out: Any, h: Any, steps: Any) -> Any:
    old = previous(out[0], h, steps)
    return by_weight(shared[0], old, parts_of(out[1], 3)[0] * old)


@over_sequences(
    first=_pull,
    weights=frozenset({"weight"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[3],
    weight=_by_weight,
)
def _reset_sequence(
    xp: Any, inputs: ArrayLike, h: ArrayLike, weight: ArrayLike, *, steps: Steps
) -> Any:
    """The outputs and the gates of all steps, and the last states."""
    size, dtype = h.shape[-1], inputs.dtype
    gates = xp.empty(inputs.shape, dtype=dtype)
    outs = xp.empty((*inputs.shape[:-1], size), dtype=dtype)
    h = xp.array(h)
    front, back = slice(2 * size), slice(2 * size, None)
    # In the order in which products read them.
    by_state = xp.array(-weight[..., front, :].swapaxes(-1, -2), order="C")
    by_reset = xp.array(weight[..., back, :].swapaxes(-1, -2), order="C")
    with np.errstate(over="ignore"):  # where a gate is shut
        for rows, count in steps:
            old, x, gate = h[..., :count, :], inputs[..., rows, :], gates[..., rows, :]
            shut, n = gate[..., front], gate[..., back]
            xp.subtract(xp.matmul(old, by_state), x[..., front], out=shut)
            xp.exp(shut, out=shut)
            shut += 1
            xp.reciprocal(shut, out=shut)
            xp.add(xp.matmul(shut[..., :size] * old, by_reset), x[..., back], out=n)
            xp.tanh(n, out=n)
            old += shut[..., size:] * (n - old)
            outs[..., rows, :] = old
    return outs, gates, h


@in_one_dtype
def reset_sequence(inputs: Any, h: Any, weight: Any, *, steps: Steps) -> tuple[Any, Any]:
    """The outputs of all steps, and the last one of each sequence.

    ``inputs`` are what goes into the gates besides the state, for all elements.
    """
    outs, _, h = _reset_sequence(inputs, h, weight, steps=steps)
    return outs, h
