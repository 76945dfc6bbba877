"""The body of a loop: one turn, with inputs for what it has from elsewhere."""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.loops import with_keywords
from fdbr.compiler.ir.program import Guard, Instruction, Step, Variable, kind_of
from fdbr.compiler.passes.cse import Identities
from fdbr.compiler.passes.loop_dataflow import (
    FROM,
    INSIDE,
    SAME,
    VARIED,
    Turns,
    differs,
    operands_of,
    steps_of,
    values_of,
)
from fdbr.compiler.passes.loop_sums import PartsSum, sums_of
from fdbr.compiler.passes.open_loops import opened
from fdbr.compiler.passes.sequences import longest, runs

__all__ = ["Body", "body_of"]

_FEWEST = 4  # turns
_LOST = 2  # turns at each end that may be left out, so that what is read is rows of one array
_SCATTERED = 1  # values of a turn that may be put together so
_SMALL = 256  # elements of arrays that are put together one by one


def body_of(emission: Any, turns: Turns) -> "Body | None":
    """The body of a loop; `None` if it would cost too much to bring its operands together."""
    turns = _trimmed(emission, turns)
    opening = opened(emission.steps, emission.made, turns)
    if opening is not None:
        body = Body(emission, *opening)
        if _remats_agree(emission, body.turns) and body.build() and body.is_open:
            return body
    if turns.count < _FEWEST or not _remats_agree(emission, turns):
        return None
    body = Body(emission, turns)
    return body if body.build() else None


def _is_part(emission: Any, turns: Turns, number: int) -> bool:
    """Whether a step takes another part of one array in each turn."""
    step = emission.steps[turns.start + number]
    if type(step) is not Instruction or step.primitive is not op.SLICE:
        return False
    return turns.wires[number][0][0] is SAME and differs(emission.steps, turns, number)


def _sequences(emission: Any, turns: Turns) -> Any:
    """Values that differ from turn to turn, which become rows of arrays."""
    for number, wires in enumerate(turns.wires):
        if _is_part(emission, turns, number):
            yield [step.outs[0] for step in steps_of(emission.steps, turns, number)]
        for place, wire in enumerate(wires):
            if wire[0] is VARIED:
                yield values_of(emission.steps, turns, number, place)


def _trimmed(emission: Any, turns: Turns) -> Turns:
    """The turns without those at the ends that read something else."""
    first, last = 0, turns.count
    for values in _sequences(emission, turns):
        run = longest(emission.label, values)
        if run is not None and run.start <= _LOST and run.stop >= turns.count - _LOST:
            first, last = max(first, run.start), min(last, run.stop)
    return turns.without(first, turns.count - last)


def _remats_agree(emission: Any, turns: Turns) -> bool:
    """Whether what is one repeated run in a turn is one in the others."""
    known: dict[tuple[int, int], int] = {}
    for number in range(turns.period):
        steps = steps_of(emission.steps, turns, number)
        for turn, step in enumerate(steps):
            if type(step) is Instruction:
                key = turn, steps[0].remat
                if known.setdefault(key, step.remat) != step.remat:
                    return False
    return True


