"""Loop rolling: turn unrolled Python loops back into loops."""

from collections.abc import Sequence
from itertools import islice

import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, has_effect, kind_of
from fdbr.compiler.passes.cse import cse
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.loop_dataflow import Iterations, iterations_of
from fdbr.compiler.passes.loop_emission import Emission
from fdbr.compiler.passes.repeat_detection import Stretch, looks_of, stretches
from fdbr.compiler.passes.schedule_guards import schedule_guards

__all__ = ["LEAST", "roll_loops"]

LEAST = 200
"""The number of steps that a loop must save; shorter ones are faster unrolled."""

_HEAVY = 20  # the factor on `LEAST` for loops that multiply large matrices; see `roll_loops`
_LARGE = 1024  # elements of a large matrix
_PRODUCTS = op.PRODUCTS | {op.CONV, op.CONV_BIASED}

_FEWEST = 4  # iterations of a loop
_LITTLE = 8  # steps that a loop over other loops' results must save: unrolled it costs reads
_TRIALS = 8  # stretches that are analysed for each loop; bounds the compile time


def roll_loops(program: Program, least: int | None = None) -> Program:
    """Replace repeated steps by loops.

    An iteration of the loop does the same as one of Python's loop, in the same order, on the same
    values, so results do not change.  Iterations at the ends that differ from the others stay
    unrolled.

    A loop must save ``least`` steps; 20 times as many if it multiplies large matrices, because
    products of different iterations can be batched only while they are unrolled.
    """
    least = LEAST if least is None else least
    if len(program.steps) < least:
        return program
    if any(map(has_effect, program.steps)):
        program = schedule_guards(program)  # side effects come after all iterations
    program = cse(dce(program))
    refused: list[Iterations] = []
    while True:
        found = _Search(program, least, refused).loops()
        if not found:
            return program
        emission = Emission(program, found)
        rolled = emission.program(lambda body: roll_loops(body, least))
        costly = list(emission.costly())
        if not costly:
            return dce(rolled)
        refused += costly


def _is_heavy(step: Step) -> bool:
    """Return whether a step multiplies a large matrix."""
    product = type(step) is Instruction and step.primitive in _PRODUCTS
    return product and any(kind_of(operand).size > _LARGE for operand in step.operands)  # type: ignore[union-attr]


class _Search:
    """Finds the loops in a program."""

    def __init__(self, program: Program, least: int, refused: Sequence[Iterations]) -> None:
        self.steps: Sequence[Step] = program.steps
        self.numbers = looks_of(self.steps)
        self.heavy = np.array(list(map(_is_heavy, self.steps)))
        self.least, self.refused = least, refused
        self.made: dict[Variable, tuple[int, int]] = {}
        for position, step in enumerate(self.steps):
            for number, out in enumerate(step.outs):
                self.made[out] = position, number

    def loops(self) -> list[Iterations]:
        """Return the loops in order."""
        found = self._within(0, len(self.steps), self.least)
        for iterations in list(found):
            read = self._readers_of(iterations)
            bounds = [0, *(p for t in found for p in (t.start, t.stop)), len(self.steps)]
            for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
                more = self._within(start, stop, _LITTLE) if stop - start > _LITTLE else []
                found += [t for t in more if any(t.start <= p < t.stop for p in read)]
            found.sort(key=lambda iterations: iterations.start)
        return found

    def _readers_of(self, iterations: Iterations) -> list[int]:
        """Return the positions of steps after a loop that read results of its iterations."""
        made = {out for step in self.steps[iterations.start : iterations.stop] for out in step.outs}
        later = range(iterations.stop, len(self.steps))
        return [p for p in later if not made.isdisjoint(self.steps[p].reads)]

    def _within(self, start: int, stop: int, least: int) -> list[Iterations]:
        """Return the loops between two positions."""
        best = self._best(start, stop, least)
        if best is None:
            return []
        before = self._within(start, best.start, least)
        return [*before, best, *self._within(best.stop, stop, least)]

    def _best(self, start: int, stop: int, least: int) -> Iterations | None:
        best, most = None, least - 1
        for stretch in islice(stretches(self.numbers[start:stop]), _TRIALS):
            if stretch.saved <= most:
                break
            moved = Stretch(stretch.start + start, stretch.stop + start, stretch.period)
            iterations = iterations_of(self.steps, self.made, moved)
            if iterations is None or iterations.count < _FEWEST:
                continue
            if any(map(iterations.overlaps, self.refused)):
                continue
            saved = (iterations.count - 1) * iterations.period
            if self.heavy[iterations.start : iterations.stop].any():
                saved //= _HEAVY
            if saved > most:
                best, most = iterations, saved
        return best
