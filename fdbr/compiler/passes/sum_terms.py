"""Merging of terms in sums: terms that match one pattern are added by one operation.

A *sum* is a tree of additions of values with one aval whose intermediate results have no other
readers.  The patterns are in `sum_patterns`.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, is_variable, kind_of
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.steps import count_reads
from fdbr.compiler.passes.sum_patterns import FORMS, Lookup, Merged

__all__ = ["merge_sums"]


@attrs.define(eq=False)
class _Sum:
    """A tree of additions: its terms, and its additions, the last of which is the root."""

    terms: list[Any]
    additions: list[Instruction]


def merge_sums(program: Program) -> Program:
    """Merge the terms of each sum that match a pattern."""
    reads = count_reads(program)
    lookup = Lookup(program, reads)
    plans: dict[Step, list[Merged]] = {}
    inner: set[Step] = set()
    gone: set[Any] = set()
    for tree in _sums(program, reads):
        merged = [found for form in FORMS for found in form(tree.terms, lookup)]
        if merged:
            plans[tree.additions[-1]] = merged
            inner.update(tree.additions[:-1])
            gone.update(term for found in merged for term in found.terms)
    if not plans:
        return program
    return dce(program.replace(_rewritten(program, plans, inner, gone)))


def _sums(program: Program, reads: dict[Variable, int]) -> Iterator[_Sum]:
    """Yield the sums of the program with at least two terms."""
    open_sums: dict[Variable, _Sum] = {}
    for step in program.steps:
        if type(step) is not Instruction or step.primitive is not op.ADD:
            continue
        out = step.outs[0]
        if not out.kind.is_array or any(kind_of(x) != out.kind for x in step.operands):
            continue
        whole: _Sum | None = None
        for x in step.operands:
            part = open_sums.get(x) if is_variable(x) and reads[x] == 1 else None
            if part is None or part.additions[-1].remat != step.remat:
                part = _Sum([x], [])
            else:
                del open_sums[x]
            whole = part if whole is None else _joined(whole, part)
        assert whole is not None
        whole.additions.append(step)
        open_sums[out] = whole
    yield from open_sums.values()


def _joined(a: _Sum, b: _Sum) -> _Sum:
    if len(a.terms) < len(b.terms):
        a, b = b, a  # extending the longer list keeps the total time linear
    a.terms += b.terms
    a.additions += b.additions
    return a


def _rewritten(
    program: Program, plans: dict[Step, list[Merged]], inner: set[Step], gone: set[Any]
) -> Iterator[Step]:
    """Yield the steps, with merged terms left out of their sums and added at the end."""
    names: dict[Any, Any] = {}
    for step in program.steps:
        if step not in inner and step not in plans:
            yield step
            continue
        assert type(step) is Instruction
        left = [names.get(x, x) if is_variable(x) else x for x in step.operands]
        left = [x for x in left if not (is_variable(x) and x in gone)]
        if step in plans:
            yield from _finished(step, left, plans[step])
        elif len(left) == 2:
            yield Instruction(
                step.primitive, tuple(left), step.params, step.outs, False, step.remat
            )
        elif left:
            names[step.outs[0]] = left[0]
        else:
            gone.add(step.outs[0])


def _finished(root: Instruction, left: list[Any], merged: list[Merged]) -> Iterator[Step]:
    """Yield the steps of merged terms, and their addition to the rest of a sum."""
    parts = list(left)
    only = not parts and len(merged) == 1
    for found in merged:
        out = root.outs[0] if only else Variable(root.outs[0].kind)
        yield from found.steps(out, root.remat)
        parts.append(out)
    total = parts[0]
    for position, part in enumerate(parts[1:], 2):
        out = root.outs[0] if position == len(parts) else Variable(root.outs[0].kind)
        yield Instruction(op.ADD, (total, part), {}, (out,), False, root.remat)
        total = out
