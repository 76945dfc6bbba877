"""Loops as steps of a program: the body is itself a program, run once per iteration."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
from numpy.lib.stride_tricks import as_strided

from fdbr.compiler.ir.guards import GuardFailure
from fdbr.compiler.ir.program import Guard, Instruction, Kind, Program, Step, kind_of
from fdbr.core.primitive import Primitive, registry

__all__ = [
    "ADD_PARTS",
    "LOOP",
    "LOWERED",
    "PARTS",
    "ROW",
    "Loop",
    "guards_in",
    "is_guarded",
    "loop_of",
    "loops",
    "row_of",
    "stack_kind",
    "with_keywords",
]


@attrs.frozen(eq=False)
class Loop:
    """The parameter of a loop step, whose operands are ``(*carry, *arrays, *consts)``.

    Its results are those of the body; results of each iteration are stacked.  The operands of a
    loop that runs ``back`` end with cotangents, and its results are cotangents.

    Attributes
    ----------
    body
        From ``(*carry, *rows, *data, *consts)`` to ``(*carry, *lasts, *each)``: the carry of the
        next iteration, the values kept of the last iteration alone, and those kept of each.  Its
        guards are numbered from 0.
    length
        The number of iterations, at least one.
    carried, lasts
        The number of carried values, and of values kept of the last iteration.
    rows
        For each of the arrays, the row of the first iteration, and the step to the next one's.
    data
        Constants that differ between iterations: a sequence of values for each.
    guard, guards
        The offset of the body's guard numbers in the first iteration, and its increment.
    until
        `None`, or the number of the guard in the body that ends the loop when it fails: then the
        results are those of the iteration before, and ``length`` is that of the captured run.
    back
        `None`, or the pullback of an iteration, from ``(*cotangents, *carry, *consts)`` to
        cotangents.  Then the carry of each iteration is kept, and the pullbacks of the iterations
        follow, from the last to the first.
    """

    body: Program
    length: int
    carried: int
    lasts: int
    rows: tuple[tuple[int, int], ...]
    data: tuple[Sequence[Any], ...]
    guard: int = 0
    guards: int = 0
    until: int | None = None
    back: Program | None = None

    @property
    def programs(self) -> tuple[Program, ...]:
        """The body, and the pullback of an iteration if there is one."""
        return (self.body,) if self.back is None else (self.body, self.back)

    @property
    def is_open(self) -> bool:
        """Whether a guard decides the number of iterations."""
        return self.until is not None

    def failure(self, iteration: int, failure: GuardFailure) -> GuardFailure:
        """Translate a guard failure inside an iteration for the caller of the program."""
        return GuardFailure(self.guard + iteration * self.guards + failure.index, failure.answer)

    def ends(self, iteration: int, failure: GuardFailure) -> None:
        """Raise the guard failure of an iteration, unless it ends the loop."""
        if failure.index != self.until or (self.lasts and not iteration):
            raise self.failure(iteration, failure) from None

    def iterations(
        self,
        iteration: Callable[..., Any],
        operands: Sequence[Any],
        back: Callable[..., Any] | None = None,
    ) -> tuple[Any, ...]:
        """Run the loop; ``iteration`` runs the body, and ``back`` the pullback of an iteration."""
        if back is not None:
            return self._back(iteration, operands, back)
        first, second = self.carried, self.carried + len(self.rows)
        carry, arrays, consts = operands[:first], operands[first:second], operands[second:]
        kinds = [variable.kind for variable in self.body.inputs[first:second]]
        kept = self.carried + self.lasts
        stacks = [
            kind.xp.empty((self.length, *kind.shape), kind.dtype)
            for kind in map(kind_of, self.body.outputs[kept:])
        ]
        outs: Sequence[Any] = carry
        for number in itertools.count() if self.is_open else range(self.length):
            rows = [
                row_of(array, start + number * step, kind)
                for array, (start, step), kind in zip(arrays, self.rows, kinds, strict=True)
            ]
            data = [values[number] for values in self.data]
            try:
                outs = iteration(*carry, *rows, *data, *consts)
            except GuardFailure as failure:
                self.ends(number, failure)
                break
            carry = outs[: self.carried]
            for stack, part in zip(stacks, outs[kept:], strict=True):
                stack[number] = part
        return (*outs[:kept], *stacks)

    def _back(
        self, iteration: Callable[..., Any], operands: Sequence[Any], back: Callable[..., Any]
    ) -> tuple[Any, ...]:
        """Run the iterations, and their pullbacks from the last to the first."""
        assert self.back is not None
        count = len(operands) - len(self.back.outputs)
        carry, consts = operands[: self.carried], operands[self.carried : count]
        cotangents, carries = operands[count:], []
        try:
            while True:
                new = iteration(*carry, *consts)
                carries.append(carry)
                carry = new
        except GuardFailure as failure:
            self.ends(len(carries), failure)
        while carries:
            cotangents = back(*cotangents, *carries.pop(), *consts)
        return tuple(cotangents)

    def __repr__(self) -> str:
        if self.back is not None:
            many = f"of {len(self.body.steps)} steps and back of {len(self.back.steps)}"
            return f"<any number of iterations {many}>"
        many = "any number of" if self.is_open else str(self.length)
        return f"<{many} iterations of {len(self.body.steps)} steps>"


def row_of(array: Any, index: int, kind: Kind) -> Any:
    """Return a row of an array as a value of an aval."""
    if kind.is_number:
        return array[index].item()
    return array[index, ...] if kind.is_array and not kind.shape else array[index]


def stack_kind(kind: Kind, length: int) -> Kind:
    """Return the aval of the stacked values of all iterations."""
    return kind.array((length, *kind.shape))


def _plain(name: str, value: Callable[..., Any]) -> Primitive:
    """Return a primitive that occurs only in programs, and has no rules."""
    return Primitive(name, "program", value, None, None, None, registered=False)


def _run(xp: Any, *operands: Any, loop: Loop) -> tuple[Any, ...]:
    raise AssertionError("loops are run by the interpreter or the back end")


LOOP = _plain("loop", _run)
"""Runs a body once per iteration."""

LOWERED: dict[Primitive, Callable[[Instruction], Sequence[Instruction] | None]] = {}
"""For primitives of control flow: how to lower them to `LOOP`; the function may return `None`."""

ROW = _plain("row", lambda xp, array, *, index, form: row_of(array, index, form))
"""Reads one iteration's entry of a stacked array, as a value of its aval."""


