"""Split indexing keys into a fixed structure and index arrays, which are operands.

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
from fdbr.ops.indexing.positions import checked_index
from fdbr.ops.shape.manipulation import reshape

__all__ = ["SLOT", "Key", "Slot", "in_range", "join", "split"]

Key = tuple[Any, ...]


class Slot:
    """The position of an index array in a key."""

    def __repr__(self) -> str:
        return "Slot()"


SLOT = Slot()


class _ScalarMask(Exception):
    """Raised where a part of a key is a boolean scalar, not a mask."""


def split(key: Any, x: Any, is_trusted: bool = False) -> tuple[Key, tuple[Any, ...], Any]:
    """Split a key; return its structure, its index arrays, and the array that they index.

    Keys that the library made are trusted: their indices are not checked.
    """
    if type(key) is int:
        return (key,), (), x
    given = [_part(part, x) for part in (key if type(key) is tuple else (key,))]
    try:
        return (*_split_parts(given, x, is_trusted), x)
    except _ScalarMask:
        given, x = _scalar_masks_as_axes(given, x)
        return (*_split_parts(given, x, is_trusted), x)


def _scalar_masks_as_axes(given: Sequence[Any], x: Any) -> tuple[list[Any], Any]:
    """Replace boolean scalars by index arrays for new axes of length 1 of the array.

    On the new axis ``x[flag]`` has all of ``x`` or nothing.  The value of a traced flag is read,
    as it decides on the shape.
    """
    sizes = list(x.shape)
    parts: list[Any] = []
    axis = 0
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = len(sizes) - sum(map(_axes_of, given[number + 1 :]))
        elif hasattr(part, "dtype") and part.dtype.kind == "b" and part.ndim == 0:
            sizes.insert(axis, 1)
            part = array_module(x).zeros(int(bool(part)), dtype=int)
        axis += _axes_of(part)
        parts.append(part)
    return parts, reshape(x, tuple(sizes))


def _split_parts(given: Sequence[Any], x: Any, is_trusted: bool) -> tuple[Key, tuple[Any, ...]]:
    parts: list[Any] = []
    indices: list[Any] = []
    axis = 0  # the axis of x that the part indexes
    for number, part in enumerate(given):
        if part is Ellipsis:
            axis = x.ndim - sum(map(_axes_of, given[number + 1 :]))
        if not hasattr(part, "dtype"):
            arrays = None
        elif part.dtype.kind == "b":
            arrays = _true_elements(part, x, axis)
        else:
            arrays = (part if is_trusted else in_range(part, x, axis),)
        parts.extend([part] if arrays is None else [SLOT] * len(arrays))
        indices.extend(arrays or ())
        axis += _axes_of(part)
    return tuple(parts), tuple(indices)


def _part(part: Any, x: Any) -> Any:
    """Convert a part of a key to a slice, an ellipsis, `None`, an int, or an array."""
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
    """Check an index array and move it to the device of ``x``.

    If ``x`` is traced, the index is kept for the backward pass, so it is locked or copied.  NumPy
    checks bounds itself; a missing axis is left to the array module.
    """
    if axis < x.ndim and array_module(x) is not np:
        part = checked_index(part, least=-x.shape[axis], count=x.shape[axis], name="getitem")
        part = beside(part, x)
    return keep(part) if isinstance(x, Tracer) and not isinstance(part, Tracer) else part


def _axes_of(part: Any) -> int:
    """Count the axes of the array that a part of a key indexes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if hasattr(part, "dtype") and part.dtype.kind == "b" else 1


def _true_elements(mask: Any, x: Any, axis: int) -> Sequence[Any]:
    """Convert a mask to index arrays, one for each of its dimensions."""
    if mask.ndim == 0:
        raise _ScalarMask
    # The indices of a mask of another shape might be in range by chance, so shapes are compared.
    # NumPy accepts a mask without elements for any axes.
    if mask.size and mask.shape != x.shape[axis : axis + mask.ndim]:
        raise IndexError(
            f"fdbr.ops.getitem: the mask {describe(mask)} does not have the shape of the axes of "
            f"{describe(x)} from axis {axis} on"
        )
    flags: Any = mask
    with on_device(flags):
        found = flags.nonzero()
    return [beside(indices, x) for indices in found]


def join(key: Any, indices: Sequence[Any]) -> Any:
    """Insert the index arrays into the structure, giving a key for NumPy."""
    if not indices:
        return key
    if len(key) == 1:
        return tuple(indices)
    remaining = iter(indices)
    return tuple([next(remaining) if part is SLOT else part for part in key])
