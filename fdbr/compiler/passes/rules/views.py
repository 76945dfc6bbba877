"""Keys of slices, integers and new axes as views, which can be composed."""

from collections.abc import Sequence
from typing import Any

import attrs

__all__ = ["View", "full_key", "part_of", "view_of"]

Axis = int | range


@attrs.frozen
class View:
    """The part of an array that a key takes.

    Attributes
    ----------
    axes
        For each axis of the array, one index, or a range of indices.
    layout
        For each axis of the result, the axis of the array that it is; `None` for a new axis.
    """

    axes: tuple[Axis, ...]
    layout: tuple[int | None, ...]

    @property
    def first(self) -> tuple[int, ...]:
        """The first index on each axis of the array."""
        return tuple(axis if isinstance(axis, int) else axis.start for axis in self.axes)

    @property
    def form(self) -> Any:
        """A value that is equal for two views of the same form, wherever they begin."""
        extents = tuple(
            None if isinstance(axis, int) else (len(axis), axis.step) for axis in self.axes
        )
        return self.layout, extents

    def then(self, key: Any) -> "View | None":
        """Compose with a key of the result; return `None` if no single key can express it."""
        parts = _parts(key, len(self.layout))
        if parts is None:
            return None
        axes = list(self.axes)
        layout: list[int | None] = []
        following = iter(self.layout)
        for part in parts:
            if part is None:
                layout.append(None)
                continue
            axis = next(following)
            taken = (range(1) if axis is None else axes[axis])[part]  # type: ignore[index]
            if axis is not None:
                axes[axis] = taken
            elif type(taken) is range and len(taken) != 1:
                return None
            if type(taken) is range:
                layout.append(axis)
        return View(tuple(axes), tuple(layout))

    def key(self, shape: Sequence[int]) -> tuple[Any, ...]:
        """Return the key that takes this view from an array of a shape."""
        parts: list[Any] = []
        axis = 0
        for place in (*self.layout, len(shape)):
            if place is None:
                parts.append(None)
                continue
            parts += self.axes[axis:place]  # integers
            if place < len(shape):
                parts.append(_slice(self.axes[place], shape[place]))  # type: ignore[arg-type]
            axis = place + 1
        return tuple(parts)


def view_of(shape: Sequence[int], key: Any) -> View | None:
    """Return the view that a key of slices and integers takes; `None` for other keys."""
    whole = View(tuple(map(range, shape)), tuple(range(len(shape))))
    return whole.then(key)


def full_key(shape: Sequence[int], key: Any) -> tuple[Any, ...]:
    """Return an equivalent key without an ellipsis."""
    parts = key if type(key) is tuple else (key,)
    if ... not in parts:
        return parts
    place = parts.index(...)
    free = len(shape) - sum(part is not None and part is not ... for part in parts)
    return (*parts[:place], *(slice(None),) * free, *parts[place + 1 :])


def part_of(shape: Sequence[int], key: Any) -> tuple[int, Axis] | None:
    """Return the only axis that a key restricts, and its index or contiguous range.

    The result is `None` if the key restricts other axes, too.
    """
    view = view_of(shape, key)
    if view is None or None in view.layout:
        return None
    partial = [i for i, n in enumerate(shape) if view.axes[i] != range(n)]
    if len(partial) != 1:
        return None
    places = view.axes[partial[0]]
    return (partial[0], places) if isinstance(places, int) or places.step == 1 else None


def _parts(key: Any, rank: int) -> list[Any] | None:
    """Return the parts of a key: one for each axis of an array, and those for new axes."""
    parts = list(key) if type(key) is tuple else [key]
    if not all(part is None or part is ... or type(part) in (slice, int) for part in parts):
        return None
    free = rank - sum(part is not None and part is not ... for part in parts)
    place = parts.index(...) if ... in parts else len(parts)
    parts[place : place + 1] = [slice(None)] * free
    return parts


def _slice(places: range, length: int) -> slice:
    """Return the slice that takes a range of indices from an axis."""
    if places == range(length):
        return slice(None)
    if not places:
        return slice(0, 0)
    end = places[-1] + (1 if places.step > 0 else -1)
    step = places.step if len(places) > 1 else 1
    if len(places) == 1:
        return slice(places[0], places[0] + 1)
    return slice(places[0], end if end >= 0 else None, None if step == 1 else step)
