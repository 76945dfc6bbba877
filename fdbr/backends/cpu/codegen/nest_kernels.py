"""Kernels of fused steps with reductions along any axes, as loop nests.

The loops are the axes of the domain, neighbouring ones merged; the rows of the kernel are those
that its reductions leave.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import cost
from fdbr.backends.cpu.codegen.loop_nest import Access, LoopNest, Schedule, Total, text_of
from fdbr.backends.cpu.codegen.nest_lowering import PADDING, width
from fdbr.backends.cpu.codegen.step_graph import StepGraph
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.compiler.ir.nest_layout import Has, axes_of, joined_axes
from fdbr.compiler.ir.program import Nest, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of
from fdbr.core.expr import Node

__all__ = ["write_nest"]

_HIGH = 1 << 7  # elements from which on a sum is compensated, if one follows the other
_LONG = 1 << 12  # the same, if the lanes of several vectors share them
_OUTER = 16  # reduced loops around the vectorised one, likewise
_JOINED = {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum"}


def write_nest(nest: Nest) -> Written:
    """Return the kernel for a nest."""
    return _Nest(nest).written()


class _Nest:
    """Hold the loops and values of a nest."""

    def __init__(self, nest: Nest) -> None:
        self.steps = nest
        self.makers = {out: step for step in nest.steps for out in step.outs}
        self.rows: set[Variable] = set()  # values with one element for each row
        self.finals: dict[Variable, Has] = {}  # the axes that other reductions leave
        self._classify()
        arrays = [self.kept, *self.finals.values()]
        for step in nest.steps:
            if step.outs[0] not in self.rows:
                shapes = [kind_of(operand).shape for operand in step.operands]
                arrays += [has for has in (axes_of(s, nest.domain) for s in shapes) if has]
        self.loops = joined_axes(nest.domain, arrays)
        self.graph = StepGraph()

    def _classify(self) -> None:
        """Determine which values have one element for each row."""
        domain = self.steps.domain
        self.kept = tuple([i in self.steps.kept and n != 1 for i, n in enumerate(domain)])
        for step in self.steps.steps:
            out, found = step.outs[0], fold_of(step)
            if found is not None:
                left = tuple([i not in found[1] and n != 1 for i, n in enumerate(domain)])
                if left == self.kept:
                    self.rows.add(out)
                else:
                    self.finals[out] = left
            elif out.kind.shape != domain and any(v in self.rows for v in step.reads):
                self.rows.add(out)

    def _of_loops(self, axes: Has) -> Has:
        """Return which loops an array with some axes has."""
        return tuple([axes[own[0]] for _, own in self.loops])

    def _access(self, operand: Any, of_row: bool) -> str:
        """Return how loops read an operand."""
        kind = kind_of(operand)
        axes = self.kept if of_row else axes_of(kind.shape, self.steps.domain)
        assert axes is not None
        has = self._of_loops(axes)
        return "".join("c" if h and kind.size != 1 else "-" for h in has)

    def written(self) -> Written:
        """Return the kernel."""
        nest, graph = self.steps, self.graph
        results: list[Node] = []
        outputs: list[Output] = []
        broadcast: set[int] = set()
        totals: list[Total] = []
        reduced: dict[Variable, Node] = {}
        for step in nest.steps:
            out = step.outs[0]
            found = fold_of(step)
            of_row = found is None and out in self.rows
            args = [graph.value(o, self._access(o, of_row)) for o in step.operands]
            if found is None:
                graph.add(step, args)
            elif out in self.rows:
                graph.reduce(out, args[0], found[0])
            else:
                reduced[out] = args[0]
        finals = []
        for out in nest.outs:
            if out not in self.finals:
                if out not in self.rows:
                    broadcast.add(len(results))
                results.append(graph.values[out])
                outputs.append(Output(out, out.kind.shape, out.kind.dtype, False, 1))
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
        for final in finals:
            dtype = np.dtype(np.float64) if final.joined == "add" else final.dtype
            outputs.append(Output(None, (math.prod(final.shape) + PADDING,), dtype, True, 1))
        conditions = tuple(graph.graph.conditions or ())
        if conditions:
            outputs.append(Output(None, (1,), np.dtype(bool), False, 1))
        kept = self._of_loops(self.kept)
        accesses = tuple([Access(kind_of(o).dtype, axes) for o, axes in graph.inputs])
        loops = LoopNest(
            kept, accesses, tuple(results), conditions, tuple(totals), frozenset(broadcast)
        )
        schedule, rows = self._schedule(loops)
        sizes = np.array([length for length, _ in self.loops], np.int64)
        size = math.prod(nest.domain)
        return Written(
            text_of(loops, schedule),
            (*[operand for operand, _ in graph.inputs], sizes),
            tuple(outputs),
            rows,
            size // rows * sum(map(cost, nest.steps)),
            refuses=bool(conditions),
        )

    def _schedule(self, nest: LoopNest) -> tuple[Schedule, int]:
        """Return the order of iterations, and the number of units."""
        lengths = [length for length, _ in self.loops]
        units = math.prod(n for n, kept in zip(lengths, nest.kept, strict=True) if kept)
        reduced = math.prod(lengths) // units
        last = len(lengths) - 1
        lanes = width([*nest.outs, *nest.conditions, *[total.node for total in nest.totals]])
        if not nest.kept[last]:
            exact = reduced >= _LONG or reduced // lengths[last] > _OUTER
            short = lengths[last] < _LONG
            return Schedule(last, masked=lengths[last] < lanes, exact=exact, short=short), units
        schedule, panels = Schedule(last, exact=reduced >= _HIGH).panelled(lengths[last], lanes)
        return schedule, units // lengths[last] * panels
