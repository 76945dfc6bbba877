"""Memory elements whose values are in registers because they were just read or written."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fdbr.backends.cpu.codegen.llvm_values import Value, kind

__all__ = ["Held", "Span"]

_Add = Callable[[str], str]
_FEW = 4  # scalars that are combined into a vector; of more, the vector is loaded


class Span(NamedTuple):
    """Describe memory elements at equal distances.

    Attributes
    ----------
    memory
        The alias scope of the memory, if it is known.
    pointer, root, offset
        The start, as the names of a pointer and of an integer, and a constant.
    reach, lanes
        The number of elements, and of lanes in vectors of them.
    step
        The distance between elements; only spans of adjacent elements are held.
    """

    memory: str
    pointer: str
    root: str
    offset: int
    reach: int
    lanes: int
    step: int = 1


class Held:
    """Hold the values of memory elements until something is written over them."""

    def __init__(self) -> None:
        # By memory, root and offset: a value, and the lane of it that is the element.
        self.found: dict[str, dict[tuple[str, str], dict[int, tuple[Value, int]]]] = {}

    def clear(self) -> None:
        """Forget all values."""
        self.found.clear()

    def keep(self, span: Span, value: Value) -> None:
        """Record the value of some elements."""
        if span.memory:
            places = self.found.setdefault(span.memory, {})
            known = places.setdefault((span.pointer, span.root), {})
            for lane in range(span.reach):
                known[span.offset + lane] = value, lane

    def write(self, span: Span, value: Value) -> None:
        """Record a write, and forget the values that it may overlap."""
        if not span.memory:
            self.clear()
            return
        known = self.found.pop(span.memory, {})
        own = known.get((span.pointer, span.root))
        if own:
            self.found[span.memory] = {(span.pointer, span.root): own}
        self.keep(span, value)

    def read(self, span: Span, add: _Add) -> Value | None:
        """Return the value of some elements, or `None` if it is not known.

        Instructions that assemble it are emitted by ``add``.
        """
        known = self.found.get(span.memory, {}).get((span.pointer, span.root))
        if not known:
            return None
        wanted = range(span.offset, span.offset + span.reach)
        parts = [known[place] for place in wanted if place in known]
        if len(parts) < span.reach:
            return None
        whole, first = parts[0]
        if span.lanes == 1:
            return _lane(add, whole, first)
        if all(part == (whole, first + i) for i, part in enumerate(parts)):
            fits = not first and whole.lanes == span.lanes
            return whole if fits else _part(add, whole, first, span)
        return _joined(add, parts, span) if span.reach <= _FEW else None


def _lane(add: _Add, value: Value, lane: int) -> Value:
    if value.lanes == 1:
        return value
    return Value(value.type, add(f"extractelement {value.typed}, i64 {lane}"))


def _part(add: _Add, value: Value, first: int, span: Span) -> Value:
    """Return some lanes of a vector as a vector."""
    if value.lanes == 1:  # a single element
        text = f"insertelement {kind(value.type, span.lanes)} poison, {value.typed}, i64 0"
    else:
        places = [str(first + i) if i < span.reach else "poison" for i in range(span.lanes)]
        many = f"<{', '.join([f'i32 {place}' for place in places])}>"
        text = f"shufflevector {value.typed}, {kind(value.type, value.lanes)} poison, "
        text += f"<{span.lanes} x i32> {many}"
    return Value(value.type, add(text), lanes=span.lanes)


def _joined(add: _Add, parts: Sequence[tuple[Value, int]], span: Span) -> Value:
    """Return scalars assembled into a vector."""
    type = parts[0][0].type
    many, text = kind(type, span.lanes), "poison"
    for i, (value, lane) in enumerate(parts):
        one = _lane(add, value, lane)
        text = add(f"insertelement {many} {text}, {one.typed}, i64 {i}")
    return Value(type, text, lanes=span.lanes)
