"""Data flow of repeated steps: where the operands of each iteration come from."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from fdbr.compiler.ir.program import Guard, Instruction, Step, Variable
from fdbr.compiler.passes.cse import Identities
from fdbr.compiler.passes.repeat_detection import Stretch

__all__ = [
    "FROM",
    "INSIDE",
    "SAME",
    "VARIED",
    "Made",
    "Iterations",
    "differs",
    "operands_of",
    "steps_of",
    "iterations_of",
    "values_of",
]

INSIDE, SAME, FROM, VARIED = "inside", "same", "from", "varied"
"""The role of an operand: of this iteration, invariant, of some iterations ago, or any other."""

_FURTHEST = 6  # iterations back that a value may be read; each needs a carried value

Made = Mapping[Variable, tuple[int, int]]
"""The position of the step that defines each variable, and the index among its results."""


@attrs.frozen
class Iterations:
    """Iterations with the same data flow.

    Attributes
    ----------
    start
        The position of the first step of the first iteration.
    period, count
        The number of steps of an iteration, and the number of iterations.
    wires
        For each step of an iteration, the role of each operand: ``(INSIDE, step, result)``,
        ``(SAME,)``, ``(FROM, iterations ago, step of the iteration, result)`` or ``(VARIED,)``.
    """

    start: int
    period: int
    count: int
    wires: tuple[tuple[Any, ...], ...]

    @property
    def stop(self) -> int:
        """The position after the last step."""
        return self.start + self.period * self.count

    def overlaps(self, other: "Iterations") -> bool:
        """Return whether two loops have a step in common."""
        return self.start < other.stop and other.start < self.stop

    def without(self, first: int, last: int) -> "Iterations":
        """Return the loop without some iterations at the beginning and at the end."""
        start = self.start + first * self.period
        return attrs.evolve(self, start=start, count=self.count - first - last)


def operands_of(step: Any) -> tuple[Any, ...]:
    """Return the operands of a step, including constants."""
    return (step.operand,) if type(step) is Guard else step.operands


class _Reader:
    """Reads the operands of the iterations of a stretch."""

    def __init__(self, steps: Sequence[Step], made: Made, stretch: Stretch) -> None:
        self.steps, self.made = steps, made
        self.start, self.period = stretch.start, stretch.period
        self._identities = Identities()

    def wires(self, iteration: int) -> tuple[tuple[Any, ...], ...]:
        """Return the roles of the operands of an iteration's steps."""
        base = self.start + iteration * self.period
        return tuple(
            tuple(
                self._wire(operand, place, number, base, iteration)
                for place, operand in enumerate(operands_of(self.steps[base + number]))
            )
            for number in range(self.period)
        )

    def _wire(self, operand: Any, place: int, number: int, base: int, iteration: int) -> Any:
        position, result = -1, 0
        if type(operand) is Variable:
            position, result = self.made.get(operand, (-1, 0))
            if position >= base:
                return INSIDE, position - base, result
        if iteration:
            before = operands_of(self.steps[base - self.period + number])[place]
            if self._same(operand, before):
                return (SAME,)
        if position >= self.start:
            ago = iteration - (position - self.start) // self.period
            if ago <= _FURTHEST:
                return FROM, ago, (position - self.start) % self.period, result
        return (VARIED,)

    def _same(self, a: Any, b: Any) -> bool:
        if a is b:
            return True
        if type(a) is Variable or type(b) is Variable:
            return False
        return bool(self._identities.of_value(a) == self._identities.of_value(b))

    def goes_before(self, iteration: int, wires: tuple[tuple[Any, ...], ...]) -> bool:
        """Return whether an iteration may precede those with some roles of operands."""
        for mine, theirs in zip(self.wires(iteration), wires, strict=True):
            for own, other in zip(mine, theirs, strict=True):
                if (own[0] is INSIDE or other[0] is INSIDE) and own != other:
                    return False
        return True

    def is_outside(self, iterations: Iterations) -> bool:
        """Return whether all other operands are defined before the first iteration."""
        for iteration in range(iterations.count):
            base = iterations.start + iteration * self.period
            for number, wires in enumerate(iterations.wires):
                for place, wire in enumerate(wires):
                    if (
                        wire[0] is SAME
                        or wire[0] is VARIED
                        or (wire[0] is FROM and iteration < wire[1])
                    ):
                        operand = operands_of(self.steps[base + number])[place]
                        if type(operand) is Variable and self.made.get(operand, (-1,))[0] >= (
                            iterations.start
                        ):
                            return False
        return True


def iterations_of(steps: Sequence[Step], made: Made, stretch: Stretch) -> Iterations | None:
    """Return the longest run of iterations with the same data flow; `None` if there are not two.

    The values that the first iterations read from earlier ones come from outside of the loop.
    """
    reader = _Reader(steps, made, stretch)
    best = (0, 0)  # the number of iterations, and the last of them
    wires: Any = None
    here, last = 0, None
    for iteration in range(1, stretch.iterations):
        now = reader.wires(iteration)
        here = here + 1 if now == last else 1
        last = now
        if here > best[0]:
            best, wires = (here, iteration), now
    count, end = best
    if not count:
        return None
    first = end - count + 1
    if reader.goes_before(first - 1, wires):
        first, count = first - 1, count + 1
    iterations = Iterations(stretch.start + first * stretch.period, stretch.period, count, wires)
    return iterations if count > 1 and reader.is_outside(iterations) else None


def values_of(steps: Sequence[Step], iterations: Iterations, number: int, place: int) -> list[Any]:
    """Return an operand of a step in all iterations."""
    return [operands_of(step)[place] for step in steps_of(steps, iterations, number)]


def steps_of(steps: Sequence[Step], iterations: Iterations, number: int) -> list[Any]:
    """Return a step in all iterations."""
    return list(steps[iterations.start + number : iterations.stop : iterations.period])


def differs(steps: Sequence[Step], iterations: Iterations, number: int) -> bool:
    """Return whether the key of a step differs between iterations."""
    if type(steps[iterations.start + number]) is not Instruction:
        return False
    first, *rest = [step.params.get("key") for step in steps_of(steps, iterations, number)]
    identity = Identities().of_value
    return any(key is not first and identity(key) != identity(first) for key in rest)
