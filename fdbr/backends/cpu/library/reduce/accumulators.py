"""Loops that reduce: along contiguous elements, or across them.

Operands are arrays of three axes, the first of which may have length 1.  *Along* reduces the first
and the last axis; the results are those of the middle one, each by a loop over vectors of reduced
elements.  *Across* reduces the middle axis: a vector holds neighbouring results, and the loop goes
from row to row.  *Narrow* is the same where the few elements of a result are contiguous and those
of different results are not: there the last two axes are exchanged.  Each level of nested
reductions has a loop of its own.

The table of a kernel has the addresses of the operands and of the outputs, the lengths of the three
axes, and the number of elements, or, across, of panels in a row.  A part of a launch has some
results, or panels of results.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.writer import Writer
from fdbr.core.expr import Node, cost, every

__all__ = ["PANEL", "Fold", "Folding", "Pairs", "Work"]

Pairs = list[tuple[str, str]]
"""The total of each reduction so far, and its compensation for rounding, if there is one."""

PANEL = 4  # vectors of a panel, at most, so that their sums stay in registers
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_COMBINED = {"sum": "fadd", "prod": "fmul"}
_ORDER = {"max": "ogt", "min": "olt"}


class Fold(NamedTuple):
    """The order in which a kernel traverses its operands.

    Attributes
    ----------
    across
        Whether it reduces across contiguous elements.
    exact
        Whether sums are compensated for rounding (Kahan), as those of many elements must be.
    offsets
        ``"0"`` for operands without an element for each result, and ``"r"`` for others.
    narrow
        Whether a vector holds different results although elements of one are contiguous.
    panel
        The number of vectors of neighbouring results.
    """

    across: bool
    exact: bool
    offsets: tuple[str, ...]
    narrow: bool = False
    panel: int = PANEL


class Work(NamedTuple):
    """The loop of a level: its reductions, the outputs stored in it, and the nodes for both."""

    level: int
    reductions: list[Node]
    stored: list[tuple[int, Node]]
    wanted: list[Node]


class Folding(Writer):
    """The common part of both directions."""

    def __init__(self, outs: Sequence[Node], operands: int, fold: Fold) -> None:
        super().__init__(outs, operands, fold.offsets)
        self.exact, self.panel = fold.exact, fold.panel
        self.levels = range(max(node.level for node in self.nodes) + 1)
        self.kept = self._kept()

    def _kept(self) -> Node | None:
        """Return a costly node that the first output stores until the reduction is complete."""
        out = self.outs[0]
        if not out.varies or out.level == 0:
            return None
        for node in self.nodes:
            if (
                node.varies
                and node.level < out.level
                and node.dtype == out.dtype
                and node is not out
                and cost([node]) > 16
                and any(
                    user.level == out.level and any(arg is node for arg in user.args)
                    for user in self.nodes
                )
            ):
                return node
        return None

    def _work(self, level: int) -> Work:
        """Return the work of a level."""
        reductions = [n for n in self.nodes if n.op == "reduced" and n.args[0].level == level]
        stored = [(i, o) for i, o in enumerate(self.outs) if o.varies and o.level == level]
        if self.kept is not None and self.kept.level == level:
            stored.append((0, self.kept))
        wanted = [n.args[0] for n in reductions] + [out for _, out in stored]
        return Work(level, reductions, stored, wanted)

    def _computed(self, work: Work, index: Any, mask: str) -> None:
        """Emit the varying nodes at one index of the loop of a level."""
        if self.kept is not None and self.kept.level < work.level:
            self.found[self.kept] = self._load(
                self.operands, "r", True, self.kept.dtype, index, mask
            )
        for node in every(work.wanted, self.found):
            self.found[node] = self._value(node, index, mask)

    def _settle(self, level: int) -> None:
        """Emit the nodes that do not vary, as far as they are known up to a level."""
        for node in self.nodes:
            ready = node.op != "reduced" and all(arg in self.found for arg in node.args)
            if ready and not node.varies and node.level <= level and node not in self.found:
                self.found[node] = self._value(node, self._nowhere(), "")

    def _nowhere(self) -> Any:
        """Return the index of nodes that do not vary."""
        return "0"

    def _value(self, node: Node, index: Any, mask: str) -> str:
        if node.op == "columns":
            number = self.add(f"sitofp i64 %count to {self.type(node.dtype)}")
            return self._spread(number, self.vector(node.dtype))
        return super()._value(node, index, mask)

    def _first(self, node: Node) -> str:
        return self._constant(_IDENTITY[node.detail], node.dtype)

    def _joined(self, node: Node, total: str, value: str) -> str:
        """Emit the combination of two totals."""
        kind, how = self.vector(node.dtype), node.detail
        if how in _COMBINED:
            return self.add(f"{_COMBINED[how]} {kind} {total}, {value}")
        beyond = self.add(f"fcmp {_ORDER[how]} {kind} {value}, {total}")
        none = self.add(f"fcmp uno {kind} {value}, {value}")
        flags = f"<{self.lanes} x i1>"
        taken = self.add(f"or {flags} {beyond}, {none}")
        return self.add(f"select {flags} {taken}, {kind} {value}, {kind} {total}")

    def _gathered(self, node: Node, pair: tuple[str, str], value: str) -> tuple[str, str]:
        """Emit the addition of a vector to a total, and its new compensation (Kahan)."""
        total, lost = pair
        if not self._loses(node):
            return self._joined(node, total, value), lost
        kind, zero = self.vector(node.dtype), self._constant(0, node.dtype)
        value = self.add(f"fsub {kind} {value}, {lost}")
        new = self.add(f"fadd {kind} {total}, {value}")
        gained = self.add(f"fsub {kind} {new}, {total}")
        away = self.add(f"fsub {kind} {gained}, {value}")
        none = self.add(f"fsub {kind} {away}, {away}")  # 0, or NaN if a sum is infinite
        finite = self.add(f"fcmp oeq {kind} {none}, {zero}")
        flags = f"<{self.lanes} x i1> {finite}"
        return new, self.add(f"select {flags}, {kind} {away}, {kind} {zero}")

    def _loses(self, node: Node) -> bool:
        return self.exact and node.detail == "sum"

    def _pairs(self, reductions: Sequence[Node], name: str) -> list[tuple[str, str]]:
        """Return the names of totals and of their compensations."""
        return [
            (f"%{name}.t{k}", f"%{name}.l{k}" if self._loses(node) else "")
            for k, node in enumerate(reductions)
        ]

    def _phi(
        self, reductions: Sequence[Node], name: str, *sources: tuple[list[tuple[str, str]], str]
    ) -> list[tuple[str, str]]:
        """Emit totals that come from one of several blocks."""
        made = self._pairs(reductions, name)
        for k, node in enumerate(reductions):
            kind = self.vector(node.dtype)
            for which in range(2 if self._loses(node) else 1):
                given = ", ".join(f"[{pairs[k][which]}, %{block}]" for pairs, block in sources)
                self.do(f"{made[k][which]} = phi {kind} {given}")
        return made

    def _beginning(self, reductions: Sequence[Node]) -> list[tuple[str, str]]:
        return [(self._first(node), self._constant(0, node.dtype)) for node in reductions]

    def _named(
        self, reductions: Sequence[Node], name: str, pairs: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """Emit the same totals under names that are known beforehand."""
        made = self._pairs(reductions, name)
        for k, node in enumerate(reductions):
            kind = self.vector(node.dtype)
            for which in range(2 if self._loses(node) else 1):
                self.do(f"{made[k][which]} = bitcast {kind} {pairs[k][which]} to {kind}")
        return made

    def text(self) -> str:
        self._pointers(("outer", "middle", "inner", "total"))
        with self.rows():
            self._begin()
            self._passes()
        return self.whole()

    def _passes(self) -> None:
        """Emit the loops of all levels, and what follows them."""
        for level in self.levels:
            self._settled(level)
            self._level(f"c{level}", level)
        self._settled(len(self.levels))
        self._finish()

    def _begin(self) -> None:
        raise NotImplementedError

    def _settled(self, level: int) -> None:
        raise NotImplementedError

    def _level(self, name: str, level: int) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError
