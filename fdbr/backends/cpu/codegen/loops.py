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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.writer import Writer, width
from fdbr.core.expr import InexpressibleError, Node, every

__all__ = ["Layout", "source"]

_BOOL = np.dtype(np.bool_)


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


def source(
    outs: Sequence[Node], operands: int, layout: Layout, conditions: Sequence[Node] = ()
) -> str:
    """A kernel in LLVM's language; ``conditions`` are to be true of all elements."""
    if any(node.op in ("reduced", "columns") for node in every([*outs, *conditions])):
        raise InexpressibleError("what is no function of each element")
    return _Loops(outs, operands, layout, conditions).text()


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
        with self.rows():
            self.do("%divided = udiv i64 %r, %inner")
            self.do("%times = mul i64 %divided, %inner")
            self.do("%modulo = sub i64 %r, %times")
            self._uniform(lambda node: True)
            self._loop("row.loop", "0", "%columns")
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
