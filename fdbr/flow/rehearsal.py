"""A run of a function on plain values, by which its steps and questions become known."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr import core, effects, tree
from fdbr.compiler.capture.loop_states import outside
from fdbr.compiler.capture.tracers import CaptureTracer, capturing
from fdbr.compiler.ir.guards import EACH
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.core import Tracer
from fdbr.flow.states import Seen, seen
from fdbr.loops.bodies import NoBodyError, StageTrace, example

__all__ = ["Question", "Rehearsal", "rehearse"]


@attrs.frozen(eq=False)
class Question:
    """A question that Python's control flow asked.

    Attributes
    ----------
    position
        How many steps were taken before.
    operand
        What was asked.
    question, answer
        How, and what it said.
    seen
        What Python's state was, if all of it could be seen.
    """

    position: int
    operand: Variable
    question: Callable[[Any], Any]
    answer: Any
    seen: Seen | None


class _Rehearsing(StageTrace):
    """The trace of such a run."""

    __slots__ = ("_held", "base", "examples", "frames", "questions")

    def __init__(self, function: Any, examples: Mapping[int, Any]) -> None:
        super().__init__(function)
        self.questions: list[Question] = []
        self.examples = examples
        self.base: Any = None
        self._held: list[Any] = []
        self.frames: list[Any] = []

    def shown(self, value: Any) -> Any:
        """A plain value for one from around the function."""
        return self.examples.get(id(value)) if id(value) in self.examples else example(value)

    def decide(self, tracer: Any, kind: Callable[[Any], Any]) -> Any:
        if core.ended(self):
            raise core.escaped(self, f"fdbr.jit: {kind.__name__}()")
        answer = kind(tracer.value)
        there = None
        if kind is bool:
            frame = outside(sys._getframe(1))
            there = seen(self, frame, tracer.variable, self.base, self._held, self.frames)
        position = len(self.steps)
        self.questions.append(Question(position, tracer.variable, kind, answer, there))
        return answer

    def each(self, tracer: Any, kind: Callable[[Any], Any]) -> list[Any]:
        return self.decide(tracer, EACH[kind])


@attrs.frozen(eq=False)
class Rehearsal:
    """The steps, questions and results of such a run.

    Attributes
    ----------
    inputs
        The variables of the leaves that were given.
    steps, questions
        What was done and asked.
    lifted
        The values from around the function that it has used, and the variables that stand for them.
    outputs
        The leaves of the result: variables, and what is none.
    structure
        The result's.
    held
        What has to stay, for states to be told apart.
    """

    inputs: tuple[Variable, ...]
    steps: Sequence[Instruction]
    questions: Sequence[Question]
    lifted: Mapping[Variable, Any]
    outputs: Sequence[Any]
    structure: Any
    held: Any


def _refuse_effect() -> None:
    raise NoBodyError("it has an effect")


def rehearse(
    f: Callable[[list[Any]], Any], leaves: Sequence[Any], examples: Mapping[int, Any]
) -> Rehearsal:
    """Run a function of leaves, which are plain values.

    Parameters
    ----------
    f
        The function; its result is a tree.
    leaves
        Arrays and numbers.
    examples
        Plain values for some of those around the function, by their addresses.

    Raises
    ------
    NoBodyError
        If it cannot be repeated without Python.
    """
    trace = _Rehearsing(f, examples)
    inputs = [CaptureTracer(trace, leaf, Variable(kind_of(leaf))) for leaf in leaves]
    for tracer in inputs:
        tracer._base = trace
    token = capturing.set(trace)
    try:
        with np.errstate(all="ignore"), effects.refusing_effects(_refuse_effect):
            trace.base = sys._getframe()
            out = core.run(trace, f, inputs)
    finally:
        capturing.reset(token)
        trace.base = None
        trace.frames.clear()  # whose variables have the trace
    if trace.obstacle or trace.abandoned:
        raise NoBodyError(trace.obstacle)
    found, structure = tree.flatten(out)
    outputs: list[Any] = []
    for leaf in found:
        if isinstance(leaf, Tracer) and leaf._trace is not trace:
            leaf = trace.own(leaf)
        outputs.append(leaf.variable if type(leaf) is CaptureTracer else trace.admit(leaf))
    lifted = {trace.lifted[id(value)].variable: value for value in trace.found}
    return Rehearsal(
        tuple(tracer.variable for tracer in inputs),
        trace.steps,  # type: ignore[arg-type]
        trace.questions,
        lifted,
        outputs,
        structure,
        trace._held,
    )
