"""Memory planning: which results of a program share memory that is kept from run to run.

A result that only the program sees lies in it from its making to its last use; then its place
serves others.  What leaves the program is never there.
"""

import heapq
from collections.abc import Container, Mapping, Sequence, Set
from itertools import accumulate
from operator import mul
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Program,
    Small,
    Step,
    Variable,
    is_variable,
    kind_of,
)

__all__ = ["Plan", "aligned", "is_join", "is_large", "is_product", "plan"]

_LEAST = 4096  # bytes; below, NumPy's own cache of memory is as good
_ALIGNED = 64
_SOME = 100  # results, from which on small ones share places with those of their size alone
_MANY = 500  # and from which on all do

Parts = dict[Variable, tuple[Variable, int]]
"""The variables that lie in the memory of others, and at which byte of it."""


@attrs.frozen
class Plan:
    """The plan of memory: the place of each large result in one block.

    Attributes
    ----------
    places
        The number of each planned variable among the arrays of a piece of memory.
    kinds
        What those arrays are.
    starts
        The byte of the memory at which each of them begins.
    size
        The bytes of the memory.
    inside
        For variables that lie where they will be joined, to what.
    """

    places: dict[Variable, int]
    kinds: tuple[Any, ...]
    starts: tuple[int, ...]
    size: int
    inside: dict[Variable, Variable]

    def arrays(self, memory: Any, places: Sequence[int] | None = None) -> list[Any]:
        """The arrays that lie in a piece of memory of at least that size; all, or some of them."""
        found = []
        for place in range(len(self.kinds)) if places is None else places:
            start, kind = self.starts[place], self.kinds[place]
            bytes_ = memory[start : start + kind.nbytes]
            found.append(bytes_.view(kind.dtype).reshape(kind.shape))
        return found

    def start(self, variable: Variable) -> int:
        """The byte of the memory at which a variable begins."""
        return self.starts[self.places[variable]]


def is_product(step: Step) -> bool:
    """Whether a step is a product that can be written to given memory."""
    if not isinstance(step, Instruction) or step.primitive not in op.PRODUCTS:
        return False
    kinds = [o.kind for o in step.operands if is_variable(o)]
    out = step.outs[0].kind
    whole = len(kinds) == len(step.operands) and all(
        kind.is_array and kind.dtype == out.dtype for kind in kinds
    )
    # Outer products have a way of their own, which is faster.
    return whole and out.dtype.kind == "f" and kinds[0].shape[-1] != 1


def is_join(step: Step) -> bool:
    """Whether a step puts arrays of one dtype one after the other in memory."""
    if not isinstance(step, Instruction) or step.primitive not in op.JOINS:
        return False
    kind = step.outs[0].kind
    kinds = [kind_of(operand) for operand in step.operands]
    return step.params["axis"] == 0 and all(k.is_array and k.dtype == kind.dtype for k in kinds)


def plan(
    program: Program,
    own: Set[Variable] = frozenset(),
    views: Container[Variable] = (),
    scratch: Mapping[Variable, Sequence[float]] = MappingProxyType({}),
    early: Mapping[Variable, float] = MappingProxyType({}),
) -> Plan:
    """Plan a program's memory.

    Parameters
    ----------
    program
        The program.
    own
        Results that have memory of their own, however small they are.
    views
        Those that lie in the memory of others.
    scratch
        What else needs memory, from a step to another.
    early
        When results are written to that are so before the step that makes them.
    """
    roots: dict[Variable, frozenset[Variable]] = {}
    born: dict[Variable, float] = {}
    last: dict[Variable, float] = {}
    shown: dict[Variable, Any] = {}  # how planned results, and views of them, lie in memory
    for position, step in enumerate(program.steps):
        below = [roots[v] for v in step.reads if v in roots]
        for root in frozenset().union(*below):
            last[root] = position
        if isinstance(step, Guard):
            continue
        made = (
            isinstance(step, Fused | Small)
            or is_product(step)
            or is_join(step)
            or _copies(step, shown)
        )
        for out in step.outs:
            if out in views:
                if below and isinstance(step, Instruction):  # others write over operands
                    roots[out] = frozenset().union(*below)
            elif out in own or (made and is_large(out)):
                roots[out] = frozenset({out})
                born[out], last[out] = early.get(out, position), position
                shown[out] = _lying(out.kind)
            elif (
                not made
                and below
                and isinstance(step, Instruction)
                and not step.primitive.facts.fresh
            ):
                roots[out] = frozenset().union(*below)
    gone = {root for v in program.outputs if is_variable(v) for root in roots.get(v, ())}
    planned = [v for v in born if v not in gone]
    for variable, (first, end) in scratch.items():
        planned.append(variable)
        born[variable], last[variable] = first, end
    return _packed(planned, born, last, _parts(program, set(planned), born, last))


