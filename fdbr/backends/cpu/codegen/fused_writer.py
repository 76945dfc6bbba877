"""The state of a kernel of fused steps under construction: its values, and their statements."""

import math
from collections.abc import Container, Mapping
from typing import Any

import attrs

from fdbr.backends.cpu.codegen.element_code import BY_ROW, Elements, cost
from fdbr.backends.cpu.codegen.formulas import CODES
from fdbr.backends.cpu.codegen.written import Output, literal, stored
from fdbr.compiler.ir import op
from fdbr.compiler.ir.broadcast_layout import Place, place
from fdbr.compiler.ir.program import Fused, Instruction, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of, join_of

__all__ = ["Block", "Writer"]

_LEAST = 16  # elements of the shortest row that is read in place
_CHEAP = 12  # additions; a costlier element makes a copy of the operand cheap by comparison
_RUN = 1024  # elements in one non-temporal store of a kernel without rows


class Writer:
    """Hold the operands, outputs and values of a kernel of fused steps, and their names."""

    def __init__(
        self, fused: Fused, passed_on: Container[Variable], gapped: Mapping[Variable, bool]
    ) -> None:
        pitched = _pitched(fused, gapped)
        if pitched and len(fused.domain) > 1:
            fused = attrs.evolve(fused, split=len(fused.domain) - 1)
        self.fused = fused
        self.pitched = pitched  # operands whose rows have gaps: whether elements are adjacent
        self.passed_on = passed_on
        self.columns = math.prod(fused.domain[fused.split :])
        self.rows = math.prod(fused.domain[: fused.split])
        self.flat = fused.split == len(fused.domain)
        self.run = _RUN if self.flat else self.columns  # elements in one non-temporal store
        self.makers = {out: step for step in fused.steps for out in step.outs}
        self.levels: dict[Variable, int] = {}  # the stage in which a value is known
        self.is_row: dict[Variable, bool] = {}
        self.finals: list[Instruction] = []
        self.inputs: dict[Any, tuple[str, Any]] = {}
        self.outputs: list[Output] = []
        self.elements = Elements()
        self.head: list[str] = []
        self.kept: dict[Variable, str] = {}  # full values that are kept between stages
        self.streamed: dict[Variable, str] = {}  # results stored non-temporally, and their buffers
        self.full: dict[Variable, str] = {}  # the memory of results with an element per index
        self.in_rows: list[str] = []  # statements at the start of a row
        self.loops = 0
        self._classify()

    # --- classification of values -------------------------------------------------------

    def _classify(self) -> None:
        """Determine whether each value is full or one per row, and the stage that computes it."""
        for step in self.fused.steps:
            out = step.outs[0]
            level = max((self.levels.get(v, 0) for v in step.reads), default=0)
            reduction = fold_of(step)
            mine = any(self.is_row.get(v, False) for v in step.reads)
            if reduction is not None:
                rank = len(self.fused.domain)
                whole = reduction[1] == tuple(range(self.fused.split, rank))
                if whole and not self.flat:
                    self.is_row[out] = True
                    self.levels[out] = level + 1
                else:
                    self.finals.append(step)
                    self.levels[out] = level
            else:
                shape = out.kind.shape
                self.is_row[out] = mine and shape != self.fused.domain
                if mine and shape == self.fused.domain and self.columns == 1:
                    self.is_row[out] = False
                self.levels[out] = level

    # --- memory that the kernel reads and writes ------------------------------------------

    def input(self, operand: Any, row: bool) -> tuple[str, str, Place]:
        """Return the name, dtype and position of an operand that is an input of the kernel."""
        kind = kind_of(operand)
        code = CODES[kind.dtype]
        where = place(kind.shape, self.fused.domain, self.fused.split)
        if kind.size == 1:
            where = Place(1, 1, False)
        elif row or where is None:  # one per row, without the axes of the columns
            where = Place(1, self.rows, False)
        key = operand if type(operand) is Variable else id(operand)
        if key not in self.inputs:
            name = f"a{len(self.inputs)}"
            self.inputs[key] = (name, operand)
            if key in self.pitched:
                rank = len(self.fused.domain)
                (self.in_rows if rank > 1 else self.head).append(self._row_of(name, operand))
                self.head.append(f"{name}s = stride(table, {name[1:]}, {rank - 1})")
        return self.inputs[key][0], code, where

    def _row_of(self, name: str, operand: Variable) -> str:
        """Return the statement that finds a row of an operand whose rows are not adjacent."""
        lead, terms, after = self.fused.domain[:-1], "", 1
        for axis in reversed(range(len(lead))):
            index = "r" if after == 1 else f"(r // {after})"
            index += f" % {lead[axis]}" if axis else ""
            terms += f" + {index} * stride(table, {name[1:]}, {axis})"
            after *= lead[axis]
        zero = f"{stored(operand.kind.dtype)}(0)"
        return f"{name}r = within({name}, address({name}){terms}, {zero})"

    def output(self, output: Output) -> str:
        """Return the name of new memory to write an output to."""
        self.outputs.append(output)
        return f"o{len(self.outputs) - 1}"

    def load(self, operand: Any, row: bool) -> tuple[str, str]:
        """Return an expression for the operand's element, and its dtype.

        With ``row``, the operand has one element per row, whatever else its shape might mean.
        """
        kind = kind_of(operand)
        if type(operand) is not Variable and kind.size == 1:
            return literal(operand, CODES[kind.dtype]), CODES[kind.dtype]
        name, code, where = self.input(operand, row)
        if type(operand) is Variable and operand in self.pitched:
            index, zero = "r" if self.flat else "c", f"{stored(kind.dtype)}(0)"
            text = f"at(address({name}r) + {index} * {name}s, {zero})"
            text = f"{name}r[c]" if self.pitched[operand] else text
            return (f"({text} != 0)" if code == "b1" else text), code
        at = "r"
        if where.count == 1:
            # Of a single element: LLVM would unswitch the loop on every condition on index 0.
            at = "r" if self.rows == 1 and not where.columns else ""
        elif where.repeat * where.count != self.rows or where.repeat != 1:
            at = "r" if where.repeat == 1 else f"(r // {where.repeat})"
            if where.repeat * where.count != self.rows:
                at = f"({at} % {where.count})"
        if where.columns and not self.flat and self.columns > 1:
            index = f"{at} * {self.columns} + c" if at else "c"
        else:
            index = at or "0"
        text = f"{name}[{index}]"
        return (f"({text} != 0)" if code == "b1" else text), code


