"""Discovery of a function's control flow from its runs: states, and the steps between them.

A state is everything that Python sees at a guard, except traced values.  Together with the outcome
of the guard it determines what is done up to the next guard or the end: a *segment*.  A value that
a segment reads has a *name*, by which it is found on every path to the segment.
"""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.control_flow.body_tracing import NoBodyError
from fdbr.control_flow.traced.trial_run import Question, Rehearsal

__all__ = ["Ask", "Edge", "Flow", "Leave", "Name", "Segment", "answer_key"]

Name = tuple[Any, ...]
"""The name of a value: ``("arg", i)``; ``("lifted", i)`` for a captured value; ``("made", edge,
i)`` for a result of the latest run of a segment; or ``("role", call, where)`` for the value of a
Python variable in the latest state of a call."""

Edge = tuple[int, Any]
"""A state, and the outcome of its guard."""

START: Edge = (-1, None)
_MOST = 4000  # segments; beyond it Python is faster than analysing them


class _ConflictError(Exception):
    """Python did something else in a state than it did before."""

    def __init__(self, state: int) -> None:
        super().__init__(state)
        self.state = state


@attrs.frozen(eq=False)
class Ask:
    """The end of a segment at a guard.

    Attributes
    ----------
    operand
        The variable that is read.
    question
        The conversion that reads it.
    state
        The state at the guard.
    roles
        The values of Python's variables at the guard.
    """

    operand: Variable
    question: Any
    state: int
    roles: Mapping[Name, Variable]


@attrs.frozen(eq=False)
class Leave:
    """The end of a segment where the function returns: variables and constants."""

    outputs: tuple[Any, ...]
    structure: Any


@attrs.define(eq=False)
class Segment:
    """The steps between two guards.

    Attributes
    ----------
    steps
        The steps.
    names
        For each variable from an earlier segment, its name.
    end
        How the segment ends.
    """

    steps: list[Instruction]
    names: dict[Variable, Name]
    end: Ask | Leave

    @property
    def made(self) -> list[Variable]:
        """The results of all steps."""
        return _made(self.steps)


def _made(steps: Sequence[Instruction]) -> list[Variable]:
    return [out for step in steps for out in step.outs]


def answer_key(answer: Any) -> Any:
    """Return a key of an outcome among others of the same guard."""
    return answer if type(answer) is bool else repr(answer)


class Flow:
    """The control flow of a function, as far as it is known.

    Attributes
    ----------
    segments
        The known segments, by state and outcome.
    lifted
        The captured values of the last run, by their numbers.
    names
        The names of the registers of its graphs, in order.
    version
        A number that grows whenever a segment is added.
    """

    def __init__(self) -> None:
        self.segments: dict[Edge, Segment] = {}
        self.lifted: dict[int, Any] = {}
        self.names: list[Name] = []
        self.version = 0
        self._lifted_kinds: list[Any] = []
        self._states: dict[Any, int] = {}
        self._places: dict[int, Any] = {}  # the code positions of states that could be compared
        self._refused: set[Any] = set()  # code positions whose states turned out ambiguous
        self._held: list[Any] = []

    def learn(self, run: Rehearsal) -> bool:
        """Record a run; return whether it contained anything new."""
        self._held.append(run.held)
        while True:
            before = len(self.segments)
            try:
                _Reading(self, run).all()
            except _ConflictError as conflict:
                place = self._places.get(conflict.state)
                if place is None:
                    raise NoBodyError("it does not do the same in the same state") from None
                self._refused.add(place)
                self._forget()
                continue
            if len(self.segments) > _MOST:
                raise NoBodyError("it takes too many paths")
            self.version += len(self.segments) > before
            return len(self.segments) > before

    def _forget(self) -> None:
        self.segments.clear()
        self._states.clear()
        self._places.clear()
        self._lifted_kinds.clear()
        self.names.clear()
        self.version += 1

    def number(self, key: Any) -> int:
        """Return the number of a state."""
        return self._states.setdefault(key, len(self._states))

    def state(self, question: Question, reading: "_Reading") -> tuple[int, dict[Name, Variable]]:
        """Return the number of the state at a guard, and the values of variables that vary in it.

        Values from before a call belong to its caller, and keep their names in the call.
        """
        there = question.seen
        if there is None or there.place in self._refused:
            return self.number(("after", reading.edge)), {}
        call = reading.calls.get(there.call)
        if call is None:
            before = frozenset() if there.outermost else frozenset(reading.names)
            call = reading.calls[there.call] = self.number(("call", reading.edge)), before
        number, before = call
        waiting, roles = [], {}
        for where, variable in there.traced.items():
            if variable in before:
                waiting.append((where, reading.found(variable, reading.latest)))
            else:
                roles["role", number, where] = variable
        state = self.number(("seen", number, there.place, there.key, tuple(waiting)))
        self._places[state] = there.place
        return state, roles

    def new_lifted(self, value: Any) -> int:
        """Return a new number for a captured value."""
        self._lifted_kinds.append(kind_of(value))
        number = len(self._lifted_kinds) - 1
        self.lifted[number] = value
        return number

    def is_lifted(self, number: int, value: Any) -> bool:
        """Return whether a value is the captured value with a number, or may be."""
        if self._lifted_kinds[number] != kind_of(value):
            return False
        return alike(self.lifted.setdefault(number, value), value)


