"""Steps of recurrences: a product with a matrix, and a function of its sums, in one kernel.

Each step writes some rows of preallocated arrays.  The matrix is packed once for all steps: in
strips of the columns that one vector of results needs, so that a step reads it sequentially.  A
tile of sums stays in registers while terms are added.  Then an expression is computed for each
element, as in other kernels; its operands are the sums, and arrays.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import expected, planned, traced
from fdbr.backends.cpu.codegen.llvm_prelude import words
from fdbr.backends.cpu.codegen.writer import Writer
from fdbr.backends.cpu.runtime.machine import address_of, vector_bytes
from fdbr.backends.cpu.runtime.pool import launch, thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, InexpressibleError, Node, every

__all__ = ["PACKED", "STATE", "Step", "stepping"]

PACKED, STATE = "p", "r"
"""The positions of a step's rows: behind those of the step before, or the first ones."""

_MOST = 8  # rows of a tile
_CALLS = 16  # estimated cost of the expression for an element, in multiplications


class _Layout(NamedTuple):
    """The layout of a kernel of steps.

    Attributes
    ----------
    parts
        The number of sums for each element.
    ways
        The positions of the rows of operands and outputs, and of the product's first factor.
    lanes, high
        The elements of a vector, and the maximal rows of a tile.
    """

    parts: int
    ways: tuple[str, ...]
    lanes: int
    high: int


class _Kernel(NamedTuple):
    """The address of a kernel, and its layout."""

    address: int
    layout: _Layout


