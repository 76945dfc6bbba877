"""Kernels with reductions along any axes, whose rows are indices of the remaining axes.

Each stage has a loop nest over the reduced axes: a reduction ends a stage, and the steps that
depend on its result belong to the next.  If the innermost axis is reduced, a row has one number of
each value.  Otherwise a row is a *panel* of adjacent results, whose totals are in memory that each
thread has a copy of.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.element_code import Elements, cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.fused_kernels import (
    CHEAP,
    JOINED,
    STARTS,
    extreme,
    extreme_of,
    framed,
)
from fdbr.backends.cpu.codegen.fused_writer import Block
from fdbr.backends.cpu.codegen.written import Output, Written, literal, store
from fdbr.compiler.ir.nest_layout import Has, axes_of, joined_axes
from fdbr.compiler.ir.program import Instruction, Nest, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of

__all__ = ["write_nest"]

_PANEL = 16, 256  # the smallest and largest number of adjacent results in a panel
_ROWS = 8  # the fewest panels, so that threads can share the work
_BLOCK = 128  # numbers that are added in their own dtype; bounds the rounding error
_WIDE = np.dtype(np.float64)
Known = dict[Any, tuple[str, str]]


def write_nest(nest: Nest) -> Written:
    """Return the kernel for a nest."""
    writer = _Nest(nest)
    size = math.prod(nest.domain)
    weight = size // writer.rows * sum(map(cost, nest.steps))
    return framed(writer, writer.body(), weight)


class _Nest:
    """Hold the operands, outputs, values and loops of a kernel, and their names."""

    def __init__(self, nest: Nest) -> None:
        self.fused = nest
        self.makers = {out: step for step in nest.steps for out in step.outs}
        self.inputs: dict[Any, tuple[str, Any]] = {}
        self.outputs: list[Output] = []
        self.elements = Elements()
        self.head: list[str] = []
        self.kept: dict[Variable, str] = {}
        self.pitched: dict[Variable, bool] = {}
        self.levels: dict[Variable, int] = {}
        self.is_row: dict[Variable, bool] = {}
        # the axes of reductions along axes other than a row's
        self.totals: dict[Variable, Has] = {}
        self.found: dict[Variable, str] = {}  # the memory of panels' totals
        self.wide = ""  # the number of results in a panel
        self._classify()
        self._lay_out()
        # the offset at the start of the innermost loop, by the axes that an array has
        self.places: dict[Has, str] = {}
        self.inner: list[str] = []  # statements before the innermost loop

    def _classify(self) -> None:
        """Determine whether each value is full or one per row, and the stage that computes it."""
        domain = self.fused.domain
        rows = tuple([i in self.fused.kept and n != 1 for i, n in enumerate(domain)])
        for step in self.fused.steps:
            out, found = step.outs[0], fold_of(step)
            level = max((self.levels.get(v, 0) for v in step.reads), default=0)
            if found is not None:
                left = tuple([i not in found[1] and n != 1 for i, n in enumerate(domain)])
                self.is_row[out] = left == rows
                if left != rows:
                    self.totals[out] = left
                self.levels[out] = level + (left == rows)
            else:
                mine = any(self.is_row.get(v, False) for v in step.reads)
                self.is_row[out] = mine and out.kind.shape != domain
                self.levels[out] = level

    def _lay_out(self) -> None:
        """Determine the loops."""
        nest, domain = self.fused, self.fused.domain
        kept = tuple([i in nest.kept for i in range(len(domain))])
        arrays = [kept, *self.totals.values()]
        for step in nest.steps:
            if not self.is_row[step.outs[0]]:
                shapes = [kind_of(o).shape for o in step.operands]
                arrays += [has for has in (axes_of(s, domain) for s in shapes) if has is not None]
        self.loops = joined_axes(domain, arrays)
        self.is_kept = tuple([kept[axes[0]] for _, axes in self.loops])
        self.across = self.is_kept[-1]
        self.results = math.prod(n for n, axes in self.loops if kept[axes[0]])
        self.columns = math.prod(domain) // self.results
        self.width = 1
        self.rows = self.results
        if self.across:
            beside = self.loops[-1][0]
            least, most = _PANEL
            wanted = max(least, min(most, self.results // _ROWS // least * least))
            self.width = min(wanted, beside)
            self.panels = -(-beside // self.width)
            self.rows = self.results // beside * self.panels
            self.wide = str(self.width) if beside % self.width == 0 else "wide"

    # --- memory that the kernel reads and writes ------------------------------------------

    def output(self, output: Output) -> str:
        """Return the name of new memory to write an output to."""
        self.outputs.append(output)
        return f"o{len(self.outputs) - 1}"

    def scratch(self, dtype: Any, length: int) -> str:
        """Return the name of scratch memory of which each thread has its own."""
        return self.output(Output(None, (length,), dtype, True, 1))

    def load(self, operand: Any, row: bool) -> tuple[str, str]:
        """Return an expression for an operand's element, and its dtype."""
        kind = kind_of(operand)
        code = CODES[kind.dtype]
        if type(operand) is not Variable and kind.size == 1:
            return literal(operand, code), code
        key = operand if type(operand) is Variable else id(operand)
        if key not in self.inputs:
            self.inputs[key] = (f"a{len(self.inputs)}", operand)
        name = self.inputs[key][0]
        if kind.size == 1:
            text = f"{name}[0]"
        elif row:
            text = f"{name}[{self.at_row()}]"
        else:
            axes = axes_of(kind.shape, self.fused.domain)
            assert axes is not None
            text = f"{name}[{self.at(self.has(axes))}]"
        return (f"({text} != 0)" if code == "b1" else text), code

    def has(self, axes: Has) -> Has:
        """Return the loops that an array depends on, by its axes."""
        return tuple([axes[own[0]] for _, own in self.loops])

    def at_row(self) -> str:
        """Return the offset of a row's result in the output."""
        return "line + c" if self.across else "r"

    def at(self, has: Has) -> str:
        """Return the offset of an element of an array that depends on some of the loops."""
        if has not in self.places:
            text = ""
            for i, ((length, _), mine) in enumerate(zip(self.loops[:-1], has, strict=False)):
                if mine:
                    text = f"({text}) * {length} + i{i}" if text else f"i{i}"
            if has[-1]:
                text = f"({text}) * {self.loops[-1][0]}" if text else ""
                text += " + first" * bool(text and self.across)
                text = text or ("first" if self.across else "0")
            self.places[has] = f"q{len(self.places)}"
            self.inner.append(f"{self.places[has]} = {text or '0'}")
        return f"{self.places[has]} + c" if has[-1] else self.places[has]

    def at_column(self) -> str:
        """Return the offset of an element in memory for one row."""
        mine = tuple([not kept for kept in self.is_kept])
        if not self.across:
            return f"thread * {self.columns} + {self.at(mine)}"
        return f"(thread * {self.columns} + {self.at(mine)}) * {self.width} + c"

    # --- statements ----------------------------------------------------------------------

    def beside(self, statements: list[str]) -> list[str]:
        """Emit statements for each result of a panel."""
        return [f"for c in range({self.wide}):", *("    " + line for line in statements)]

    def body(self) -> list[str]:
        """Return the statements that compute rows."""
        names: dict[Variable, str] = {}
        totals: dict[Variable, tuple[str, str, int, str]] = {}
        before: list[str] = []
        after: list[str] = []
        for out in self.fused.outs:
            step = self.makers[out]
            if out not in self.totals:
                names[out] = self.output(Output(out, out.kind.shape, out.kind.dtype, False, 1))
                continue
            totals[out] = self._total(step, before, after)
        rows = self._row_head()
        keeps = self._keeps(names)
        known: Known = {}
        for level in range(max(self.levels.values()) + 1):
            rows += self._row_values(level, known, names)
            rows += _Stage(self, level, known, names, totals, keeps).lines()
        return [
            *before,
            "for r in range(start, stop):",
            *("    " + s for s in rows),
            *after,
        ]

    def _row_head(self) -> list[str]:
        """Return the statements that compute where a row starts."""
        lines = []
        indices = [i for i, kept in enumerate(self.is_kept) if kept]
        source = "r"
        if self.across:
            indices.pop()
            beside = self.loops[-1][0]
            several = self.panels > 1
            lines.append(f"first = (r % {self.panels}) * {self.width}" if several else "first = 0")
            lines.append(f"outer = r // {self.panels}" if several else "outer = r")
            lines.append(f"line = outer * {beside} + first")
            if beside % self.width:
                lines.append(f"wide = min({self.width}, {beside} - first)")
            source = "outer"
        after = 1
        for i in reversed(indices):
            text = source if after == 1 else f"({source} // {after})"
            after *= self.loops[i][0]
            lines.append(
                f"i{i} = {text} % {self.loops[i][0]}" if i != indices[0] else f"i{i} = {text}"
            )
        return lines

    def _total(
        self, step: Instruction, before: list[str], after: list[str]
    ) -> tuple[str, str, int, str]:
        """Allocate the memory for a reduction along axes other than a row's, one per thread."""
        out, (name, axes) = step.outs[0], fold_of(step) or ("", ())
        domain = self.fused.domain
        shape = tuple([n for i, n in enumerate(domain) if i not in axes])
        size = math.prod(shape)
        count = math.prod(domain) // size
        divisor, joined = count if name == "mean" else 1, JOINED[name]
        given = self.output(Output(out, shape, out.kind.dtype, True, divisor, joined=joined))
        at = f"thread * {size} + c"
        code = CODES[out.kind.dtype]
        if name in ("max", "min"):
            before += [
                f"for c in range({size}):",
                f"    {given}[{at}] = {STARTS[name].format(code)}",
            ]
            return given, code, size, name
        wide = self.scratch(_WIDE, size)
        before += [f"for c in range({size}):", f"    {wide}[{at}] = f8(0)"]
        after += [f"for c in range({size}):", f"    {given}[{at}] = {code}({wide}[{at}])"]
        return wide, code, size, name

    def _keeps(self, names: dict[Variable, str]) -> dict[Variable, str]:
        """Allocate full values that later stages read; cheaper ones are computed again."""
        weights: dict[Variable, int] = {}
        keeps: dict[Variable, str] = {}
        for step in self.fused.steps:
            out = step.outs[0]
            if self.is_row[out] or out in self.totals:
                continue
            weights[out] = cost(step) + sum(
                weights.get(v, 0) for v in step.reads if self.levels.get(v, 0) == self.levels[out]
            )
        for step in self.fused.steps:
            level = self.levels[step.outs[0]]
            level -= fold_of(step) is not None and step.outs[0] not in self.totals
            for v in step.reads:
                if v not in weights or v in keeps or level <= self.levels[v]:
                    continue
                if v in names:
                    keeps[v] = ""
                elif weights[v] > CHEAP:
                    keeps[v] = self.scratch(v.kind.dtype, self.columns * self.width)
        return keeps

    def _row_values(self, level: int, known: Known, names: dict[Variable, str]) -> list[str]:
        """Emit the values that have one element per row and are known when a stage begins."""
        steps = [
            step
            for step in self.fused.steps
            if self.is_row[step.outs[0]] and self.levels[step.outs[0]] == level
        ]
        if not steps:
            return []
        block, here, lines = Block(self, level, True), dict(known), []  # type: ignore[arg-type]
        for step in steps:
            out = step.outs[0]
            found, code = fold_of(step), CODES[out.kind.dtype]
            if found is not None:
                text = self._folded(out, found[0], code)
                name = f"t{level}_{len(here)}"
                lines.append(f"{name} = {text}")
                here[out] = name, code
            else:
                start = len(block.lines)
                here[out] = block.value(out, here)
                lines += block.lines[start:]
            if out in names:
                lines.append(store(f"{names[out]}[{self.at_row()}]", here[out][0], out.kind.dtype))
            known[out] = here[out]
            if self.across:
                place = f"{self.scratch(out.kind.dtype, self.width)}[thread * {self.width} + c]"
                lines.append(store(place, here[out][0], out.kind.dtype))
                known[out] = f"({place} != 0)" if code == "b1" else place, code
        return self.beside(lines) if self.across else lines

    def _folded(self, out: Variable, how: str, code: str) -> str:
        """Return a row's reduction from the accumulators of its stage."""
        name = f"s_{id_of(self, out)}"
        at = f"{self.found[out]}[thread * {self.width} + c]" if self.across else name
        if how == "mean":
            return f"{code}(f8({at}) / f8({self.columns}))"
        if how in ("max", "min") and not self.across:
            return f"select(bad_{name}, {code}(nan), {at})"
        return f"{code}({at})"


