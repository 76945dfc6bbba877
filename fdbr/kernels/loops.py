"""From expressions to LLVM's language: loops over vectors of 64 bytes.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
addresses of the operands and of the outputs, and two lengths: of a row, and how many rows follow
each other in operands that have no outermost axis; and last, where formulas do not hold for all
numbers, the address of a word that is no longer 0 if there was another one.  Of a kernel over
*rows*, ``start`` and ``stop`` are rows; each row is gone through once for each level of reductions.
Of a *flat* one, which has no rows, they are elements.

Where vectors do not fit, the last one begins earlier and computes some elements again.  In rows
narrower than a vector, a mask leaves out what is not there.
"""

import struct
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.kernels.expressions import FLOATS, InexpressibleError, Node
from fdbr.kernels.words import HEAD, words

__all__ = ["Layout", "Writer", "every", "source", "width", "width_of"]

_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(np.bool_): "i1",
}
_BOOL = np.dtype(np.bool_)
_INFIX = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "iadd": "add",
    "isub": "sub",
    "iand": "and",
    "ior": "or",
    "imul": "mul",
    "ixor": "xor",
    "shl": "shl",
    "ashr": "ashr",
    "eq": "fcmp oeq",
    "ne": "fcmp une",
    "lt": "fcmp olt",
    "le": "fcmp ole",
    "gt": "fcmp ogt",
    "ge": "fcmp oge",
}
_WHOLE = {
    "eq": "icmp eq",
    "ne": "icmp ne",
    **{op: f"icmp s{op}" for op in ("lt", "le", "gt", "ge")},
}
_CALLS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "fma": "fma",
    "maximum": "maximum",
    "minimum": "minimum",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
}


class Layout(NamedTuple):
    """The order in which a kernel goes through its operands.

    Attributes
    ----------
    flat
        Whether there are no rows.
    masked
        Whether vectors need not fit, as in narrow rows.
    offsets
        For each operand, where a row of it begins: at row ``"r"``, row ``"r"`` modulo or divided
        by the number of inner rows (``"m"``, ``"d"``), or ``"0"``; or ``"s0"`` and the like, for an
        operand whose rows are apart: by how much, the table has after the lengths.
    """

    flat: bool
    masked: bool
    offsets: tuple[str, ...]


def width(nodes: Sequence[Node]) -> int:
    """The number of elements in a vector: as many of the largest dtype as 64 bytes take."""
    return width_of(node.dtype for node in every(nodes))


def width_of(dtypes: Iterable[Any]) -> int:
    """The number of elements of the largest of some dtypes that 64 bytes take."""
    return 64 // max(dtype.itemsize for dtype in dtypes)


def every(outs: Sequence[Node], found: Container[Node] = ()) -> list[Node]:
    """The nodes on which some depend, each after those it depends on, but those found already."""
    seen: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(outs)]
    while stack:
        node, ready = stack.pop()
        if ready:
            seen[node] = None
        elif node not in seen and node not in found:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args)]
    return list(seen)


def source(
    outs: Sequence[Node], operands: int, layout: Layout, conditions: Sequence[Node] = ()
) -> str:
    """A kernel in LLVM's language; ``conditions`` are to be true of all elements."""
    if any(node.op in ("reduced", "columns") for node in every([*outs, *conditions])):
        raise InexpressibleError("what is no function of each element")
    return _Loops(outs, operands, layout, conditions).text()


