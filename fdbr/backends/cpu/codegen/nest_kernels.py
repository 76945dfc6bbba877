"""Kernels of fused steps as loop nests.

The loops are the axes of the domain, neighbouring ones merged; the rows of the kernel are the axes
that reductions leave whose results other steps read.
"""

import math
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule, Total, text_of
from fdbr.backends.cpu.codegen.nest_lowering import PADDING, RUN, wide_totals, width
from fdbr.backends.cpu.codegen.step_graph import BY_ROW, StepGraph
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.compiler.ir.nest_layout import Has, axes_of, joined_axes
from fdbr.compiler.ir.program import Fused, Instruction, Nest, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of
from fdbr.core.expr import Node

__all__ = ["write_nest"]

_HIGH = 1 << 7  # elements from which on a sum is compensated, if one follows the other
_LONG = 1 << 12  # the same, if the lanes of several vectors share them
_OUTER = 16  # reduced loops around the vectorised one, likewise
_LARGE = 24 << 20  # bytes of a result that will have left the caches before it is read
_ROW = 256, 1 << 16  # bytes of a row that non-temporal stores may write
_FEW = 8  # vectors of a row that are added up one after the other
_LEAST = 16  # elements of the shortest row that is read in place
_CHEAP = 12  # additions; a costlier element makes a copy of the operand cheap by comparison
_JOINED = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}


def write_nest(
    fused: Fused,
    passed_on: Container[Variable] = (),
    gapped: Mapping[Variable, bool] = MappingProxyType({}),
) -> Written:
    """Return the kernel for fused steps, some of whose results are ``passed_on`` to other steps.

    ``gapped`` maps operands whose rows are not adjacent, and which are read in place, to whether
    the elements within a row are adjacent.
    """
    return _Nest(fused, passed_on, gapped).written()


def _in_place(fused: Fused, gapped: Mapping[Variable, bool]) -> dict[Variable, bool]:
    """Return the operands that are read in place, and whether their elements are adjacent.

    Where elements are not adjacent they are gathered: that pays only for cheap formulas.  A kernel
    that overwrites operands reads no views, which may alias the operand it overwrites.
    """
    domain = fused.domain
    by_rows = fused.split in (len(domain) - 1, len(domain)) and not isinstance(fused, Nest)
    if not domain or not by_rows or domain[-1] < _LEAST or fused.over:
        return {}
    cheap = sum(map(cost, fused.steps)) <= _CHEAP
    return {
        v: gapped[v]
        for v in fused.reads
        if v in gapped and v.kind.shape == domain and (gapped[v] or cheap)
    }


