"""Loops that reduce along few elements side by side in memory."""

from typing import Any

from fdbr.kernels.across import Across
from fdbr.kernels.writer import memory_of

__all__ = ["Narrow"]


class Narrow(Across):
    """Results side by side, whose elements lie as far apart as there are of each."""

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        if not varies:
            return self.columns[index]
        if offset == "0":
            return self.row
        skipped = self.add(f"mul i64 {self.columns[index]}, %middle")
        return self.add(f"add i64 {skipped}, {self.row}")

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: Any, mask: str
    ) -> str:
        if not varies or offset == "0":
            return super()._load(number, offset, varies, dtype, index, mask)
        memory = memory_of(dtype)
        many = f"<{self.lanes} x {memory}>"
        name = f"llvm.masked.gather.v{self.lanes}{self._code(dtype)}.v{self.lanes}p0"
        pointers = self._places(number, dtype, index)
        given = [pointers, self._size(dtype), self._there(index), (many, "zeroinitializer")]
        value = self._masked(name, many, given)
        if memory == "i8":
            value = self.add(f"icmp ne {many} {value}, zeroinitializer")
        return value

    def _store(self, out: int, value: str, index: Any, mask: str, varies: bool = True) -> None:
        if not varies:
            super()._store(out, value, index, mask, varies)
            return
        dtype = self.outs[out].dtype
        memory = memory_of(dtype)
        many = f"<{self.lanes} x {memory}>"
        if memory == "i8":
            value = self.add(f"zext <{self.lanes} x i1> {value} to {many}")
        name = f"llvm.masked.scatter.v{self.lanes}{self._code(dtype)}.v{self.lanes}p0"
        pointers = self._places(self.operands + out, dtype, index)
        given = [(many, value), pointers, self._size(dtype), self._there(index)]
        self._masked(name, "void", given)

    def _places(self, number: int, dtype: Any, index: Any) -> tuple[str, str]:
        """The addresses of one element of each result."""
        start, kind = self._place(number, "r", True, dtype, index), f"<{self.lanes} x i64>"
        lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
        apart = self.add(f"mul {kind} <{lanes}>, {self._spread('%middle', kind)}")
        every = self.add(f"getelementptr {memory_of(dtype)}, ptr {start}, {kind} {apart}")
        return f"<{self.lanes} x ptr>", every

    def _there(self, index: Any) -> tuple[str, str]:
        """Which results there are."""
        kind, _, mask = self.masks[index].rpartition(" ")
        return kind or f"<{self.lanes} x i1>", mask or f"<{', '.join(['i1 1'] * self.lanes)}>"

    def _size(self, dtype: Any) -> tuple[str, str]:
        return "i32", str(1 if memory_of(dtype) == "i8" else dtype.itemsize)

    def _code(self, dtype: Any) -> str:
        memory = memory_of(dtype)
        return {"float": "f32", "double": "f64"}.get(memory, memory)