class _Reading:
    """Divides a run into segments."""

    def __init__(self, flow: Flow, run: Rehearsal) -> None:
        self.flow, self.run = flow, run
        flow.lifted = {}
        self.names: dict[Variable, Name] = {v: ("arg", i) for i, v in enumerate(run.inputs)}
        self.latest: dict[Name, Variable] = {name: v for v, name in self.names.items()}
        self.calls: dict[int, tuple[int, frozenset[Variable]]] = {}
        self.lifted: dict[Variable, int] = {}
        self.edge: Edge = START
        self.before: dict[Name, Variable | None] = {}  # names before the current steps
        self.seen = -1  # the last state that could be compared

    def all(self) -> None:
        """Read the whole run."""
        run = self.run
        start = 0
        for question in run.questions:
            steps = list(run.steps[start : question.position])
            own = self._note(steps)
            state, roles = self.flow.state(question, self)
            self.seen = state if question.seen is not None else self.seen
            self._segment(steps, own, Ask(question.operand, question.question, state, roles))
            start = question.position
            self.edge = state, answer_key(question.answer)
            for name, variable in roles.items():
                self.latest[name] = variable
            self.names |= {v: name for name, v in reversed(roles.items())}
        steps = list(run.steps[start:])
        self._segment(steps, self._note(steps), Leave(tuple(run.outputs), run.structure))

    def _note(self, steps: Sequence[Instruction]) -> dict[Variable, int]:
        """Record the results of steps; return them with their numbers."""
        own = {variable: i for i, variable in enumerate(_made(steps))}
        self.before = {}
        for variable, i in own.items():
            name = self.names[variable] = "made", self.edge, i
            self.before[name] = self.latest.get(name)
            self.latest[name] = variable
        return own

    def _segment(
        self, steps: list[Instruction], own: Mapping[Variable, int], end: Ask | Leave
    ) -> None:
        known = self.flow.segments.get(self.edge)
        found = Segment(steps, {}, end)
        if known is None:
            reads = [v for step in steps for v in step.reads]
            for variable in (*reads, *_read_by(end)):
                if variable not in own and variable not in found.names:
                    found.names[variable] = self.name(variable)
            self.flow.segments[self.edge] = found
        elif not self._is(found, own, known):
            raise _ConflictError(self.seen)

    def name(self, variable: Variable) -> Name:
        """Return the name by which a value was found before the current steps."""
        if variable in self.run.lifted:
            if variable not in self.lifted:
                self.lifted[variable] = self.flow.new_lifted(self.run.lifted[variable])
            return "lifted", self.lifted[variable]
        return self.found(variable, ChainMap(self.before, self.latest))

    def found(self, variable: Variable, latest: Mapping[Name, Any]) -> Name:
        """Return the name of a value; raise if the name has been given to another value since."""
        name = self.names[variable]
        if latest.get(name) is not variable:
            raise _ConflictError(self.seen)
        return name

    def _is(self, found: Segment, own: Mapping[Variable, int], known: Segment) -> bool:
        """Return whether a segment is equal to a known one, with the same names."""
        others = {variable: i for i, variable in enumerate(known.made)}

        def same_value(mine: Any, other: Any) -> bool:
            if type(mine) is not Variable or type(other) is not Variable:
                return type(mine) is type(other) and alike(mine, other)
            if mine in own or other in others:
                return own.get(mine, -1) == others.get(other, -1)
            name = known.names[other]
            if name[0] == "lifted" and mine in self.run.lifted:
                self.lifted.setdefault(mine, name[1])
                return self.flow.is_lifted(name[1], self.run.lifted[mine])
            return self.name(mine) == name

        if len(found.steps) != len(known.steps) or type(found.end) is not type(known.end):
            return False
        for i, (one, other) in enumerate(zip(found.steps, known.steps, strict=True)):
            if one.primitive is not other.primitive or len(one.operands) != len(other.operands):
                return False
            if one.params.keys() != other.params.keys():
                return False
            if not all(map(same_value, one.operands, other.operands)):
                return False
            if not all(alike(value, other.params[key]) for key, value in one.params.items()):
                return False
            if one.params is not other.params and _grows(one):
                known.steps[i] = attrs.evolve(other, params=one.params)
        mine, theirs = found.end, known.end
        if isinstance(mine, Leave) and isinstance(theirs, Leave):
            outputs = mine.outputs, theirs.outputs
            return mine.structure == theirs.structure and all(map(same_value, *outputs))
        assert isinstance(mine, Ask)
        assert isinstance(theirs, Ask)
        return (
            mine.state == theirs.state
            and mine.question is theirs.question
            and same_value(mine.operand, theirs.operand)
            and mine.roles.keys() == theirs.roles.keys()
            and all(same_value(mine.roles[role], theirs.roles[role]) for role in mine.roles)
        )


def _read_by(end: Ask | Leave) -> list[Variable]:
    if isinstance(end, Ask):
        return [end.operand, *end.roles.values()]
    return [output for output in end.outputs if type(output) is Variable]


def _grows(step: Instruction) -> bool:
    return "graph" in step.params


def alike(a: Any, b: Any) -> bool:
    """Return whether two constants or parameters are equal."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is np.ndarray:
        if a.shape != b.shape or a.dtype != b.dtype or a.dtype.hasobject:
            return False
        return bool(a.tobytes() == b.tobytes())
    if kind is tuple or kind is list:
        return len(a) == len(b) and all(map(alike, a, b))
    if kind is slice:
        return alike((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if kind is dict:
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if hasattr(a, "flow"):  # a graph, whose control flow may have grown
        return a.flow is b.flow
    if isinstance(a, int | float | complex | np.generic):
        return same(a, b)
    return isinstance(a, str | bytes | np.dtype) and bool(a == b)
