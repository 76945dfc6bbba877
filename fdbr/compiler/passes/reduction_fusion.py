"""Fusion of steps whose reductions are along any axes."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.nest_layout import Has, axes_of, joined_axes
from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, kind_of
from fdbr.compiler.ir.reductions import fold_of, join_of
from fdbr.compiler.passes.steps import readers_of

__all__ = ["NestedGroup", "Nests", "can_nest"]

_LEAST = 1 << 11  # elements of a domain below which nothing is gained
_INNER = 8  # elements of the innermost loop below which vectors are too short
_SEVERAL = 4  # elements that are reduced to one, at least
_FAR = 64  # steps to search from a reduction to a full array made of it; bounds the search
_FEWEST = 2  # rows
_MOST = 1 << 16  # results of a sum along other axes: each thread needs a copy of them
_VIEWS = frozenset({op.RESHAPE, op.BROADCAST_TO})


class NestedGroup:
    """A kernel under construction, whose rows are the axes left over by reductions.

    Attributes
    ----------
    domain
        The shape that it runs over.
    most
        The maximal number of steps.
    kept
        The axes that make the rows.
    rows
        The variables with one value a row.
    final
        Sums along other axes, which are complete only after the kernel.
    """

    joins = False

    def __init__(self, domain: tuple[int, ...], most: int, kept: Sequence[int]) -> None:
        self.domain, self.most, self.kept = domain, most, tuple(kept)
        self.steps: list[Instruction] = []
        self.members: set[Variable] = set()
        self.rows: set[Variable] = set()
        self.final: set[Variable] = set()
        self.arrays: list[Has] = [self._left(set(range(len(domain))) - set(kept))]
        self.count = math.prod(domain[axis] for axis in kept)
        self.closed = False
        self.parts: tuple[Any, ...] = ()

    def _left(self, axes: Any) -> Has:
        """Return which axes are left by a reduction."""
        return tuple([i not in axes and n != 1 for i, n in enumerate(self.domain)])

    def admit(self, step: Instruction) -> bool:
        """Add a step if it fits; return whether it does."""
        if len(self.steps) >= self.most or any(v in self.final for v in step.reads):
            return False
        if join_of(step) is not None:
            return False
        arrays = list(self._arrays(step))
        where = self._where(step)
        if where is None or None in arrays:
            return False
        beside = [*self.arrays, *(has for has in arrays if has is not None)]
        if joined_axes(self.domain, beside)[-1][0] < _INNER:
            return False
        self.arrays = list(dict.fromkeys(beside))
        self.steps.append(step)
        self.members.update(step.outs)
        where.update(step.outs)
        return True

    def goes_on(self) -> bool:
        """Return whether full arrays are computed from reductions."""
        return any(
            step.outs[0].kind.shape == self.domain and any(v in self.rows for v in step.reads)
            for step in self.steps
        )

    def _arrays(self, step: Instruction) -> Iterator[Has | None]:
        """Yield the axes of a step's operands or result; `None` for one that does not fit."""
        found = fold_of(step)
        if found is not None:
            yield self._left(found[1])
        elif step.outs[0].kind.shape == self.domain:
            for operand in step.operands:
                has = axes_of(kind_of(operand).shape, self.domain)
                if type(operand) is Variable and operand in self.members:
                    wanted = self.arrays[0] if operand in self.rows else self._left(())
                    yield has if has == wanted else None
                else:
                    yield has

    def _where(self, step: Instruction) -> set[Variable] | None:
        """Return the set that a step's result belongs to; `None` if it does not fit."""
        found, out = fold_of(step), step.outs[0].kind
        if found is not None:
            operand: Variable = step.operands[0]
            if operand in self.rows or operand.kind.shape != self.domain:
                return None
            left = self._left(found[1])
            if left == self.arrays[0]:
                return self.rows
            size = math.prod(n for n, has in zip(self.domain, left, strict=True) if has)
            return self.final if size <= _MOST else None
        if not step.primitive.facts.elementwise and step.primitive not in _VIEWS:
            return None
        if out.shape == self.domain:
            x = step.operands[0]
            same = step.primitive is not op.RESHAPE or kind_of(x).shape == out.shape
            return set() if same else None
        if not any(v in self.rows for v in step.reads) or out.size != self.count:
            return None
        return self.rows if all(self._is_row(o, out.shape) for o in step.operands) else None

    def _is_row(self, operand: Any, shape: tuple[int, ...]) -> bool:
        """Return whether an operand has one element for each row, or a single one."""
        kind = kind_of(operand)
        if type(operand) is Variable and operand in self.members:
            return operand in self.rows
        return kind.size == 1 or [n for n in kind.shape if n != 1] == [n for n in shape if n != 1]


class Nests:
    """Nested groups of a program, with the order of its steps and the readers of its values."""

    def __init__(self, program: Program) -> None:
        self._order = {step: position for position, step in enumerate(program.steps)}
        self._readers = readers_of(program)

    def of(self, groups: Sequence[Any], step: Instruction) -> NestedGroup | None:
        """Merge groups and a step into one nested group; return `None` if that is impossible."""
        domain, most = groups[0].domain, groups[0].most
        if math.prod(domain) < _LEAST or any(g.domain != domain or g.joins for g in groups):
            return None
        nested = any(isinstance(group, NestedGroup) for group in groups)
        if not nested and not fold_of(step) and not self._leads_to(domain, step):
            return None  # the reductions are not used by a full array, so nesting gains nothing
        steps = {part for group in groups for part in group.steps} | {step}
        ordered = sorted(steps, key=self._order.__getitem__)
        for kept in _choices(ordered, domain):
            whole = NestedGroup(domain, most, kept)
            if all(map(whole.admit, ordered)):
                whole.parts = tuple(groups)
                return whole
        return None

    def _leads_to(self, domain: tuple[int, ...], step: Instruction) -> bool:
        """Return whether a step on reductions contributes to an array over the domain."""
        size = step.outs[0].kind.size
        waiting: list[Step] = [step]
        seen: set[Step] = {step}
        while waiting and len(seen) < _FAR:
            out = waiting.pop().outs[0]
            if out.kind.shape == domain:
                return True
            for reader in self._readers.get(out, ()):
                if type(reader) is not Instruction or reader in seen:
                    continue
                if reader.outs[0].kind.size in (size, math.prod(domain)):
                    seen.add(reader)
                    waiting.append(reader)
        return False


def can_nest(domain: tuple[int, ...], axes: Sequence[int]) -> bool:
    """Return whether a kernel can reduce along axes of an array, and use the results."""
    kept = tuple([i for i, n in enumerate(domain) if i not in axes and n != 1])
    rows, size = math.prod(domain[axis] for axis in kept), math.prod(domain)
    if rows < _FEWEST or size < max(_LEAST, _SEVERAL * rows):
        return False
    has = tuple([i in kept for i in range(len(domain))])
    return joined_axes(domain, [has])[-1][0] >= _INNER


def _choices(steps: Sequence[Instruction], domain: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the sets of axes that may make the rows."""
    found: dict[tuple[int, ...], None] = {}
    for step in steps:
        fold = fold_of(step)
        if fold is not None and step.operands[0].kind.shape == domain:
            kept = tuple([i for i, n in enumerate(domain) if i not in fold[1] and n != 1])
            if can_nest(domain, fold[1]):
                found[kept] = None
    return list(found)
