"""Lowering of loop nests to LLVM, with vectors of 64 bytes of the largest dtype.

A kernel is ``void kernel(int64* table, int64 start, int64 stop, int64 part)``.  The table has the
addresses of the operands and of the outputs, then the extents of the loops, the distances that are
arguments, the iterations of a ragged loop, and last, if the nest has conditions, the address of a
word that becomes nonzero if one does not hold for some element.  ``start`` and ``stop`` count
units; in a nest of one loop that is kept, they are its iterations.

The table of a kernel of compiled programs has the addresses of array objects: the operands, an
array of the integers, the outputs, the totals, memory in which each thread adds up totals in double
precision (see `wide_totals`), memory for what each thread writes past the caches, and an array of
one byte for the conditions.  For a distance, the integers have the axis of the operand's strides.

Reductions that depend on each other's results have a *level* each, with loops of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.language import HEAD as OBJECT_HEAD
from fdbr.backends.cpu.codegen.language import STRIDES
from fdbr.backends.cpu.codegen.llvm_instructions import Cell, Module
from fdbr.backends.cpu.codegen.llvm_prelude import HEAD, words
from fdbr.backends.cpu.codegen.llvm_values import TYPES, Counts, Value, kind
from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule, Total
from fdbr.backends.cpu.codegen.node_values import NodeValues, code_of
from fdbr.core.expr import Node, cost, every

__all__ = ["PADDING", "RUN", "lowered", "wide_totals", "width"]

PADDING = 64
"""How many elements more than needed the memory of a total has, so that stores need no masks."""

RUN = 1024
"""How many elements of a result are written past the caches at once, if no loop is reduced."""

_BYTES = 64  # of a vector of the largest dtype
_PARTS = 4  # vectors that a reduction adds up independently
_LONG = 40  # operations of a loop from which on there are half as many
_SUMMED = 256  # elements that are added before their sum is added to a total with compensation
_ROWS = 128  # the same of rows, which are added to a total in double precision
_BLOCK = 8  # rows that are added before their sum is added with compensation
_DEAR = 16  # cost of an element that is stored rather than computed again for the next level
_WIDE = np.dtype(np.float64)
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf}
_COMBINED = {"sum": "+", "prod": "*"}
_ORDERS = {"max": ">", "min": "<"}


def lowered(nest: LoopNest, schedule: Schedule, objects: bool = False) -> str:
    """Return the kernel of a nest in LLVM's language; its table may have array ``objects``."""
    return _Lowering(nest, schedule, objects).text()


def width(nodes: Sequence[Node]) -> int:
    """Return the number of lanes: as many of the largest dtype of nodes as a vector holds."""
    sizes = [node.dtype.itemsize for node in every(nodes) if node.varies]
    return _BYTES // max(sizes, default=_WIDE.itemsize)


def wide_totals(nest: LoopNest) -> list[int]:
    """Return the numbers of the totals that each thread adds up in double precision in memory."""
    return [k for k, total in enumerate(nest.totals) if total.how == "sum" and any(total.left)]


class _Total(NamedTuple):
    """The total of a reduction so far, and its compensation for rounding, if there is one."""

    cell: Cell
    lost: Cell | None


