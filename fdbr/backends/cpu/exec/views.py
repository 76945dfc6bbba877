"""Strided views of memory, through which kernels of small arrays read without copies."""

import math
from collections.abc import Sequence
from typing import Any

import attrs

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction
from fdbr.compiler.passes.rules.views import view_of

__all__ = ["Look", "looked", "merged", "sliced", "steps_of"]


_NEAR = 4  # largest stride with which neighbouring elements mostly share a cache line


@attrs.frozen
class Look:
    """A strided view: the elements at ``start + sum(stride * index)`` in a memory."""

    memory: str
    start: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    code: str

    def at(self, indices: list[str], rank: int) -> str:
        """Return the source of the element at an index of an array that this one broadcasts to."""
        terms = []
        lead = rank - len(self.shape)
        for axis, (stride, n) in enumerate(zip(self.strides, self.shape, strict=True)):
            if stride and n != 1:
                index = indices[lead + axis]
                terms.append(index if stride == 1 else f"{index} * {stride}")
        terms += [str(self.start)] if self.start or not terms else []
        text = f"{self.memory}[{' + '.join(terms)}]"
        return f"({text} != 0)" if self.code == "b1" else text

    def place(self, indices: list[str]) -> str:
        """Return the source of the element at an index of its own, as an assignment's target."""
        return attrs.evolve(self, code="").at(indices, len(indices))

    def is_gapped(self) -> bool:
        """Return whether its rows are contiguous, but the whole is not."""
        return bool(self.strides) and self.strides[-1] == 1 and not self.is_ordered()

    def is_stepped(self) -> bool:
        """Return whether the elements of a row have a small stride other than 1."""
        return bool(self.strides) and 0 < abs(self.strides[-1]) <= _NEAR and self.strides[-1] != 1

    def is_ordered(self) -> bool:
        """Return whether it is contiguous."""
        return all(
            n == 1 or stride == own
            for n, stride, own in zip(self.shape, self.strides, steps_of(self.shape), strict=True)
        )


def steps_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def looked(source: Look, step: Instruction) -> Look | None:
    """Return the view of a source that a step makes; `None` if it needs a copy."""
    primitive, shape = step.primitive, step.outs[0].kind.shape
    if primitive is op.SLICE:
        return sliced(source, step.params["key"])
    if primitive is op.BROADCAST_TO:
        lead = len(shape) - len(source.shape)
        strides = [0] * lead + [
            0 if n == 1 else stride for n, stride in zip(source.shape, source.strides, strict=True)
        ]
        return attrs.evolve(source, strides=tuple(strides), shape=shape)
    if primitive in (op.PERMUTE, op.MATRIX_TRANSPOSE):
        rank = len(shape)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        axes = step.params["axes"] if primitive is op.PERMUTE else swapped
        return attrs.evolve(source, strides=tuple(source.strides[a] for a in axes), shape=shape)
    if source.is_ordered():
        return attrs.evolve(source, strides=steps_of(shape), shape=shape)
    return None


def sliced(source: Look, key: Any) -> Look:
    """Return the view that a key of slices and integers takes."""
    view = view_of(source.shape, key)
    assert view is not None
    start = source.start
    for place, stride in zip(view.axes, source.strides, strict=True):
        first = place if type(place) is int else (place[0] if place else 0)  # type: ignore[index]
        start += first * stride
    strides, shape = [], []
    for axis in view.layout:
        if axis is None:
            strides.append(0)
            shape.append(1)
            continue
        places: Any = view.axes[axis]
        strides.append(source.strides[axis] * places.step)
        shape.append(len(places))
    return attrs.evolve(source, start=start, strides=tuple(strides), shape=tuple(shape))


def merged(target: Look, looks: Sequence[Look | None]) -> list[Any]:
    """Merge neighbouring axes that all views step through as through one.

    Long loops process several elements at once; short inner ones cannot.
    """
    rank = len(target.shape)
    spread = [target, *(None if look is None else _spread(look, rank) for look in looks)]
    shape = list(target.shape)
    for axis in range(rank - 2, -1, -1):
        count = shape[axis + 1]
        if all(x is None or x.strides[axis] == x.strides[axis + 1] * count for x in spread):
            shape[axis : axis + 2] = [shape[axis] * count]
            for i, x in enumerate(spread):
                if x is not None:
                    strides = (*x.strides[:axis], *x.strides[axis + 1 :])
                    spread[i] = attrs.evolve(x, strides=strides)
    # `at` ignores axes of one element, so their stride may be anything.
    return [x and attrs.evolve(x, shape=tuple(shape)) for x in spread]


def _spread(look: Look, rank: int) -> Look:
    """Return a view with the axes it broadcasts to; the new ones have stride 0."""
    strides = [0 if n == 1 else s for n, s in zip(look.shape, look.strides, strict=True)]
    return attrs.evolve(look, strides=(0,) * (rank - len(strides)) + tuple(strides))
