"""Values to write matrix kernels with: they have operators, loops and selections.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
number of matrices, the numbers that the kernel declares, and a word that is set if a matrix has no
result; then four words for each array: its address, and the distances in bytes of its matrices,
rows and columns.

A `Value` is a value in the generated code: a vector, a mask, or an index, which is an integer of
64 bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.llvm_prelude import HEAD

__all__ = ["FORMATS", "Text", "Value"]

FORMATS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""The dtypes of matrices, with LLVM's names."""

_FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARED = {"gt": ("fcmp ogt", "icmp sgt"), "lt": ("fcmp olt", "icmp slt")}
_COMPARED |= {"eq": ("fcmp oeq", "icmp eq"), "ne": ("fcmp une", "icmp ne")}


class Value:
    """A value in the generated code.

    Attributes
    ----------
    name
        Its name in LLVM.
    kind
        Its type in LLVM.
    """

    __slots__ = ("kind", "name", "text")

    def __init__(self, text: "Text", name: str, kind: str) -> None:
        self.text, self.name, self.kind = text, name, kind

    def _with(self, op: str, other: Any, turned: bool = False) -> "Value":
        other = self.text.like(other, self)
        x, y = (other, self) if turned else (self, other)
        code = _FLOATING[op] if self.is_floating and op in _FLOATING else op
        return self.text.add(f"{code} {self.kind} {x.name}, {y.name}", self.kind)

    def _compared(self, op: str, other: Any) -> "Value":
        code = _COMPARED[op][0 if self.is_floating else 1]
        other = self.text.like(other, self)
        kind = self.text.mask if self.kind.startswith("<") else "i1"
        return self.text.add(f"{code} {self.kind} {self.name}, {other.name}", kind)

    @property
    def is_floating(self) -> bool:
        """Whether it is a vector of floating numbers."""
        return self.kind == self.text.vector

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
            return self.text.add(f"fneg {self.kind} {self.name}", self.kind)
        return 0 - self

    def __and__(self, other: Any) -> "Value":
        return self._with("and", other)

    def __or__(self, other: Any) -> "Value":
        return self._with("or", other)

    def __xor__(self, other: Any) -> "Value":
        return self._with("xor", other)

    def __lshift__(self, other: Any) -> "Value":
        return self._with("shl", other)

    def __rshift__(self, other: Any) -> "Value":
        return self._with("lshr", other)

    def __gt__(self, other: Any) -> "Value":
        return self._compared("gt", other)

    def __lt__(self, other: Any) -> "Value":
        return self._compared("lt", other)

    def equals(self, other: Any) -> "Value":
        """Emit whether it is equal, lane by lane; NaN never is."""
        return self._compared("eq", other)

    def differs(self, other: Any) -> "Value":
        """Emit whether it is not equal, lane by lane."""
        return self._compared("ne", other)


