"""From expressions to LLVM's language: loops over vectors of 64 bytes.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
addresses of the operands and of the outputs, and two lengths: of a row, and how many rows follow
each other in operands that have no outermost axis.  Of a kernel over *rows*, ``start`` and ``stop``
are rows; each row is gone through once for each level of reductions.  Of a *flat* one, which has no
rows, they are elements.

Where vectors do not fit, the last one begins earlier and computes some elements again.  In rows
that are reduced, or narrower than a vector, a mask leaves out what is not there.
"""

import struct
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from fdbr.kernels.expressions import FLOATS, Node

__all__ = ["Layout", "source", "width", "width_of"]

_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(np.bool_): "i1",
}
_INFIX = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "and": "and",
    "or": "or",
    "iadd": "add",
    "isub": "sub",
    "iand": "and",
    "ior": "or",
    "shl": "shl",
    "ashr": "ashr",
    "eq": "fcmp oeq",
    "ne": "fcmp une",
    "lt": "fcmp olt",
    "le": "fcmp ole",
    "gt": "fcmp ogt",
    "ge": "fcmp oge",
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
_PARAMETERS = "ptr noalias %table, i64 %start, i64 %stop, i64 %part"
_IDENTITY = {"sum": 0.0, "max": -np.inf, "min": np.inf}
_COMBINED = {"sum": "fadd", "max": "maximum", "min": "minimum"}
_EXPENSIVE = frozenset({"div", "sqrt"})


class Layout:
    """How a kernel goes through its operands.

    Attributes
    ----------
    flat
        Whether there are no rows.
    masked
        Whether vectors need not fit: in rows that are reduced, and in narrow ones.
    exact
        Whether sums carry along what rounding loses, as those of long rows must (Kahan).
    offsets
        For each operand, where a row of it begins: at row ``"r"``, row ``"r"`` modulo or divided
        by the number of inner rows (``"m"``, ``"d"``), or ``"0"``.
    """

    def __init__(
        self, flat: bool, masked: bool, offsets: Sequence[str], exact: bool = False
    ) -> None:
        self.flat, self.masked, self.offsets, self.exact = flat, masked, tuple(offsets), exact


def width(nodes: Sequence[Node]) -> int:
    """How many elements a vector has: as many of the largest dtype as 64 bytes take."""
    return width_of(node.dtype for node in _all(nodes))


def width_of(dtypes: Iterable[Any]) -> int:
    """How many elements of the largest of some dtypes 64 bytes take."""
    return 64 // max(dtype.itemsize for dtype in dtypes)


def _all(outs: Sequence[Node], found: Container[Node] = ()) -> list[Node]:
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


def source(outs: Sequence[Node], operands: int, layout: Layout) -> str:
    """A kernel in LLVM's language."""
    return _Writer(outs, operands, layout).text()


