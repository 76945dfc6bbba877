"""Batching rules of indexing: one more index array selects the example."""

from collections.abc import Sequence
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.ops.declare.batches import align, spread
from fdbr.ops.indexing.keys import SLOT, Key
from fdbr.ops.shape.manipulation import moveaxis
from fdbr.pytrees.typing import Array

__all__ = ["batch_erase", "batch_last_written", "batch_reading", "batch_replace", "batch_scatter"]


class _Layout:
    """The position of index arrays' axes in the result: see NumPy's manual on advanced indexing.

    A batch is indexed by one more index array, the example's number, in front.  With it the axes
    of the index arrays come first in the result; without it, adjacent index arrays leave their
    axes after ``before`` other axes.
    """

    def __init__(self, key: Any, indices: Sequence[Any], flags: Sequence[bool], ndim: int) -> None:
        self.key = key
        slots = [i for i, part in enumerate(key) if part is SLOT or type(part) is int]
        self.adjacent = slots == list(range(slots[0], slots[0] + len(slots)))
        used = sum(part is not None and part is not Ellipsis for part in key)
        before = key[: slots[0]]
        self.before = sum(ndim - used if part is Ellipsis else 1 for part in before)
        ranks = [i.ndim - flag for i, flag in zip(indices, flags, strict=True)]
        self.rank = max(ranks)
        self.indices = align(indices, flags, self.rank)

    def with_example_number(self, size: int) -> tuple[Key, list[Any]]:
        """Return the key and the indices for arrays whose first axis is the batch."""
        xp = array_module(*self.indices)
        numbers = xp.arange(size).reshape((size, *(1,) * self.rank))
        return (SLOT, *self.key), [numbers, *self.indices]

    def restore_axes(self, out: Any) -> Any:
        """Move the axes of the index arrays to where NumPy puts them without the example number."""
        if not self.adjacent or not self.before:
            return out
        index_axes = range(1, 1 + self.rank)
        return moveaxis(out, tuple(index_axes), tuple(i + self.before for i in index_axes))

    def move_axes(self, values: Array) -> Any:
        """Undo `restore_axes`, for values to write."""
        if not self.adjacent or not self.before:
            return values
        index_axes = range(1, 1 + self.rank)
        return moveaxis(values, tuple(i + self.before for i in index_axes), tuple(index_axes))


def batch_reading(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Apply `_gather` to a batch."""
    x, *indices = values
    key = params["key"]
    if not indices:
        return apply(x, key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], x.ndim - batched[0])
    if batched[0]:
        key, indices = layout.with_example_number(size)
        return layout.restore_axes(apply(x, *indices, key=key))
    out = apply(x, *layout.indices, key=key)
    return moveaxis(out, layout.before, 0) if layout.adjacent and layout.before else out


def batch_scatter(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Apply `_scatter`, which adds to zeros, to a batch."""
    x, *indices = values
    key, shape = params["key"], params["shape"]
    if not indices:
        return apply(x, shape=(size, *shape), key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], len(shape))
    key, indices = layout.with_example_number(size)
    x = layout.move_axes(spread(x, batched[0], size))
    return apply(x, *indices, shape=(size, *shape), key=key)


def batch_replace(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Apply `_replace` or `_increase` to a batch."""
    x, new, *indices = values
    x, new = spread(x, batched[0], size), spread(new, batched[1], size)
    if not indices:
        return apply(x, new, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[2:], x.ndim - 1)
    key, indices = layout.with_example_number(size)
    return apply(x, layout.move_axes(new), *indices, key=key)


def batch_erase(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Apply `_erase`, which writes zeros, to a batch."""
    x, *indices = values
    x = spread(x, batched[0], size)
    if not indices:
        return apply(x, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - 1)
    key, indices = layout.with_example_number(size)
    return apply(x, *indices, key=key)


def batch_last_written(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Apply `_last_written` to a batch."""
    x, *indices = values
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - batched[0])
    key, indices = layout.with_example_number(size)
    return layout.restore_axes(apply(spread(x, batched[0], size), *indices, key=key))
