"""Lowering of expressions to LLVM, independent of the loops: instructions, values and memory.

Vectors have 64 bytes of the largest dtype.
"""

import contextlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.core.expr import FLOATS, Node, every

__all__ = ["Writer", "memory_of", "width", "width_of"]

_TYPES = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(np.bool_): "i1",
}
_SUFFIXES = {"float": "f32", "double": "f64"}
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
_ORDERS = {"maximum": "ogt", "minimum": "olt"}
_CALLS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "fma": "fma",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
}


def width(nodes: Sequence[Node]) -> int:
    """Return the number of lanes: as many of the largest dtype as 64 bytes hold."""
    return width_of(node.dtype for node in every(nodes))


def width_of(dtypes: Iterable[Any]) -> int:
    """Return the number of elements of the largest of some dtypes that 64 bytes hold."""
    return 64 // max(dtype.itemsize for dtype in dtypes)


class Writer:
    """Hold a kernel under construction: its instructions, values and memory."""

    def __init__(self, outs: Sequence[Node], operands: int, offsets: tuple[str, ...]) -> None:
        self.outs, self.operands, self.offsets = list(outs), operands, offsets
        self.nodes = every(outs)
        self.lanes = width(outs)
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = 0
        # the registers of values that have been computed and are valid here
        self.found: dict[Node, str] = {}

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
        """Return the whole kernel, given that its body has been emitted."""
        self.do("ret void")
        body = "\n".join(self.lines)
        return "\n".join(sorted(self.declared)) + f"\n{HEAD}{body}\n}}\n"

    def _pointers(self, lengths: Sequence[str]) -> None:
        bases = [f"base{i}" for i in range(self.operands + len(self.outs))]
        self.lines.append(words([*bases, *lengths], bases))

    @contextlib.contextmanager
    def rows(self) -> Iterator[None]:
        """Emit a loop over rows ``%r`` around a block; the block may end in any basic block."""
        self.do("%any = icmp slt i64 %start, %stop")
        self.do("br i1 %any, label %row, label %end")
        self.lines.append("row:")
        self.do("%r = phi i64 [%start, %entry], [%next, %last]")
        yield
        self.do("br label %last")
        self.lines.append("last:")
        self.do("%next = add i64 %r, 1")
        self.do("%more = icmp slt i64 %next, %stop")
        self.do("br i1 %more, label %row, label %end")
        self.lines.append("end:")

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
        if node.op in _ORDERS:
            return self._extreme(_ORDERS[node.op], node.dtype, *args)
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

    def _extreme(self, order: str, dtype: Any, x: str, y: str) -> str:
        """Return NumPy's maximum or minimum: NaN if either is NaN, and the second of equal numbers.

        `llvm.maximum` and `llvm.minimum` are not used because they order zeros by their signs.
        """
        kind, flags = self.vector(dtype), f"<{self.lanes} x i1>"
        beyond = self.add(f"fcmp {order} {kind} {x}, {y}")
        none = self.add(f"fcmp uno {kind} {x}, {x}")
        taken = self.add(f"or {flags} {beyond}, {none}")
        return self.add(f"select {flags} {taken}, {kind} {x}, {kind} {y}")

    def _spread(self, number: str, kind: str) -> str:
        """Broadcast a number to a vector."""
        one = kind.removesuffix(">").partition(" x ")[2]
        head = self.add(f"insertelement {kind} poison, {one} {number}, i64 0")
        every = f"<{self.lanes} x i32> zeroinitializer"
        return self.add(f"shufflevector {kind} {head}, {kind} poison, {every}")

    # --- memory

    def _place(self, number: int, offset: str, varies: bool, dtype: Any, index: Any) -> str:
        """Return the address of an element of an operand or output."""
        start = self._start(offset, varies, index)
        return self.add(f"getelementptr {memory_of(dtype)}, ptr %base{number}, i64 {start}")

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        """Return the number of elements before an index."""
        raise NotImplementedError

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: Any, mask: str
    ) -> str:
        """Load a vector of an operand."""
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
        """Load a vector of several elements, or broadcast a single one."""
        place = self._place(number, offset, varies, dtype, index)
        memory = memory_of(dtype)
        many = f"<{self.lanes} x {memory}>"
        if several:
            value = self._read(place, dtype, mask)
        else:
            one = self.add(f"load {memory}, ptr {place}, align {dtype.itemsize}")
            value = self._spread(one, many)
        if memory == "i8":
            value = self.add(f"icmp ne {many} {value}, zeroinitializer")
        return value

    def _read(self, place: str, dtype: Any, mask: str) -> str:
        """Load a vector from an address."""
        many = f"<{self.lanes} x {memory_of(dtype)}>"
        if not mask:
            return self.add(f"load {many}, ptr {place}, align {dtype.itemsize}")
        name = f"llvm.masked.load.{self._ending(dtype)}.p0"
        size = ("i32", str(dtype.itemsize))
        return self._masked(
            name, many, [("ptr", place), size, *_split(mask), (many, "zeroinitializer")]
        )

    def _write(self, place: str, dtype: Any, value: str, mask: str) -> None:
        """Store a vector to an address."""
        many = f"<{self.lanes} x {memory_of(dtype)}>"
        if not mask:
            self.do(f"store {many} {value}, ptr {place}, align {dtype.itemsize}")
            return
        name = f"llvm.masked.store.{self._ending(dtype)}.p0"
        size = ("i32", str(dtype.itemsize))
        self._masked(name, "void", [(many, value), ("ptr", place), size, *_split(mask)])

    def _ending(self, dtype: Any) -> str:
        """Return the suffix of overloaded intrinsics for vectors in memory."""
        memory = memory_of(dtype)
        return f"v{self.lanes}{_SUFFIXES.get(memory, memory)}"

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
        if dtype == np.bool_:
            value = self.add(f"zext <{self.lanes} x i1> {value} to <{self.lanes} x i8>")
        self._write(place, dtype, value, mask)


def memory_of(dtype: Any) -> str:
    """Return LLVM's type of the elements of a dtype in memory."""
    return "i8" if dtype == np.bool_ else _TYPES[dtype]


def _split(mask: str) -> list[tuple[str, str]]:
    kind, _, value = mask.rpartition(" ")
    return [(kind, value)]


def _written(number: float, dtype: Any) -> str:
    """Return a number in LLVM's syntax: floating-point ones by the bits of a double."""
    if dtype in FLOATS:
        return "0x" + struct.pack(">d", float(dtype.type(number))).hex().upper()
    return str(int(number))