def _parts(xp: Any, x: Any, *, key: Any, steps: tuple[int, ...], count: int) -> Any:
    """Return a strided view of equal slices of an array at equal distances."""
    first = x[(*key, ...)]
    apart = sum(step * stride for step, stride in zip(steps, x.strides, strict=True))
    return as_strided(first, (count, *first.shape), (apart, *first.strides), writeable=False)


PARTS = _plain("parts", _parts)
"""Slices of one array at equal distances, as one array; ``key`` is the first slice."""


def _put_parts(xp: Any, total: Any, parts: Any, *, key: Any, steps: tuple[int, ...]) -> Any:
    out = total + total.dtype.type(0)  # -0.0 becomes 0.0, as in a sum
    first = out[(*key, ...)]
    apart = sum(step * stride for step, stride in zip(steps, out.strides, strict=True))
    places = as_strided(first, parts.shape, (apart, *first.strides))
    for place, part in zip(places, parts, strict=True):  # one by one: slices may overlap
        place += part
    return out


ADD_PARTS = _plain("add_parts", _put_parts)
"""The sum of an array and of arrays that are zero outside of one slice each."""

_made: dict[tuple[str, tuple[str, ...]], Primitive] = {}


def with_keywords(primitive: Primitive, names: tuple[str, ...]) -> Primitive:
    """Return a primitive that takes some of another's parameters as further operands."""
    key = primitive.name, names
    if key not in _made or registry.get(primitive.name) is not primitive:

        def value(xp: Any, *operands: Any, **params: Any) -> Any:
            count = len(operands) - len(names)
            more = dict(zip(names, operands[count:], strict=True))
            return primitive.value(xp, *operands[:count], **params, **more)

        _made[key] = _plain(f"{primitive.name}_by_{'_'.join(names)}", value)
    return _made[key]


def loop_of(step: Step) -> Loop | None:
    """Return the loop of a step; `None` if it is another step."""
    if type(step) is not Instruction or step.primitive is not LOOP:
        return None
    loop: Loop = step.params["loop"]
    return loop


def guards_in(steps: Iterable[Step]) -> list[int]:
    """Return the numbers of the guards among steps that can fail, including those in loops."""
    found: list[int] = []
    for step in steps:
        loop = loop_of(step)
        if type(step) is Guard:
            found.append(step.index)
        elif loop is not None and (inside := guards_in(_steps_that_fail(loop))):
            iterations = range(loop.length)
            found += [
                loop.guard + iteration * loop.guards + index
                for iteration in iterations
                for index in inside
            ]
    return found


def is_guarded(step: Step) -> bool:
    """Return whether a step is a guard, or a loop that contains guards which can fail."""
    loop = loop_of(step)
    return type(step) is Guard or (
        loop is not None and any(map(is_guarded, _steps_that_fail(loop)))
    )


def _steps_that_fail(loop: Loop) -> Iterator[Step]:
    """Yield the steps of a loop's body, without a guard that only ends the loop."""
    ends = loop.is_open and not loop.lasts
    for step in loop.body.steps:
        if not (ends and type(step) is Guard and step.index == loop.until):
            yield step


def loops(program: Program) -> Iterator[tuple[Instruction, Loop]]:
    """Yield the loops among the steps of a program."""
    for step in program.steps:
        loop = loop_of(step)
        if loop is not None:
            yield step, loop  # type: ignore[misc]
