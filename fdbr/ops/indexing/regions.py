"""The shape of the elements that a key selects."""

from typing import Any

import numpy as np

__all__ = ["Region", "region_shape"]


class Region:
    """The shape of ``x[key]`` for ``x`` of a shape, by NumPy's rules of advanced indexing.

    Attributes
    ----------
    before, indexed, after
        The lengths of its axes: those of the index arrays, and those of slices and new axes
        before and after them.
    arrays, lengths
        The index arrays and integers, and the lengths of the axes that they index.
    """

    def __init__(self, shape: tuple[int, ...], key: Any) -> None:
        parts = list(key) if type(key) is tuple else [key]
        if not any(part is Ellipsis for part in parts):
            parts.append(Ellipsis)
        rest = len(shape) - sum(part is not None and part is not Ellipsis for part in parts)
        if rest < 0:
            raise IndexError(f"too many indices: {len(shape) - rest} for shape {shape}")
        lengths = list(reversed(shape))
        basic: list[int] = []  # lengths of slices and new axes
        self.arrays: list[Any] = []
        self.lengths: list[int] = []
        positions: list[int] = []  # of arrays in the key
        before = 0  # slices and new axes before the first array
        for number, part in enumerate(parts):
            if part is None:
                basic.append(1)
            elif part is Ellipsis:
                basic += [lengths.pop() for _ in range(rest)]
            elif type(part) is slice:
                basic.append(len(range(*part.indices(lengths.pop()))))
            else:
                before = before if positions else len(basic)
                positions.append(number)
                self.arrays.append(part)
                self.lengths.append(lengths.pop())
        if not positions or positions[-1] - positions[0] >= len(positions):
            before = 0
        self.before, self.after = tuple(basic[:before]), tuple(basic[before:])
        shapes = [getattr(part, "shape", ()) for part in self.arrays]
        self.indexed = shapes[0] if len(shapes) == 1 else np.broadcast_shapes(*shapes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of all axes."""
        return (*self.before, *self.indexed, *self.after)


def region_shape(shape: tuple[int, ...], key: Any) -> tuple[int, ...]:
    """Compute the shape of ``x[key]`` for ``x`` of a shape."""
    if type(key) is tuple and len(key) == 1 and shape and type(key[0]) is np.ndarray:
        return (*key[0].shape, *shape[1:])  # the usual cases
    if type(key) is tuple and len(key) == len(shape) and set(map(type, key)) == {np.ndarray}:
        return np.broadcast(*key).shape
    return Region(shape, key).shape