class Step:
    """A step of a recurrence, which can be computed for any rows.

    ``step(first, count)`` computes ``count`` rows, which begin at row ``first`` of the arrays that
    are `PACKED`.
    """

    __slots__ = ("_held", "_kernel", "_most", "_row", "_table", "_units")

    def __init__(self, kernel: int, table: Any, units: int, row: int, most: int, held: Any) -> None:
        self._kernel, self._table, self._units = kernel, table, units
        self._row, self._most = row, most
        self._held = held  # keeps the arrays alive whose addresses the table has

    def __call__(self, first: int, count: int) -> None:
        tiles = -(-count // self._most)
        self._table[:3] = array("q", (first, count, -(-count // tiles)))  # tiles of equal height
        parts = min(thread_count(), self._units) if count * self._row > TUNING.rnn_alone else 1
        launch(self._kernel, self._table.buffer_info()[0], self._units, 1, parts)


def stepping(
    name: Any,
    function: Callable[..., Any],
    operands: Sequence[tuple[Any, str]],
    outs: Sequence[tuple[Any, str]],
    weight: Any = None,
    left: tuple[Any, str] | None = None,
) -> Step | None:
    """Return a step of a recurrence; `None` if there is no kernel for it.

    Parameters
    ----------
    name
        A hashable name, unique for the function.
    function
        A function of expression nodes: of the sums, and the operands.
    operands
        Arrays of shape ``(rows, size)``, each with the position of its rows; a single row, which
        is the same for all, with ``"0"``.
    outs
        The arrays that the results are written to, likewise.  An operand may be one of them.
    weight
        Shape ``(parts, size, length)``; each part with ``left`` gives a sum for every element.
    left
        The first factor, of shape ``(rows, length)``, with the position of its rows.  It is not an
        output.
    """
    given = [*operands, *outs, *([] if left is None else [left])]
    arrays = [x for x, _ in given]
    dtype, size = arrays[0].dtype, outs[0][0].shape[1]
    if dtype not in FLOATS or not expected() or not all(_fits(x, dtype) for x in arrays):
        return None
    ways, parts = tuple([where for _, where in given]), 0 if weight is None else len(weight)
    key = name, dtype, parts, ways
    kernel = planned(key, lambda: _planned(name, function, dtype, parts, ways, len(operands)))
    if kernel is None:
        return None
    address, layout = kernel
    strips, length = -(-size // layout.lanes), 1
    steps = [x.strides[0] for x in arrays]
    if weight is not None:
        length = weight.shape[2]
        arrays.append(_in_strips(weight, strips, layout.lanes))
    words = [x.__array_interface__["data"][0] for x in arrays]
    table = array("q", (0, 0, 0, size, length, *words, *steps))
    return Step(address, table, strips, size * (parts * length + _CALLS), layout.high, arrays)


def _fits(x: Any, dtype: Any) -> bool:
    return (
        type(x) is np.ndarray
        and x.dtype == dtype
        and x.ndim == 2
        and (x.shape[1] <= 1 or x.strides[1] == x.itemsize)
    )


def _in_strips(weight: Any, strips: int, lanes: int) -> Any:
    """Return a weight packed in the order in which a kernel reads it: strip, term, part, column."""
    parts, size, length = weight.shape
    out = np.zeros((strips, length, parts, lanes), weight.dtype)
    whole = size // lanes
    turned = weight.transpose(2, 0, 1)
    front = turned[..., : whole * lanes].reshape(length, parts, whole, lanes)
    out[:whole] = front.transpose(2, 0, 1, 3)
    if whole < strips:
        out[whole, ..., : size - whole * lanes] = turned[..., whole * lanes :]
    return out


def _planned(
    name: Any, function: Any, dtype: Any, parts: int, ways: tuple[str, ...], count: int
) -> _Kernel:
    """Return the kernel of a function with ``count`` operands besides its sums."""
    wide = 64 if parts <= 1 else vector_bytes()
    registers = (24 if vector_bytes() == 64 else 12) * vector_bytes() // wide
    high = min(_MOST, max(1, registers // max(parts, 1)))
    layout = _Layout(parts, ways, wide // dtype.itemsize, high)
    kinds = [(dtype, True, "sum")] * parts + [(dtype, True, way) for way in ways[:count]]
    source, outs, _, _ = traced(name, function, kinds, layout, _source)
    if len(outs) != len(ways) - count - (parts > 0) or any(out.dtype != dtype for out in outs):
        raise InexpressibleError("other outputs")
    return _Kernel(address_of(source), layout)


def _source(
    outs: Sequence[Node], operands: int, layout: _Layout, conditions: Sequence[Node]
) -> str:
    if conditions:
        raise InexpressibleError("formulas that do not hold for all numbers")
    return _Steps(outs, operands, layout).text()


class _Steps(Writer):
    """A kernel of steps: strips of columns contain tiles of rows."""

    def __init__(self, outs: Sequence[Node], operands: int, layout: _Layout) -> None:
        super().__init__(outs, operands, ("",) * layout.parts + layout.ways)
        self.layout, self.lanes = layout, layout.lanes
        self.dtype = outs[0].dtype
        self.known: dict[tuple[str, int], str] = {}
        self.many, self.one = self.vector(self.dtype), self.type(self.dtype)

    def text(self) -> str:
        """Return the kernel's code."""
        parts, bases = self.layout.parts, [f"base{i}" for i in range(len(self.layout.ways))]
        steps = [f"step{i}" for i in range(len(bases))]
        bases += ["weight"] if parts else []
        self.lines.append(
            words(["first", "count", "high", "size", "length", *bases, *steps], bases)
        )
        if parts:
            self.do(f"%sums = alloca [{parts * self.layout.high} x {self.many}]")
        with self.rows():
            self.do(f"%u = mul i64 %r, {self.lanes}")
            self.do("%over = sub i64 %size, %u")
            self.do(f"%narrow = icmp slt i64 %over, {self.lanes}")
            mask = self._mask("%u", "%size")
            if parts:
                self.do(f"%each = mul i64 %length, {parts * self.lanes}")
                self.do("%before = mul i64 %r, %each")
                self.do(f"%strip = getelementptr {self.one}, ptr %weight, i64 %before")
            self._tiles(mask)
        return self.whole()

    def _tiles(self, mask: str) -> None:
        self.do("br label %tile")
        self.lines.append("tile:")
        self.do("%t = phi i64 [0, %row], [%t.next, %tile.end]")
        self.do("%t.next = add i64 %t, %high")
        self.do("%fits = icmp sle i64 %t.next, %count")
        self.do("%till = select i1 %fits, i64 %t.next, i64 %count")
        self.do("%n = sub i64 %till, %t")
        if self.layout.parts:
            heights = range(1, self.layout.high + 1)
            cases = " ".join(f"i64 {n}, label %sum{n}" for n in heights)
            self.do(f"switch i64 %n, label %sum1 [{cases}]")
            for n in heights:
                self._product(n)
        else:
            self.do("br label %made")
        self.lines.append("made:")
        self.do("br i1 %narrow, label %some, label %all")
        self._elements("some", mask)
        self._elements("all", "")
        self.lines.append("tile.end:")
        self.do("%again = icmp slt i64 %till, %count")
        self.do("br i1 %again, label %tile, label %tiled")
        self.lines.append("tiled:")

    def _product(self, high: int) -> None:
        """Emit the sums of ``high`` rows."""
        name, parts, lanes = f"sum{high}", self.layout.parts, self.lanes
        tile = [(i, p) for i in range(high) for p in range(parts)]
        left = len(self.layout.ways) - 1
        self.lines.append(f"{name}:")
        rows = []
        for i in range(high):
            row = self.add(f"add i64 %t, {i}")
            rows.append(self._row(left, row))
        self.do(f"br label %{name}.loop")
        self.lines.append(f"{name}.loop:")
        self.do(f"%{name}.k = phi i64 [0, %{name}], [%{name}.l, %{name}.loop]")
        for i, p in tile:
            old = f"[zeroinitializer, %{name}], [%{name}.{i}.{p}.new, %{name}.loop]"
            self.do(f"%{name}.{i}.{p} = phi {self.many} {old}")
        begin = self.add(f"mul i64 %{name}.k, {parts * lanes}")
        here = self.add(f"getelementptr {self.one}, ptr %strip, i64 {begin}")
        # The smaller operand stays in registers.
        by_row = high > parts
        for i, p in sorted(tile) if by_row else sorted(tile, key=lambda place: place[::-1]):
            x = self._factor(i, rows[i], f"%{name}.k")
            y = self._column(p, here)
            self._fused(f"%{name}.{i}.{p}", x, y)
        self.known = {}
        self.do(f"%{name}.l = add i64 %{name}.k, 1")
        self.do(f"%{name}.more = icmp slt i64 %{name}.l, %length")
        self.do(f"br i1 %{name}.more, label %{name}.loop, label %{name}.end")
        self.lines.append(f"{name}.end:")
        for i, p in tile:
            at = self.add(f"getelementptr {self.many}, ptr %sums, i64 {i * parts + p}")
            self.do(f"store {self.many} %{name}.{i}.{p}.new, ptr {at}, align {self.dtype.itemsize}")
        self.do("br label %made")

    def _factor(self, i: int, row: str, k: str) -> str:
        """Emit an element of a row of the first factor, in all lanes."""
        if ("row", i) not in self.known:
            at = self.add(f"getelementptr {self.one}, ptr {row}, i64 {k}")
            one = self.add(f"load {self.one}, ptr {at}")
            self.known["row", i] = self._spread(one, self.many)
        return self.known["row", i]

    def _column(self, p: int, here: str) -> str:
        """Emit a vector of the second factor."""
        if ("part", p) not in self.known:
            at = self.add(f"getelementptr {self.one}, ptr {here}, i64 {p * self.lanes}")
            text = f"load {self.many}, ptr {at}, align {self.dtype.itemsize}"
            self.known["part", p] = self.add(text)
        return self.known["part", p]

    def _fused(self, total: str, x: str, y: str) -> None:
        kind, name = self.many, f"@llvm.fmuladd.{self._suffix}"
        self.declared.add(f"declare {kind} {name}({kind}, {kind}, {kind})")
        self.do(f"{total}.new = call {kind} {name}({kind} {x}, {kind} {y}, {kind} {total})")

    @property
    def _suffix(self) -> str:
        return f"v{self.lanes}f{8 * self.dtype.itemsize}"

    def _elements(self, name: str, mask: str) -> None:
        """Emit the results from the sums of a tile, row by row."""
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i64 [0, %made], [%{name}.j, %{name}]")
        row = self.add(f"add i64 %t, %{name}.i")
        self.found = {}
        for node in every(self.outs):
            if node.op == "operand" and node.detail[0] < self.layout.parts:
                self.found[node] = self._sum(node.detail[0], f"%{name}.i")
            else:
                self.found[node] = self._value(node, row, mask)
        for i, out in enumerate(self.outs):
            self._store(i, self.found[out], row, mask)
        self.do(f"%{name}.j = add i64 %{name}.i, 1")
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, %n")
        self.do(f"br i1 %{name}.more, label %{name}, label %tile.end")

    def _sum(self, part: int, row: str) -> str:
        first = self.add(f"mul i64 {row}, {self.layout.parts}")
        place = self.add(f"add i64 {first}, {part}")
        at = self.add(f"getelementptr {self.many}, ptr %sums, i64 {place}")
        return self.add(f"load {self.many}, ptr {at}, align {self.dtype.itemsize}")

    def _row(self, i: int, row: str) -> str:
        """Emit the address of a row of an array."""
        way = self.layout.ways[i]
        if way == "0":
            return f"%base{i}"
        if way == PACKED:
            row = self.add(f"add i64 {row}, %first")
        far = self.add(f"mul i64 {row}, %step{i}")
        return self.add(f"getelementptr i8, ptr %base{i}, i64 {far}")

    def _place(self, number: int, offset: str, varies: bool, dtype: Any, index: Any) -> str:
        """Emit the address of the elements of an operand or output in a row."""
        start = self._row(number - self.layout.parts, index)
        return self.add(f"getelementptr {self.one}, ptr {start}, i64 %u")

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: Any, mask: str
    ) -> str:
        return self._loaded(number, "", varies, dtype, index, mask, varies)