def _pitched(fused: Fused, gapped: Mapping[Variable, bool]) -> dict[Variable, bool]:
    """Return the operands that are read in place, and whether their elements are adjacent.

    Where elements are not adjacent they are computed one by one: that pays only for cheap formulas.
    A kernel that overwrites operands reads no views, which may alias the operand it overwrites.
    """
    domain = fused.domain
    by_rows = fused.split in (len(domain) - 1, len(domain))
    joins = any(join_of(step) is not None for step in fused.steps)
    if not domain or not by_rows or domain[-1] < _LEAST or fused.over or joins:
        return {}
    cheap = sum(map(cost, fused.steps)) <= _CHEAP
    return {
        v: gapped[v]
        for v in fused.reads
        if v in gapped and v.kind.shape == domain and (gapped[v] or cheap)
    }


class Block:
    """Collect the statements of one loop body, in which each value is computed once."""

    def __init__(self, writer: Writer, level: int, row: bool) -> None:
        self.writer = writer
        self.level = level
        self.row = row
        self.lines: list[str] = []
        self.names: dict[Any, tuple[str, str]] = {}

    def value(
        self, operand: Any, known: dict[Any, tuple[str, str]], row: bool = False
    ) -> tuple[str, str]:
        """Return the name and dtype of an operand's element, and append its statements.

        A full value used as a ``row`` operand has one element per row.
        """
        writer = self.writer
        key: Any = operand if type(operand) is Variable else id(operand)
        if key in known:
            return known[key]
        step = writer.makers.get(operand) if type(operand) is Variable else None
        if step is None and row:
            key = key, "row"
        if key in self.names:
            return self.names[key]
        if step is None:
            text, code = writer.load(operand, row or self.row)
            if type(operand) is not Variable and kind_of(operand).size == 1:
                return text, code
        elif operand in writer.kept and writer.levels[operand] < self.level:
            text, code = writer.kept[operand], CODES[operand.kind.dtype]
            text = f"({text} != 0)" if code == "b1" else text
        elif step.primitive in (op.RESHAPE, op.BROADCAST_TO):
            return self.value(step.operands[0], known)
        else:
            of_rows = step.primitive in BY_ROW
            pairs = [self.value(o, known, of_rows and i > 0) for i, o in enumerate(step.operands)]
            texts, codes = [t for t, _ in pairs], [c for _, c in pairs]
            text = writer.elements.element(step, texts, codes, self.lines)
            code = CODES[operand.kind.dtype]
        name = f"x{len(self.names) + len(known)}_{self.level}{'r' if self.row else ''}"
        self.lines.append(f"{name} = {text}")
        self.names[key] = (name, code)
        return name, code
