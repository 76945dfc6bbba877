"""Kernels for one matrix after the other, whose rows are contiguous vectors.

The units of such a kernel are matrices.  Each part of a job has memory of its own: the last array
of the kernel, in which the parts are as far apart as matrices in the others.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.backends.cpu.library.small_linalg.values import Text, Value

__all__ = ["Panel", "Rows", "memory_of"]

_BESIDE = 4  # vectors that are processed together, to hide latencies


def memory_of(count: int, *shapes: tuple[int, int]) -> int:
    """Return the number of vectors of ``count`` elements that panels of some shapes take."""
    return sum(height * (-(-width // count) | 1) for height, width in shapes)


class Panel:
    """A matrix in the part's memory whose rows begin with a vector, and are padded with zeros.

    Rows are an odd number of vectors apart, so that they do not map to the same cache sets.
    """

    def __init__(self, rows: "Rows", base: str, height: Value, vectors: Value) -> None:
        self.rows, self._base, self.height, self.vectors = rows, base, height, vectors
        self._step = vectors | 1

    def _place(self, row: Any, vector: Any) -> str:
        at = self.rows.index(row) * self._step + self.rows.index(vector)
        text = f"getelementptr {self.rows.vector}, ptr {self._base}, i64 {at.name}"
        return self.rows.add(text, "ptr").name

    def _element(self, row: Any, column: Any) -> str:
        start = self._place(row, 0)
        at = self.rows.index(column).name
        return self.rows.add(f"getelementptr {self.rows.scalar}, ptr {start}, i64 {at}", "ptr").name

    def __getitem__(self, place: tuple[Any, Any]) -> Value:
        vector, at = self.rows.vector, self._place(*place)
        return self.rows.add(f"load {vector}, ptr {at}, align {self.rows.size}", vector)

    def __setitem__(self, place: tuple[Any, Any], value: Value) -> None:
        at = self._place(*place)
        self.rows.do(f"store {value.kind} {value.name}, ptr {at}, align {self.rows.size}")

    def number(self, row: Any, column: Any) -> Value:
        """Emit a load of one element, in all lanes of a vector."""
        at, scalar = self._element(row, column), self.rows.scalar
        return self.rows.spread(self.rows.add(f"load {scalar}, ptr {at}", scalar), self.rows.vector)

    def put(self, row: Any, column: Any, value: Value) -> None:
        """Emit a store of one element, the first of a vector."""
        at = self._element(row, column)
        one = self.rows.first(value)
        self.rows.do(f"store {one.kind} {one.name}, ptr {at}")

    def clear(self) -> None:
        """Emit stores of zeros to all elements."""
        zero = self.rows.constant(0)

        def each(t: Value) -> None:
            self[0, t] = zero

        self.rows.loop(0, self.height * self._step, each)


class Rows(Text):
    """A kernel under construction whose vectors have elements of one row."""

    def __init__(
        self, dtype: Any, count: int, numbers: Sequence[str], arrays: Sequence[str]
    ) -> None:
        super().__init__(dtype, count, numbers, (*arrays, "memory"))
        base, step, *_ = self.table["memory"]
        self._free = base + step * Value(self, "%part", "i64")

    def panel(self, height: Any, width: Any) -> Panel:
        """Return a matrix in the part's memory; it must be allocated outside of loops."""
        height, width = self.index(height), self.index(width)
        vectors = (width + (self.count - 1)) >> (self.count.bit_length() - 1)
        base = self.add(f"inttoptr i64 {self._free.name} to ptr", "ptr").name
        self._free = self._free + height * (vectors | 1) * self.step
        return Panel(self, base, height, vectors)

    def first(self, value: Value) -> Value:
        """Emit the first element of a vector."""
        return self.add(f"extractelement {value.kind} {value.name}, i64 0", self.scalar)

    def total(self, value: Value, op: str = "fadd") -> Value:
        """Emit the sum of a vector's elements, or their maximum, in all lanes."""
        step = self.count // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.count))
            text = f"shufflevector {value.kind} {value.name}, {value.kind} poison, "
            other = self.add(f"{text}<{self.count} x i32> <{order}>", value.kind)
            value = value + other if op == "fadd" else self.larger(value, other)
            step //= 2
        return value

    def larger(self, x: Value, y: Value) -> Value:
        """Emit the larger of two non-negative numbers; NaN if one of them is."""
        return self.choose((y < x) | x.differs(x), x, y)

    def across(self, start: Value, panel: Panel, body: Callable[[list[Value]], None]) -> None:
        """Emit loops over the vectors of rows from one on: several at once, and then one by one.

        The body takes the indices of vectors that are processed together.
        """
        many = (panel.vectors - start) >> (_BESIDE.bit_length() - 1)

        def several(iteration: Value) -> None:
            place = start + iteration * _BESIDE
            body([place + k for k in range(_BESIDE)])

        self.loop(0, many, several)
        self.loop(start + many * _BESIDE, panel.vectors, lambda t: body([t]))

    # --- arrays

    def _at(self, name: str, row: Any, column: Any) -> str:
        base, _, by_row, by_column = self.table[name]
        offset = by_row * self.index(row) + by_column * self.index(column) + self._moved[name]
        pointer = self.add(f"inttoptr i64 {base.name} to ptr", "ptr").name
        return self.add(f"getelementptr i8, ptr {pointer}, i64 {offset.name}", "ptr").name

    def load(self, name: str, row: Any, column: Any) -> Value:
        """Emit a load of an element of an array, in all lanes."""
        one = self.add(f"load {self.scalar}, ptr {self._at(name, row, column)}", self.scalar)
        return self.spread(one, self.vector)

    def store(self, name: str, row: Any, column: Any, value: Value) -> None:
        """Emit a store of the first element of a vector to an array."""
        one, at = self.first(value), self._at(name, row, column)
        self.do(f"store {one.kind} {one.name}, ptr {at}")

    def each(self, height: Any, width: Any, body: Callable[[Value, Value], None]) -> None:
        """Emit loops over the rows and columns of a matrix."""
        self.loop(0, height, lambda i: self.loop(0, width, lambda j: body(i, j)))

    def read(self, name: str, panel: Panel, width: Any) -> None:
        """Emit a copy of an array into a panel."""
        panel.clear()
        load = self.load
        self.each(panel.height, width, lambda i, j: panel.put(i, j, load(name, i, j)))

    def fail(self) -> None:
        """Emit the report that a matrix has no result."""
        self.do(f"store i64 1, ptr {self.failed_at}")

    # --- the whole

    def source(self, body: Callable[[], None]) -> str:
        """Return the kernel; ``body`` emits the code for one matrix."""

        def unit(u: Value) -> None:
            self._moved = {name: u * table[1] for name, table in self.table.items()}
            body()

        self.loop(Value(self, "%start", "i64"), Value(self, "%stop", "i64"), unit)
        return self.whole()
