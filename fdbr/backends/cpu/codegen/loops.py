"""Lowering of expressions to LLVM: loops over vectors of 64 bytes.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
addresses of the operands and of the outputs, then two lengths: of a row, and the number of
adjacent rows in operands without an outermost axis.  The table of a guarded kernel ends with the
address of a word that becomes nonzero if the formulas do not hold for some element.  In a kernel
over *rows*, ``start`` and ``stop`` count rows, and each row is traversed once for each level of
reductions.  In a *flat* kernel, which has no rows, they count elements.

If the length is no multiple of a vector's, the last vector starts earlier and computes some
elements again.  In rows narrower than a vector, lanes are masked out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.writer import Writer, width
from fdbr.core.expr import InexpressibleError, Node, every

__all__ = ["Layout", "source"]

_BOOL = np.dtype(np.bool_)


class Layout(NamedTuple):
    """Describe the order in which a kernel traverses its operands.

    Attributes
    ----------
    flat
        Whether there are no rows.
    masked
        Whether rows may be narrower than a vector, so that lanes are masked.
    offsets
        For each operand, where a row of it starts: at row ``"r"``, at row ``"r"`` modulo or divided
        by the number of inner rows (``"m"``, ``"d"``), or at ``"0"``; or ``"s0"`` and so on for an
        operand whose rows are not adjacent, with its stride in the table after the lengths.
    """

    flat: bool
    masked: bool
    offsets: tuple[str, ...]


def source(
    outs: Sequence[Node], operands: int, layout: Layout, conditions: Sequence[Node] = ()
) -> str:
    """Return a kernel in LLVM; ``conditions`` must hold for all elements."""
    if any(node.op in ("reduced", "columns") for node in every([*outs, *conditions])):
        raise InexpressibleError("what is no function of each element")
    return _Loops(outs, operands, layout, conditions).text()


class _Loops(Writer):
    """Generate a kernel whose operands are traversed as a `Layout` says."""

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
        """Accumulate whether all conditions have held so far, in each lane."""
        self.do(f"store <{self.lanes} x i1> {value}, ptr %holds")

    def _check(self, mask: str) -> None:
        """Record the conditions of the computed elements in active lanes."""
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
        """Report to the caller that a condition did not hold."""
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
        with self.rows():
            self.do("%divided = udiv i64 %r, %inner")
            self.do("%times = mul i64 %divided, %inner")
            self.do("%modulo = sub i64 %r, %times")
            self._uniform(lambda node: True)
            self._loop("row.loop", "0", "%columns")
        self.found = outside

    def _uniform(self, which: Any) -> None:
        """Compute the values that have one element for the whole row, as far as they are known."""
        for node in self.nodes:
            ready = node.op != "reduced" and all(arg in self.found for arg in node.args)
            if ready and not node.varies and node not in self.found and which(node):
                self.found[node] = self._value(node, "0", "")

    def _loop(self, name: str, start: str, stop: str) -> None:
        """Emit a loop over columns that computes and stores the varying values."""
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
        """Return the number of elements before an index."""
        if self.layout.flat:
            return index if varies else "0"
        step = f"%step.{offset}" if offset.startswith("s") else "%columns"
        start = {"m": "%modulo", "d": "%divided", "0": "0"}.get(offset, "%r")
        if not varies:
            return start
        before = self.add(f"mul i64 {start}, {step}")
        return self.add(f"add i64 {before}, {index}")
