"""Loops that reduce along few contiguous elements."""

from typing import Any

from fdbr.backends.cpu.codegen.writer import memory_of
from fdbr.backends.cpu.library.reduce.outer_axes import Across

__all__ = ["Narrow"]


class Narrow(Across):
    """Vectors of neighbouring results, whose operands are strided."""

    def _begin(self) -> None:
        super()._begin()
        self.apart: set[str] = set()  # names of vectors of addresses

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        if not varies:
            return self.columns[index]
        if offset == "0":
            return self.row
        skipped = self.add(f"mul i64 {self.columns[index]}, %middle")
        return self.add(f"add i64 {skipped}, {self.row}")

    def _place(self, number: int, offset: str, varies: bool, dtype: Any, index: Any) -> str:
        start = super()._place(number, offset, varies, dtype, index)
        if not varies or offset == "0":
            return start
        kind = f"<{self.lanes} x i64>"
        lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
        steps = self.add(f"mul {kind} <{lanes}>, {self._spread('%middle', kind)}")
        every = self.add(f"getelementptr {memory_of(dtype)}, ptr {start}, {kind} {steps}")
        self.apart.add(every)
        return every

    def _read(self, place: str, dtype: Any, mask: str) -> str:
        if place not in self.apart:
            return super()._read(place, dtype, mask)
        many = f"<{self.lanes} x {memory_of(dtype)}>"
        name = f"llvm.masked.gather.{self._ending(dtype)}.v{self.lanes}p0"
        return self._masked(name, many, [*self._at(place, dtype, mask), (many, "zeroinitializer")])

    def _write(self, place: str, dtype: Any, value: str, mask: str) -> None:
        if place not in self.apart:
            super()._write(place, dtype, value, mask)
            return
        given = (f"<{self.lanes} x {memory_of(dtype)}>", value)
        name = f"llvm.masked.scatter.{self._ending(dtype)}.v{self.lanes}p0"
        self._masked(name, "void", [given, *self._at(place, dtype, mask)])

    def _at(self, place: str, dtype: Any, mask: str) -> list[tuple[str, str]]:
        """Return the addresses, their alignment, and their mask."""
        kind, _, flags = mask.rpartition(" ")
        if not mask:
            kind, flags = f"<{self.lanes} x i1>", f"<{', '.join(['i1 1'] * self.lanes)}>"
        size = ("i32", str(dtype.itemsize))
        return [(f"<{self.lanes} x ptr>", place), size, (kind, flags)]
