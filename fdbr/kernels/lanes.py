"""Kernels for many small matrices: each lane of a vector has a matrix to itself.

What is written once, as for a single matrix, is done to as many as a vector has lanes.  A kernel is
``void kernel(int64* table, int64 start, int64 stop, int64 part)``, whose units are vectors of
matrices; with one lane it is for a single matrix.  The table begins with how many matrices there
are, the numbers that the kernel asks for, and a word that says afterwards whether a matrix had no
result; then come four words for each array: its address, and by how many bytes its matrices, rows
and columns are apart.

A `Value` is a value of the kernel in the making, and has operators.  Indices are numbers of 64 bits
that all lanes share.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["FORMATS", "Lanes", "Tile", "Value"]

FORMATS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""The dtypes of matrices, by LLVM's names."""

_FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARED = {"gt": ("fcmp ogt", "icmp sgt"), "lt": ("fcmp olt", "icmp slt")}
_COMPARED |= {"eq": ("fcmp oeq", "icmp eq"), "ne": ("fcmp une", "icmp ne")}


class Value:
    """A value of a kernel.

    Attributes
    ----------
    name
        LLVM's name for it.
    kind
        LLVM's type.
    """

    __slots__ = ("kind", "lanes", "name")

    def __init__(self, lanes: "Lanes", name: str, kind: str) -> None:
        self.lanes, self.name, self.kind = lanes, name, kind

    def _with(self, op: str, other: Any, turned: bool = False) -> "Value":
        other = self.lanes.like(other, self)
        x, y = (other, self) if turned else (self, other)
        code = _FLOATING[op] if self.is_floating and op in _FLOATING else op
        return self.lanes.add(f"{code} {self.kind} {x.name}, {y.name}", self.kind)

    def _compared(self, op: str, other: Any) -> "Value":
        code = _COMPARED[op][0 if self.is_floating else 1]
        other = self.lanes.like(other, self)
        kind = self.lanes.mask if self.kind.startswith("<") else "i1"
        return self.lanes.add(f"{code} {self.kind} {self.name}, {other.name}", kind)

    @property
    def is_floating(self) -> bool:
        """Whether it is a vector of floating numbers."""
        return self.kind == self.lanes.vector

    def __add__(self, other: Any) -> "Value":
        return self._with("add", other)

    def __sub__(self, other: Any) -> "Value":
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> "Value":
        return self._with("sub", other, turned=True)

    def __mul__(self, other: Any) -> "Value":
        return self._with("mul", other)

    def __truediv__(self, other: Any) -> "Value":
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._with("div", other, turned=True)

    def __neg__(self) -> "Value":
        if self.is_floating:
            return self.lanes.add(f"fneg {self.kind} {self.name}", self.kind)
        return 0 - self

    def __and__(self, other: Any) -> "Value":
        return self._with("and", other)

    def __or__(self, other: Any) -> "Value":
        return self._with("or", other)

    def __xor__(self, other: Any) -> "Value":
        return self._with("xor", other)

    def __gt__(self, other: Any) -> "Value":
        return self._compared("gt", other)

    def __lt__(self, other: Any) -> "Value":
        return self._compared("lt", other)

    def equals(self, other: Any) -> "Value":
        """Where it is equal; nowhere to NaN."""
        return self._compared("eq", other)

    def differs(self, other: Any) -> "Value":
        """Where it is not equal."""
        return self._compared("ne", other)


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


