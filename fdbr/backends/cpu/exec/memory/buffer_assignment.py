"""Buffer assignment: which temporaries of a program share memory that is kept between runs.

A temporary occupies its buffer from its definition to its last use; then others may use it.
Outputs of the program are allocated separately.
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

__all__ = ["Plan", "is_join", "is_large", "is_product", "plan"]

_LEAST = 4096  # bytes; below, NumPy's own cache of small allocations is as good
_ALIGNED = 64  # bytes of a cache line, and of the widest vector
# Packing takes time quadratic in the number of variables: small variables beyond the first 100,
# and all beyond the first 500, reuse only buffers of their own size.
_SOME = 100
_MANY = 500

Parts = dict[Variable, tuple[Variable, int]]
"""The variables that are in the memory of others, with the owner and the offset in bytes."""


@attrs.frozen
class Plan:
    """The positions of temporaries in one block of memory.

    Attributes
    ----------
    places
        The index of each planned variable among the arrays of a block.
    kinds
        The avals of those arrays.
    starts
        The offsets of the arrays in bytes.
    size
        The size of the block in bytes.
    inside
        For variables that are computed inside a concatenation, its result.
    """

    places: dict[Variable, int]
    kinds: tuple[Any, ...]
    starts: tuple[int, ...]
    size: int
    inside: dict[Variable, Variable]

    def arrays(self, memory: Any, places: Sequence[int] | None = None) -> list[Any]:
        """Return all arrays of a block, or those at some indices."""
        found = []
        for place in range(len(self.kinds)) if places is None else places:
            start, kind = self.starts[place], self.kinds[place]
            bytes_ = memory[start : start + kind.nbytes]
            found.append(bytes_.view(kind.dtype).reshape(kind.shape))
        return found

    def start(self, variable: Variable) -> int:
        """Return the offset of a variable in bytes."""
        return self.starts[self.places[variable]]


def is_product(step: Step) -> bool:
    """Return whether a step is a matrix product that can be written to given memory."""
    if not isinstance(step, Instruction) or step.primitive not in op.PRODUCTS:
        return False
    kinds = [o.kind for o in step.operands if is_variable(o)]
    out = step.outs[0].kind
    whole = len(kinds) == len(step.operands) and all(
        kind.is_array and kind.dtype == out.dtype for kind in kinds
    )
    # Outer products have a faster implementation of their own.
    return whole and out.dtype.kind == "f" and kinds[0].shape[-1] != 1


def is_join(step: Step) -> bool:
    """Return whether a step concatenates arrays of one dtype along the first axis."""
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
        Results that are in the memory of others.
    scratch
        Scratch memory, with the first and last step that needs it.
    early
        Times at which results are first written, if that is before the step that defines them.
    """
    roots: dict[Variable, frozenset[Variable]] = {}
    born: dict[Variable, float] = {}
    last: dict[Variable, float] = {}
    shown: dict[Variable, Any] = {}  # the memory layout of planned results, and of their views
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
                if below and isinstance(step, Instruction):  # fused ones overwrite operands
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
    """Return the results that are computed inside a concatenation that reads them.

    The concatenation needs its memory from the first of them on, so they must be most of it.
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
    """Return whether a result is an array that is large enough to be planned."""
    kind = variable.kind
    return kind.is_array and kind.nbytes >= _LEAST


def _lying(kind: Any) -> Any:
    """Return an array with the layout of an aval, without memory for its elements."""
    steps = accumulate(kind.shape[:0:-1], mul, initial=kind.dtype.itemsize)
    return as_strided(np.empty(0, kind.dtype), kind.shape, tuple(steps)[::-1] if kind.shape else ())


def _copies(step: Instruction, shown: dict[Variable, Any]) -> bool:
    """Return whether a reshape needs memory of its own; record the layout of views in ``shown``.

    A reshape of a permuted array cannot be a view.
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
    """Assign memory to variables: the largest first, each in the smallest gap that fits.

    A gap is between variables that are live at the same time.  The programs of `benchmarks` need
    0 to 1 % more than the maximum that is live at once.
    """
    order = sorted((v for v in variables if v not in parts), key=lambda v: -_bytes(v))
    many = min(_MANY, max(_SOME, sum(_bytes(v) >= _LEAST for v in order)))
    starts: dict[Variable, int] = {}
    taken: list[tuple[int, int, float, float]] = []  # start, stop, first and last use
    for variable in order[:many]:
        size, first, end = _bytes(variable), born[variable], last[variable]
        near = [
            (start, stop) for start, stop, since, till in taken if since <= end and first <= till
        ]
        starts[variable] = start = _gap(sorted(near), size)
        taken.append((start, start + size, first, end))
    _queue(order[many:], born, last, starts)
    size = max((start + _bytes(v) for v, start in starts.items()), default=0)
    for part in reversed(parts):  # owners come later, and must be assigned first
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
    """Assign memory behind the rest; each variable reuses a dead buffer of its own size."""
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


def _bytes(variable: Variable) -> int:
    """Return the size of a variable, rounded up to the alignment."""
    return -(-variable.kind.nbytes // _ALIGNED) * _ALIGNED


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest gap that fits a size, or else the end of the memory."""
    least, found, end = 0, None, 0
    for start, stop in taken:
        if size <= start - end and (found is None or start - end < least):
            least, found = start - end, end
        end = max(end, stop)
    return end if found is None else found
