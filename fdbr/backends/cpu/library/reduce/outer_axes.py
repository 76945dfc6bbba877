"""Loops that reduce across contiguous elements."""

from typing import Any

from fdbr.backends.cpu.library.reduce.accumulators import Folding, Pairs, Work
from fdbr.core.expr import Node

__all__ = ["Across"]

_BLOCK = 8  # rows that are added before their sum is added with compensation


class Across(Folding):
    """Computes panels of neighbouring results by loops from row to row.

    The last panel of a row, which may not be full, has loops of its own with masks, because masks
    are slow on processors without mask registers.
    """

    def _begin(self) -> None:
        self.do("%count = bitcast i64 %middle to i64")
        self.do("%o = udiv i64 %r, %total")
        self.do("%before = mul i64 %o, %total")
        self.do("%p = sub i64 %r, %before")
        self.do(f"%column = mul i64 %p, {self.panel * self.lanes}")
        self.do("%line = mul i64 %o, %inner")
        self.columns = [self.add(f"add i64 %column, {v * self.lanes}") for v in range(self.panel)]

    def _passes(self) -> None:
        self.do(f"%whole = sub i64 %inner, {self.panel * self.lanes}")
        self.do("%is.whole = icmp sle i64 %column, %whole")
        self.do("br i1 %is.whole, label %w.begin, label %m.begin")
        for self.which in "wm":
            self.lines.append(f"{self.which}.begin:")
            masked = self.which == "m"
            self.masks = [self._mask(c, "%inner") if masked else "" for c in self.columns]
            self.places: list[dict[Node, str]] = [{} for _ in range(self.panel)]
            super()._passes()
            self.do("br label %finished")
        self.lines.append("finished:")

    def _nowhere(self) -> Any:
        return self.now

    def _settled(self, level: int) -> None:
        for v in range(self.panel):
            self.now, self.found = v, self.places[v]
            self._settle(level)

    def _level(self, name: str, level: int) -> None:
        work = self._work(level)
        if not work.wanted:
            return
        name = f"{self.which}.{name}"
        self.do(f"br label %{name}.before")
        self.lines.append(f"{name}.before:")
        self.do(f"%{name}.first = mul i64 %line, %middle")
        start = self._beginning(work.reductions)
        if any(self._loses(node) for node in work.reductions):
            totals = self._blocks(name, work, start)
        else:
            totals = self._rows(
                name, work, [start] * self.panel, f"{name}.before", ("0", "%middle")
            )
        for v in range(self.panel):
            self.places[v] |= {n: totals[v][k][0] for k, n in enumerate(work.reductions)}

    def _blocks(self, name: str, work: Work, start: Pairs) -> list[Pairs]:
        """Emit a loop over blocks of rows, whose sums are added with compensation."""
        block, before = f"{name}.block", f"{name}.before"
        self.do(f"br label %{block}")
        self.lines.append(f"{block}:")
        self.do(f"%{block}.i = phi i64 [0, %{before}], [%{block}.stop, %{name}.after]")
        totals = [
            self._phi(
                work.reductions,
                f"{block}.m{v}",
                (start, before),
                (self._pairs(work.reductions, f"{block}.n{v}"), f"{name}.after"),
            )
            for v in range(self.panel)
        ]
        self.do(f"%{block}.end = add i64 %{block}.i, {_BLOCK}")
        self.do(f"%{block}.short = icmp slt i64 %{block}.end, %middle")
        self.do(f"%{block}.stop = select i1 %{block}.short, i64 %{block}.end, i64 %middle")
        begins = [
            [
                start[k] if self._loses(node) else totals[v][k]
                for k, node in enumerate(work.reductions)
            ]
            for v in range(self.panel)
        ]
        self.exact, exact = False, self.exact
        found = self._rows(name, work, begins, block, (f"%{block}.i", f"%{block}.stop"))
        self.exact = exact
        for v in range(self.panel):
            gathered = [
                self._gathered(node, totals[v][k], found[v][k][0])
                if self._loses(node)
                else found[v][k]
                for k, node in enumerate(work.reductions)
            ]
            totals[v] = self._named(work.reductions, f"{block}.n{v}", gathered)
        self.do(f"%{block}.more = icmp slt i64 %{block}.stop, %middle")
        self.do(f"br i1 %{block}.more, label %{block}, label %{block}.after")
        self.lines.append(f"{block}.after:")
        return totals

    def _rows(
        self, name: str, work: Work, begins: list[Pairs], before: str, ends: tuple[str, str]
    ) -> list[Pairs]:
        """Emit a loop over rows; return the totals after it, in the block ``after``."""
        reductions = work.reductions
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.row = f"%{name}.i"
        self.do(f"{self.row} = phi i64 [{ends[0]}, %{before}], [%{name}.j, %{name}]")
        totals = [
            self._phi(
                reductions,
                f"{name}.m{v}",
                (begins[v], before),
                (self._pairs(reductions, f"{name}.n{v}"), name),
            )
            for v in range(self.panel)
        ]
        skipped = self.add(f"mul i64 {self.row}, %inner")
        self.first = self.add(f"add i64 %{name}.first, {skipped}")
        for v in range(self.panel):
            self.now, self.found = v, dict(self.places[v])
            self._computed(work, v, self.masks[v])
            gathered = [
                self._gathered(node, totals[v][k], self.found[node.args[0]])
                for k, node in enumerate(reductions)
            ]
            totals[v] = self._named(reductions, f"{name}.n{v}", gathered)
            for i, out in work.stored:
                self._store(i, self.found[out], v, self.masks[v])
        self.do(f"%{name}.j = add i64 {self.row}, 1")
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, {ends[1]}")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.after")
        self.lines.append(f"{name}.after:")
        return totals

    def _finish(self) -> None:
        for v in range(self.panel):
            for i, out in enumerate(self.outs):
                if not out.varies:
                    self._store(i, self.places[v][out], v, self.masks[v], varies=False)

    def _start(self, offset: str, varies: bool, index: Any) -> str:
        if varies and offset == "0":
            return self.row
        return self.add(f"add i64 {self.first if varies else '%line'}, {self.columns[index]}")

    def _load(
        self, number: int, offset: str, varies: bool, dtype: Any, index: Any, mask: str
    ) -> str:
        side_by_side = offset != "0"
        return self._loaded(number, offset, varies, dtype, index, self.masks[index], side_by_side)
