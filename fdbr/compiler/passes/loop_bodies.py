"""The body of a rolled loop: one iteration, with inputs for the values from outside."""

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
    Iterations,
    differs,
    operands_of,
    steps_of,
    values_of,
)
from fdbr.compiler.passes.loop_sums import PartsSum, sums_of
from fdbr.compiler.passes.sequences import longest, runs

__all__ = ["Body", "body_of"]

_FEWEST = 4  # iterations
_LOST = 2  # iterations at each end that may be peeled so that the others read rows of one array
_SCATTERED = 1  # operands of an iteration that may be gathered value by value
_SMALL = 256  # elements of arrays that may be gathered so: gathering copies them


def body_of(emission: Any, iterations: Iterations) -> "Body | None":
    """Return the body of a loop; `None` if it would cost too much to gather its operands."""
    iterations = _trimmed(emission, iterations)
    if iterations.count < _FEWEST or not _remats_agree(emission, iterations):
        return None
    body = Body(emission, iterations)
    return body if body.build() else None


def _is_part(emission: Any, iterations: Iterations, number: int) -> bool:
    """Return whether a step slices one array at another position in each iteration."""
    step = emission.steps[iterations.start + number]
    if type(step) is not Instruction or step.primitive is not op.SLICE:
        return False
    return iterations.wires[number][0][0] is SAME and differs(emission.steps, iterations, number)


def _sequences(emission: Any, iterations: Iterations) -> Any:
    """Yield the values that differ between iterations, which become rows of arrays."""
    for number, wires in enumerate(iterations.wires):
        if _is_part(emission, iterations, number):
            yield [step.outs[0] for step in steps_of(emission.steps, iterations, number)]
        for place, wire in enumerate(wires):
            if wire[0] is VARIED:
                yield values_of(emission.steps, iterations, number, place)


def _trimmed(emission: Any, iterations: Iterations) -> Iterations:
    """Peel off iterations at the ends that read something else than the others."""
    first, last = 0, iterations.count
    for values in _sequences(emission, iterations):
        run = longest(emission.label, values)
        if run is not None and run.start <= _LOST and run.stop >= iterations.count - _LOST:
            first, last = max(first, run.start), min(last, run.stop)
    return iterations.without(first, iterations.count - last)


def _remats_agree(emission: Any, iterations: Iterations) -> bool:
    """Return whether steps share a rematerialisation scope in all iterations or in none."""
    known: dict[tuple[int, int], int] = {}
    for number in range(iterations.period):
        steps = steps_of(emission.steps, iterations, number)
        for iteration, step in enumerate(steps):
            if type(step) is Instruction:
                key = iteration, steps[0].remat
                if known.setdefault(key, step.remat) != step.remat:
                    return False
    return True