class Body:
    """One turn, as a program.

    Attributes
    ----------
    turns
        The turns.
    steps, inputs, outputs
        The body's; its inputs are made for ``operands`` and ``data``, its outputs are the next
        carry.
    operands, rows, data
        The loop's.
    guards
        What is added to the numbers of guards in the first turn, and from turn to turn.
    nexts
        For each value that is carried, the step and the result that it is next, or `None`.
    carried
        The kinds of those values.
    taken_out
        The steps of a turn that the body does not have: they read parts of arrays.
    sums
        The sums that are made after the loop.
    remat
        The repeated run that the steps belong to, if they belong to one.
    """

    def __init__(self, emission: Any, turns: Turns, ending: int | None = None) -> None:
        self.emission, self.turns = emission, turns
        self._ending = ending
        self._scattered = 0  # values that come from wherever, another one for each turn
        self.steps: list[Step] = []
        self.taken_out: set[int] = set()
        self.sums: list[PartsSum] = []
        self.guards = 0, 0
        self.nexts: list[tuple[int, int] | None] = []
        self._carry: dict[Any, tuple[Variable, Any, Any]] = {}  # input, first value, next one
        self._arrays: list[tuple[Variable, tuple[Any, int, int]]] = []
        self._data: list[tuple[Variable, list[Any]]] = []
        self._consts: dict[Variable, tuple[Variable, Any]] = {}  # input, and what it is given
        first = emission.steps[turns.start : turns.start + turns.period]
        self._first: Sequence[Any] = first
        remats = {step.remat for step in first if type(step) is Instruction}
        self.remat = remats.pop() if len(remats) == 1 else 0

    # --- what it is made of --------------------------------------------------------

    @property
    def inputs(self) -> list[Variable]:
        """The arguments of the body."""
        return [
            *(variable for variable, _, _ in self._carry.values()),
            *(variable for variable, _ in self._arrays),
            *(variable for variable, _ in self._data),
            *(variable for variable, _ in self._consts.values()),
        ]

    @property
    def operands(self) -> list[Any]:
        """The operands of the loop."""
        return [
            *(value for _, value, _ in self._carry.values()),
            *(array for _, (array, _, _) in self._arrays),
            *(value for _, value in self._consts.values()),
        ]

    @property
    def outputs(self) -> list[Variable]:
        """The values carried to the next turn."""
        return [following for _, _, following in self._carry.values()]

    @property
    def carried(self) -> list[Any]:
        """The kinds of what is carried."""
        return [variable.kind for variable, _, _ in self._carry.values()]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Of each array the first row, and how far on the next one is."""
        return [(start, step) for _, (_, start, step) in self._arrays]

    @property
    def data(self) -> list[tuple[Any, ...]]:
        """Constants, turn by turn."""
        return [tuple(values) for _, values in self._data]

    @property
    def until(self) -> int | None:
        """The number of the guard that ends the loop, if one does."""
        if self._ending is None:
            return None
        return int(self._first[self._ending].index) - self.guards[0]

    @property
    def is_open(self) -> bool:
        """Whether any number of turns is as good: nothing differs between them."""
        return self._ending is not None and not (self._arrays or self._data or self.sums)

    def made(self, place: tuple[int, int]) -> Variable:
        """A result of a step of the body."""
        made: Variable = self._first[place[0]].outs[place[1]]
        return made

    def place(self, position: int) -> tuple[int, int]:
        """The number of a step in its turn, and the turn."""
        turn, number = divmod(position - self.turns.start, self.turns.period)
        return number, turn

    # --- how it is made ------------------------------------------------------------

    def build(self) -> bool:
        """Make it; whether it can be made."""
        if not self._number_guards():
            return False
        self._take_parts()
        self.sums = sums_of(self.emission, self.turns, self.taken_out)
        dropped = {number for total in self.sums for number in (total.unslicing, total.adding)}
        for number in range(self.turns.period):
            if number in self.taken_out or number in dropped:
                continue
            if not self._add(number):
                return False
        return True

    def _number_guards(self) -> bool:
        guards = [i for i, step in enumerate(self._first) if type(step) is Guard]
        if not guards:
            return True
        numbers = [[s.index for s in steps_of(self.emission.steps, self.turns, i)] for i in guards]
        base, apart = numbers[0][0], numbers[0][1] - numbers[0][0]
        self.guards = base, apart
        return all(
            index == row[0] + turn * apart for row in numbers for turn, index in enumerate(row)
        )

    def _take_parts(self) -> None:
        """Have the loop read rows in the place of steps that take parts of an array."""
        for number in range(self.turns.period):
            if not _is_part(self.emission, self.turns, number):
                continue
            outs = [step.outs[0] for step in steps_of(self.emission.steps, self.turns, number)]
            found = list(runs(self.emission.label, outs))
            if len(found) == 1 and found[0].count == self.turns.count:
                self.taken_out.add(number)
                self._arrays.append((outs[0], self.emission.stacked(found[0], outs)))

    def _add(self, number: int) -> bool:
        """Add a step; whether that can be done."""
        step = self._first[number]
        operands = []
        for place, (operand, wire) in enumerate(
            zip(operands_of(step), self.turns.wires[number], strict=True)
        ):
            found = self._operand(operand, wire, number, place)
            if found is None:
                return False
            operands.append(found[0])
        if type(step) is Guard:
            index = step.index - self.guards[0]
            asked = step.place if number == self._ending else None
            self.steps.append(Guard(operands[0], step.question, step.answer, index, asked))
            return True
        primitive, params = step.primitive, step.params
        if differs(self.emission.steps, self.turns, number):
            others = steps_of(self.emission.steps, self.turns, number)
            keys = [other.params["key"] for other in others]
            operands.append(self._datum(keys))
            primitive = with_keywords(primitive, ("key",))
            params = {name: value for name, value in params.items() if name != "key"}
        outs, several = step.outs, step.several
        self.steps.append(
            Instruction(primitive, tuple(operands), params, outs, several, step.remat)
        )
        return True

    def _operand(self, operand: Any, wire: Any, number: int, place: int) -> tuple[Any] | None:
        if wire[0] is INSIDE or (wire[0] is SAME and type(operand) is not Variable):
            return (operand,)
        if wire[0] is SAME:
            if operand not in self._consts:
                self._consts[operand] = Variable(operand.kind), self.emission.value(operand)
            return (self._consts[operand][0],)
        if wire[0] is FROM:
            starts = values_of(self.emission.steps, self.turns, number, place)[: wire[1]]
            return (self._carried(wire[2:], starts),)
        values = values_of(self.emission.steps, self.turns, number, place)
        if not any(type(value) is Variable for value in values):
            return (self._datum(values),)
        row = self._row(values)
        return None if row is None else (row,)

    def _carried(self, place: tuple[int, int], starts: Sequence[Any]) -> Variable:
        """The values made as many turns ago as there are first values."""
        identity = Identities().of_value
        keys = [v if type(v) is Variable else identity(v) for v in starts]
        key = (place, *keys)
        if key not in self._carry:
            variable = Variable(kind_of(starts[0]))
            following = self._carried(place, starts[1:]) if starts[1:] else self.made(place)
            self.nexts.append(None if starts[1:] else place)
            self._carry[key] = variable, self.emission.value(starts[0]), following
        return self._carry[key][0]

    def _datum(self, values: list[Any]) -> Variable:
        """Constants that differ from turn to turn."""
        for variable, known in self._data:
            if len(known) == len(values) and all(
                a is b for a, b in zip(known, values, strict=True)
            ):
                return variable
        variable = Variable(kind_of(values[0]))
        self._data.append((variable, values))
        return variable

    def _row(self, values: list[Any]) -> Variable | None:
        """A value that is made elsewhere, another one for each turn."""
        found = list(runs(self.emission.label, values))
        whole = len(found) == 1 and found[0].count == len(values)
        kind = kind_of(values[0])
        alone = len(values) - sum(run.count for run in found)
        if not whole and (alone > _LOST * 2 or len(found) > _LOST):
            self._scattered += 1
            if kind.size > _SMALL or self._scattered > _SCATTERED:
                return None
        if whole:
            array = self.emission.stacked(found[0], values)
        else:
            array = self.emission.gathered(values), 0, 1
        for variable, known in self._arrays:
            if known == array:
                return variable
        variable = Variable(kind)
        self._arrays.append((variable, array))
        return variable