class Writer:
    """A kernel in the making: instructions, values and memory."""

    def __init__(self, outs: Sequence[Node], operands: int, offsets: tuple[str, ...]) -> None:
        self.outs, self.operands, self.offsets = list(outs), operands, offsets
        self.nodes = every(outs)
        self.lanes = width(outs)
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0
        self.found: dict[Node, str] = {}  # what has been computed, and holds here

    # --- text

    def add(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def type(self, dtype: Any) -> str:
        return _TYPES[dtype]

    def vector(self, dtype: Any) -> str:
        return f"<{self.lanes} x {_TYPES[dtype]}>"

    def call(self, name: str, kind: str, args: Sequence[tuple[str, str]]) -> str:
        types = ", ".join(kind for kind, _ in args)
        self.declared.add(f"declare {kind} @{name}({types})")
        given = ", ".join(f"{kind} {value}" for kind, value in args)
        return self.add(f"call {kind} @{name}({given})")

    def intrinsic(self, name: str, dtype: Any, *values: str) -> str:
        kind = self.vector(dtype)
        suffix = f"v{self.lanes}{'f' if dtype in FLOATS else 'i'}{8 * dtype.itemsize}"
        return self.call(f"llvm.{name}.{suffix}", kind, [(kind, value) for value in values])

    def whole(self) -> str:
        """All of the kernel, of which the body is written."""
        self.do("ret void")
        body = "\n".join(self.lines)
        return "\n".join(sorted(self.declared)) + f"\n{HEAD}{body}\n}}\n"

    def _pointers(self, lengths: Sequence[str]) -> None:
        bases = [f"base{i}" for i in range(self.operands + len(self.outs))]
        self.lines.append(words([*bases, *lengths], bases))

    def _mask(self, index: Any, stop: str) -> str:
        kind = f"<{self.lanes} x i64>"
        left = self.add(f"sub i64 {stop}, {index}")
        splat = self._spread(left, kind)
        lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
        mask = self.add(f"icmp slt {kind} <{lanes}>, {splat}")
        return f"<{self.lanes} x i1> {mask}"

    # --- values

    def _constant(self, number: float, dtype: Any) -> str:
        each = f"{_TYPES[dtype]} {_written(number, dtype)}"
        return f"<{', '.join([each] * self.lanes)}>"

    def _value(self, node: Node, index: Any, mask: str) -> str:
        kind = self.vector(node.dtype)
        args = [self.found[arg] for arg in node.args]
        if node.op == "constant":
            return self._constant(node.detail[0], node.dtype)
        if node.op == "operand":
            number, varies, _ = node.detail
            return self._load(number, self.offsets[number], varies, node.dtype, index, mask)
        if node.op in _INFIX:
            how, given = _INFIX[node.op], self.vector(node.args[0].dtype)
            if how.startswith("fcmp") and node.args[0].dtype not in FLOATS:
                how = _WHOLE[node.op]
            return self.add(f"{how} {given} {args[0]}, {args[1]}")
        if node.op in _CALLS:
            return self.intrinsic(_CALLS[node.op], node.dtype, *args)
        if node.op == "neg":
            return self.add(f"fneg {kind} {args[0]}")
        if node.op == "not":
            return self.add(f"xor {kind} {args[0]}, {self._constant(-1, node.dtype)}")
        if node.op == "select":
            test = self.vector(node.args[0].dtype)
            return self.add(f"select {test} {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        given = node.args[0].dtype
        if node.op in ("bits", "float"):
            return self.add(f"bitcast {self.vector(given)} {args[0]} to {kind}")
        assert node.op in ("number", "cast"), node.op
        if given in FLOATS:
            how = "fpext" if given.itemsize == 4 else "fptrunc"
        elif node.dtype in FLOATS:
            how = "sitofp" if node.op == "number" else "uitofp"
        else:
            how = "zext" if node.op == "cast" else "sext" if given.itemsize == 4 else "trunc"
        return self.add(f"{how} {self.vector(given)} {args[0]} to {kind}")

    def _spread(self, number: str, kind: str) -> str:
        """A vector with one number everywhere."""
        one = kind.removesuffix(">").partition(" x ")[2]
        head = self.add(f"insertelement {kind} poison, {one} {number}, i64 0")
        every = f"<{self.lanes} x i32> zeroinitializer"
        return self.add(f"shufflevector {kind} {head}, {kind} poison, {every}")

    # --- memory

    def _place(self, number: int, offset: str, varies: bool, dtype: Any, index: Any) -> str:
        """The address of an element of an operand or output."""
        start = self._start(offset, varies, index)
        return self.add(f"getelementptr {memory_of(dtype)}, ptr %base{number}, i64 {start}")

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        """The number of elements before one."""
        raise NotImplementedError

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: Any, mask: str
    ) -> str:
        """A vector of an operand."""
        return self._loaded(number, offset, varies, dtype, index, mask, varies)

    def _loaded(
        self,
        number: int,
        offset: str,
        varies: bool,
        dtype: Any,
        index: Any,
        mask: str,
        several: bool,
    ) -> str:
        """A vector of several elements, or one of a single element."""
        place = self._place(number, offset, varies, dtype, index)
        memory = memory_of(dtype)
        many = f"<{self.lanes} x {memory}>"
        size = 1 if memory == "i8" else dtype.itemsize
        if not several:
            one = self.add(f"load {memory}, ptr {place}, align {size}")
            value = self._spread(one, many)
        elif mask:
            name = f"llvm.masked.load.v{self.lanes}{_short(memory)}.p0"
            given = [("ptr", place), ("i32", str(size)), *_split(mask), (many, "zeroinitializer")]
            value = self._masked(name, many, given)
        else:
            value = self.add(f"load {many}, ptr {place}, align {size}")
        if memory == "i8":
            value = self.add(f"icmp ne {many} {value}, zeroinitializer")
        return value

    def _masked(self, name: str, kind: str, given: list[tuple[str, str]]) -> str:
        types = ", ".join(f"{k} immarg" if k == "i32" else k for k, _ in given)
        self.declared.add(f"declare {kind} @{name}({types})")
        text = f"call {kind} @{name}({', '.join(f'{k} {v}' for k, v in given)})"
        if kind == "void":
            self.do(text)
            return ""
        return self.add(text)

    def _store(self, out: int, value: str, index: Any, mask: str, varies: bool = True) -> None:
        dtype = self.outs[out].dtype
        place = self._place(self.operands + out, "r", varies, dtype, index)
        memory = memory_of(dtype)
        many = f"<{self.lanes} x {memory}>"
        if memory == "i8":
            value = self.add(f"zext <{self.lanes} x i1> {value} to {many}")
        size = 1 if memory == "i8" else dtype.itemsize
        if mask:
            name = f"llvm.masked.store.v{self.lanes}{_short(memory)}.p0"
            given = [(many, value), ("ptr", place), ("i32", str(size)), *_split(mask)]
            self._masked(name, "void", given)
        else:
            self.do(f"store {many} {value}, ptr {place}, align {size}")


class _Loops(Writer):
    """A kernel whose operands are gone through as a `Layout` says."""

    def __init__(
        self,
        outs: Sequence[Node],
        operands: int,
        layout: Layout,
        conditions: Sequence[Node],
    ) -> None:
        super().__init__(outs, operands, layout.offsets)
        self.layout, self.conditions = layout, conditions
        self.nodes = every([*outs, *conditions])
        self.lanes = width(self.nodes)

    def text(self) -> str:
        steps = [f"step.{offset}" for offset in self.offsets if offset.startswith("s")]
        self._pointers(("columns", "inner", *steps, *(["failed"] if self.conditions else [])))
        if self.conditions:
            self.do(f"%holds = alloca <{self.lanes} x i1>")
            self._hold(self._constant(1, _BOOL))
        if self.layout.flat:
            self._uniform(lambda node: node.fixed)
            self._loop("flat", "%start", "%stop")
        else:
            self._rows()
        if self.conditions:
            self._tell()
        return self.whole()

    def _hold(self, value: str) -> None:
        """Whether all conditions were true so far, in each lane."""
        self.do(f"store <{self.lanes} x i1> {value}, ptr %holds")

    def _check(self, mask: str) -> None:
        """Note the conditions of what was computed, as far as it is there."""
        kind = f"<{self.lanes} x i1>"
        total = self.add(f"load {kind}, ptr %holds")
        for condition in self.conditions:
            value = self.found[condition]
            if mask:
                absent = self.add(f"xor {mask}, {self._constant(-1, _BOOL)}")
                value = self.add(f"or {kind} {value}, {absent}")
            total = self.add(f"and {kind} {total}, {value}")
        self._hold(total)

    def _tell(self) -> None:
        """Tell the caller if a condition was not true."""
        kind = f"<{self.lanes} x i1>"
        total = self.add(f"load {kind}, ptr %holds")
        all_true = self.call(f"llvm.vector.reduce.and.v{self.lanes}i1", "i1", [(kind, total)])
        self.do(f"br i1 {all_true}, label %told, label %tell")
        self.lines.append("tell:")
        place = self.add("inttoptr i64 %failed to ptr")
        self.do(f"store atomic i64 1, ptr {place} monotonic, align 8")
        self.do("br label %told")
        self.lines.append("told:")

    def _rows(self) -> None:
        self._uniform(lambda node: node.fixed)
        outside = dict(self.found)
        self.do("%any = icmp slt i64 %start, %stop")
        self.do("br i1 %any, label %row, label %end")
        self.lines.append("row:")
        self.do("%r = phi i64 [%start, %entry], [%next, %last]")
        self.do("%divided = udiv i64 %r, %inner")
        self.do("%times = mul i64 %divided, %inner")
        self.do("%modulo = sub i64 %r, %times")
        self._uniform(lambda node: True)
        self._loop("row.loop", "0", "%columns")
        self.do("br label %last")
        self.lines.append("last:")
        self.do("%next = add i64 %r, 1")
        self.do("%more = icmp slt i64 %next, %stop")
        self.do("br i1 %more, label %row, label %end")
        self.lines.append("end:")
        self.found = outside

    def _uniform(self, which: Any) -> None:
        """Compute what has one element for the whole row, as far as it is known yet."""
        for node in self.nodes:
            ready = node.op != "reduced" and all(arg in self.found for arg in node.args)
            if ready and not node.varies and node not in self.found and which(node):
                self.found[node] = self._value(node, "0", "")

    def _loop(self, name: str, start: str, stop: str) -> None:
        """A loop over columns, in which what varies is computed and stored."""
        lanes = self.lanes
        before = f"{name}.before"
        self.do(f"br label %{before}")
        self.lines.append(f"{before}:")
        if not self.layout.masked:
            self.do(f"%{name}.final = sub i64 {stop}, {lanes}")
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i64 [{start}, %{before}], [%{name}.j, %{name}]")
        index, mask = f"%{name}.i", ""
        if self.layout.masked:
            mask = self._mask(index, stop)
        else:
            early = self.add(f"icmp slt i64 {index}, %{name}.final")
            index = self.add(f"select i1 {early}, i64 {index}, i64 %{name}.final")
        outside = dict(self.found)
        for node in every([*self.outs, *self.conditions], self.found):
            self.found[node] = self._value(node, index, mask)
        for i, out in enumerate(self.outs):
            self._store(i, self.found[out], index, mask)
        if self.conditions:
            self._check(mask)
        self.do(f"%{name}.j = add i64 %{name}.i, {lanes}")
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, {stop}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.after")
        self.lines.append(f"{name}.after:")
        self.found = outside

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        """The number of elements before one."""
        if self.layout.flat:
            return index if varies else "0"
        step = f"%step.{offset}" if offset.startswith("s") else "%columns"
        start = {"m": "%modulo", "d": "%divided", "0": "0"}.get(offset, "%r")
        if not varies:
            return start
        before = self.add(f"mul i64 {start}, {step}")
        return self.add(f"add i64 {before}, {index}")


def memory_of(dtype: Any) -> str:
    return "i8" if dtype == np.bool_ else _TYPES[dtype]


def _short(memory: str) -> str:
    return {"float": "f32", "double": "f64"}.get(memory, memory)


def _split(mask: str) -> list[tuple[str, str]]:
    kind, _, value = mask.rpartition(" ")
    return [(kind, value)]


def _written(number: float, dtype: Any) -> str:
    """A number as LLVM reads it: floating ones by the bits of a double."""
    if dtype in FLOATS:
        return "0x" + struct.pack(">d", float(dtype.type(number))).hex().upper()
    return str(int(number))
