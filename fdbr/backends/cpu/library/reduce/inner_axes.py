"""Loops that reduce along contiguous elements."""

from fdbr.backends.cpu.codegen.writer import memory_of
from fdbr.backends.cpu.library.reduce.accumulators import PANEL, Folding, Pairs, Work
from fdbr.core.expr import Node, every

__all__ = ["Along"]

_LONG = 40  # operations of a loop from which on it processes fewer vectors at once


class Along(Folding):
    """Computes each result by loops over vectors of reduced elements."""

    def _begin(self) -> None:
        self.do("%count = mul i64 %outer, %inner")
        self.do("%before = mul i64 %r, %inner")
        self.do("%rest = sub i64 %total, %before")  # the last row may be shorter
        self.do("%short = icmp slt i64 %rest, %inner")
        self.do("%here = select i1 %short, i64 %rest, i64 %inner")
        self.begin, self.own = "", ""

    def _settled(self, level: int) -> None:
        self._settle(level)

    def _level(self, name: str, level: int) -> None:
        work = self._work(level)
        reductions = work.reductions
        if not work.wanted:
            return
        many = PANEL if len(every(work.wanted, self.found)) < _LONG else PANEL // 2
        many *= 2 if self.exact else 1  # compensated sums have a longer latency
        outside = dict(self.found)
        start = self._beginning(reductions)
        self.do(f"br label %{name}.before")
        self.lines.append(f"{name}.before:")
        self.do(f"br label %{name}.part")
        self.lines.append(f"{name}.part:")  # an index of the first axis
        self.do(f"%{name}.s = phi i64 [0, %{name}.before], [%{name}.s1, %{name}.done]")
        so_far = self._phi(
            reductions,
            f"{name}.p",
            (start, f"{name}.before"),
            (self._pairs(reductions, f"{name}.d"), f"{name}.done"),
        )
        place = self.add(f"mul i64 %{name}.s, %middle")
        place = self.add(f"add i64 {place}, %r")
        self.begin = self.add(f"mul i64 {place}, %inner")
        self.own = self.add(f"mul i64 %{name}.s, %inner")
        between = self._whole_vectors(name, work, [so_far, *[start] * (many - 1)], outside)
        ended = self._rest(name, work, between)
        self.found = outside
        self.lines.append(f"{name}.done:")
        done = self._phi(
            reductions, f"{name}.d", (between, f"{name}.between"), (ended, f"{name}.rest")
        )
        self.do(f"%{name}.s1 = add i64 %{name}.s, 1")
        self.do(f"%{name}.next = icmp slt i64 %{name}.s1, %outer")
        self.do(f"br i1 %{name}.next, label %{name}.part, label %{name}.after")
        self.lines.append(f"{name}.after:")
        for k, node in enumerate(reductions):
            self.found[node] = self._folded(node, done[k][0])

    def _whole_vectors(
        self, name: str, work: Work, begins: list[Pairs], outside: dict[Node, str]
    ) -> Pairs:
        """Emit a loop over whole vectors, several at once, and then combine their totals.

        It starts from a total for each of the several, and ends in the block ``between``, where
        ``k`` is the first element that is left.
        """
        reductions, many, lanes = work.reductions, len(begins), self.lanes
        self.do(f"%{name}.full = sub i64 %here, {many * lanes - 1}")
        self.do(f"%{name}.some = icmp sgt i64 %{name}.full, 0")
        self.do(f"br i1 %{name}.some, label %{name}, label %{name}.between")
        self.lines.append(f"{name}:")
        self.do(f"%{name}.i = phi i64 [0, %{name}.part], [%{name}.j, %{name}]")
        held = [
            self._phi(
                reductions,
                f"{name}.m{v}",
                (begins[v], f"{name}.part"),
                (self._pairs(reductions, f"{name}.n{v}"), name),
            )
            for v in range(many)
        ]
        self.waiting: dict[int, str] = {}
        for v in range(many):
            index = self.add(f"add i64 %{name}.i, {v * lanes}")
            self.waits = v < many - 1
            held[v] = self._named(
                reductions, f"{name}.n{v}", self._gathering(work, index, "", held[v])
            )
            self.found = dict(outside)
        self.do(f"%{name}.j = add i64 %{name}.i, {many * lanes}")
        self.do(f"%{name}.more = icmp slt i64 %{name}.j, %{name}.full")
        self.do(f"br i1 %{name}.more, label %{name}, label %{name}.between")
        self.lines.append(f"{name}.between:")
        self.do(f"%{name}.k = phi i64 [0, %{name}.part], [%{name}.j, %{name}]")
        parts = [
            self._phi(reductions, f"{name}.b{v}", (begins[v], f"{name}.part"), (held[v], name))
            for v in range(many)
        ]
        joined = parts[0]
        for part in parts[1:]:
            joined = [self._added(node, joined[k], part[k]) for k, node in enumerate(reductions)]
        return self._named(reductions, f"{name}.g", joined)

    def _rest(self, name: str, work: Work, between: Pairs) -> Pairs:
        """Emit a loop over the remaining vectors, the last of which may not be full."""
        reductions = work.reductions
        self.do(f"%{name}.left = icmp slt i64 %{name}.k, %here")
        self.do(f"br i1 %{name}.left, label %{name}.rest, label %{name}.done")
        self.lines.append(f"{name}.rest:")
        self.do(f"%{name}.x = phi i64 [%{name}.k, %{name}.between], [%{name}.y, %{name}.rest]")
        last = self._phi(
            reductions,
            f"{name}.r",
            (between, f"{name}.between"),
            (self._pairs(reductions, f"{name}.e"), f"{name}.rest"),
        )
        mask = self._mask(f"%{name}.x", "%here")
        gathered = self._gathering(work, f"%{name}.x", mask, last)
        ended = self._named(reductions, f"{name}.e", gathered)
        self.do(f"%{name}.y = add i64 %{name}.x, {self.lanes}")
        self.do(f"%{name}.again = icmp slt i64 %{name}.y, %here")
        self.do(f"br i1 %{name}.again, label %{name}.rest, label %{name}.done")
        return ended

    def _gathering(self, work: Work, index: str, mask: str, totals: Pairs) -> Pairs:
        """Emit one vector, its stores, and its addition to the totals; return these."""
        self._computed(work, index, mask)
        gathered = []
        for k, node in enumerate(work.reductions):
            value = self.found[node.args[0]]
            if mask:
                kind = self.vector(node.dtype)
                value = self.add(f"select {mask}, {kind} {value}, {kind} {self._first(node)}")
            if not mask and self._loses(node):  # several are added first, as compensating is slow
                if k in self.waiting:
                    kind = self.vector(node.dtype)
                    value = self.add(f"fadd {kind} {self.waiting[k]}, {value}")
                self.waiting[k] = value
                if self.waits:
                    gathered.append(totals[k])
                    continue
            gathered.append(self._gathered(node, totals[k], value))
        for i, out in work.stored:
            self._store(i, self.found[out], index, mask)
        return gathered

    def _added(self, node: Node, pair: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
        if not self._loses(node):
            return self._joined(node, pair[0], other[0]), ""
        both = self._gathered(node, pair, other[0])
        kind = self.vector(node.dtype)
        return both[0], self.add(f"fadd {kind} {both[1]}, {other[1]}")

    def _folded(self, node: Node, total: str) -> str:
        """Emit the reduction of a vector in all its lanes: halves first, in a fixed order."""
        step, kind = self.lanes // 2, self.vector(node.dtype)
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            order = f"<{self.lanes} x i32> <{order}>"
            other = self.add(f"shufflevector {kind} {total}, {kind} poison, {order}")
            total = self._joined(node, total, other)
            step //= 2
        return total

    def _finish(self) -> None:
        for i, out in enumerate(self.outs):
            if not out.varies:
                self._store_one(i, out)

    def _store_one(self, out: int, node: Node) -> None:
        """Emit the store of the element of a row."""
        memory = memory_of(node.dtype)
        place = self._place(self.operands + out, "r", False, node.dtype, "0")
        one = self.add(f"extractelement {self.vector(node.dtype)} {self.found[node]}, i64 0")
        self.do(f"store {memory} {one}, ptr {place}, align {node.dtype.itemsize}")

    def _start(self, offset: str, varies: bool, index: str) -> str:
        if not varies:
            return "%r" if offset == "r" else "0"
        return self.add(f"add i64 {self.begin if offset == 'r' else self.own}, {index}")
