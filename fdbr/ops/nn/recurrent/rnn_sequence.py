"""Elman's recurrent networks over whole sequences."""

from typing import Any

from fdbr.ops.dtypes import astype
from fdbr.ops.nn.recurrent.fused_steps import rnn_by_kernel
from fdbr.ops.nn.recurrent.recurrences import transposed_recurrence, weight_slope
from fdbr.ops.nn.recurrent.sequence_rules import in_one_dtype, over_sequences
from fdbr.ops.nn.recurrent.steps import Steps, previous
from fdbr.pytrees.typing import ArrayLike

__all__ = ["rnn_sequence"]


def _pull(ct: Any, out: Any, weight: Any, steps: Any, rectified: bool) -> Any:
    by_h, by_h_end = (0 if x is None else x for x in ct)
    h = out[0]
    k = astype(h > 0, h.dtype) if rectified else 1 - h * h
    given = 0, 0, by_h, by_h_end, 0
    return list(transposed_recurrence(*given, k, 0, 0, weight, 0, steps=steps))


@over_sequences(
    first=_pull,
    weights=frozenset({"weight"}),
    inputs=lambda shared: shared[0],
    h=lambda shared: shared[2],
    weight=lambda shared, out, h, steps: weight_slope(shared[0], previous(out[0], h, steps)),
)
def _rnn_sequence(
    xp: Any, inputs: ArrayLike, h: ArrayLike, weight: ArrayLike, *, steps: Steps, rectified: bool
) -> Any:
    """The outputs of all steps, and the last states."""
    outs = xp.empty(inputs.shape, dtype=inputs.dtype)
    h = xp.array(h)
    if rnn_by_kernel(inputs, h, weight, outs, steps, rectified):
        return outs, h
    turned = xp.empty(weight.shape, dtype=weight.dtype)
    turned[...] = weight.swapaxes(-1, -2)  # in the order in which products read it
    for rows, count in steps:
        old, out = h[..., :count, :], outs[..., rows, :]
        xp.matmul(old, turned, out=out)
        out += inputs[..., rows, :]
        if rectified:
            xp.maximum(out, 0, out=out)
        else:
            xp.tanh(out, out=out)
        old[...] = out
    return outs, h


@in_one_dtype
def rnn_sequence(
    inputs: Any, h: Any, weight: Any, *, steps: Steps, rectified: bool
) -> tuple[Any, Any]:
    """The outputs of all steps, and the last one of each sequence.

    ``inputs`` are what is added to the state's share, for all elements; ``rectified`` is whether
    they go through `relu` and not through `tanh`.
    """
    outs: tuple[Any, Any] = _rnn_sequence(inputs, h, weight, steps=steps, rectified=rectified)
    return outs
