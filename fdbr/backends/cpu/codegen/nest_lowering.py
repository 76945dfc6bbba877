"""Lowering of loop nests to LLVM, with vectors of 64 bytes of the largest dtype.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
addresses of the operands and of the outputs, then the extents of the loops, the distances that are
arguments, the iterations of a ragged loop, and last, if the nest has conditions, the address of a
word that becomes nonzero if one does not hold for some element.  ``start`` and ``stop`` count
units; in a nest of one loop that is kept, they are its iterations.

Reductions that depend on each other's results have a *level* each, with loops of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.llvm_instructions import Cell, Module
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.llvm_values import TYPES, Counts, Value, kind
from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule
from fdbr.backends.cpu.codegen.node_values import NodeValues, code_of
from fdbr.core.expr import Node, cost, every

__all__ = ["lowered", "width"]

_BYTES = 64  # of a vector of the largest dtype
_PARTS = 4  # vectors that a reduction adds up independently
_LONG = 40  # operations of a loop from which on there are half as many
_BLOCK = 8  # rows that are added before their sum is added with compensation
_DEAR = 16  # cost of an element that is stored rather than computed again for the next level
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_COMBINED = {"sum": "+", "prod": "*"}
_ORDERS = {"max": ">", "min": "<"}


def lowered(nest: LoopNest, schedule: Schedule) -> str:
    """Return the kernel of a nest in LLVM's language."""
    return _Lowering(nest, schedule).text()


def width(nodes: Sequence[Node]) -> int:
    """Return the number of lanes: as many of the largest dtype of nodes as a vector holds."""
    return _BYTES // max(node.dtype.itemsize for node in every(nodes))


class _Total(NamedTuple):
    """The total of a reduction so far, and its compensation for rounding, if there is one."""

    cell: Cell
    lost: Cell | None


class _Level(NamedTuple):
    """The reductions of a level, the outputs stored in its loops, and the nodes for both."""

    number: int
    reductions: list[Node]
    stored: list[tuple[int, Node]]
    wanted: list[Node]