class _Level(NamedTuple):
    """Describe the loops of a level: reductions, stored outputs, totals by number, conditions.

    The nodes that these need are ``wanted``.
    """

    number: int
    reductions: list[Node]
    stored: list[tuple[int, Node]]
    totals: list[int]
    conditions: list[Node]
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

    def __init__(self, nest: LoopNest, schedule: Schedule, objects: bool) -> None:
        super().__init__(Module())
        self.nest, self.schedule, self.vector = nest, schedule, schedule.vector
        self.objects = objects
        roots = [*nest.outs, *nest.conditions, *[total.node for total in nest.totals]]
        self.nodes, self.width = every(roots), width(roots) // (2 if schedule.half else 1)
        self.across = (schedule.panel or schedule.tail) * self.width  # results of a panel
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
        self.full = [i in nest.broadcast or self._is_full(node) for i, node in enumerate(nest.outs)]
        for out, full in zip(nest.outs, self.full, strict=True):
            self.arrays.append(Access(out.dtype, "c" * len(loops) if full else kept))
        self.first_total = len(self.arrays)  # of totals
        self.wide = wide_totals(nest)
        self.parts = [k for k in self.wide if self._in_parts(nest.totals[k])]
        for k, total in enumerate(nest.totals):
            axes = "".join("c" if left else "-" for left in total.left)
            wide = k in self.wide and k not in self.parts
            self.arrays.append(Access(_WIDE if wide else total.node.dtype, axes))
        self.streamed = {i: len(self.arrays) + j for j, i in enumerate(sorted(nest.streamed))}
        self.in_runs = bool(nest.streamed) and all(nest.kept)
        for i in self.streamed:  # a thread's own memory has the elements of a unit, or some of them
            own = "".join("-" if k in self.units else "c" for k in loops)
            at = len(nest.operands) + i
            self.arrays.append(self.arrays[at])
            self.arrays[at] = Access(nest.outs[i].dtype, own)
        self.saved = self._saved()
        self.open: frozenset[int] = frozenset()
        self.found: dict[Node, Value] = {}
        self.pointers: list[Value] = []
        self.index = self.run = Value("i8", "0")
        self.holds: Cell | None = None

    # --- nodes

    def _loops_of(self, node: Node) -> frozenset[int]:
        """Return the loops that the value of a node depends on."""
        if node.op == "operand":
            axes = self.nest.operands[node.detail[0]].axes
            return frozenset([k for k, axis in enumerate(axes) if axis != "-"])
        loops = frozenset[int]().union(*[self.loops_of[arg] for arg in node.args])
        if node.op == "is_column":
            loops |= {self.vector}
        return loops & self.results if node.op == "reduced" else loops

    def _in_parts(self, total: Total) -> bool:
        """Return whether a unit adds at most one number to each sum of a total.

        Then those of some units are added in memory of their dtype, and these to the total.
        """
        first = self.nest.totals[self.wide[0]]
        own = total.left == first.left and total.left[self.vector]
        return own and all(total.left[k] for k in self.reduced)

    def _is_full(self, node: Node) -> bool:
        """Return whether a result has an axis for all loops."""
        return len(self.results) == len(self.nest.kept) or not self.loops_of[node] <= self.results

    def _saved(self) -> dict[Node, int]:
        """Return costly nodes of one level that a later one needs, and the outputs that keep them.

        An output keeps its own elements, and others as long as it does not have these.  What is
        not kept is computed again, and so are the nodes that it depends on.
        """
        found: dict[Node, int] = {}
        free = [i for i, full in enumerate(self.full) if full]
        needed: dict[Node, int] = {}  # the last level that computes a node's user
        reduced = {node for node in self.nodes if node.op == "reduced"}
        for node in reversed(self.nodes):
            last = needed.get(node, 0)
            if last > node.level and self._is_full(node) and node.op != "operand":
                own = [i for i in free if self.nest.outs[i] is node]
                fits = [
                    i
                    for i in free
                    if self.nest.outs[i].level >= last and self.nest.outs[i].dtype == node.dtype
                ]
                if own:
                    found[node] = own[0]
                elif fits and cost([node], reduced) > _DEAR:
                    found[node] = fits[0]
                    free.remove(fits[0])
            level = node.level if node in found else max(node.level, last)
            level = node.args[0].level if node in reduced else level
            for arg in node.args:
                needed[arg] = max(needed.get(arg, 0), level)
        return found

    def _level(self, number: int) -> _Level:
        reductions = [n for n in self.nodes if n.op == "reduced" and n.args[0].level == number]
        stored = [
            (i, out) for i, out in enumerate(self.nest.outs) if out.level == number and self.full[i]
        ]
        totals = [k for k, total in enumerate(self.nest.totals) if total.node.level == number]
        conditions = [node for node in self.nest.conditions if node.level == number]
        wanted = [node.args[0] for node in reductions] + [out for _, out in stored] + conditions
        wanted += [self.nest.totals[k].node for k in totals]
        for node, i in self.saved.items():
            if node.level == number and (i, node) not in stored:
                stored.append((i, node))
                wanted.append(node)
        return _Level(number, reductions, stored, totals, conditions, wanted)

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
        if node.op == "is_column":
            return self._is_column(args[0])
        if node.op == "columns":
            count = Value("i8", "1")
            for k, kept in enumerate(self.nest.kept):
                count = count if kept else self.binary("*", count, self.extents[k])
            return self.cast(count, code_of(node.dtype))
        return self.of_node(node, args)

    def _is_column(self, number: Value) -> Value:
        """Return which lane of a vector is the iteration of a given number, if one is."""
        if number.lanes > 1:
            number = Value(number.type, self.add(f"extractelement {number.typed}, i64 0"))
        lane = self.binary("-", self.cast(number, "i8"), self.index)
        lane = self.called_on(
            "smax", self.called_on("smin", lane, Value("i8", "64")), Value("i8", "-1")
        )
        one = self.spread(Value("i4", self.add(f"trunc {lane.typed} to i32")), self.width)
        lanes = ", ".join(f"i32 {k}" for k in range(self.width))
        found = self.add(f"icmp eq {one.typed}, <{lanes}>")
        return Value("b1", found, lanes=self.width)

    # --- memory

    def _arguments(self) -> None:
        """Load the table."""
        bases = [f"base{i}" for i in range(len(self.arrays))]
        sizes = [f"extent{k}" for k in range(len(self.nest.kept))]
        for i, array in enumerate(self.arrays):
            sizes += [f"step{i}.{k}" for k, axis in enumerate(array.axes) if axis == "s"]
        sizes += ["all"] * self.schedule.ragged
        failed = ["failed"] * bool(self.nest.conditions)
        if self.objects:
            count, first = len(self.nest.operands), self.first_total
            given = [f"total{k}" for k in range(len(self.nest.totals))]
            names = [*bases[:count], "sizes", *bases[count:first], *given]
            names += [f"wide{k}" for k in self.wide]
            for k, name in enumerate(given):
                bases[first + k] = f"wide{k}" if k in self.wide and k not in self.parts else name
            for i, at in self.streamed.items():
                bases[at], bases[count + i] = bases[count + i], f"run{i}"
                names.append(f"run{i}")
            names += failed
            for k, name in enumerate(names):
                self.lines.append(f"  %{name}.at = getelementptr i64, ptr %table, i64 {k}")
                self.lines.append(f"  %{name}.array = load ptr, ptr %{name}.at")
                self.lines.append(
                    f"  %{name}.data = getelementptr i8, ptr %{name}.array, i64 {OBJECT_HEAD}"
                )
                self.lines.append(f"  %{name} = load ptr, ptr %{name}.data")
            self.lines.append(words(sizes, (), base="sizes"))
        else:
            self.lines.append(words([*bases, *sizes, *failed], [*bases, *failed]))
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
                if self.objects:  # that is the axis
                    found[k] = self._stride(i, f"%step{i}.{k}")
            elif axes[k] == "c":
                found[k], after = after, self.binary("*", after, self.extents[k])
        return found

    def _stride(self, i: int, axis: str) -> Value:
        """Return the distance of an array object's elements along an axis."""
        at = self.add(f"getelementptr i8, ptr %base{i}.array, i64 {STRIDES}")
        at = self.add(f"getelementptr i64, ptr {self.add(f'load ptr, ptr {at}')}, i64 {axis}")
        step, size = self.add(f"load i64, ptr {at}"), self.arrays[i].dtype.itemsize
        return Value("i8", self.add(f"sdiv exact i64 {step}, {size}"))

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
        index = self.index
        if self.in_runs and i - len(self.nest.operands) in self.streamed:
            index = self.binary("-", index, self.run)
        first = self.binary("*", index, step).text
        counts = Counts(first, 0, 1 if step.text == "1" else step.text)
        return Value("i8", "", counts=counts)

    def _read(self, i: int) -> Value:
        at = self._at(i)
        apart = self.lanes > 1 and self.is_apart(at) and not self.mask
        found = self._one_by_one(i) if apart else self.read(self.pointers[i], at)
        return self.truth(found) if self.arrays[i].dtype == np.bool_ else found

    def _one_by_one(self, i: int) -> Value:
        """Load elements that are not adjacent, which is faster than a gather."""
        step, type = self.steps_of[i][self.vector], self.pointers[i].type[1:]
        assert step is not None
        many, found, text = kind(type, self.lanes), "poison", f"getelementptr {TYPES[type]}, ptr"
        at, far = self.pointers[i].text, self.binary("*", self.index, step)
        for lane in range(self.lanes):
            at = self.add(f"{text} {at}, i64 {far.text}")
            one = self.add(f"load {TYPES[type]}, ptr {at}")
            found = self.add(f"insertelement {many} {found}, {TYPES[type]} {one}, i64 {lane}")
            far = step
        return Value(type, found, lanes=self.lanes)

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
        start, stop = Value("i8", "%start"), Value("i8", "%stop")
        for i in self.streamed:
            at = len(self.nest.operands) + i
            count = self._count([k not in self.units for k in range(len(self.nest.kept))])
            count = Value("i8", str(RUN)) if self.in_runs else count
            self.pointers[at] = self._own(self.pointers[at], count)
        self._begin_totals()
        self._settle(self.nodes)
        if self.across or self.units or not self.nest.kept[self.vector]:
            self._all_units(start, stop)
        else:
            self._levels(start, stop)
        self._end_totals()
        if self.streamed:
            self.do("fence seq_cst")  # orders non-temporal stores before what follows
        if self.holds is not None:
            self._report(self.holds)
        self.do("ret void")
        body = "\n".join(self.lines)
        return f"{self.module.text()}\n{HEAD}{body}\n}}\n"

    def _all_units(self, start: Value, stop: Value) -> None:
        """Emit the loop over units, in blocks if sums have parts."""
        if not self.parts:
            with self._scope(), self.loop(start.text, stop.text) as unit:
                self._unit(Value("i8", unit))
            return
        left = self.nest.totals[self.parts[0]].left
        inside = [left[k] and k in self.units for k in range(len(left))]
        rows = self.binary("*", self._count(inside), Value("i8", str(_ROWS)))
        several = self.compare("<", rows, self.binary("-", stop, start)).text
        with self._scope(), self.loop(start.text, stop.text, rows.text) as block:
            first = Value("i8", block)
            end = self.called_on("smin", stop, self.binary("+", first, rows))
            with self._scope(), self.loop(first.text, end.text) as unit:
                self._unit(Value("i8", unit))
            with self.where(several):
                begins = self.compare("==", first, start)
                for k in self.parts:
                    self._add_part(k, begins)
        with self.where(several):
            for k in self.parts:
                self._settle_part(k)

    def _count(self, loops: Sequence[bool]) -> Value:
        """Return the number of iterations of some loops."""
        count = Value("i8", "1")
        for extent, counts in zip(self.extents, loops, strict=True):
            count = self.binary("*", count, extent) if counts else count
        return count

    def _unit(self, unit: Value) -> None:
        """Emit what a unit computes."""
        loop = self.vector
        extents = [self.extents[k] for k in self.units]
        if self.across:
            more = self.binary("+", self.extents[loop], Value("i8", str(self.across - 1)))
            extents.append(Value("i8", self.add(f"udiv {more.typed}, {self.across}")))
        rest, indices = unit, []
        for extent in reversed(extents[1:]):
            after = Value("i8", self.add(f"udiv {rest.typed}, {extent.text}"))
            indices.append(self.binary("-", rest, self.binary("*", after, extent)))
            rest = after
        indices = [rest, *reversed(indices)]
        for k, index in zip(self.units, indices, strict=False):
            self._enter(k, index)
        stop = self.extents[loop]
        if self.across:
            self._panels(self.binary("*", indices[-1], Value("i8", str(self.across))))
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
            self.do("store atomic i8 1, ptr %failed monotonic, align 1")

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
            if not self.full[i]:
                self._store(i, self.found[out])
        if self.streamed and not self.in_runs:
            count = self._count([k not in self.units for k in range(len(self.nest.kept))])
            self._stream(Value("i8", "0"), count)

    def _along(self, level: _Level, first: Value, stop: Value) -> None:
        """Emit the loops of a level, in which several vectors are added up independently."""
        many = _PARTS if len(every(level.wanted, self.found)) < _LONG else _PARTS // 2
        many = max(1, many // max(1, len(level.reductions)))  # more would leave the registers
        # compensated sums have a longer latency
        many *= 2 if self.schedule.exact and not self.schedule.short else 1
        many = many if level.reductions and not self.schedule.few else 1

        def vectors() -> None:
            with self._carried():
                parts = totals
                if self.schedule.short:
                    parts = [self._totals(level, total, exact=False) for total in totals]
                self._runs(level, first, stop, parts)
                for k, node in enumerate(level.reductions):
                    if self.schedule.short and totals[0][k].lost is not None:
                        value, *others = [self._of(node, part[k]) for part in parts]
                        for other in others:
                            value = self._joined(node.detail, value, other)
                        self._gather(node.detail, totals[0][k], value)

        with self._carried():
            totals = [self._totals(level)]
            for _ in range(many - 1):  # those that are compensated are shared
                totals.append(self._totals(level, totals[0]))
            with self._scope():
                self._spread_rows(level)
                self._inside(self.reduced, vectors)
        for k, node in enumerate(level.reductions):
            joined, *others = [self._of(node, t) for t in dict.fromkeys(t[k] for t in totals)]
            for part in others:
                joined = self._joined(node.detail, joined, part)
            self.found[node] = self._folded(node.detail, joined)

    def _spread_rows(self, level: _Level) -> None:
        """Broadcast the numbers of rows that a level combines with vectors, before its loops."""
        for node in every(level.wanted, self.found):
            for arg in node.args if node.op != "is_column" else ():
                value = self.found.get(arg)
                if value is not None and value.lanes == 1:
                    self.found[arg] = self.spread(value, self.width)

    def _runs(self, level: _Level, first: Value, stop: Value, totals: list[list[_Total]]) -> None:
        """Emit the vectorised loop, in runs if sums or what is streamed require that."""
        left = [self.nest.totals[k] for k in level.totals]
        sums = [total for total in left if total.how == "sum" and not total.left[self.vector]]
        rest = self.schedule.rest
        if not self.in_runs and (not sums or self.schedule.few):
            with self._summing(level):
                self._vectors(level, first, stop, totals, rest)
            return
        whole = self.binary("-", stop, Value("i8", str(max(rest, 0))))
        run, before = str(_SUMMED if sums else RUN), self.run
        with self.loop(first.text, whole.text, run) as at:
            self.run = Value("i8", at)
            end = self.called_on("smin", whole, self.binary("+", self.run, Value("i8", run)))
            self._run(level, self.run, end, totals, min(rest, 0))
        if rest > 0:
            self.run = whole
            self._run(level, whole, stop, totals, rest)
        self.run = before

    def _run(
        self, level: _Level, first: Value, stop: Value, totals: list[list[_Total]], rest: int
    ) -> None:
        """Emit some iterations of the vectorised loop; with a ``rest``, only the last vector."""
        with self._summing(level):
            if rest > 0:
                self._elements(level, first, self._lanes(rest), totals[0], {})
            else:
                self._vectors(level, first, stop, totals, rest)
        if self.in_runs:
            self._stream(first, self.binary("-", stop, first))

    def _vectors(
        self, level: _Level, first: Value, stop: Value, totals: list[list[_Total]], rest: int
    ) -> None:
        """Emit the vectorised loop; ``rest`` is that of the schedule."""
        plain = not (level.reductions or level.totals or self.saved or self.streamed)
        if plain and not self.schedule.masked and rest < 0:
            # The last vector starts earlier, and computes some elements again.
            final = self.binary("-", stop, Value("i8", str(self.width)))
            with self.loop(first.text, stop.text, self.width) as name:
                index = self.called_on("smin", Value("i8", name), final)
                self._elements(level, index, "", totals[0], {})
            return
        step = len(totals) * self.width
        if rest >= 0 and self.schedule.masked:
            self._elements(level, first, self._lanes(rest), totals[0], {})
            return
        whole = self.binary("-", stop, first)
        whole = self.binary("+", first, self.binary("&", whole, Value("i8", str(-step))))
        with self.loop(first.text, whole.text, step) as name:
            waiting: dict[int, Value] = {}
            for v, total in enumerate(totals):
                index = self.binary("+", Value("i8", name), Value("i8", str(v * self.width)))
                self._elements(level, index, "", total, waiting, v == len(totals) - 1)
        full = self.binary("-", stop, Value("i8", str(self.width - 1)))
        if len(totals) > 1:
            with self.loop(whole.text, full.text, self.width) as name:
                self._elements(level, Value("i8", name), "", totals[0], {})
        if rest > 0:
            index = self.binary("-", stop, Value("i8", str(rest)))
            self._elements(level, index, self._lanes(rest), totals[0], {})
        if rest >= 0:
            return
        left = self.binary("-", stop, first)
        left = self.binary("&", left, Value("i8", str(self.width - 1)))
        with self.where(self.add(f"icmp ne i64 {left.text}, 0")):
            index = self.binary("-", stop, left)
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
                    value = self.select(
                        self._flags(mask), value, self._first(node.detail, node.dtype)
                    )
                if totals[k].lost is not None and not mask:
                    if k in waiting:
                        value = self.binary("+", waiting[k], value)
                    waiting[k] = value
                    if not last:
                        continue
                self._gather(node.detail, totals[k], value)

    def _compute(self, level: _Level) -> None:
        """Emit the nodes of one vector, and its stores."""
        for node in every(level.wanted, self.found):
            if node.level < level.number and node in self.saved:
                self.found[node] = self._read(len(self.nest.operands) + self.saved[node])
        self._settle(every(level.wanted, self.found))
        for i, out in level.stored:
            self._store(i, self.found[out])
        for condition in level.conditions:
            self._check(condition)
        for k in level.totals:
            self._add_total(k)

    def _check(self, condition: Node) -> None:
        """Record whether a condition holds for the active lanes."""
        if self.holds is not None:
            mask = self.mask
            value = self.spread(self.found[condition], self.width)
            if mask:
                value = self.binary("|", value, self.invert(self._flags(mask)))
            wide = self.add(f"sext {value.typed} to {self.holds.type}")
            self.holds.text = self.add(f"and {self.holds.type} {self.holds.text}, {wide}")

    def _lanes(self, count: int) -> str:
        """Return the mask of the first lanes."""
        return f"<{', '.join(f'i1 {str(k < count).lower()}' for k in range(self.width))}>"

    def _flags(self, mask: str) -> Value:
        return Value("b1", mask, lanes=self.width)

    # --- panels of adjacent results

    def _panels(self, column: Value) -> None:
        """Emit the panel that begins at a column.

        Only the last vector of the last one may have a mask: masks are slow on processors without
        mask registers.
        """
        stop, (_, panel, tail, masked, *_) = self.extents[self.vector], self.schedule
        final = self.binary("-", stop, Value("i8", str(self.across)))
        whole = self.add(f"icmp sle {column.typed}, {final.text}")
        if panel and tail:
            with self.where(whole):
                self._panel(column, panel)
            with self.where(self.add(f"xor i1 {whole}, true")):
                self._panel(column, tail, stop if masked else None)
        else:
            self._panel(column, panel or tail, stop if tail and masked else None)

    def _panel(self, column: Value, count: int, stop: Value | None = None) -> None:
        """Emit all levels for the vectors of a panel; before ``stop`` if the last is not full."""
        starts = [self.binary("+", column, Value("i8", str(v * self.width))) for v in range(count)]
        places = [(start, "") for start in starts]
        if stop is not None:
            rest, start = self.schedule.rest, starts[-1]
            mask = self._lanes(rest) if rest > 0 else self.active(start, stop, self.width)
            places[-1] = start, mask
        with self._scope():
            self._levels_of_panel(places)

    def _levels_of_panel(self, places: list[tuple[Value, str]]) -> None:
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
                    if not self.full[i]:
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
                with self._summing(level):
                    for v, (index, mask) in enumerate(places):
                        with self._vector(index, mask, self.found | found[v]):
                            self._compute(level)
                            for k, node in enumerate(level.reductions):
                                value = self.spread(self.found[node.args[0]], self.width)
                                self._gather(node.detail, totals[v][k], value)

        def blocks() -> None:
            with self.loop("0", extent, _BLOCK) as first, self._carried():
                stop = self.binary("+", Value("i8", first), Value("i8", str(_BLOCK)))
                stop = self.called_on("smin", stop, self.extents[last])
                parts = [self._totals(level, total, exact=False) for total in totals]
                rows(first, stop.text, parts)
                for total, part in zip(totals, parts, strict=True):
                    for k, node in enumerate(level.reductions):
                        if total[k].lost is not None:
                            self._gather(node.detail, total[k], self._of(node, part[k]))

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
            total = _Total(Cell(many, self._first(node.detail, node.dtype).text), lost)
            self.cells += [cell for cell in total if cell is not None]
            totals.append(total)
        return totals

    def _of(self, node: Node, total: _Total) -> Value:
        return Value(code_of(node.dtype), total.cell.text, lanes=self.width)

    def _first(self, how: str, dtype: Any) -> Value:
        """Return the total of no elements."""
        first = self.cast(self.literal(_IDENTITY[how]), code_of(dtype))
        return self.spread(self.strong(first), self.width)

    def _joined(self, how: str, total: Value, value: Value) -> Value:
        """Emit the combination of two totals."""
        if how in _COMBINED:
            return self.binary(_COMBINED[how], total, value)
        beyond = self.compare(_ORDERS[how], value, total)
        none = self.compare("!=", value, value)
        return self.select(self.binary("|", beyond, none), value, total)

    def _gather(self, how: str, total: _Total, value: Value) -> None:
        """Emit the addition of a vector to a total, and its new compensation (Kahan)."""
        old = value._replace(text=total.cell.text)
        if total.lost is None:
            total.cell.text = self._joined(how, old, value).text
            return
        zero = Value(value.type, "zeroinitializer", lanes=self.width)
        value = self.binary("-", value, value._replace(text=total.lost.text))
        new = self.binary("+", old, value)
        away = self.binary("-", self.binary("-", new, old), value)
        none = self.binary("-", away, away)  # 0, or NaN if a sum is infinite
        total.cell.text = new.text
        total.lost.text = self.select(self.compare("==", none, zero), away, zero).text

    def _folded(self, how: str, total: Value) -> Value:
        """Emit the reduction of a vector's lanes: halves first, in a fixed order."""
        step = self.width // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.width))
            text = f"shufflevector {total.typed}, {kind(total.type, self.width)} poison, "
            other = self.like(total, f"{text}<{self.width} x i32> <{order}>")
            total = self._joined(how, total, other)
            step //= 2
        return Value(total.type, self.add(f"extractelement {total.typed}, i64 0"))

    # --- totals along loops that results keep

    def _begin_totals(self) -> None:
        """Begin the totals of this thread."""
        self.sums: dict[int, Cell] = {}  # of the run that is emitted
        self.whole: dict[int, _Total] = {}  # of all elements
        self.counts: list[Value] = []
        for k, total in enumerate(self.nest.totals):
            i, count = self.first_total + k, self._count(total.left)
            self.counts.append(count)
            if not any(total.left):
                self.whole[k] = self._new_total(total, _WIDE)
                continue
            if k in self.wide and k not in self.parts:
                count = self.binary("+", count, Value("i8", str(PADDING)))
            self.pointers[i] = self._own(self.pointers[i], count)
            first = self._first(total.how, self.arrays[i].dtype)
            with self._each(count) as index:
                self.write(self.pointers[i], index, first)

    def _new_total(self, total: Total, wide: Any) -> _Total:
        """Return the total of all elements: a sum is in a wider dtype, and is compensated."""
        summed = total.how == "sum"
        dtype = wide if summed else total.node.dtype
        many = kind(code_of(dtype), self.width)
        lost = Cell(many, "zeroinitializer") if summed else None
        found = _Total(Cell(many, self._first(total.how, dtype).text), lost)
        self.cells += [cell for cell in found if cell is not None]
        return found

    def _end_totals(self) -> None:
        """Convert the totals of this thread to their dtype."""
        for k, total in enumerate(self.nest.totals):
            one, i = Value("i8", "1"), self.first_total + k
            pointer = Value(f"*{code_of(total.node.dtype)}", f"%total{k}")
            if k in self.whole:
                code = "f8" if total.how == "sum" else code_of(total.node.dtype)
                many = Value(code, self.whole[k].cell.text, lanes=self.width)
                found = self._folded(total.how, many)
                self.write(self._own(pointer, one), Value("i8", "0"), found)
            elif k in self.wide and k not in self.parts:
                pointer = self._own(pointer, self.counts[k])
                with self._each(self.counts[k]) as index:
                    self.write(pointer, index, self.read(self.pointers[i], index))

    def _wide(self, k: int) -> Value:
        """Return where this thread adds up the parts of a sum."""
        count = self.binary("+", self.counts[k], Value("i8", str(PADDING)))
        return self._own(Value("*f8", f"%wide{k}"), count)

    def _add_part(self, k: int, begins: Value) -> None:
        """Add the sums of some units to those of all, or begin these, and forget them."""
        part, whole = self.pointers[self.first_total + k], self._wide(k)
        with self._each(self.counts[k]) as index:
            value = self.cast(self.read(part, index), "f8")
            both = self.binary("+", self.read(whole, index), value)
            self.write(whole, index, self.select(self.spread(begins, self.width), value, both))
            self.write(part, index, self._first("sum", self.nest.totals[k].node.dtype))

    def _settle_part(self, k: int) -> None:
        """Replace the sums of some units by those of all."""
        part, whole = self.pointers[self.first_total + k], self._wide(k)
        with self._each(self.counts[k]) as index:
            self.write(part, index, self.read(whole, index))

    def _own(self, pointer: Value, count: Value) -> Value:
        """Return where this thread's elements begin; each thread has ``count``."""
        far = self.binary("*", Value("i8", "%part"), count)
        text = f"getelementptr {TYPES[pointer.type[1:]]}, ptr {pointer.text}, i64 {far.text}"
        return pointer._replace(text=self.add(text))

    @contextmanager
    def _each(self, count: Value) -> Iterator[Value]:
        """Emit a loop over some adjacent elements; yields the index of a vector of them."""
        with self.loop("0", count.text, self.width) as name:
            index = Value("i8", name)
            with self._vector(index, self.active(index, count, self.width), {}):
                yield Value("i8", "", counts=Counts(name, 0))

    def _add_total(self, k: int) -> None:
        """Emit the addition of a vector to a total."""
        total, i = self.nest.totals[k], self.first_total + k
        value = self.spread(self.found[total.node], self.width)
        inner = not total.left[self.vector]
        if self.mask and (inner or self._is_padded(k)):
            first = self._first(total.how, total.node.dtype)
            value = self.select(self._flags(self.mask), value, first)
        if inner:
            cell = self.sums[k]
            value = self.cast(value, "f8") if total.how == "sum" else value
            cell.text = self._joined(total.how, value._replace(text=cell.text), value).text
            return
        mask = self.mask
        if self._is_padded(k):
            self.mask = ""
        old = self.read(self.pointers[i], self._at(i))
        self.write(self.pointers[i], self._at(i), self._joined(total.how, old, value))
        self.mask = mask

    def _is_padded(self, k: int) -> bool:
        """Return whether the memory of a total is longer than a row, so that it needs no masks."""
        return k in self.wide and k not in self.parts

    @contextmanager
    def _summing(self, level: _Level) -> Iterator[None]:
        """Keep totals without the vectorised loop in registers, and add them to others after."""
        totals = {k: self.nest.totals[k] for k in level.totals}
        inner = {k: total for k, total in totals.items() if not total.left[self.vector]}
        with self._carried():
            for k, total in inner.items():
                if k in self.whole and total.how != "sum":
                    self.sums[k] = self.whole[k].cell
                    continue
                dtype = _WIDE if total.how == "sum" else total.node.dtype
                many = kind(code_of(dtype), self.width)
                self.sums[k] = Cell(many, self._first(total.how, dtype).text)
                self.cells.append(self.sums[k])
            yield
        for k, total in inner.items():
            i, zero = self.first_total + k, Value("i8", "0")
            code = "f8" if total.how == "sum" else code_of(total.node.dtype)
            value = Value(code, self.sums.pop(k).text, lanes=self.width)
            if k in self.whole:
                if total.how == "sum":
                    self._gather(total.how, self.whole[k], value)
                continue
            one = self._folded(total.how, value)
            old = self.read(self.pointers[i], zero)
            self.write(self.pointers[i], zero, self._joined(total.how, old, one))

    # --- results that are written past the caches

    def _stream(self, first: Value, count: Value) -> None:
        """Emit the copy of elements from this thread's memory by non-temporal stores.

        An ordinary store first reads the cache line that it changes, and evicts other lines; these
        stores do neither, but write whole lines.
        """
        for i, at in self.streamed.items():
            source, target = self.pointers[len(self.nest.operands) + i], self.pointers[at]
            type, size = source.type[1:], self.arrays[at].dtype.itemsize
            lanes, text = _BYTES // size, f"getelementptr {TYPES[type]}, ptr"
            to = self.add(f"{text} {target.text}, i64 {first.text}")
            address = Value("i8", self.add(f"ptrtoint ptr {to} to i64"))
            after = self.binary("&", self.negative(address), Value("i8", str(_BYTES - 1)))
            head = self.called_on(
                "smin", Value("i8", self.add(f"udiv i64 {after.text}, {size}")), count
            )
            whole = self.binary("&", self.binary("-", count, head), Value("i8", str(-lanes)))
            end = self.binary("+", head, whole)
            self._copy_some(source, to, Value("i8", "0"), head, lanes)
            mark = self.module.note("!{i32 1}")
            with self.loop(head.text, end.text, lanes) as index:
                read = self.add(f"{text} {source.text}, i64 {index}")
                value = self.add(f"load {kind(type, lanes)}, ptr {read}, align {size}")
                write = self.add(f"{text} {to}, i64 {index}")
                self.do(
                    f"store {kind(type, lanes)} {value}, ptr {write}, align {_BYTES}, "
                    f"!nontemporal {mark}"
                )
            self._copy_some(source, to, end, self.binary("-", count, end), lanes)

    def _copy_some(self, source: Value, to: str, first: Value, count: Value, lanes: int) -> None:
        """Emit the copy of fewer elements than a vector has, if there are some."""
        type = source.type[1:]
        with self.where(self.compare("<", Value("i8", "0"), count).text):
            stop = self.binary("+", first, count)
            with self.loop(first.text, stop.text) as index:
                at = Value("i8", index)
                self.write(Value(f"*{type}", to), at, self.read(source, at))