class Body:
    """One iteration, as a program.

    Attributes
    ----------
    turns
        The iterations.
    steps, inputs, outputs
        Those of the body; its inputs match ``operands`` and ``data``, its outputs are the next
        carry.
    operands, rows, data
        Those of the loop.
    guards
        The guard number offset of the first iteration, and its increment.
    nexts
        For each carried value, the step and the result that is its next value, or `None`.
    carried
        The avals of those values.
    taken_out
        The steps of an iteration that the body omits, because they only slice arrays.
    sums
        The sums that are computed after the loop.
    remat
        The rematerialisation scope of the steps, if they have one in common.
    """

    def __init__(self, emission: Any, iterations: Iterations) -> None:
        self.emission, self.iterations = emission, iterations
        self._scattered = 0  # operands whose values come from different arrays
        self.steps: list[Step] = []
        self.taken_out: set[int] = set()
        self.sums: list[PartsSum] = []
        self.guards = 0, 0
        self.nexts: list[tuple[int, int] | None] = []
        self._carry: dict[Any, tuple[Variable, Any, Any]] = {}  # input, first value, next one
        self._arrays: list[tuple[Variable, tuple[Any, int, int]]] = []
        self._data: list[tuple[Variable, list[Any]]] = []
        self._consts: dict[Variable, tuple[Variable, Any]] = {}  # input, and its operand
        first = emission.steps[iterations.start : iterations.start + iterations.period]
        self._first: Sequence[Any] = first
        remats = {step.remat for step in first if type(step) is Instruction}
        self.remat = remats.pop() if len(remats) == 1 else 0

    # --- the parts -----------------------------------------------------------------

    @property
    def inputs(self) -> list[Variable]:
        """The inputs of the body."""
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
        """The values carried to the next iteration."""
        return [following for _, _, following in self._carry.values()]

    @property
    def carried(self) -> list[Any]:
        """The avals of the carried values."""
        return [variable.kind for variable, _, _ in self._carry.values()]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """For each array, the first row, and the step to the next one."""
        return [(start, step) for _, (_, start, step) in self._arrays]

    @property
    def data(self) -> list[tuple[Any, ...]]:
        """The constants, iteration by iteration."""
        return [tuple(values) for _, values in self._data]

    def made(self, place: tuple[int, int]) -> Variable:
        """Return a result of a step of the body."""
        made: Variable = self._first[place[0]].outs[place[1]]
        return made

    def place(self, position: int) -> tuple[int, int]:
        """Return the number of a step in its iteration, and the iteration."""
        iteration, number = divmod(position - self.iterations.start, self.iterations.period)
        return number, iteration

    # --- construction --------------------------------------------------------------

    def build(self) -> bool:
        """Build the body; return whether that is possible."""
        if not self._number_guards():
            return False
        self._take_parts()
        self.sums = sums_of(self.emission, self.iterations, self.taken_out)
        dropped = {number for total in self.sums for number in (total.unslicing, total.adding)}
        for number in range(self.iterations.period):
            if number in self.taken_out or number in dropped:
                continue
            if not self._add(number):
                return False
        return True

    def _number_guards(self) -> bool:
        guards = [i for i, step in enumerate(self._first) if type(step) is Guard]
        if not guards:
            return True
        numbers = [
            [s.index for s in steps_of(self.emission.steps, self.iterations, i)] for i in guards
        ]
        base, apart = numbers[0][0], numbers[0][1] - numbers[0][0]
        self.guards = base, apart
        return all(
            index == row[0] + iteration * apart
            for row in numbers
            for iteration, index in enumerate(row)
        )

    def _take_parts(self) -> None:
        """Replace steps that slice an array by rows that the loop reads."""
        for number in range(self.iterations.period):
            if not _is_part(self.emission, self.iterations, number):
                continue
            outs = [step.outs[0] for step in steps_of(self.emission.steps, self.iterations, number)]
            found = list(runs(self.emission.label, outs))
            if len(found) == 1 and found[0].count == self.iterations.count:
                self.taken_out.add(number)
                self._arrays.append((outs[0], self.emission.stacked(found[0], outs)))

    def _add(self, number: int) -> bool:
        """Add a step; return whether that is possible."""
        step = self._first[number]
        operands = []
        for place, (operand, wire) in enumerate(
            zip(operands_of(step), self.iterations.wires[number], strict=True)
        ):
            found = self._operand(operand, wire, number, place)
            if found is None:
                return False
            operands.append(found[0])
        if type(step) is Guard:
            index = step.index - self.guards[0]
            self.steps.append(Guard(operands[0], step.question, step.answer, index))
            return True
        primitive, params = step.primitive, step.params
        if differs(self.emission.steps, self.iterations, number):
            others = steps_of(self.emission.steps, self.iterations, number)
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
            starts = values_of(self.emission.steps, self.iterations, number, place)[: wire[1]]
            return (self._carried(wire[2:], starts),)
        values = values_of(self.emission.steps, self.iterations, number, place)
        if not any(type(value) is Variable for value in values):
            return (self._datum(values),)
        row = self._row(values)
        return None if row is None else (row,)

    def _carried(self, place: tuple[int, int], starts: Sequence[Any]) -> Variable:
        """Return the variable for values of as many iterations ago as there are first values."""
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
        """Return the variable for constants that differ between iterations."""
        for variable, known in self._data:
            if len(known) == len(values) and all(
                a is b for a, b in zip(known, values, strict=True)
            ):
                return variable
        variable = Variable(kind_of(values[0]))
        self._data.append((variable, values))
        return variable

    def _row(self, values: list[Any]) -> Variable | None:
        """Return the variable for values that come from outside, one for each iteration."""
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