class Lanes:
    """A kernel in the making.

    Parameters
    ----------
    dtype
        Of the matrices.
    lanes
        How many matrices are side by side.
    numbers
        The names of the numbers of the table.
    arrays
        The names of the arrays.
    """

    def __init__(
        self, dtype: Any, lanes: int, numbers: Sequence[str], arrays: Sequence[str]
    ) -> None:
        self.scalar, self.count, self.bits = FORMATS[dtype], lanes, 8 * dtype.itemsize
        self.size, self.step = dtype.itemsize, lanes * dtype.itemsize
        self.vector = f"<{lanes} x {self.scalar}>"
        self.whole = f"<{lanes} x i{self.bits}>"
        self.mask = f"<{lanes} x i1>"
        self._wide = f"<{lanes} x i64>"
        self._lines: list[str] = []
        self._names = 0
        self._declared: set[str] = set()
        self._numbers, self._arrays = list(numbers), list(arrays)
        words = ["count", *numbers, "failed"]
        self.number = {name: self._word(i) for i, name in enumerate(words)}
        self._failed_at = self._word_at(len(words) - 1)
        start = len(words)
        self._table = {
            name: [self._word(start + 4 * i + k) for k in range(4)] for i, name in enumerate(arrays)
        }

    # --- text

    def add(self, text: str, kind: str) -> Value:
        """An instruction, and the value that it gives."""
        self._names += 1
        self._lines.append(f"  %v{self._names} = {text}")
        return Value(self, f"%v{self._names}", kind)

    def do(self, text: str) -> None:
        """An instruction that gives nothing."""
        self._lines.append(f"  {text}")

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def _word_at(self, place: int) -> str:
        return self.add(f"getelementptr i64, ptr %table, i64 {place}", "ptr").name

    def _word(self, place: int) -> Value:
        return self.add(f"load i64, ptr {self._word_at(place)}", "i64")

    def call(self, name: str, *args: Value, kind: str = "") -> Value:
        """An intrinsic on vectors; the kind of its result is that of the first operand."""
        kind = kind or args[0].kind
        types = ", ".join(arg.kind for arg in args)
        suffix = f"v{self.count}{'f' if args[0].is_floating else 'i'}{self.bits}"
        self._declared.add(f"declare {kind} @llvm.{name}.{suffix}({types})")
        given = ", ".join(f"{arg.kind} {arg.name}" for arg in args)
        return self.add(f"call {kind} @llvm.{name}.{suffix}({given})", kind)

    # --- values

    def index(self, value: Any) -> Value:
        """A number that all lanes share."""
        return value if isinstance(value, Value) else Value(self, str(value), "i64")

    def like(self, value: Any, other: Value) -> Value:
        """A value of the kind of another, of which a number is made."""
        if isinstance(value, Value):
            return value
        if not other.kind.startswith("<"):
            return Value(self, str(value), other.kind)
        if other.kind == self.vector:
            return self.constant(value)
        each = other.kind.split(" x ")[1][:-1]
        text = str(bool(value)).lower() if each == "i1" else str(value)
        return Value(self, f"<{', '.join([f'{each} {text}'] * self.count)}>", other.kind)

    def constant(self, value: float) -> Value:
        """A floating number in every lane."""
        number = np.float64(np.float32(value) if self.bits == 32 else value)
        word = f"0x{number.view(np.uint64):016X}"
        return Value(self, f"<{', '.join([f'{self.scalar} {word}'] * self.count)}>", self.vector)

    def truth(self, value: bool) -> Value:
        """The same truth value in every lane."""
        text = str(value).lower()
        return Value(self, f"<{', '.join([f'i1 {text}'] * self.count)}>", self.mask)

    def spread(self, value: Value, kind: str) -> Value:
        """A number in every lane."""
        each = value.kind
        head = self.add(f"insertelement {kind} poison, {each} {value.name}, i64 0", kind)
        order = f"<{self.count} x i32> zeroinitializer"
        return self.add(f"shufflevector {kind} {head.name}, {kind} poison, {order}", kind)

    def numbered(self, index: Any) -> Value:
        """An index as a floating number in every lane: they are compared faster than integers."""
        number = self.add(f"sitofp i64 {self.index(index).name} to {self.scalar}", self.scalar)
        return self.spread(number, self.vector)

    def every(self, truth: Value) -> Value:
        """A truth value in every lane."""
        return self.spread(truth, self.mask)

    def choose(self, mask: Value, x: Any, y: Any) -> Value:
        """``x`` where a mask is true, and elsewhere ``y``."""
        given = y if isinstance(y, Value) else x
        x, y = self.like(x, given), self.like(y, given)
        kind = x.kind
        return self.add(f"select {mask.kind} {mask.name}, {kind} {x.name}, {kind} {y.name}", kind)

    def fused(self, x: Value, y: Value, z: Value) -> Value:
        """``x * y + z``, rounded once where the processor does so."""
        return self.call("fmuladd", x, y, z)

    def cast(self, code: str, value: Value, kind: str) -> Value:
        """A value as one of another kind."""
        return self.add(f"{code} {value.kind} {value.name} to {kind}", kind)

    def any(self, mask: Value) -> Value:
        """Whether a mask is true somewhere."""
        name = f"llvm.vector.reduce.or.v{self.count}i1"
        self._declared.add(f"declare i1 @{name}({mask.kind})")
        return self.add(f"call i1 @{name}({mask.kind} {mask.name})", "i1")

    # --- control

    def loop(self, start: Any, stop: Any, body: Callable[..., Any], *carried: Value) -> list[Value]:
        """A loop whose body takes an index and values of the turn before, and gives the next."""
        first, end = self.index(start), self.index(stop)
        self._names += 1
        name = f"l{self._names}"
        self.do(f"br label %{name}.before")
        self._label(f"{name}.before")
        self.do(f"br label %{name}")
        self._label(name)
        self.do(f"%{name}.i = phi i64 [{first.name}, %{name}.before], [%{name}.n, %{name}.end]")
        held = []
        for k, value in enumerate(carried):
            pair = f"[{value.name}, %{name}.before], [%{name}.e{k}, %{name}.end]"
            self.do(f"%{name}.c{k} = phi {value.kind} {pair}")
            held.append(Value(self, f"%{name}.c{k}", value.kind))
        self.do(f"%{name}.more = icmp slt i64 %{name}.i, {end.name}")
        self.do(f"br i1 %{name}.more, label %{name}.body, label %{name}.after")
        self._label(f"{name}.body")
        made = body(Value(self, f"%{name}.i", "i64"), *held)
        made = made if isinstance(made, tuple) else (made,)
        self.do(f"br label %{name}.end")
        self._label(f"{name}.end")
        for k, (value, given) in enumerate(zip(carried, made, strict=False)):
            self.do(f"%{name}.e{k} = bitcast {value.kind} {given.name} to {value.kind}")
        self.do(f"%{name}.n = add i64 %{name}.i, 1")
        self.do(f"br label %{name}")
        self._label(f"{name}.after")
        return held

    def when(self, truth: Value, body: Callable[[], None]) -> None:
        """Do something only where a truth value is true."""
        self._names += 1
        name = f"w{self._names}"
        self.do(f"br i1 {truth.name}, label %{name}.then, label %{name}.after")
        self._label(f"{name}.then")
        body()
        self.do(f"br label %{name}.after")
        self._label(f"{name}.after")

    # --- memory

    def allocate(self, count: Value) -> str:
        """Memory for so many vectors, as long as the kernel runs."""
        return self.add(f"alloca {self.vector}, i64 {count.name}, align 64", "ptr").name

    def tile(self, rows: Any, columns: Any) -> Tile:
        """A matrix in memory, which is to be made outside of loops."""
        return Tile(self, self.index(rows), self.index(columns))

    def _at(self, name: str, row: Any, column: Any) -> str:
        """Where an element is, of the matrix of each lane."""
        _, _, by_row, by_column = self._table[name]
        offset = self.spread(by_row * self.index(row) + by_column * self.index(column), self._wide)
        kind = f"<{self.count} x ptr>"
        places = self._places[name] + offset
        base = self._table[name][0].name
        pointer = self.add(f"inttoptr i64 {base} to ptr", "ptr")
        text = f"getelementptr i8, ptr {pointer.name}, {self._wide} {places.name}"
        return f"{kind} {self.add(text, kind).name}"

    def load(self, name: str, row: Any, column: Any) -> Value:
        """An element of an array."""
        place = self._at(name, row, column)
        called = f"llvm.masked.gather.v{self.count}f{self.bits}.v{self.count}p0"
        types = f"<{self.count} x ptr>, i32 immarg, {self.mask}, {self.vector}"
        self._declared.add(f"declare {self.vector} @{called}({types})")
        every, none = self.truth(True), f"{self.vector} poison"
        given = f"{place}, i32 {self.size}, {self.mask} {every.name}, {none}"
        return self.add(f"call {self.vector} @{called}({given})", self.vector)

    def store(self, name: str, row: Any, column: Any, value: Value) -> None:
        """Write an element of an array, for the matrices that there are."""
        place = self._at(name, row, column)
        called = f"llvm.masked.scatter.v{self.count}f{self.bits}.v{self.count}p0"
        types = f"{self.vector}, <{self.count} x ptr>, i32 immarg, {self.mask}"
        self._declared.add(f"declare void @{called}({types})")
        given = f"{self.vector} {value.name}, {place}, i32 {self.size}"
        self.do(f"call void @{called}({given}, {self.mask} {self._there.name})")

    def fail(self, where: Value) -> None:
        """Note that matrices have no result."""
        lost = self.any(where & self._there)

        def tell() -> None:
            self.do(f"store i64 1, ptr {self._failed_at}")

        self.when(lost, tell)

    # --- the whole

    def source(self, body: Callable[[], None]) -> str:
        """The kernel, of which the body does what is to be done for one vector of matrices."""
        lanes = ", ".join(f"i64 {k}" for k in range(self.count))
        count = self.spread(self.number["count"], self._wide)
        last = count - 1
        steps = {name: self.spread(table[1], self._wide) for name, table in self._table.items()}

        def unit(u: Value) -> None:
            first = self.spread(u * self.count, self._wide)
            every = first + Value(self, f"<{lanes}>", self._wide)
            self._there = every < count
            here = self.choose(self._there, every, last)
            self._places = {name: here * step for name, step in steps.items()}
            body()

        self.loop(Value(self, "%start", "i64"), Value(self, "%stop", "i64"), unit)
        self.do("ret void")
        head = "define void @kernel(ptr noalias %table, i64 %start, i64 %stop, i64 %part) {"
        lines = "\n".join(self._lines)
        return "\n".join(sorted(self._declared)) + f"\n{head}\nentry:\n{lines}\n}}\n"
