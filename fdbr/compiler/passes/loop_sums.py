"""Sums over iterations of arrays that are zero outside one slice: slices are added after the loop.

The gradient of an array that a loop slices in each iteration is such a sum.  Adding whole arrays
would take time quadratic in the number of iterations.
"""

import itertools
from collections.abc import Container
from typing import Any

import attrs

from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import ADD_PARTS
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.compiler.passes.loop_dataflow import FROM, INSIDE, Iterations, differs, steps_of
from fdbr.compiler.passes.rules.views import full_key, view_of

__all__ = ["PartsSum", "sums_of"]


@attrs.frozen(eq=False)
class PartsSum:
    """A sum over iterations of slices among zeros.

    Attributes
    ----------
    unslicing, adding
        The numbers of the two steps of an iteration that it replaces.
    part
        The step and result that is the slice.
    start, total
        The value before the loop, and the sum after it.
    key, steps
        The key of the first iteration's slice, and its shift along each axis.
    """

    unslicing: int
    adding: int
    part: tuple[int, int]
    start: Any
    total: Variable
    key: tuple[Any, ...]
    steps: tuple[int, ...]

    def emit(self, emission: Any, rolled: Any) -> Variable:
        """Emit the total, from the stacked slices."""
        operands = emission.value(self.start), rolled.stack(*self.part)
        total: Variable = emission.emit(
            ADD_PARTS, *operands, kind=self.total.kind, key=self.key, steps=self.steps
        )
        return total


def sums_of(emission: Any, iterations: Iterations, taken_out: Container[int]) -> list[PartsSum]:
    """Return the sums in a loop; ``taken_out`` are steps that its body omits."""
    found = []
    for number in range(iterations.period):
        step = emission.steps[iterations.start + number]
        if type(step) is not Instruction or step.primitive is not op.UNSLICE:
            continue
        wire = iterations.wires[number][0]
        if wire[0] is not INSIDE or wire[1] in taken_out:
            continue
        if not differs(emission.steps, iterations, number):
            continue
        steps = _apart(emission, iterations, number)
        adding = None if steps is None else _adding(emission, iterations, number)
        if steps is None or adding is None:
            continue
        sums = steps_of(emission.steps, iterations, adding)
        start = next(operand for operand in sums[0].operands if operand is not step.outs[0])
        total = sums[-1].outs[0]
        key = full_key(total.kind.shape, step.params["key"])
        found.append(PartsSum(number, adding, wire[1:], start, total, key, steps))
    return found


def _adding(emission: Any, iterations: Iterations, number: int) -> int | None:
    """Return the step that adds a step's result to a total, if nothing else reads either."""
    readers, made = emission.readers, emission.made
    steps = steps_of(emission.steps, iterations, number)
    places = [readers.get(step.outs[0], []) for step in steps]
    if any(len(place) != 1 for place in places):
        return None
    adding = places[0][0] - iterations.start
    if adding >= iterations.period:
        return None
    sums = steps_of(emission.steps, iterations, adding)
    step, wires = sums[0], iterations.wires[adding]
    if type(step) is not Instruction or step.primitive is not op.ADD:
        return None
    others = [i for i, wire in enumerate(wires) if wire != (INSIDE, number, 0)]
    if len(others) != 1 or wires[others[0]] != (FROM, 1, adding, 0):
        return None
    kind = step.outs[0].kind
    if kind_of(step.operands[others[0]]) != kind or not kind.is_array:
        return None
    for total, following in itertools.pairwise(sums):
        if readers.get(total.outs[0], []) != [made[following.outs[0]][0]]:
            return None
    return adding if kind_of(steps[0].operands[0]).dtype == kind.dtype else None


def _apart(emission: Any, iterations: Iterations, number: int) -> tuple[int, ...] | None:
    """Return the shift of a key along each axis between iterations; `None` if it varies."""
    views = []
    for step in steps_of(emission.steps, iterations, number):
        view = view_of(step.params["shape"], step.params["key"])
        if view is None:
            return None
        views.append(view)
    moves = {
        tuple(b - a for a, b in zip(one.first, other.first, strict=True))
        for one, other in itertools.pairwise(views)
    }
    alike = all(view.form == views[0].form for view in views)
    return moves.pop() if alike and len(moves) == 1 else None