class _Stage:
    """Generate the loop nest of one stage."""

    def __init__(
        self,
        writer: _Nest,
        level: int,
        known: Known,
        names: dict[Variable, str],
        totals: dict[Variable, tuple[str, str, int, str]],
        keeps: dict[Variable, str],
    ) -> None:
        self.writer, self.level, self.known, self.keeps = writer, level, known, keeps
        self.names, self.totals = names, totals
        writer.places, writer.inner = {}, []
        self.many = [i for i, kept in enumerate(writer.is_kept) if not kept]
        if not writer.across:
            self.many.pop()
        self.start: list[str] = []  # before all loops
        self.first: list[str] = []  # before the innermost loop
        self.inside: list[str] = []
        self.last: list[str] = []  # after the innermost loop
        self.ready: list[str] = []  # panels: before a block
        self.added: list[str] = []  # panels: after a block

    def lines(self) -> list[str]:
        """Return the statements."""
        writer, level = self.writer, self.level
        whole = (True,) * len(writer.loops)
        writer.kept = {}
        for v, name in self.keeps.items():
            if writer.levels[v] < level:
                text = name and f"{name}[{writer.at_column()}]"
                writer.kept[v] = text or f"{self.names[v]}[{writer.at(whole)}]"
        block = Block(writer, level, False)  # type: ignore[arg-type]
        for step in writer.fused.steps:
            out = step.outs[0]
            if writer.is_row[out]:
                if fold_of(step) is not None and writer.levels[out] == level + 1:
                    text, code = block.value(step.operands[0], self.known)
                    self._fold(out, fold_of(step)[0], text, code)  # type: ignore[index]
            elif writer.levels[out] != level:
                continue
            elif out in self.totals:
                self._add_to(out, *block.value(step.operands[0], self.known))
            elif out not in writer.totals and (out in self.names or out in self.keeps):
                text, _ = block.value(out, self.known)
                place = f"{self.names.get(out)}[{writer.at(whole)}]"
                if self.keeps.get(out):
                    place = f"{self.keeps[out]}[{writer.at_column()}]"
                self.inside.append(store(place, text, out.kind.dtype))
        if not self.inside:
            return []
        iterations = writer.wide if writer.across else writer.loops[-1][0]
        loop = [
            f"for c in range({iterations}):",
            *("    " + s for s in [*block.lines, *self.inside]),
        ]
        return [*self.start, *self._around([*writer.inner, *self.first, *loop, *self.last])]

    def _around(self, lines: list[str]) -> list[str]:
        """Wrap statements into the other loops."""
        writer = self.writer
        for i in reversed(self.many):
            length = writer.loops[i][0]
            iterations = f"range({length})"
            blocks = i == self.many[-1] and bool(self.ready) and length > _BLOCK
            if blocks:
                iterations = f"range(b, min(b + {_BLOCK}, {length}))"
            lines = [f"for i{i} in {iterations}:", *("    " + line for line in lines)]
            if i == self.many[-1] and self.ready:
                lines = [*self.ready, *lines, *self.added]
            if blocks:
                lines = [f"for b in range(0, {length}, {_BLOCK}):", *("    " + s for s in lines)]
        return lines

    def _fold(self, out: Variable, how: str, text: str, code: str) -> None:
        """Emit a reduction along a row's axes."""
        writer = self.writer
        name, start = f"s_{id_of(writer, out)}", STARTS[how].format(code)
        if writer.across:
            self._fold_panel(out, how, text, code)
        elif how in ("max", "min"):
            self.start += [f"{name} = {start}", f"bad_{name} = False"]
            self.inside += extreme_of(name, how, text)
        elif not self.many:
            self.start.append(f"{name} = {start}")
            self.inside.append(f"{name} = plus({name}, {text})")
        else:
            self.start.append(f"{name} = f8(0)")
            self.first.append(f"p{name} = {start}")
            self.inside.append(f"p{name} = plus(p{name}, {text})")
            self.last.append(f"{name} = {name} + f8(p{name})")

    def _fold_panel(self, out: Variable, how: str, text: str, code: str) -> None:
        writer, dtype = self.writer, out.kind.dtype
        at = f"thread * {writer.width} + c"
        part = writer.scratch(dtype, writer.width)
        writer.found[out] = part
        begin = writer.beside([f"{part}[{at}] = {STARTS[how].format(code)}"])
        if how in ("max", "min"):
            self.start += begin
            self.inside.append(extreme(f"{part}[{at}]", how, text))
            return
        self.inside.append(f"{part}[{at}] += {text}")
        if writer.columns <= _BLOCK:
            self.start += begin
            return
        total = writer.scratch(_WIDE, writer.width)
        writer.found[out] = total
        self.start += writer.beside([f"{total}[{at}] = f8(0)"])
        self.ready += begin
        self.added += writer.beside([f"{total}[{at}] += f8({part}[{at}])"])

    def _add_to(self, out: Variable, text: str, code: str) -> None:
        """Emit a reduction along axes other than a row's."""
        writer, (total, _, size, how) = self.writer, self.totals[out]
        has = writer.has(writer.totals[out])
        place = f"{total}[thread * {size} + {writer.at(has)}]"
        name = f"p_{id_of(writer, out)}"
        if how in ("max", "min"):
            if has[-1]:
                self.inside.append(extreme(place, how, text))
                return
            self.first += [f"{name} = {STARTS[how].format(code)}", f"bad_{name} = False"]
            self.inside += extreme_of(name, how, text)
            self.last.append(extreme(place, how, f"select(bad_{name}, {code}(nan), {name})"))
            return
        if has[-1]:
            self.inside.append(f"{place} += f8({text})")
            return
        self.first.append(f"{name} = {code}(0)")
        self.inside.append(f"{name} = plus({name}, {text})")
        self.last.append(f"{place} += f8({name})")


def id_of(writer: _Nest, variable: Variable) -> int:
    """Return the number that identifies a variable in a kernel."""
    return list(writer.levels).index(variable)
