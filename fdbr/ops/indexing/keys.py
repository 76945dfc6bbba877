"""Keys of arrays, split into what is fixed and what is an operand.

``x[:, i, None]`` becomes the key ``(slice(None), Slot(), None)`` and the indices ``(i,)``.  Boolean
masks become the index arrays of their true elements.
"""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, is_array, keep, on_device
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.ops.devices import beside
from fdbr.ops.indexing.positions import within
from fdbr.ops.shape.manipulation import reshape

__all__ = ["SLOT", "Key", "Slot", "in_range", "join", "split"]

Key = tuple[Any, ...]


class Slot:
    """The place of an index array in a key."""

    def __repr__(self) -> str:
        return "Slot()"


SLOT = Slot()


class _SingleTruth(Exception):
    """A part of a key is one truth value, and no mask."""


def split(key: Any, x: Any, made_here: bool = False) -> tuple[Key, tuple[Any, ...], Any]:
    """The structure of a key, its index arrays, and the array to which they belong."""
    if type(key) is int:
        return (key,), (), x
    given = [_part(part, x) for part in (key if type(key) is tuple else (key,))]
    try:
        return (*_arranged(given, x, made_here), x)
    except _SingleTruth:
        given, x = _truths_as_axes(given, x)
        return (*_arranged(given, x, made_here), x)


def _truths_as_axes(given: Sequence[Any], x: Any) -> tuple[list[Any], Any]:
    """A key with single truth values as index arrays, of axes that the array is given for them.

    On its axis ``x[flag]`` has all of ``x``, or nothing; which is a decision.
    """
    sizes = list(x.shape)
    parts: list[Any] = []
    axis = 0
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = len(sizes) - sum(map(_taken, given[number + 1 :]))
        elif hasattr(part, "dtype") and part.dtype.kind == "b" and part.ndim == 0:
            sizes.insert(axis, 1)
            part = array_module(x).zeros(int(bool(part)), dtype=int)
        axis += _taken(part)
        parts.append(part)
    return parts, reshape(x, tuple(sizes))


def _arranged(given: Sequence[Any], x: Any, made_here: bool) -> tuple[Key, tuple[Any, ...]]:
    parts: list[Any] = []
    indices: list[Any] = []
    axis = 0  # of x, to which the part belongs
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = x.ndim - sum(map(_taken, given[number + 1 :]))
        if not hasattr(part, "dtype"):
            arrays = None
        elif part.dtype.kind == "b":
            arrays = _true_elements(part, x, axis)
        else:
            arrays = (part if made_here else in_range(part, x, axis),)
        parts.extend([part] if arrays is None else [SLOT] * len(arrays))
        indices.extend(arrays or ())
        axis += _taken(part)
    return tuple(parts), tuple(indices)


def _part(part: Any, x: Any) -> Any:
    """A part of a key as a slice, an ellipsis, `None`, an int, or an array."""
    if isinstance(part, slice | EllipsisType | None) or type(part) is int:
        return part
    if not isinstance(part, Tracer) and not is_array(part):
        if not isinstance(part, Sequence) and not hasattr(part, "__index__"):
            raise IndexError(
                f"fdbr.ops.getitem: an index must be integer or boolean, not {describe(part)}"
            )
        part = array_module(x).asarray(part)
        if part.size == 0:
            part = part.astype(int)
    if part.dtype.kind not in "iub":
        raise IndexError(
            f"fdbr.ops.getitem: an index must be integer or boolean, not {describe(part)}"
        )
    return part


def in_range(part: Any, x: Any, axis: int) -> Any:
    """An index array that lies where ``x`` lies, is in range, and stays so if ``x`` is traced.

    NumPy looks for itself; an axis that there is not is left to the array module.
    """
    if axis < x.ndim and array_module(x) is not np:
        part = within(part, least=-x.shape[axis], count=x.shape[axis], name="getitem")
        part = beside(part, x)
    return keep(part) if isinstance(x, Tracer) and not isinstance(part, Tracer) else part


def _taken(part: Any) -> int:
    """The number of the array's axes that a part of a key is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if hasattr(part, "dtype") and part.dtype.kind == "b" else 1


def _true_elements(mask: Any, x: Any, axis: int) -> Sequence[Any]:
    """A mask as index arrays, one for each of its dimensions."""
    if mask.ndim == 0:
        raise _SingleTruth
    # The indices might fit by chance.  NumPy takes a mask without elements for any axes.
    if mask.size and mask.shape != x.shape[axis : axis + mask.ndim]:
        raise IndexError(
            f"fdbr.ops.getitem: the mask {describe(mask)} does not have the shape of the axes of "
            f"{describe(x)} from axis {axis} on"
        )
    flags: Any = mask
    with on_device(flags):
        found = flags.nonzero()
    return [beside(places, x) for places in found]


def join(key: Key, indices: Sequence[Any]) -> Any:
    """The key that NumPy understands."""
    if not indices:
        return key
    if len(key) == 1:
        return tuple(indices)
    following = iter(indices)
    return tuple([next(following) if part is SLOT else part for part in key])