class Text:
    """A kernel under construction.

    Parameters
    ----------
    dtype
        The dtype of the matrices.
    lanes
        The number of elements in a vector.
    numbers
        The names of the numbers in the table.
    arrays
        The names of the arrays.
    """

    def __init__(
        self, dtype: Any, lanes: int, numbers: Sequence[str], arrays: Sequence[str]
    ) -> None:
        self.scalar, self.count, self.bits = FORMATS[dtype], lanes, 8 * dtype.itemsize
        self.size, self.step = dtype.itemsize, lanes * dtype.itemsize
        self.vector = f"<{lanes} x {self.scalar}>"
        self.integers = f"<{lanes} x i{self.bits}>"
        self.mask = f"<{lanes} x i1>"
        self.wide = f"<{lanes} x i64>"
        self._lines: list[str] = []
        self._names = 0
        self.declared: set[str] = set()
        words = ["count", *numbers, "failed"]
        self.number = {name: self._word(i) for i, name in enumerate(words)}
        self.failed_at = self._word_at(len(words) - 1)
        start = len(words)
        self.table = {
            name: [self._word(start + 4 * i + k) for k in range(4)] for i, name in enumerate(arrays)
        }

    # --- instructions

    def add(self, text: str, kind: str) -> Value:
        """Emit an instruction; return its value."""
        self._names += 1
        self._lines.append(f"  %v{self._names} = {text}")
        return Value(self, f"%v{self._names}", kind)

    def do(self, text: str) -> None:
        """Emit an instruction without a value."""
        self._lines.append(f"  {text}")

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def _word_at(self, place: int) -> str:
        return self.add(f"getelementptr i64, ptr %table, i64 {place}", "ptr").name

    def _word(self, place: int) -> Value:
        return self.add(f"load i64, ptr {self._word_at(place)}", "i64")

    def call(self, name: str, *args: Value, kind: str = "") -> Value:
        """Emit an intrinsic on vectors; its result has the type of the first operand by default."""
        kind = kind or args[0].kind
        types = ", ".join(arg.kind for arg in args)
        suffix = f"v{self.count}{'f' if args[0].is_floating else 'i'}{self.bits}"
        self.declared.add(f"declare {kind} @llvm.{name}.{suffix}({types})")
        given = ", ".join(f"{arg.kind} {arg.name}" for arg in args)
        return self.add(f"call {kind} @llvm.{name}.{suffix}({given})", kind)

    # --- values

    def index(self, value: Any) -> Value:
        """Return an index, which all lanes share."""
        return value if isinstance(value, Value) else Value(self, str(value), "i64")

    def like(self, value: Any, other: Value) -> Value:
        """Return a value, or a number as a constant of another value's type."""
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
        """Return a floating number in every lane."""
        number = np.float64(np.float32(value) if self.bits == 32 else value)
        word = f"0x{number.view(np.uint64):016X}"
        return Value(self, f"<{', '.join([f'{self.scalar} {word}'] * self.count)}>", self.vector)

    def truth(self, value: bool) -> Value:
        """Return the same boolean in every lane."""
        text = str(value).lower()
        return Value(self, f"<{', '.join([f'i1 {text}'] * self.count)}>", self.mask)

    def spread(self, value: Value, kind: str) -> Value:
        """Emit a number in every lane."""
        each = value.kind
        head = self.add(f"insertelement {kind} poison, {each} {value.name}, i64 0", kind)
        order = f"<{self.count} x i32> zeroinitializer"
        return self.add(f"shufflevector {kind} {head.name}, {kind} poison, {order}", kind)

    def numbered(self, index: Any) -> Value:
        """Emit an index as a float in every lane; floats are compared faster than integers."""
        number = self.add(f"sitofp i64 {self.index(index).name} to {self.scalar}", self.scalar)
        return self.spread(number, self.vector)

    def every(self, truth: Value) -> Value:
        """Emit a boolean in every lane."""
        return self.spread(truth, self.mask)

    def choose(self, mask: Value, x: Any, y: Any) -> Value:
        """Emit ``x`` where a mask is true, and elsewhere ``y``."""
        given = y if isinstance(y, Value) else x
        x, y = self.like(x, given), self.like(y, given)
        kind = x.kind
        return self.add(f"select {mask.kind} {mask.name}, {kind} {x.name}, {kind} {y.name}", kind)

    def fused(self, x: Value, y: Value, z: Value) -> Value:
        """Emit ``x * y + z``, rounded once where the processor does so."""
        return self.call("fmuladd", x, y, z)

    def cast(self, code: str, value: Value, kind: str) -> Value:
        """Emit a conversion to another type."""
        return self.add(f"{code} {value.kind} {value.name} to {kind}", kind)

    def any(self, mask: Value) -> Value:
        """Emit whether a mask is true in any lane."""
        name = f"llvm.vector.reduce.or.v{self.count}i1"
        self.declared.add(f"declare i1 @{name}({mask.kind})")
        return self.add(f"call i1 @{name}({mask.kind} {mask.name})", "i1")

    # --- control

    def loop(self, start: Any, stop: Any, body: Callable[..., Any], *carried: Value) -> list[Value]:
        """Emit a loop; the body maps an index and the carried values to their next values."""
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
        """Emit instructions that run only if a boolean is true."""
        self._names += 1
        name = f"w{self._names}"
        self.do(f"br i1 {truth.name}, label %{name}.then, label %{name}.after")
        self._label(f"{name}.then")
        body()
        self.do(f"br label %{name}.after")
        self._label(f"{name}.after")

    # --- the whole

    def whole(self) -> str:
        """Return the kernel, after its body has been emitted."""
        self.do("ret void")
        lines = "\n".join(self._lines)
        return "\n".join(sorted(self.declared)) + f"\n{HEAD}{lines}\n}}\n"
