"""Loops that reduce across what lies side by side in memory."""

from typing import Any

from fdbr.kernels.expressions import Node
from fdbr.kernels.folds import PANEL, Folding

__all__ = ["Across"]


class Across(Folding):
    """Results side by side, by loops from row to row: a panel of them at a time."""

    def _begin(self) -> None:
        self.do("%count = bitcast i64 %middle to i64")
        self.do("%o = udiv i64 %r, %total")
        self.do("%before = mul i64 %o, %total")
        self.do("%p = sub i64 %r, %before")
        self.do(f"%column = mul i64 %p, {PANEL * self.lanes}")
        self.do("%line = mul i64 %o, %inner")
        self.columns, self.masks = [], []
        for v in range(PANEL):
            column = self.add(f"add i64 %column, {v * self.lanes}")
            self.columns.append(column)
            self.masks.append(self._mask(column, "%inner"))
        self.places: list[dict[Node, str]] = [{} for _ in range(PANEL)]

    def _nowhere(self) -> Any:
        return self.now

    def _settled(self, level: int) -> None:
        for self.now in range(PANEL):
            self.found = self.places[self.now]
            self._settle(level)

    def _level(self, name: str, level: int) -> None:
        work = self._work(level)
        reductions = work.reductions
        if not work.wanted:
            return
        self.do(f"br label %{name}.before")
        self.lines.append(f"{name}.before:")
        self.do(f"%{name}.first = mul i64 %line, %middle")
        self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.row = f"%{name}.i"
        self.do(f"{self.row} = phi i64 [0, %{name}.before], [%{name}.j, %{name}]")
        start = self._beginning(reductions)
        totals = [
            self._phi(
                reductions,
                f"{name}.m{v}",
                (start, f"{name}.before"),
                (self._pairs(reductions, f"{name}.n{v}"), name),
            )
            for v in range(PANEL)
        ]
        skipped = self.add(f"mul i64 {self.row}, %inner")
        self.first = self.add(f"add i64 %{name}.first, {skipped}")
        for v in range(PANEL):
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
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, %middle")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.after")
        self.lines.append(f"{name}.after:")
        for v in range(PANEL):
            self.places[v] |= {n: totals[v][k][0] for k, n in enumerate(reductions)}

    def _finish(self) -> None:
        for v in range(PANEL):
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
