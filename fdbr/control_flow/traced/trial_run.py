"""Trial runs of a function on plain values, which record its steps and guards."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr import tree
from fdbr.compiler.capture.loop_states import user_frame
from fdbr.compiler.capture.tracers import CaptureTracer, capturing
from fdbr.compiler.ir.guards import EACH
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.control_flow.body_tracing import NoBodyError, StageTrace, example
from fdbr.control_flow.traced.python_state import Seen, seen
from fdbr.core import effects
from fdbr.core.tracer import Tracer, ended, escaped, run

__all__ = ["Question", "Rehearsal", "rehearse"]


@attrs.frozen(eq=False)
class Question:
    """A guard that Python's control flow evaluated.

    Attributes
    ----------
    position
        The number of steps before it.
    operand
        The variable that was read.
    question, answer
        The conversion, and its outcome.
    seen
        The state of Python, if it could be compared.
    """

    position: int
    operand: Variable
    question: Callable[[Any], Any]
    answer: Any
    seen: Seen | None


class _Rehearsing(StageTrace):
    """The trace of a trial run."""

    __slots__ = ("_held", "base", "examples", "frames", "questions")

    def __init__(self, function: Any, examples: Mapping[int, Any]) -> None:
        super().__init__(function)
        self.questions: list[Question] = []
        self.examples = examples
        self.base: Any = None
        self._held: list[Any] = []
        self.frames: list[Any] = []

    def shown(self, value: Any) -> Any:
        """Return a plain value for a captured one."""
        return self.examples.get(id(value)) if id(value) in self.examples else example(value)

    def decide(self, tracer: Any, kind: Callable[[Any], Any]) -> Any:
        if ended(self):
            raise escaped(self, f"fdbr.jit: {kind.__name__}()")
        answer = kind(tracer.value)
        there = None
        if kind is bool:
            frame = user_frame(sys._getframe(1))
            there = seen(self, frame, tracer.variable, self.base, self._held, self.frames)
        position = len(self.steps)
        self.questions.append(Question(position, tracer.variable, kind, answer, there))
        return answer

    def each(self, tracer: Any, kind: Callable[[Any], Any]) -> list[Any]:
        return self.decide(tracer, EACH[kind])


@attrs.frozen(eq=False)
class Rehearsal:
    """The steps, guards and results of a trial run.

    Attributes
    ----------
    inputs
        The variables of the given leaves.
    steps, questions
        The steps and guards.
    lifted
        The captured values that were used, by the variables that represent them.
    outputs
        The leaves of the result: variables and constants.
    structure
        The tree structure of the result.
    held
        Objects that must stay alive while states are compared.
    """

    inputs: tuple[Variable, ...]
    steps: Sequence[Instruction]
    questions: Sequence[Question]
    lifted: Mapping[Variable, Any]
    outputs: Sequence[Any]
    structure: Any
    held: Any


def _refuse_effect() -> None:
    raise NoBodyError("it has a side effect")


def rehearse(
    f: Callable[[list[Any]], Any], leaves: Sequence[Any], examples: Mapping[int, Any]
) -> Rehearsal:
    """Run a function of leaves on plain values, and record the run.

    Parameters
    ----------
    f
        The function; its result is a tree.
    leaves
        Arrays and numbers.
    examples
        Plain values for some of the captured values, by their ids.

    Raises
    ------
    NoBodyError
        If the run cannot be repeated without Python.
    """
    trace = _Rehearsing(f, examples)
    inputs = [CaptureTracer(trace, leaf, Variable(kind_of(leaf))) for leaf in leaves]
    for tracer in inputs:
        tracer._base = trace
    token = capturing.set(trace)
    try:
        with np.errstate(all="ignore"), effects.refusing_effects(_refuse_effect):
            trace.base = sys._getframe()
            out = run(trace, f, inputs)
    finally:
        capturing.reset(token)
        trace.base = None
        trace.frames.clear()  # their variables refer to the trace
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
