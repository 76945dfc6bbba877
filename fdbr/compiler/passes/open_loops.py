"""Loops that hold for any number of iterations: Python's ``while``.

An iteration starts or continues if a guard holds, and the loop ends when it fails.  Suppose that
all iterations evaluate the guard in the same Python state (`Guard.place`), and that after the last
iteration the program repeats the steps up to the guard, with the other outcome.  Then Python does
the same in every iteration, and the same after any last one.
"""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.ir.program import Guard, Instruction, Program, Step, Variable, has_effect
from fdbr.compiler.passes.loop_dataflow import Iterations, Made, steps_of, wires_of

__all__ = ["may_open", "opened"]

_FEWEST = 2  # iterations


def may_open(program: Program) -> bool:
    """Return whether some guards of a program were evaluated in the same Python state.

    A program with side effects is excluded, because loops contain none.
    """
    if any(map(has_effect, program.steps)):
        return False
    places = [step.place for step in program.steps if type(step) is Guard]
    known = [place for place in places if place is not None]
    return len(known) > len(set(known))


def opened(
    steps: Sequence[Step], made: Made, iterations: Iterations
) -> tuple[Iterations, int] | None:
    """Return the open loop in some iterations, and the number of its guard step; else `None`."""
    for number in range(iterations.period):
        guards = steps_of(steps, iterations, number)
        place = getattr(guards[-1], "place", None)
        if type(guards[-1]) is not Guard or place is None:
            continue
        same = 0
        while same < iterations.count and guards[-1 - same].place == place:
            same += 1
        loop = iterations.without(iterations.count - same, 0)
        if (
            same >= _FEWEST
            and _ends(steps, made, loop, number)
            and _is_steady(steps, made, loop, number)
        ):
            return loop, number
    return None


def _ends(steps: Sequence[Step], made: Made, iterations: Iterations, number: int) -> bool:
    """Return whether an iteration starts after the last one, and its guard has another outcome."""
    if iterations.stop + number >= len(steps):
        return False
    first: Any = steps[iterations.start + number]
    last: Any = steps[iterations.stop + number]
    if type(last) is not Guard or last.place != first.place or last.answer == first.answer:
        return False
    for i in range(number):
        one, other = steps[iterations.start + i], steps[iterations.stop + i]
        if type(one) is not type(other) or not _alike(one, other):
            return False
    return (
        wires_of(steps, made, iterations, iterations.count, number + 1)
        == iterations.wires[: number + 1]
    )


def _is_steady(steps: Sequence[Step], made: Made, iterations: Iterations, number: int) -> bool:
    """Return whether Python's variables hold invariant values or those of the last iteration.

    Values that are swapped or delayed by an iteration depend on the number of iterations.
    """
    stop: Any = steps[iterations.stop + number]
    guards = [*steps_of(steps, iterations, number), stop]
    if len({len(guard.around) for guard in guards}) > 1:
        return False
    return all(
        _is_steady_value(column, made, iterations, number)
        for column in zip(*(guard.around for guard in guards), strict=True)
    )


def _is_steady_value(
    values: Sequence[Any], made: Made, iterations: Iterations, number: int
) -> bool:
    """Return whether a variable's value is invariant, or defined in the last iteration."""
    if all(value is values[0] for value in values):
        return True
    places = set()
    for iteration, value in enumerate(values):
        if iteration:
            position, result = made.get(value, (-1, 0)) if type(value) is Variable else (-1, 0)
            place = position - (iterations.start + iteration * iterations.period)
            if not number - iterations.period < place <= number:
                return False
            places.add((place, result))
    return len(places) == 1


def _alike(one: Any, other: Any) -> bool:
    """Return whether two steps do the same, up to their operands."""
    if type(one) is Guard:
        return bool(one.question is other.question and one.answer == other.answer)
    assert type(one) is Instruction
    return one.primitive is other.primitive and repr(one.params) == repr(other.params)
