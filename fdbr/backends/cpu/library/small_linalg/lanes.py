"""Kernels for many small matrices: each lane of a vector has a matrix of its own.

Code written for a single matrix runs on as many as a vector has lanes: the units of such a kernel
are vectors of matrices.  Indices are the same in all lanes.
"""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.codegen.kernel_builder import Number
from fdbr.backends.cpu.library.small_linalg.stacks import Stacks

__all__ = ["Lanes", "Tile"]


class Tile:
    """A matrix of vectors in the kernel's own memory."""

    def __init__(self, lanes: "Lanes", rows: Number, columns: Number) -> None:
        self.lanes, self.rows, self.columns = lanes, rows, columns
        self._base = lanes.allocate(lanes.code, rows * columns * lanes.width)

    def _at(self, indices: tuple[Any, Any]) -> Number:
        row, column = (self.lanes.index(i) for i in indices)
        return self._base + (row * self.columns + column) * self.lanes.width

    def __getitem__(self, indices: tuple[Any, Any]) -> Number:
        return self.lanes.load(self._at(indices), self.lanes.width, align=self.lanes.step)

    def __setitem__(self, indices: tuple[Any, Any], value: Number) -> None:
        self.lanes.store(self._at(indices), value, align=self.lanes.step)


class Lanes(Stacks):
    """A kernel under construction whose vectors have one element of each of several matrices."""

    def tile(self, rows: Any, columns: Any) -> Tile:
        """Return a matrix in memory; it must be allocated outside of loops."""
        return Tile(self, self.index(rows), self.index(columns))

    def _at(self, name: str, row: Any, column: Any) -> Number:
        """Emit the addresses of an element in the matrix of each lane."""
        offset = self.offset(name, row, column).spread(self.width)
        return self.word[f"{name}.base"].by(self._starts[name] + offset)

    def get(self, name: str, row: Any, column: Any) -> Number:
        """Emit a load of an element of an array."""
        return self.load(self._at(name, row, column))

    def set(self, name: str, row: Any, column: Any, value: Number) -> None:
        """Emit a store of an element of an array, for the matrices that exist."""
        self.store(self._at(name, row, column), value, self._there)

    def require(self, flags: Number) -> None:
        """Emit the report that some matrices have no result, unless all flags are set."""
        with self.when(self.any(~flags & self._there)):
            self.fail()

    # --- the whole

    def source(self, body: Callable[[], None]) -> str:
        """Return the kernel; ``body`` emits the code for one vector of matrices."""
        count = self.word["count"].spread(self.width)
        last = count - 1
        steps = {name: self.word[f"{name}.next"].spread(self.width) for name in self.arrays}
        with self.each(self.start, self.stop) as unit:
            every = (unit * self.width).spread(self.width) + self.count_up(self.width)
            self._there = every < count
            here = self.choose(self._there, every, last)
            self._starts = {name: here * step for name, step in steps.items()}
            body()
        return self.text()
