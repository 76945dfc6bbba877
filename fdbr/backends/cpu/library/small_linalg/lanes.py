"""Kernels for many small matrices: each lane of a vector has a matrix of its own.

Code written for a single matrix runs on as many as a vector has lanes: the units of such a kernel
are vectors of matrices.  Indices are the same in all lanes.
"""

from collections.abc import Callable
from typing import Any

from fdbr.backends.cpu.library.small_linalg.values import Text, Value

__all__ = ["Lanes", "Tile"]


class Tile:
    """A matrix of vectors in the kernel's own memory."""

    def __init__(self, lanes: "Lanes", rows: Value, columns: Value) -> None:
        self.lanes, self.rows, self.columns = lanes, rows, columns
        size = lanes.allocate(rows * columns)
        self._base = size

    def _place(self, place: tuple[Any, Any]) -> str:
        row, column = (self.lanes.index(i) for i in place)
        at = row * self.columns + column
        return self.lanes.add(
            f"getelementptr {self.lanes.vector}, ptr {self._base}, i64 {at.name}", "ptr"
        ).name

    def __getitem__(self, place: tuple[Any, Any]) -> Value:
        vector = self.lanes.vector
        return self.lanes.add(
            f"load {vector}, ptr {self._place(place)}, align {self.lanes.step}", vector
        )

    def __setitem__(self, place: tuple[Any, Any], value: Value) -> None:
        at = self._place(place)
        self.lanes.do(f"store {value.kind} {value.name}, ptr {at}, align {self.lanes.step}")


class Lanes(Text):
    """A kernel under construction whose vectors have one element of each of several matrices."""

    def allocate(self, count: Value) -> str:
        """Allocate vectors that live as long as the kernel runs."""
        return self.add(f"alloca {self.vector}, i64 {count.name}, align 64", "ptr").name

    def tile(self, rows: Any, columns: Any) -> Tile:
        """Return a matrix in memory; it must be allocated outside of loops."""
        return Tile(self, self.index(rows), self.index(columns))

    def _at(self, name: str, row: Any, column: Any) -> str:
        """Emit the addresses of an element in the matrix of each lane."""
        _, _, by_row, by_column = self.table[name]
        offset = self.spread(by_row * self.index(row) + by_column * self.index(column), self.wide)
        kind = f"<{self.count} x ptr>"
        places = self._places[name] + offset
        base = self.table[name][0].name
        pointer = self.add(f"inttoptr i64 {base} to ptr", "ptr")
        text = f"getelementptr i8, ptr {pointer.name}, {self.wide} {places.name}"
        return f"{kind} {self.add(text, kind).name}"

    def load(self, name: str, row: Any, column: Any) -> Value:
        """Emit a load of an element of an array."""
        place = self._at(name, row, column)
        called = f"llvm.masked.gather.v{self.count}f{self.bits}.v{self.count}p0"
        types = f"<{self.count} x ptr>, i32 immarg, {self.mask}, {self.vector}"
        self.declared.add(f"declare {self.vector} @{called}({types})")
        every, none = self.truth(True), f"{self.vector} poison"
        given = f"{place}, i32 {self.size}, {self.mask} {every.name}, {none}"
        return self.add(f"call {self.vector} @{called}({given})", self.vector)

    def store(self, name: str, row: Any, column: Any, value: Value) -> None:
        """Emit a store of an element of an array, for the matrices that exist."""
        place = self._at(name, row, column)
        called = f"llvm.masked.scatter.v{self.count}f{self.bits}.v{self.count}p0"
        types = f"{self.vector}, <{self.count} x ptr>, i32 immarg, {self.mask}"
        self.declared.add(f"declare void @{called}({types})")
        given = f"{self.vector} {value.name}, {place}, i32 {self.size}"
        self.do(f"call void @{called}({given}, {self.mask} {self._there.name})")

    def fail(self, where: Value) -> None:
        """Emit the report that some matrices have no result."""
        lost = self.any(where & self._there)

        def tell() -> None:
            self.do(f"store i64 1, ptr {self.failed_at}")

        self.when(lost, tell)

    # --- the whole

    def source(self, body: Callable[[], None]) -> str:
        """Return the kernel; ``body`` emits the code for one vector of matrices."""
        lanes = ", ".join(f"i64 {k}" for k in range(self.count))
        count = self.spread(self.number["count"], self.wide)
        last = count - 1
        steps = {name: self.spread(table[1], self.wide) for name, table in self.table.items()}

        def unit(u: Value) -> None:
            first = self.spread(u * self.count, self.wide)
            every = first + Value(self, f"<{lanes}>", self.wide)
            self._there = every < count
            here = self.choose(self._there, every, last)
            self._places = {name: here * step for name, step in steps.items()}
            body()

        self.loop(Value(self, "%start", "i64"), Value(self, "%stop", "i64"), unit)
        return self.whole()
