"""Convolutions in any number of dimensions.

``sum(y[n, o, p] * weight[o, c, k] * x[n, c, p * stride - padding + k * dilation])`` is linear in
each of ``x``, ``weight`` and ``y``.  Its derivatives by the three are three primitives:
`_conv` by ``y``, `_conv_input` by ``x``, `_conv_kernel` by ``weight``.  So the transposes of each
are the two others, and derivatives of all orders are convolutions again.
"""

from typing import Any

from fdbr.core import describe
from fdbr.ops import columns
from fdbr.ops.creation import asarray
from fdbr.ops.kinds import fit, multilinear, opaque
from fdbr.ops.kinds.batches import spread
from fdbr.ops.shape import expand_dims, moveaxis, reshape
from fdbr.ops.windows import (
    Geometry,
    Sizes,
    check_spatial,
    check_windows,
    padding_pairs,
    per_axis,
    same_padding,
)

__all__ = ["conv", "conv_transpose"]


# --- batches ------------------------------------------------------------------------


def _fold(value: Any, axis: int, groups: int = 1) -> Any:
    """The batch, first, made part of an axis of the examples, within each of its groups."""
    size, *shape = value.shape
    shape[axis : axis + 1] = [groups, shape[axis] // groups]
    value = moveaxis(reshape(value, (size, *shape)), 0, axis + 1)
    return reshape(value, (*shape[:axis], size * groups * shape[axis + 1], *shape[axis + 2 :]))


def _unfold(value: Any, axis: int, size: int, groups: int = 1) -> Any:
    """The inverse of `_fold`."""
    shape = list(value.shape)
    shape[axis : axis + 1] = [groups, size, shape[axis] // (groups * size)]
    value = moveaxis(reshape(value, tuple(shape)), axis + 1, 0)
    own = groups * shape[axis + 2]
    return reshape(value, (size, *shape[:axis], own, *shape[axis + 3 :]))


def _batch(first: tuple[int, int], second: tuple[int, int], out: int) -> Any:
    """How a batch goes through a product of two operands.

    For a batch of one operand alone: the axis of the operand, and of the result, that takes it
    in.  A batch of both becomes groups: each operand's axis ``out`` of channels is 1 or 0.
    """

    def batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
        x, y = values
        groups = params["groups"]
        if all(batched):
            x, y = _fold(x, _channels[first]), _fold(y, _channels[second])
            return _unfold(apply(x, y, **{**params, "groups": size * groups}), out, size)
        axis, place = first if batched[0] else second
        return axis, place

    return batch


