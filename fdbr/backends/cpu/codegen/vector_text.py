"""Vector instructions in LLVM for register tiles.

All addresses and distances are in bytes, and are Python integers or names of LLVM registers.
"""

from typing import Any

from fdbr.backends.cpu.codegen.llvm_instructions import Cell
from fdbr.backends.cpu.codegen.llvm_text import Builder
from fdbr.backends.cpu.codegen.llvm_values import TYPES, Value
from fdbr.backends.cpu.codegen.vectors import lanes
from fdbr.backends.cpu.runtime.machine import vector_bytes

__all__ = ["Vectors"]


class Vectors:
    """Emit the instructions of a tile of numbers of one type.

    Attributes
    ----------
    count, bytes
        The number of lanes of a vector, and its size.
    type
        LLVM's name of the vector type.
    """

    def __init__(self, builder: Builder, code: str) -> None:
        self.builder = builder
        self.count, self.bytes, self.size = lanes(code), vector_bytes(), int(code[1])
        self.real = TYPES[code]
        self.type = f"<{self.count} x {self.real}>"

    def cells(self, count: int, start: str = "zeroinitializer") -> list[Cell]:
        """Return new accumulators, which are carried by loops until `let_go`."""
        found = [Cell(self.type, start) for _ in range(count)]
        self.builder.cells += found
        return found

    def cell(self, start: str) -> Cell:
        """Return a new accumulator, which is carried by loops until `let_go`."""
        return self.cells(1, start)[0]

    def interleaved(self, a: str, b: str) -> tuple[str, str]:
        """Interleave two vectors; returns the interleaved first halves, and the second halves."""
        n, found = self.count, []
        for first in (0, n // 2):
            places = [f"i32 {x}" for i in range(first, first + n // 2) for x in (i, n + i)]
            mask = f"<{n} x i32> <{', '.join(places)}>"
            found.append(
                self.builder.add(f"shufflevector {self.type} {a}, {self.type} {b}, {mask}")
            )
        return found[0], found[1]

    def let_go(self) -> None:
        """Stop carrying accumulators through loops."""
        self.builder.cells.clear()

    def add_product(self, cell: Cell, a: str, b: str) -> None:
        """Add a product to an accumulator, by a fused multiply-add if the processor has one."""
        product = self.builder.add(f"fmul contract {self.type} {a}, {b}")
        cell.text = self.builder.add(f"fadd contract {self.type} {cell.text}, {product}")

    def moved(self, start: Any, distance: Any) -> str:
        """Return the sum of an address and a distance."""
        return self.builder.add(f"add i64 {_text(start)}, {_text(distance)}")

    def times(self, number: Any, distance: Any) -> str:
        return self.builder.add(f"mul i64 {_text(number)}, {_text(distance)}")

    def stepped(self, start: Any, step: Any, number: Any) -> str:
        """Return an address so many steps after another."""
        return self.moved(start, self.times(number, step))

    def load(self, address: Any, offset: Any = 0) -> str:
        """Load the vector at an address."""
        return self._load(self.type, address, offset, self.size)

    def number(self, address: Any, offset: Any = 0) -> str:
        """Load the number at an address."""
        return self._load(self.real, address, offset, self.size)

    def word(self, address: Any, offset: Any = 0) -> str:
        """Load the integer at an address."""
        return self._load("i64", address, offset, 8)

    def _load(self, type: str, address: Any, offset: Any, align: int) -> str:
        return self.builder.add(f"load {type}, {self.place(address, offset)}, align {align}")

    def store(self, vector: str, address: Any, offset: Any = 0) -> None:
        self._store(f"{self.type} {vector}", address, offset)

    def store_number(self, number: str, address: Any, offset: Any = 0) -> None:
        self._store(f"{self.real} {number}", address, offset)

    def _store(self, typed: str, address: Any, offset: Any) -> None:
        self.builder.do(f"store {typed}, {self.place(address, offset)}, align {self.size}")

    def place(self, address: Any, offset: Any) -> str:
        """Return a pointer with its type."""
        at = self.moved(address, offset)
        return f"ptr {self.builder.add(f'inttoptr i64 {at} to ptr')}"

    def spread(self, number: str, type: str = "") -> str:
        """Return a vector of one number, or of a number of another type."""
        type = type or self.real
        vector, mask = f"<{self.count} x {type}>", f"<{self.count} x i32> zeroinitializer"
        one = self.builder.add(f"insertelement {vector} poison, {type} {number}, i32 0")
        return self.builder.add(f"shufflevector {vector} {one}, {vector} poison, {mask}")

    def load_some(self, count: str, address: Any, offset: Any = 0) -> str:
        """Load the first numbers of a vector, and zeros for the others."""
        places = ", ".join(f"i64 {i}" for i in range(self.count))
        counts = self.spread(count, "i64")
        mask = self.builder.add(f"icmp ult <{self.count} x i64> <{places}>, {counts}")
        name = f"llvm.masked.load.v{self.count}f{8 * self.size}.p0"
        where = "ptr", self.place(address, offset).removeprefix("ptr ")
        masks, rest = (f"<{self.count} x i1>", mask), (self.type, "zeroinitializer")
        return self.builder.call(name, self.type, where, ("i32", f"{self.size}"), masks, rest)

    def total(self, vector: str) -> str:
        """Return the sum of a vector, computed by halves."""
        half = self.count
        while half > 1:
            half //= 2
            places = [*range(half, 2 * half), *[0] * (self.count - half)]
            mask = f"<{self.count} x i32> <{', '.join(f'i32 {i}' for i in places)}>"
            other = self.builder.add(
                f"shufflevector {self.type} {vector}, {self.type} poison, {mask}"
            )
            vector = self.builder.add(f"fadd {self.type} {vector}, {other}")
        return self.builder.add(f"extractelement {self.type} {vector}, i32 0")


def _text(number: Any) -> str:
    return number.text if isinstance(number, Value) else str(number)