class _Lowering(NodeValues):
    """Emit a kernel.

    Attributes
    ----------
    open
        The loops around the instruction that is emitted next.
    found
        The values of nodes that are known there.
    pointers
        Where operands and outputs begin in the iterations of the open loops; of the vectorised
        loop, ``index`` is the first iteration of a vector.
    """

    gathers = True

    def __init__(self, nest: LoopNest, schedule: Schedule) -> None:
        super().__init__(Module())
        self.nest, self.schedule, self.vector = nest, schedule, schedule.vector
        self.nodes = every([*nest.outs, *nest.conditions])
        self.width = width([*nest.outs, *nest.conditions])
        self.gathers = True
        loops = range(len(nest.kept))
        self.results = frozenset([k for k in loops if nest.kept[k]])
        self.reduced = [k for k in loops if not nest.kept[k] and k != self.vector]
        self.units = [k for k in loops if nest.kept[k] and k != self.vector]
        self.loops_of: dict[Node, frozenset[int]] = {}
        for node in self.nodes:
            self.loops_of[node] = self._loops_of(node)
        kept = "".join("c" if k else "-" for k in nest.kept)
        self.arrays = [*nest.operands]
        for out in nest.outs:
            self.arrays.append(Access(out.dtype, "c" * len(loops) if self._is_full(out) else kept))
        self.saved = self._saved()
        self.open: frozenset[int] = frozenset()
        self.found: dict[Node, Value] = {}
        self.pointers: list[Value] = []
        self.index = Value("i8", "0")
        self.holds: Cell | None = None

    # --- nodes

    def _loops_of(self, node: Node) -> frozenset[int]:
        """Return the loops that the value of a node depends on."""
        if node.op == "operand":
            axes = self.nest.operands[node.detail[0]].axes
            return frozenset([k for k, axis in enumerate(axes) if axis != "-"])
        loops = frozenset[int]().union(*[self.loops_of[arg] for arg in node.args])
        return loops & self.results if node.op == "reduced" else loops

    def _is_full(self, node: Node) -> bool:
        """Return whether a result has an axis for all loops."""
        return len(self.results) == len(self.nest.kept) or not self.loops_of[node] <= self.results

    def _saved(self) -> Node | None:
        """Return a costly node that the first output stores until the reduction is complete."""
        out = self.nest.outs[0]
        if out.level == 0 or not self._is_full(out):
            return None
        for node in self.nodes:
            if (
                self._is_full(node)
                and node.level < out.level
                and node.dtype == out.dtype
                and cost([node]) > _DEAR
                and any(
                    user.level == out.level and any(arg is node for arg in user.args)
                    for user in self.nodes
                )
            ):
                return node
        return None

    def _level(self, number: int) -> _Level:
        reductions = [n for n in self.nodes if n.op == "reduced" and n.args[0].level == number]
        stored = [
            (i, out)
            for i, out in enumerate(self.nest.outs)
            if out.level == number and self._is_full(out)
        ]
        wanted = [node.args[0] for node in reductions] + [out for _, out in stored]
        if self.saved is not None and self.saved.level == number:
            stored.append((0, self.saved))
            wanted.append(self.saved)
        if number == 0:
            wanted += self.nest.conditions
        return _Level(number, reductions, stored, wanted)

    def _settle(self, nodes: Sequence[Node]) -> None:
        """Emit the nodes whose values can be computed here."""
        for node in nodes:
            if node.op == "reduced" or node in self.found or not self.loops_of[node] <= self.open:
                continue
            args = [self.found.get(arg) for arg in node.args]
            if None not in args:
                self.found[node] = self._value(node, args)

    def _value(self, node: Node, args: Any) -> Value:
        if node.op == "operand":
            return self._read(node.detail[0])
        if node.op == "columns":
            count = Value("i8", "1")
            for k, kept in enumerate(self.nest.kept):
                count = count if kept else self.binary("*", count, self.extents[k])
            return self.cast(count, code_of(node.dtype))
        return self.of_node(node, args)

    # --- memory

    def _arguments(self) -> None:
        """Load the table."""
        bases = [f"base{i}" for i in range(len(self.arrays))]
        names = [*bases, *[f"extent{k}" for k in range(len(self.nest.kept))]]
        for i, array in enumerate(self.arrays):
            names += [f"step{i}.{k}" for k, axis in enumerate(array.axes) if axis == "s"]
        if self.schedule.ragged:
            names.append("all")
        if self.nest.conditions:
            names.append("failed")
        self.lines.append(words(names, bases))
        self.extents = [Value("i8", f"%extent{k}") for k in range(len(self.nest.kept))]
        self.steps_of = [self._distances(i, array.axes) for i, array in enumerate(self.arrays)]
        for base, array in zip(bases, self.arrays, strict=True):
            code = code_of(array.dtype)
            self.pointers.append(Value("*u1" if code == "b1" else f"*{code}", f"%{base}"))

    def _distances(self, i: int, axes: str) -> list[Value | None]:
        """Return the distances of an array's elements along each loop."""
        found: list[Value | None] = [None] * len(axes)
        after = Value("i8", "1")
        for k in reversed(range(len(axes))):
            if axes[k] == "s":
                found[k] = Value("i8", f"%step{i}.{k}")
            elif axes[k] == "c":
                found[k], after = after, self.binary("*", after, self.extents[k])
        return found

    def _enter(self, loop: int, index: Value) -> None:
        """Move pointers to an iteration of a loop."""
        self.open |= {loop}
        pointers = []
        for pointer, steps in zip(self.pointers, self.steps_of, strict=True):
            step = steps[loop]
            if step is not None:
                far = self.binary("*", index, step)
                text = f"getelementptr {TYPES[pointer.type[1:]]}, ptr {pointer.text}, i64 "
                pointer = pointer._replace(text=self.add(text + far.text))
            pointers.append(pointer)
        self.pointers = pointers

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Forget at the end what a block has found."""
        before = self.pointers, self.open, self.found
        self.found = dict(self.found)
        yield
        self.pointers, self.open, self.found = before

    def _at(self, i: int) -> Value:
        """Return the index of an element, or of a vector, from an array's pointer on."""
        step = self.steps_of[i][self.vector]
        if self.lanes == 1 or step is None:
            return Value("i8", "0")
        first = self.binary("*", self.index, step).text
        counts = Counts(first, 0, 1 if step.text == "1" else step.text)
        return Value("i8", "", counts=counts)

    def _read(self, i: int) -> Value:
        found = self.read(self.pointers[i], self._at(i))
        return self.truth(found) if self.arrays[i].dtype == np.bool_ else found

    def _store(self, out: int, value: Value) -> None:
        i = len(self.nest.operands) + out
        self.write(self.pointers[i], self._at(i), value)

    @contextmanager
    def _vector(self, index: Value, mask: str, found: dict[Node, Value]) -> Iterator[None]:
        """Emit a vector of the vectorised loop, from an iteration on."""
        before = self.open, self.found, self.index
        self.open |= {self.vector}
        self.lanes = self.there = self.width
        self.mask, self.index, self.found = mask, index, found
        yield
        self.lanes, self.there, self.mask = 1, 1, ""
        self.open, self.found, self.index = before

    # --- the kernel

    def text(self) -> str:
        """Return the whole kernel."""
        self._arguments()
        if self.nest.conditions:
            ones = f"<{self.width} x i{8 * _BYTES // self.width}>"
            self.holds = Cell(ones, f"splat (i{8 * _BYTES // self.width} -1)")
            self.cells.append(self.holds)
        self._settle(self.nodes)
        start, stop = Value("i8", "%start"), Value("i8", "%stop")
        if self.schedule.panel or self.units or not self.nest.kept[self.vector]:
            with self._scope(), self.loop(start.text, stop.text) as unit:
                self._unit(Value("i8", unit))
        else:
            self._levels(start, stop)
        if self.holds is not None:
            self._report(self.holds)
        self.do("ret void")
        body = "\n".join(self.lines)
        return f"{self.module.text()}\n{HEAD}{body}\n}}\n"

    def _unit(self, unit: Value) -> None:
        """Emit what a unit computes."""
        loop = self.vector
        extents = [self.extents[k] for k in self.units]
        if self.schedule.panel:
            across = self.schedule.panel * self.width
            more = self.binary("+", self.extents[loop], Value("i8", str(across - 1)))
            extents.append(Value("i8", self.add(f"udiv {more.typed}, {across}")))
        rest, indices = unit, []
        for extent in reversed(extents[1:]):
            after = Value("i8", self.add(f"udiv {rest.typed}, {extent.text}"))
            indices.append(self.binary("-", rest, self.binary("*", after, extent)))
            rest = after
        indices = [rest, *reversed(indices)]
        for k, index in zip(self.units, indices, strict=False):
            self._enter(k, index)
        stop = self.extents[loop]
        if self.schedule.panel:
            self._panels(self.binary("*", indices[-1], Value("i8", str(across))))
            return
        if self.schedule.ragged:
            left = self.binary("-", Value("i8", "%all"), self.binary("*", unit, stop))
            stop = self.called_on("smin", left, stop)
        self._levels(Value("i8", "0"), stop)

    def _report(self, holds: Cell) -> None:
        """Report whether all conditions have held."""
        most = f"<{self.width} x i1>"
        zero = self.add(f"icmp ne {holds.type} {holds.text}, zeroinitializer")
        all = self.call(f"llvm.vector.reduce.and.v{self.width}i1", "i1", (most, zero))
        with self.where(self.add(f"xor i1 {all}, true")):
            place = self.add("inttoptr i64 %failed to ptr")
            self.do(f"store atomic i64 1, ptr {place} monotonic, align 8")

    def _inside(self, loops: Sequence[int], emit: Callable[[], None]) -> None:
        """Emit loops around what is emitted by a function."""
        if not loops:
            emit()
            return
        with self._scope(), self.loop("0", self.extents[loops[0]].text) as index:
            self._enter(loops[0], Value("i8", index))
            self._inside(loops[1:], emit)

    # --- units whose vectorised loop is reduced, or done as a whole

    def _levels(self, first: Value, stop: Value) -> None:
        """Emit all levels, and the results that have an element for each unit."""
        for number in range(max(node.level for node in self.nodes) + 1):
            self._settle(self.nodes)
            level = self._level(number)
            if level.wanted:
                self._along(level, first, stop)
        self._settle(self.nodes)
        for i, out in enumerate(self.nest.outs):
            if not self._is_full(out):
                self._store(i, self.found[out])

    def _along(self, level: _Level, first: Value, stop: Value) -> None:
        """Emit the loops of a level, in which several vectors are added up independently."""
        many = _PARTS if len(every(level.wanted, self.found)) < _LONG else _PARTS // 2
        many *= 2 if self.schedule.exact else 1  # compensated sums have a longer latency
        many = many if level.reductions else 1
        with self._carried():
            totals = [self._totals(level)]
            for _ in range(many - 1):  # those that are compensated are shared
                totals.append(self._totals(level, totals[0]))
            self._inside(self.reduced, lambda: self._vectors(level, first, stop, totals))
        for k, node in enumerate(level.reductions):
            joined, *others = [self._of(node, t) for t in dict.fromkeys(t[k] for t in totals)]
            for part in others:
                joined = self._joined(node, joined, part)
            self.found[node] = self._folded(node, joined)

    def _vectors(
        self, level: _Level, first: Value, stop: Value, totals: list[list[_Total]]
    ) -> None:
        """Emit the vectorised loop."""
        if not level.reductions and not self.schedule.masked:
            # The last vector starts earlier, and computes some elements again.
            final = self.binary("-", stop, Value("i8", str(self.width)))
            with self.loop(first.text, stop.text, self.width) as name:
                index = self.called_on("smin", Value("i8", name), final)
                self._elements(level, index, "", totals[0], {})
            return
        step = len(totals) * self.width
        whole = self.binary("-", stop, first)
        whole = self.binary("+", first, self.binary("&", whole, Value("i8", str(-step))))
        with self.loop(first.text, whole.text, step) as name:
            waiting: dict[int, Value] = {}
            for v, total in enumerate(totals):
                index = self.binary("+", Value("i8", name), Value("i8", str(v * self.width)))
                self._elements(level, index, "", total, waiting, v == len(totals) - 1)
        with self.loop(whole.text, stop.text, self.width) as name:
            index = Value("i8", name)
            self._elements(level, index, self.active(index, stop, self.width), totals[0], {})

    def _elements(
        self,
        level: _Level,
        index: Value,
        mask: str,
        totals: list[_Total],
        waiting: dict[int, Value],
        last: bool = True,
    ) -> None:
        """Emit one vector: its stores, and its addition to totals.

        Vectors for a compensated sum are added up in ``waiting`` up to the last, as compensating
        is slow.
        """
        with self._vector(index, mask, dict(self.found)):
            self._compute(level)
            for k, node in enumerate(level.reductions):
                value = self.spread(self.found[node.args[0]], self.width)
                if mask:
                    value = self.select(self._flags(mask), value, self._first(node))
                if totals[k].lost is not None and not mask:
                    if k in waiting:
                        value = self.binary("+", waiting[k], value)
                    waiting[k] = value
                    if not last:
                        continue
                self._gather(node, totals[k], value)
            self._check(mask)

    def _compute(self, level: _Level) -> None:
        """Emit the nodes of one vector, and its stores."""
        if self.saved is not None and self.saved.level < level.number:
            self.found[self.saved] = self._read(len(self.nest.operands))
        self._settle(every(level.wanted, self.found))
        for i, out in level.stored:
            self._store(i, self.found[out])

    def _check(self, mask: str) -> None:
        """Record whether the conditions hold for the active lanes."""
        if self.holds is None:
            return
        for condition in self.nest.conditions:
            value = self.spread(self.found[condition], self.width)
            if mask:
                value = self.binary("|", value, self.invert(self._flags(mask)))
            wide = self.add(f"sext {value.typed} to {self.holds.type}")
            self.holds.text = self.add(f"and {self.holds.type} {self.holds.text}, {wide}")

    def _flags(self, mask: str) -> Value:
        return Value("b1", mask, lanes=self.width)

    # --- panels of adjacent results

    def _panels(self, column: Value) -> None:
        """Emit the panel that begins at a column.

        The last one, which may not be full, has loops of its own with masks, because masks are slow
        on processors without mask registers.
        """
        stop, size = self.extents[self.vector], self.schedule.panel * self.width
        final = self.binary("-", stop, Value("i8", str(size)))
        for order, masked in (("sle", False), ("sgt", True)):
            with self.where(self.add(f"icmp {order} {column.typed}, {final.text}")):
                columns = [
                    self.binary("+", column, Value("i8", str(v * self.width)))
                    for v in range(self.schedule.panel)
                ]
                masks = [self.active(c, stop, self.width) if masked else "" for c in columns]
                with self._scope():
                    self._panel(list(zip(columns, masks, strict=True)))

    def _panel(self, places: list[tuple[Value, str]]) -> None:
        """Emit all levels for the vectors of a panel, given their indices and masks."""
        found: list[dict[Node, Value]] = [{} for _ in places]
        for number in range(max(node.level for node in self.nodes) + 1):
            self._settle_panel(places, found)
            level = self._level(number)
            if level.wanted:
                self._across(level, places, found)
        self._settle_panel(places, found)
        for (index, mask), known in zip(places, found, strict=True):
            with self._vector(index, mask, self.found | known):
                for i, out in enumerate(self.nest.outs):
                    if not self._is_full(out):
                        self._store(i, self.found[out])

    def _settle_panel(
        self, places: list[tuple[Value, str]], found: list[dict[Node, Value]]
    ) -> None:
        for (index, mask), known in zip(places, found, strict=True):
            with self._vector(index, mask, self.found | known):
                self._settle(self.nodes)
                known |= self.found

    def _across(
        self, level: _Level, places: list[tuple[Value, str]], found: list[dict[Node, Value]]
    ) -> None:
        """Emit the loops of a level for the vectors of a panel."""
        *outer, last = self.reduced
        extent = self.extents[last].text

        def rows(first: str, stop: str, totals: list[list[_Total]]) -> None:
            with self._scope(), self.loop(first, stop) as row:
                self._enter(last, Value("i8", row))
                self._settle(every(level.wanted, {**self.found, **found[0]}))
                for v, (index, mask) in enumerate(places):
                    with self._vector(index, mask, self.found | found[v]):
                        self._compute(level)
                        for k, node in enumerate(level.reductions):
                            value = self.spread(self.found[node.args[0]], self.width)
                            self._gather(node, totals[v][k], value)

        def blocks() -> None:
            with self.loop("0", extent, _BLOCK) as first, self._carried():
                stop = self.binary("+", Value("i8", first), Value("i8", str(_BLOCK)))
                stop = self.called_on("smin", stop, self.extents[last])
                parts = [self._totals(level, total, exact=False) for total in totals]
                rows(first, stop.text, parts)
                for total, part in zip(totals, parts, strict=True):
                    for k, node in enumerate(level.reductions):
                        if total[k].lost is not None:
                            self._gather(node, total[k], self._of(node, part[k]))

        with self._carried():
            totals = [self._totals(level) for _ in places]
            exact = any(total.lost is not None for total in totals[0])
            self._inside(outer, blocks if exact else lambda: rows("0", extent, totals))
        for known, total in zip(found, totals, strict=True):
            known |= {n: self._of(n, total[k]) for k, n in enumerate(level.reductions)}

    # --- totals

    @contextmanager
    def _carried(self) -> Iterator[None]:
        """Carry the totals that a block makes only until its end."""
        before = self.cells
        self.cells = [*before]
        yield
        self.cells = before

    def _totals(
        self, level: _Level, others: Sequence[_Total] = (), exact: bool = True
    ) -> list[_Total]:
        """Return new totals of a level's reductions.

        They share the compensated ones of ``others``.  If they are not ``exact``, none is
        compensated, and they share the others of ``others``.
        """
        totals = []
        for k, node in enumerate(level.reductions):
            compensated = self.schedule.exact and node.detail == "sum"
            if others and compensated == exact:
                totals.append(others[k])
                continue
            many, zero = kind(code_of(node.dtype), self.width), "zeroinitializer"
            lost = Cell(many, zero) if compensated and exact else None
            total = _Total(Cell(many, self._first(node).text), lost)
            self.cells += [cell for cell in total if cell is not None]
            totals.append(total)
        return totals

    def _of(self, node: Node, total: _Total) -> Value:
        return Value(code_of(node.dtype), total.cell.text, lanes=self.width)

    def _first(self, node: Node) -> Value:
        """Return the total of no elements."""
        first = self.cast(self.literal(_IDENTITY[node.detail]), code_of(node.dtype))
        return self.spread(self.strong(first), self.width)

    def _joined(self, node: Node, total: Value, value: Value) -> Value:
        """Emit the combination of two totals."""
        if node.detail in _COMBINED:
            return self.binary(_COMBINED[node.detail], total, value)
        beyond = self.compare(_ORDERS[node.detail], value, total)
        none = self.compare("!=", value, value)
        return self.select(self.binary("|", beyond, none), value, total)

    def _gather(self, node: Node, total: _Total, value: Value) -> None:
        """Emit the addition of a vector to a total, and its new compensation (Kahan)."""
        old = self._of(node, total)
        if total.lost is None:
            total.cell.text = self._joined(node, old, value).text
            return
        zero = Value(value.type, "zeroinitializer", lanes=self.width)
        value = self.binary("-", value, value._replace(text=total.lost.text))
        new = self.binary("+", old, value)
        away = self.binary("-", self.binary("-", new, old), value)
        none = self.binary("-", away, away)  # 0, or NaN if a sum is infinite
        total.cell.text = new.text
        total.lost.text = self.select(self.compare("==", none, zero), away, zero).text

    def _folded(self, node: Node, total: Value) -> Value:
        """Emit the reduction of a vector's lanes: halves first, in a fixed order."""
        step = self.width // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.width))
            text = f"shufflevector {total.typed}, {kind(total.type, self.width)} poison, "
            other = self.like(total, f"{text}<{self.width} x i32> <{order}>")
            total = self._joined(node, total, other)
            step //= 2
        return Value(total.type, self.add(f"extractelement {total.typed}, i64 0"))
