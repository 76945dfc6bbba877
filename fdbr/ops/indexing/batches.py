"""Reading and writing at the places of a batch of keys."""

from collections.abc import Sequence
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.ops.declare.batches import align, spread
from fdbr.ops.indexing.keys import SLOT, Key
from fdbr.ops.shape.manipulation import moveaxis
from fdbr.pytrees.typing import Array

__all__ = ["batch_erase", "batch_last_named", "batch_reading", "batch_replace", "batch_scatter"]


class _Layout:
    """The place of index arrays' axes in the result: see NumPy's manual on advanced indexing.

    The elements of a batch are named by one more index array, the example's number, before all
    others.  With it the axes of the index arrays come first in what is read; without it they
    may stand among the others, after ``before`` of them.
    """

    def __init__(self, key: Key, indices: Sequence[Any], flags: Sequence[bool], ndim: int) -> None:
        self.key = key
        places = [i for i, part in enumerate(key) if part is SLOT or type(part) is int]
        self.together = places == list(range(places[0], places[0] + len(places)))
        used = sum(part is not None and part is not Ellipsis for part in key)
        before = key[: places[0]]
        self.before = sum(ndim - used if part is Ellipsis else 1 for part in before)
        own = [i.ndim - flag for i, flag in zip(indices, flags, strict=True)]
        self.rank = max(own)
        self.indices = align(indices, flags, self.rank)

    def numbered(self, size: int) -> tuple[Key, list[Any]]:
        """The key and the indices for arrays whose first axis is the batch."""
        xp = array_module(*self.indices)
        numbers = xp.arange(size).reshape((size, *(1,) * self.rank))
        return (SLOT, *self.key), [numbers, *self.indices]

    def settle(self, out: Any) -> Any:
        """Put the axes of an array read with `numbered` indices where NumPy has them."""
        if not self.together or not self.before:
            return out
        here = range(1, 1 + self.rank)
        return moveaxis(out, tuple(here), tuple(i + self.before for i in here))

    def unsettle(self, values: Array) -> Any:
        """The inverse of `settle`, for what is to be written."""
        if not self.together or not self.before:
            return values
        here = range(1, 1 + self.rank)
        return moveaxis(values, tuple(i + self.before for i in here), tuple(here))


def batch_reading(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Read from a batch."""
    x, *indices = values
    key = params["key"]
    if not indices:
        return apply(x, key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], x.ndim - batched[0])
    if batched[0]:
        key, indices = layout.numbered(size)
        return layout.settle(apply(x, *indices, key=key))
    out = apply(x, *layout.indices, key=key)
    return moveaxis(out, layout.before, 0) if layout.together and layout.before else out


def batch_scatter(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Add to the zeros of a batch."""
    x, *indices = values
    key, shape = params["key"], params["shape"]
    if not indices:
        return apply(x, shape=(size, *shape), key=(slice(None), *key))
    layout = _Layout(key, indices, batched[1:], len(shape))
    key, indices = layout.numbered(size)
    x = layout.unsettle(spread(x, batched[0], size))
    return apply(x, *indices, shape=(size, *shape), key=key)


def batch_replace(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """A batch with new elements."""
    x, new, *indices = values
    x, new = spread(x, batched[0], size), spread(new, batched[1], size)
    if not indices:
        return apply(x, new, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[2:], x.ndim - 1)
    key, indices = layout.numbered(size)
    return apply(x, layout.unsettle(new), *indices, key=key)


def batch_erase(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """A batch with zeros."""
    x, *indices = values
    x = spread(x, batched[0], size)
    if not indices:
        return apply(x, key=(slice(None), *params["key"]))
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - 1)
    key, indices = layout.numbered(size)
    return apply(x, *indices, key=key)


def batch_last_named(apply: Any, values: Array, batched: Any, size: int, params: Any) -> Any:
    """Which of the values at a place of a batch is the last."""
    x, *indices = values
    layout = _Layout(params["key"], indices, batched[1:], x.ndim - batched[0])
    key, indices = layout.numbered(size)
    return layout.settle(apply(spread(x, batched[0], size), *indices, key=key))