class _Nest:
    """Hold the loops and values of a nest."""

    def __init__(
        self, fused: Fused, passed_on: Container[Variable], gapped: Mapping[Variable, bool]
    ) -> None:
        self.steps, self.passed_on = fused, passed_on
        self.in_place = _in_place(fused, gapped)
        self.makers = {out: step for step in fused.steps for out in step.outs}
        self.rows: set[Variable] = set()  # values with one element for each row
        self.finals: dict[Variable, Has] = {}  # the axes that other reductions leave
        rank = len(fused.domain)
        self.kept = self._some(self._rows())
        self._classify()
        arrays = [self.kept, *self.finals.values()]
        for step in fused.steps:
            if step.primitive in BY_ROW:
                arrays.append(self._some(range(rank - 1)))
            elif step.outs[0] not in self.rows:
                shapes = [kind_of(operand).shape for operand in step.operands]
                arrays += [has for has in (axes_of(s, fused.domain) for s in shapes) if has]
        if self.in_place:
            arrays += [self._some([axis]) for axis in range(rank)]
        self.loops = joined_axes(fused.domain, arrays) or [(1, ())]
        self.graph = StepGraph(len(self.loops))

    def _some(self, axes: Container[int]) -> Has:
        """Return some axes of the domain, without those of length 1."""
        return tuple([axis in axes and n != 1 for axis, n in enumerate(self.steps.domain)])

    def _rows(self) -> Container[int]:
        """Return the axes that make the rows; all, if no reduction ends at each row."""
        fused, rank = self.steps, len(self.steps.domain)
        if isinstance(fused, Nest):
            return fused.kept
        within = tuple(range(fused.split, rank))
        folds = [fold_of(step) for step in fused.steps]
        ends = 0 < fused.split < rank and any(fold and fold[1] == within for fold in folds)
        return range(fused.split if ends else rank)

    def _classify(self) -> None:
        """Determine which values have one element for each row."""
        domain = self.steps.domain
        for step in self.steps.steps:
            out, found = step.outs[0], fold_of(step)
            if found is not None:
                left = self._some([axis for axis in range(len(domain)) if axis not in found[1]])
                if left == self.kept:
                    self.rows.add(out)
                else:
                    self.finals[out] = left
            elif out.kind.shape != domain and any(v in self.rows for v in step.reads):
                self.rows.add(out)

    def _of_loops(self, axes: Has) -> Has:
        """Return which loops an array with some axes has."""
        return tuple([axes[own[0]] if own else not self.rows for _, own in self.loops])

    def _access(self, operand: Any, of_row: bool, by_row: bool) -> str:
        """Return how loops read an operand, whose axes may be those of the rows."""
        kind, domain = kind_of(operand), self.steps.domain
        if type(operand) is Variable and operand in self.in_place:
            near = self.in_place[operand]
            return "s" * (len(self.loops) - near) + "c" * near
        axes: Has | None = self.kept
        if by_row:
            axes = self._some(range(len(domain) - 1))
        elif not of_row:
            axes = axes_of(kind.shape, domain)
        assert axes is not None
        return "".join("c" if h and kind.size != 1 else "-" for h in self._of_loops(axes))

    def _is_streamed(self, out: Variable) -> bool:
        """Return whether a result is written past the caches."""
        kind, (length, _) = out.kind, self.loops[-1]
        least, most = _ROW
        if all(self.kept[axis] for _, own in self.loops for axis in own):
            fits = len(self.loops) == 1 or length * kind.dtype.itemsize >= least
        else:
            row = kind.nbytes // self.steps.row_count
            fits = least <= row <= most and not isinstance(self.steps, Nest)
        free = out not in self.steps.over and out not in self.passed_on
        return free and kind.shape == self.steps.domain and fits and kind.nbytes >= _LARGE

    def written(self) -> Written:
        """Return the kernel."""
        nest, graph = self.steps, self.graph
        results: list[Node] = []
        outputs: list[Output] = []
        broadcast: set[int] = set()
        streamed: list[tuple[int, Variable]] = []
        totals: list[Total] = []
        reduced: dict[Variable, Node] = {}
        for step in nest.steps:
            self._add(step, reduced)
        finals = []
        for out in sorted(nest.outs, key=lambda out: out not in nest.over):
            if out not in self.finals:
                if out not in self.rows:
                    broadcast.add(len(results))
                if self._is_streamed(out):
                    streamed.append((len(results), out))
                results.append(graph.values[out])
                over = nest.over.get(out)
                outputs.append(Output(out, out.kind.shape, out.kind.dtype, False, 1, over))
                continue
            step = self.makers[out]
            how, axes = fold_of(step) or ("", ())
            left = self._of_loops(self.finals[out])
            kind = "sum" if how == "mean" else how
            totals.append(Total(kind, reduced[out], left))
            shape = tuple([n for i, n in enumerate(nest.domain) if i not in axes])
            divisor = math.prod(nest.domain) // math.prod(shape) if how == "mean" else 1
            joined = _JOINED[how]
            finals.append(Output(out, shape, out.kind.dtype, True, divisor, joined=joined))
        outputs += finals
        conditions = tuple(graph.graph.conditions or ())
        kept = self._of_loops(self.kept)
        accesses = tuple([Access(kind_of(o).dtype, axes) for o, axes in graph.inputs])
        loops = LoopNest(
            kept,
            accesses,
            tuple(results),
            conditions,
            tuple(totals),
            frozenset(broadcast),
            frozenset([i for i, _ in streamed]),
        )
        schedule, rows = self._schedule(loops)
        for k in wide_totals(loops):
            shape = (math.prod(finals[k].shape) + PADDING,)
            outputs.append(Output(None, shape, np.dtype(np.float64), True, 1))
        for _, out in streamed:
            count = RUN if all(kept) else math.prod(nest.domain) // rows
            outputs.append(Output(None, (count,), out.kind.dtype, True, 1))
        if conditions:
            outputs.append(Output(None, (1,), np.dtype(bool), False, 1))
        sizes = [length for length, _ in self.loops]
        inputs = [operand for operand, _ in graph.inputs]
        apart: dict[int, bool] = {}
        for i, operand in enumerate(inputs):
            if type(operand) is Variable and operand in self.in_place:
                apart[i] = self.in_place[operand]
                sizes += [own[0] for _, own in self.loops[: len(self.loops) - apart[i]]]
        donated = [o.over for o in outputs if o.over is not None]
        size = math.prod(nest.domain)
        return Written(
            text_of(loops, schedule),
            (*inputs, np.array(sizes, np.int64), *donated),
            tuple(outputs),
            rows,
            size // rows * sum(map(cost, nest.steps)),
            refuses=bool(conditions),
            strided=frozenset(i for i, near in apart.items() if not near),
            pitched=frozenset(i for i, near in apart.items() if near),
        )

    def _add(self, step: Instruction, reduced: dict[Variable, Node]) -> None:
        """Add the nodes of a step."""
        out, found, graph = step.outs[0], fold_of(step), self.graph
        of_row = found is None and out in self.rows
        by_row = step.primitive in BY_ROW
        args = [
            graph.value(o, self._access(o, of_row, by_row and i > 0))
            for i, o in enumerate(step.operands)
        ]
        if found is None:
            graph.add(step, args)
        elif out in self.rows:
            graph.reduce(out, args[0], found[0])
        else:
            reduced[out] = args[0]

    def _schedule(self, nest: LoopNest) -> tuple[Schedule, int]:
        """Return the order of iterations, and the number of units."""
        lengths = [length for length, _ in self.loops]
        units = math.prod(n for n, kept in zip(lengths, nest.kept, strict=True) if kept)
        reduced = math.prod(lengths) // units
        last = len(lengths) - 1
        lanes = width([*nest.outs, *nest.conditions, *[total.node for total in nest.totals]])
        if last == 0 and nest.kept[0]:
            return Schedule(0), units
        if nest.kept[last] and reduced > 1:
            schedule, panels = Schedule(last, exact=reduced >= _HIGH).panelled(lengths[last], lanes)
            lanes //= 2 if schedule.half else 1
            return schedule._replace(rest=lengths[last] % lanes), units // lengths[last] * panels
        few, rest = lengths[last] < _FEW * lanes, lengths[last] % lanes
        schedule = Schedule(last, masked=lengths[last] < lanes, few=few, rest=rest)
        if nest.kept[last]:
            return schedule, units // lengths[last]
        exact = reduced >= _LONG or reduced // lengths[last] > _OUTER
        return schedule._replace(exact=exact, short=lengths[last] < _LONG), units
