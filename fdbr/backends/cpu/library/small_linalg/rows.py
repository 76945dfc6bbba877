"""Kernels for one matrix after the other, whose rows are contiguous vectors.

The units of such a kernel are matrices.  Each part of a job has memory of its own: the last array
of the kernel, in which the parts are as far apart as matrices in the others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.library.small_linalg.stacks import Stacks

__all__ = ["Panel", "Rows", "memory_of"]

_BESIDE = 4  # vectors that are processed together, to hide latencies


def memory_of(count: int, *shapes: tuple[int, int]) -> int:
    """Return the number of vectors of ``count`` elements that panels of some shapes take."""
    return sum(height * (-(-width // count) | 1) for height, width in shapes)


class Panel:
    """A matrix in the part's memory whose rows begin with a vector, and are padded with zeros.

    Rows are an odd number of vectors apart, so that they do not map to the same cache sets.
    """

    def __init__(self, rows: "Rows", base: Number, height: Number, vectors: Number) -> None:
        self.rows, self._base, self.height, self.vectors = rows, base, height, vectors
        self._step = vectors | 1

    def _at(self, row: Any, vector: Any) -> Number:
        index = self.rows.index(row) * self._step + self.rows.index(vector)
        return self._base + index * self.rows.width

    def __getitem__(self, indices: tuple[Any, Any]) -> Number:
        return self.rows.load(self._at(*indices), self.rows.width)

    def __setitem__(self, indices: tuple[Any, Any], value: Number) -> None:
        self.rows.store(self._at(*indices), value)

    def number(self, row: Any, column: Any) -> Number:
        """Emit a load of one element, in all lanes of a vector."""
        at = self._at(row, 0) + self.rows.index(column)
        return self.rows.load(at).spread(self.rows.width)

    def put(self, row: Any, column: Any, value: Number) -> None:
        """Emit a store of one element, the first of a vector."""
        at = self._at(row, 0) + self.rows.index(column)
        self.rows.store(at, self.rows.lane(value))

    def clear(self) -> None:
        """Emit stores of zeros to all elements."""
        with self.rows.each(0, self.height * self._step) as t:
            self[0, t] = self.rows.fill(0)


class Rows(Stacks):
    """A kernel under construction whose vectors have elements of one row."""

    def __init__(
        self, dtype: Any, count: int, numbers: Sequence[str], arrays: Sequence[str]
    ) -> None:
        super().__init__(dtype, count, numbers, (*arrays, "memory"))
        self._free = self.word["memory.base"].by(self.word["memory.next"] * self.register("%part"))

    def panel(self, height: Any, width: Any) -> Panel:
        """Return a matrix in the part's memory; it must be allocated outside of loops."""
        height, width = self.index(height), self.index(width)
        vectors, base = self.vector_of(width + (self.width - 1)), self._free
        self._free = base + height * (vectors | 1) * self.width
        return Panel(self, base, height, vectors)

    def vector_of(self, column: Number) -> Number:
        """Emit the index of the vector that contains a column."""
        return column >> (self.width.bit_length() - 1)

    def across(self, start: Any, panel: Panel, body: Callable[[list[Number]], None]) -> None:
        """Emit loops over the vectors of rows from one on: several at once, and then one by one.

        The body takes the indices of vectors that are processed together.
        """
        start = self.index(start)
        whole = ((panel.vectors - start) >> (_BESIDE.bit_length() - 1)) * _BESIDE + start
        with self.each(start, whole, _BESIDE) as first:
            body([first + k for k in range(_BESIDE)])
        with self.each(whole, panel.vectors) as t:
            body([t])

    # --- arrays

    def _at(self, name: str, row: Any, column: Any) -> Number:
        return self.word[f"{name}.base"].by(self.offset(name, row, column) + self._starts[name])

    def get(self, name: str, row: Any, column: Any) -> Number:
        """Emit a load of an element of an array, in all lanes."""
        return self.load(self._at(name, row, column)).spread(self.width)

    def set(self, name: str, row: Any, column: Any, value: Number) -> None:
        """Emit a store of the first element of a vector to an array."""
        self.store(self._at(name, row, column), self.lane(value))

    @contextmanager
    def both(self, height: Any, width: Any) -> Iterator[tuple[Number, Number]]:
        """Emit loops over the rows and columns of a matrix."""
        with self.each(0, height) as i, self.each(0, width) as j:
            yield i, j

    def read_panel(self, name: str, panel: Panel, width: Any) -> None:
        """Emit a copy of an array into a panel."""
        panel.clear()
        with self.both(panel.height, width) as (i, j):
            panel.put(i, j, self.get(name, i, j))

    # --- the whole

    def source(self, body: Callable[[], None]) -> str:
        """Return the kernel; ``body`` emits the code for one matrix."""
        with self.each(self.start, self.stop) as unit:
            self._starts = {name: unit * self.word[f"{name}.next"] for name in self.arrays}
            body()
        return self.text()
