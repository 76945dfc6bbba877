"""Capturing: run a function on real values, and record each step and guard."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fdbr.compiler.capture.tracers import (
    AbandonedError,
    CaptureTrace,
    CaptureTracer,
    OpaqueTracer,
    capturing,
    traced,
)
from fdbr.compiler.ir.program import Program, Variable, kind_of
from fdbr.core.array_modules import has_method
from fdbr.core.ownership import release
from fdbr.core.tracer import run
from fdbr.errors.checks import refusal

__all__ = ["Captured", "capture"]


class Captured:
    """The result of a capture.

    Attributes
    ----------
    program, result
        The program, and the leaves of the result of this run.
    answers, constants, obstacle, unrolled
        As in `CaptureTrace`.
    is_setup
        Whether the obstacle is only that the run initialised something that later runs read.
    cut
        Whether recording was stopped after too many steps; then the program is incomplete.
    """

    __slots__ = (
        *("answers", "constants", "cut", "is_setup", "obstacle", "program", "result", "unrolled"),
    )

    def __init__(self, trace: CaptureTrace, program: Program, result: list[Any]) -> None:
        self.program = program
        self.result = result
        self.answers = tuple(trace.answers)
        self.constants = trace.constants
        self.obstacle = trace.obstacle
        self.is_setup = False
        self.unrolled = tuple(trace.unrolled)
        self.cut = trace.cut


def capture(
    f: Callable[[list[Any]], list[Any]],
    origin: Any,
    leaves: Sequence[Any],
    known: Iterable[tuple[Any, Any]] = (),
    kind: Callable[[Any, Any], CaptureTrace] = CaptureTrace,
) -> Captured:
    """Run a function of leaves, and capture the run.

    The function takes a list of traced arrays and numbers, and returns the leaves of its result.
    Messages name ``origin``, ``known`` are captured arrays with copies, and ``kind`` makes the
    trace that records the steps.
    """
    trace = kind(origin, known)
    for leaf in leaves:
        trace.borrow(leaf)
    inputs = tuple(Variable(kind_of(leaf)) for leaf in leaves)
    tracers = [traced(trace, *pair) for pair in zip(leaves, inputs, strict=True)]
    for tracer in tracers:
        tracer._base = trace
    token = capturing.set(trace)
    try:
        out = run(trace, f, tracers)
    except Exception as error:
        if trace.abandoned and not isinstance(error, AbandonedError):
            raise AbandonedError(trace.obstacle) from error
        raise
    finally:
        capturing.reset(token)
        trace.closed, trace.running = True, bool(trace.others)
    if trace.abandoned:  # the function caught the error, so it is raised again
        raise AbandonedError(trace.obstacle)
    outputs, result = [], []
    out.reverse()
    while out:  # frees each leaf, and what it refers to, as soon as its value is read
        leaf = out.pop()
        if type(leaf) is CaptureTracer and leaf._trace is trace:
            outputs.append(leaf.variable)
            result.append(release(trace, leaf.value))
        elif type(leaf) is OpaqueTracer and leaf._trace is trace:
            outputs.append(leaf.variable)
            result.append(leaf.known)
        else:
            _refuse_state(leaf, trace)
            outputs.append(trace.result(trace.admit(leaf)))
            result.append(leaf if trace.cut else outputs[-1])
    program = Program(trace.origin[1], inputs, tuple(trace.steps), tuple(outputs))
    return Captured(trace, program, result)


def _refuse_state(leaf: Any, trace: CaptureTrace) -> None:
    """Raise if a leaf of the result is a suspended run, such as a generator."""
    kind = type(leaf)
    if has_method(kind, "__next__") or has_method(kind, "__await__"):
        if has_method(kind, "close"):
            leaf.close()
        error = TypeError(
            f"fdbr.jit: {trace.origin[1]} returned a {type(leaf).__name__}, which continues after "
            "the call and cannot be traced; put fdbr.jit around what it calls in each iteration, "
            "or return a list"
        )
        raise refusal(error)