class _Writer:
    def __init__(self, outs: Sequence[Node], operands: int, layout: Layout) -> None:
        self.outs, self.operands, self.layout = list(outs), operands, layout
        self.nodes = _all(outs)
        self.lanes = width(outs)
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0
        self.found: dict[Node, str] = {}  # what has been computed, and holds here
        self.reduces = any(node.op == "reduced" for node in self.nodes)
        self.kept = self._kept()

    def _kept(self) -> Node | None:
        """What is computed before a reduction, and kept in the first output until after it."""
        out = self.outs[0]
        if not self.reduces or not out.varies or out.level == 0:
            return None
        for node in self.nodes:
            if (
                node.varies
                and node.level < out.level
                and node.dtype == out.dtype
                and node is not out
                and _cost(node) > 16
                and any(
                    user.level == out.level and any(arg is node for arg in user.args)
                    for user in self.nodes
                )
            ):
                return node
        return None

    # --- text

    def add(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

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

    def text(self) -> str:
        self._pointers()
        if self.layout.flat:
            self._uniform(lambda node: node.fixed)
            self._loop("flat", "%start", "%stop", 0)
        else:
            self._rows()
        self.do("ret void")
        body = "\n".join(self.lines)
        head = f"define void @kernel({_PARAMETERS}) {{\nentry:\n"
        return "\n".join(sorted(self.declared)) + f"\n{head}{body}\n}}\n"

    def _pointers(self) -> None:
        for i in range(self.operands + len(self.outs)):
            place = self.add(f"getelementptr i64, ptr %table, i64 {i}")
            self.do(f"%base{i} = load ptr, ptr {place}")
        for i, name in enumerate(("columns", "inner"), self.operands + len(self.outs)):
            place = self.add(f"getelementptr i64, ptr %table, i64 {i}")
            self.do(f"%{name} = load i64, ptr {place}")

    # --- loops

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
        self.do("br label %columns0")
        levels = max(node.level for node in self.nodes)
        for level in range(levels + 1):
            self.lines.append(f"columns{level}:")
            self._uniform(lambda node, level=level: node.level <= level)
            self._loop(f"c{level}", "0", "%columns", level)
            self.do(f"br label %{f'columns{level + 1}' if level < levels else 'last'}")
        self.lines.append("last:")
        self._uniform(lambda node: True)
        for i, out in enumerate(self.outs):
            if not out.varies:
                self._store_one(i, out)
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

    def _loop(self, name: str, start: str, stop: str, level: int) -> None:
        """A loop over columns: the reductions of a level, and what is stored in it."""
        reductions = [n for n in self.nodes if n.op == "reduced" and n.args[0].level == level]
        stored = [(i, o) for i, o in enumerate(self.outs) if o.varies and o.level == level]
        keep = self.kept if self.kept is not None and self.kept.level == level else None
        wanted = [n.args[0] for n in reductions] + [out for _, out in stored]
        wanted += [keep] if keep is not None else []
        if not wanted:
            return
        lanes = self.lanes
        before = f"{name}.before"
        self.do(f"br label %{before}")
        self.lines.append(f"{before}:")
        if not self.layout.masked:
            self.do(f"%{name}.final = sub i64 {stop}, {lanes}")
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i64 [{start}, %{before}], [%{name}.j, %{name}]")
        for k, node in enumerate(reductions):
            self._begin(f"%{name}", k, node)
        index, mask = f"%{name}.i", ""
        if self.layout.masked:
            mask = self._mask(index, stop)
        else:
            early = self.add(f"icmp slt i64 {index}, %{name}.final")
            index = self.add(f"select i1 {early}, i64 {index}, i64 %{name}.final")
        outside = dict(self.found)
        if self.kept is not None and self.kept.level < level:
            self.found[self.kept] = self._load(
                self.operands, "r", True, self.kept.dtype, index, mask
            )
        for node in _all(wanted, self.found):
            self.found[node] = self._value(node, index, mask)
        for k, node in enumerate(reductions):
            self._accumulate(f"%{name}", k, node, mask)
        for i, out in stored:
            self._store(i, self.found[out], index, mask)
        if keep is not None:
            self._store(0, self.found[keep], index, mask)
        self.do(f"%{name}.j = add i64 %{name}.i, {lanes}")
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, {stop}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.after")
        self.lines.append(f"{name}.after:")
        self.found = outside
        for k, node in enumerate(reductions):
            self.found[node] = self._folded(node, f"%{name}.u{k}", self.vector(node.dtype))

    def _begin(self, name: str, k: int, node: Node) -> None:
        """The total of a reduction so far, and what it has lost by rounding."""
        kind = self.vector(node.dtype)
        first = self._constant(_IDENTITY[node.detail], node.dtype)
        self.do(f"{name}.t{k} = phi {kind} [{first}, {name}.before], [{name}.u{k}, {name}]")
        if self.layout.exact:
            none = self._constant(0, node.dtype)
            self.do(f"{name}.l{k} = phi {kind} [{none}, {name}.before], [{name}.m{k}, {name}]")

    def _accumulate(self, name: str, k: int, node: Node, mask: str) -> None:
        """One more vector for a reduction; an exact sum makes up for what was lost (Kahan)."""
        kind, value = self.vector(node.dtype), self.found[node.args[0]]
        exact = self.layout.exact and node.detail == "sum"
        if mask:
            identity = self._constant(_IDENTITY[node.detail], node.dtype)
            value = self.add(f"select {mask}, {kind} {value}, {kind} {identity}")
        if exact:
            value = self.add(f"fsub {kind} {value}, {name}.l{k}")
        total = self._combined(node, f"{name}.t{k}", value)
        self.do(f"{name}.u{k} = bitcast {kind} {total} to {kind}")
        if self.layout.exact:
            zero = self._constant(0, node.dtype)
            gained = self.add(f"fsub {kind} {total}, {name}.t{k}")
            lost = self.add(f"fsub {kind} {gained}, {value}")
            none = self.add(f"fsub {kind} {lost}, {lost}")  # 0, or NaN beside infinity
            finite = self.add(f"fcmp oeq {kind} {none}, {zero}")
            choice = f"<{self.lanes} x i1> {finite}, {kind} {lost}, {kind} {zero}"
            self.do(f"{name}.m{k} = select {choice}")

    def _mask(self, index: str, stop: str) -> str:
        kind = f"<{self.lanes} x i64>"
        left = self.add(f"sub i64 {stop}, {index}")
        splat = self._spread(left, kind)
        lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
        mask = self.add(f"icmp slt {kind} <{lanes}>, {splat}")
        return f"<{self.lanes} x i1> {mask}"

    def _combined(self, node: Node, total: str, value: str) -> str:
        kind, how = self.vector(node.dtype), _COMBINED[node.detail]
        if how == "fadd":
            return self.add(f"fadd {kind} {total}, {value}")
        return self.intrinsic(how, node.dtype, total, value)

    def _folded(self, node: Node, total: str, kind: str) -> str:
        """The reduction of a vector, in all its elements: halves first, always in one order."""
        step = self.lanes // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            order = f"<{self.lanes} x i32> <{order}>"
            other = self.add(f"shufflevector {kind} {total}, {kind} poison, {order}")
            total = self._combined(node, total, other)
            step //= 2
        return total

    # --- values

    def _constant(self, number: float, dtype: Any) -> str:
        each = f"{_TYPES[dtype]} {_written(number, dtype)}"
        return f"<{', '.join([each] * self.lanes)}>"

    def _value(self, node: Node, index: str, mask: str) -> str:
        kind = self.vector(node.dtype)
        args = [self.found[arg] for arg in node.args]
        if node.op == "constant":
            return self._constant(node.detail[0], node.dtype)
        if node.op == "operand":
            number, varies, _ = node.detail
            return self._load(number, self.layout.offsets[number], varies, node.dtype, index, mask)
        if node.op == "columns":
            number = self.add(f"sitofp i64 %columns to {_TYPES[node.dtype]}")
            return self._spread(number, kind)
        if node.op in _INFIX:
            given = self.vector(node.args[0].dtype)
            return self.add(f"{_INFIX[node.op]} {given} {args[0]}, {args[1]}")
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
        if node.op == "number":
            return self.add(f"sitofp {self.vector(given)} {args[0]} to {kind}")
        assert node.op == "cast", node.op
        how = "uitofp" if given not in FLOATS else "fpext" if given.itemsize == 4 else "fptrunc"
        return self.add(f"{how} {self.vector(given)} {args[0]} to {kind}")

    def _spread(self, number: str, kind: str) -> str:
        """A vector with one number everywhere."""
        one = kind.removesuffix(">").partition(" x ")[2]
        head = self.add(f"insertelement {kind} poison, {one} {number}, i64 0")
        every = f"<{self.lanes} x i32> zeroinitializer"
        return self.add(f"shufflevector {kind} {head}, {kind} poison, {every}")

    # --- memory

    def _place(self, number: int, offset: str, varies: bool, dtype: Any, index: str) -> str:
        """The address of an element of an operand or output."""
        if self.layout.flat:
            start = index if varies else "0"
        else:
            start = {"r": "%r", "m": "%modulo", "d": "%divided", "0": "0"}[offset]
            if varies:
                before = self.add(f"mul i64 {start}, %columns")
                start = self.add(f"add i64 {before}, {index}")
        memory = _memory(dtype)
        return self.add(f"getelementptr {memory}, ptr %base{number}, i64 {start}")

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: str, mask: str
    ) -> str:
        place = self._place(number, offset, varies, dtype, index)
        memory = _memory(dtype)
        many = f"<{self.lanes} x {memory}>"
        size = 1 if memory == "i8" else dtype.itemsize
        if not varies:
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

    def _store(self, out: int, value: str, index: str, mask: str) -> None:
        dtype = self.outs[out].dtype
        place = self._place(self.operands + out, "r", True, dtype, index)
        memory = _memory(dtype)
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

    def _store_one(self, out: int, node: Node) -> None:
        """The element of a row."""
        memory = _memory(node.dtype)
        place = self._place(self.operands + out, "r", False, node.dtype, "0")
        one = self.add(f"extractelement {self.vector(node.dtype)} {self.found[node]}, i64 0")
        self.do(f"store {memory} {one}, ptr {place}, align {node.dtype.itemsize}")


def _cost(node: Node) -> int:
    """About how many additions a node takes, with what it alone depends on."""
    return sum(8 if each.op in _EXPENSIVE else 1 for each in _all([node]))


def _memory(dtype: Any) -> str:
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
