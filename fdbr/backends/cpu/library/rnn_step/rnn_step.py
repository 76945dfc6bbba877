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
from fdbr.backends.cpu.codegen.llvm_instructions import Cell, Module
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.llvm_values import TYPES, Counts, Value, kind
from fdbr.backends.cpu.codegen.node_values import NodeValues, code_of
from fdbr.backends.cpu.runtime.machine import address_of, vector_bytes
from fdbr.backends.cpu.runtime.pool import data_address, launch, thread_count
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
    words = [data_address(x) for x in arrays]
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


class _Steps(NodeValues):
    """A kernel of steps: strips of columns contain tiles of rows."""

    def __init__(self, outs: Sequence[Node], operands: int, layout: _Layout) -> None:
        super().__init__(Module())
        self.outs, self.operands, self.layout = outs, operands, layout
        self.code, self.width = code_of(outs[0].dtype), layout.lanes
        self.many, self.one = kind(self.code, self.width), TYPES[self.code]

    def text(self) -> str:
        """Return the kernel's code."""
        parts, bases = self.layout.parts, [f"base{i}" for i in range(len(self.layout.ways))]
        steps = [f"step{i}" for i in range(len(bases))]
        bases += ["weight"] if parts else []
        self.lines.append(
            words(["first", "count", "high", "size", "length", *bases, *steps], bases)
        )
        if parts:
            self.sums = self.add(f"alloca [{parts * self.layout.high} x {self.many}]")
        with self.loop("%start", "%stop") as strip:
            self.column = Value("i8", self.add(f"mul i64 {strip}, {self.width}"))
            size = Value("i8", "%size")
            mask = self.active(self.column, size, self.width)
            over = self.binary("-", size, self.column)
            narrow = self.add(f"icmp slt {over.typed}, {self.width}")
            wide = self.add(f"xor i1 {narrow}, true")
            if parts:
                each = self.add(f"mul i64 %length, {parts * self.width}")
                before = self.add(f"mul i64 {strip}, {each}")
                self.strip = self.add(f"getelementptr {self.one}, ptr %weight, i64 {before}")
            with self.loop("0", "%count", "%high") as tile:
                self.tile = tile
                left = self.add(f"sub i64 %count, {tile}")
                rows = self.called_on("smin", Value("i8", left), Value("i8", "%high")).text
                for high in range(1, self.layout.high + 1 if parts else 1):
                    with self.where(self.add(f"icmp eq i64 {rows}, {high}")):
                        self._product(high)
                for condition, lanes in ((narrow, mask), (wide, "")):
                    with self.where(condition), self.loop("0", rows) as row:
                        self._elements(row, lanes)
        body = "\n".join(self.lines)
        return f"{self.module.text()}\n{HEAD}{body}\n  ret void\n}}\n"

    def _product(self, high: int) -> None:
        """Emit the sums of ``high`` rows."""
        parts = self.layout.parts
        tile = [(i, p) for i in range(high) for p in range(parts)]
        left = len(self.layout.ways) - 1
        rows = [self._row(left, self.add(f"add i64 {self.tile}, {i}")) for i in range(high)]
        cells = {place: Cell(self.many, "zeroinitializer") for place in tile}
        self.cells = [*cells.values()]
        with self.loop("0", "%length") as k:
            begin = self.add(f"mul i64 {k}, {parts * self.width}")
            here = self.add(f"getelementptr {self.one}, ptr {self.strip}, i64 {begin}")
            factors: dict[int, Value] = {}
            columns: dict[int, Value] = {}
            # The smaller operand stays in registers.
            for i, p in tile if high > parts else sorted(tile, key=lambda place: place[::-1]):
                if i not in factors:
                    x = self.read(Value(f"*{self.code}", rows[i]), Value("i8", k))
                    factors[i] = self.spread(x, self.width)
                if p not in columns:
                    at = self.add(f"getelementptr {self.one}, ptr {here}, i64 {p * self.width}")
                    columns[p] = self._vector_at(at)
                total = Value(self.code, cells[i, p].text, lanes=self.width)
                cells[i, p].text = self.called_on("fmuladd", factors[i], columns[p], total).text
        self.cells = []
        for (i, p), cell in cells.items():
            at = self.add(f"getelementptr {self.many}, ptr {self.sums}, i64 {i * parts + p}")
            self.do(f"store {self.many} {cell.text}, ptr {at}, align {int(self.code[1])}")

    def _vector_at(self, place: str) -> Value:
        text = f"load {self.many}, ptr {place}, align {int(self.code[1])}"
        return Value(self.code, self.add(text), lanes=self.width)

    def _elements(self, row: str, mask: str) -> None:
        """Emit the results of a row of a tile from its sums."""
        found: dict[Node, Value] = {}
        parts, at = self.layout.parts, self.add(f"add i64 {self.tile}, {row}")
        first = self.add(f"mul i64 {row}, {parts}")
        self.lanes, self.there, self.mask = self.width, self.width, mask
        index = Value("i8", "", counts=Counts(self.column.text, 0))
        for node in every(self.outs):
            number = node.detail[0] if node.op == "operand" else -1
            if node.op != "operand":
                found[node] = self.of_node(node, [found[arg] for arg in node.args])
            elif number < parts:
                sum_ = self.add(f"add i64 {first}, {number}")
                place = self.add(f"getelementptr {self.many}, ptr {self.sums}, i64 {sum_}")
                found[node] = self._vector_at(place)
            else:
                pointer = Value(f"*{self.code}", self._row(number - parts, at))
                found[node] = self.read(pointer, index)
        for i, out in enumerate(self.outs):
            pointer = Value(f"*{self.code}", self._row(self.operands - parts + i, at))
            self.write(pointer, index, found[out])
        self.lanes, self.there, self.mask = 1, 1, ""

    def _row(self, i: int, row: str) -> str:
        """Emit the address of a row of an array."""
        way = self.layout.ways[i]
        if way == "0":
            return f"%base{i}"
        if way == PACKED:
            row = self.add(f"add i64 {row}, %first")
        far = self.add(f"mul i64 {row}, %step{i}")
        return self.add(f"getelementptr i8, ptr %base{i}, i64 {far}")