def _parts(
    program: Program,
    planned: set[Variable],
    born: dict[Variable, float],
    last: dict[Variable, float],
) -> Parts:
    """Results that are made where they will be joined.

    The whole is needed from the first of them on, so they must be most of it.
    """
    parts: Parts = {}
    for step in program.steps:
        if not is_join(step):
            continue
        assert isinstance(step, Instruction)
        whole = step.outs[0]
        start, found = 0, {}
        for operand in step.operands:
            once = sum(operand is other for other in step.operands) == 1
            if is_variable(operand) and operand in planned and operand not in parts and once:
                found[operand] = whole, start
            start += kind_of(operand).nbytes
        if whole in planned and 2 * sum(v.kind.nbytes for v in found) > start:
            parts.update(found)
            born[whole] = min(born[v] for v in found)
            last[whole] = max(last[whole], *(last[v] for v in found))
    return parts


def is_large(variable: Variable) -> bool:
    """Whether a result is an array for which it pays to plan."""
    kind = variable.kind
    return kind.is_array and kind.nbytes >= _LEAST


def _lying(kind: Any) -> Any:
    """An array that lies as one of that kind does, in memory that is not there: only to look at."""
    steps = accumulate(kind.shape[:0:-1], mul, initial=kind.dtype.itemsize)
    return as_strided(np.empty(0, kind.dtype), kind.shape, tuple(steps)[::-1] if kind.shape else ())


def _copies(step: Instruction, shown: dict[Variable, Any]) -> bool:
    """Whether a change of shape needs memory of its own; the views that others are join ``shown``.

    What stands in another order than it lies in cannot be seen in another shape.
    """
    if step.several:
        return False
    x, out = next(iter(step.operands), None), step.outs[0]
    params = step.params
    if not is_variable(x) or x not in shown:
        return False
    if step.primitive is op.PERMUTE:
        shown[out] = shown[x].transpose(params["axes"])
    elif step.primitive is op.SLICE:
        shown[out] = shown[x][params["key"]]
    elif step.primitive is op.RESHAPE:
        try:
            shown[out] = np.reshape(shown[x], params["to"], copy=False)
        except ValueError:
            return True
    return False


def _packed(
    variables: Sequence[Variable],
    born: dict[Variable, float],
    last: dict[Variable, float],
    parts: Parts,
) -> Plan:
    """Places for variables: the largest first, each in the smallest gap that it fits in.

    A gap lies between those that are needed at the same time.  Little is lost: 0 to 1 % more
    than the most that is needed at once, for the programs of `benchmarks`.
    """
    order = sorted((v for v in variables if v not in parts), key=lambda v: -_bytes(v))
    many = min(_MANY, max(_SOME, sum(_bytes(v) >= _LEAST for v in order)))
    starts: dict[Variable, int] = {}
    taken: list[tuple[int, int, float, float]] = []  # by whom, from when, and until when
    for variable in order[:many]:
        size, first, end = _bytes(variable), born[variable], last[variable]
        near = [
            (start, stop) for start, stop, since, till in taken if since <= end and first <= till
        ]
        starts[variable] = start = _gap(sorted(near), size)
        taken.append((start, start + size, first, end))
    _queue(order[many:], born, last, starts)
    size = max((start + _bytes(v) for v, start in starts.items()), default=0)
    for part in reversed(parts):  # those in which others lie come after them
        whole, start = parts[part]
        starts[part] = starts[whole] + start
    places = {v: number for number, v in enumerate(variables)}
    kinds = tuple(v.kind for v in variables)
    inside = {part: whole for part, (whole, _) in parts.items()}
    return Plan(places, kinds, tuple(starts[v] for v in variables), size, inside)


def _queue(
    variables: Sequence[Variable],
    born: dict[Variable, float],
    last: dict[Variable, float],
    starts: dict[Variable, int],
) -> None:
    """Places behind all others: each where one of its size was that is not needed any more."""
    end = max((start + _bytes(v) for v, start in starts.items()), default=0)
    free: dict[int, list[int]] = {}
    needed: list[tuple[float, int, int]] = []
    for variable in sorted(variables, key=born.__getitem__):
        while needed and needed[0][0] < born[variable]:
            _, start, size = heapq.heappop(needed)
            free.setdefault(size, []).append(start)
        size = _bytes(variable)
        if free.get(size):
            start = free[size].pop()
        else:
            start, end = end, end + size
        starts[variable] = start
        heapq.heappush(needed, (last[variable], start, size))


def aligned(size: int) -> int:
    """The bytes from a value of some size to what lies behind it."""
    return -(-size // _ALIGNED) * _ALIGNED


def _bytes(variable: Variable) -> int:
    return aligned(variable.kind.nbytes)


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The beginning of the smallest gap that has room for a size; or else the end."""
    least, found, end = 0, None, 0
    for start, stop in taken:
        if size <= start - end and (found is None or start - end < least):
            least, found = start - end, end
        end = max(end, stop)
    return end if found is None else found
