"""Recurrent layers over padded sequences, with lengths that may be traced."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.ops.declare import aligned, constant
from fdbr.ops.dtypes import astype, finfo
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.nn.recurrent.cells import LSTM, RELU, Kind, Weights
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, concat, reshape
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["Padded", "padded"]

# In padding, an input of a large number keeps a state as it is, or keeps it finite.  These are its
# weights in each gate.  LSTM: with the input gate at 0 and the forget gate at 1 the last cell state
# is the state after the last element.  RELU: the state is 0.  Without this it might overflow, and
# its cotangents would be NaN.  Other states are bounded.
_HOLD = {LSTM: (-1, 1, 0, 0), RELU: (-1,)}

Run = Callable[[Weights, Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]


@constant(batch=aligned)
def _checked_lengths(xp: Any, lengths: Any, *, function: str, time: int) -> Any:
    if lengths.size and not bool(xp.all((lengths >= 1) & (lengths <= time))):
        raise ValueError(
            f"{function}: lengths must be from 1 to {time}, the number of time steps of x, got "
            f"{lengths.min()} to {lengths.max()}"
        )
    return lengths.astype(xp.int64)


@attrs.frozen
class Padded:
    """The layout of padded sequences ``(time, sequences, ...)``.

    Attributes
    ----------
    lengths
        The lengths of the sequences.
    is_given
        Which elements are not padding: shape ``(time, sequences, 1)``.
    mirror
        The rows of ``(time * sequences, ...)`` in the order that reverses each sequence.
    """

    lengths: Any
    is_given: Any
    mirror: Any

    def zeroed(self, x: Any) -> Any:
        """Return an array with zeros in the place of padding."""
        return where(self.is_given, x, 0)

    def over(
        self, run: Run, kind: Kind, weights: Weights, x: Any, state: Any, reverse: bool
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the outputs of a layer in one direction, and its states at the lengths.

        ``run(weights, x, state)`` computes all steps, padding included.  ``x`` has zeros there.
        """
        x = self._mirrored(x) if reverse else x
        if kind in _HOLD:
            signs = np.repeat(_HOLD[kind], len(weights.weight_ih) // kind.gates)
            large = min(1e30, float(finfo(weights.weight_ih.dtype).max) / 8)
            column = array_module(weights.weight_ih).asarray(signs[:, None] * large)
            column = astype(column, weights.weight_ih.dtype)
            weights = weights._replace(weight_ih=concat([weights.weight_ih, column], axis=1))
            x = concat([x, astype(~self.is_given, x.dtype)], axis=-1)
        outs, ends = run(weights, x, state)
        time, count, width = outs.shape
        rows = (self.lengths - 1) * count + array_module(self.lengths).arange(count)
        last = rows_at(reshape(outs, (time * count, width)), rows)
        outs = self._mirrored(outs) if reverse else outs
        return self.zeroed(outs), (last, *ends[1:])

    def _mirrored(self, x: Any) -> Any:
        return reshape(rows_at(reshape(x, (-1, x.shape[-1])), self.mirror), x.shape)


def padded(function: str, lengths: Any, time: int, batch: Sequence[int]) -> Padded:
    """Check the lengths of sequences with these batch axes, which become one axis.

    Lengths outside of 1 to ``time`` are an error, also in compiled programs.
    """
    lengths = asarray(lengths)
    if dtype_kind(lengths.dtype) not in "iu" or lengths.shape != tuple(batch):
        shape = ", ".join(map(str, batch))
        raise ValueError(
            placed(
                f"{function}: lengths must be integers of shape ({shape}), the batch of x, got "
                f"{describe(lengths)}"
            )
        )
    count = math.prod(batch)
    lengths = reshape(_checked_lengths(lengths, function=function, time=time), (count,))
    xp = array_module(lengths)
    steps = xp.arange(time).reshape((time, 1))
    is_given = steps < lengths
    from_end = where(is_given, lengths - 1 - steps, broadcast_to(steps, (time, count)))
    mirror = reshape(from_end * count + xp.arange(count), (time * count,))
    return Padded(lengths, reshape(is_given, (time, count, 1)), mirror)
