"""The body of a loop as a program, captured once for any number of iterations.

A body is run on the values of the first iteration, and its steps are recorded.  Traced values and
writeable arrays that it captures become inputs of the program, so that transformations around the
loop find them among its operands.  Operations that such transformations must see
(`stop_gradient`, custom derivatives, nested loops) remain steps.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fdbr.compiler.backend import Run
from fdbr.compiler.capture.tracers import AbandonedError, CaptureTrace, CaptureTracer
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.engine.compile import Code
from fdbr.compiler.interpret import stepwise
from fdbr.compiler.ir.program import Instruction, Program, Variable, kind_of
from fdbr.compiler.ir.python_numbers import exact
from fdbr.core import effects
from fdbr.core.array_modules import array_module, is_locked
from fdbr.core.higher_order import HigherOrder
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace, Tracer, holds, run, stop_gradient
from fdbr.errors.lines import caller
from fdbr.transforms.custom_call import CALL, captured_tracers
from fdbr.transforms.vmap import BatchTracer

__all__ = [
    "STOP",
    "Body",
    "NoBodyError",
    "StageTrace",
    "Step",
    "check",
    "evaluate",
    "example",
    "stage",
]


_INTERPRETED = 1024
"""Iterations of an eager loop that are interpreted before its body is compiled.

Compiling a step takes about as long as interpreting it some hundred times.
"""


class NoBodyError(BaseException):
    """A body cannot be a program: its Python control flow depends on values, or it is impure.

    It is not an `Exception`, because captured code must not catch it.
    """


class Step(HigherOrder):
    """A primitive of staged programs.

    Parameters
    ----------
    fallback
        ``fallback(why, *operands, **params)`` computes the results by other primitives, where there
        is no rule, or a rule finds that a body cannot be staged.
    rules
        Those of `HigherOrder`.
    """

    __slots__ = ("_fallback",)

    def __init__(
        self,
        name: str,
        value: Callable[..., Any],
        fallback: Callable[..., Sequence[Any]] | None = None,
        **rules: Any,
    ) -> None:
        super().__init__(name, value, capture=self._capture, **rules)
        self._fallback = fallback

    def apply(self, *operands: Any, **params: Any) -> Any:
        try:
            return super().apply(*operands, **params)
        except NoBodyError as error:
            if self._fallback is None:
                raise
            why = str(error)
        return tuple(self._fallback(why, *operands, **params))

    def missing(self, trace: Trace) -> BaseException:
        return NoBodyError(f"a {type(trace).__name__} surrounds its derivative")

    def _capture(self, trace: Trace, operands: Sequence[Any], **params: Any) -> Any:
        """Capture one step, if the program would run it on arrays."""
        values, mine = trace.unwrap(operands)
        for operand, value, own in zip(operands, values, mine, strict=True):
            if isinstance(operand, Tracer) and (not own or isinstance(value, Tracer)):
                raise self.missing(value._trace)
        return trace.process(self, tuple(operands), params)


class _StopGradient(Step):
    """`stop_gradient`, which each trace applies by `Trace.lower`."""

    __slots__ = ()

    def apply(self, *operands: Any, **params: Any) -> Any:
        return stop_gradient(*operands)


STOP = _StopGradient("stop_gradient", lambda xp, x: x)


class StageTrace(CaptureTrace):
    """The run of a body on example values.

    Attributes
    ----------
    found
        Captured values that became inputs.
    lifted
        Their tracers, by id of the value.
    stopped
        The variables that `stop_gradient` made.
    checks
        The conditions that values were checked by; see `fdbr.core.tracer.holds`.
    """

    __slots__ = ("checks", "found", "lifted", "stopped")

    is_staged = True

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.found: list[Any] = []
        self.lifted: dict[int, CaptureTracer] = {}
        self.stopped: set[Variable] = set()
        self.checks: list[Any] = []

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        own = tuple(self.own(arg) if _is_outer(arg, self) else arg for arg in args)
        out = super().process(primitive, own, params)
        if self.obstacle:
            raise NoBodyError(self.obstacle)
        return out

    def own(self, value: Any) -> CaptureTracer:
        """Return the operand that represents a captured value."""
        known = self.lifted.get(id(value))
        if known is None:
            shown = example(value)
            known = CaptureTracer(self, shown, Variable(kind_of(shown)))
            self.lifted[id(value)] = known
            self.found.append(value)
        return known

    def lower(self, tracer: Any) -> Any:
        if tracer.variable in self.stopped:
            return tracer
        made = CaptureTracer(self, tracer.value, Variable(tracer.variable.kind))
        self.steps.append(Instruction(STOP, (tracer.variable,), {}, (made.variable,)))
        self.stopped.add(made.variable)
        return made

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive is CALL:  # outer transformations need its rule; but its body must be staged
            call = params["call"]
            shown = [example(leaf) for leaf in operands]
            body = stage(lambda given: list(call.value(*given)), shown)
            if any(isinstance(leaf, Tracer) for leaf in (*body.found, *captured_tracers(call))):
                raise NoBodyError(f"{call.name} uses a traced value that is not an argument of it")
        elif not isinstance(primitive, Step):
            return super().transform(primitive, operands, params)
        return self.process(primitive, tuple(operands), params)

    def decide(self, tracer: Any, kind: Callable[[Any], Any]) -> Any:
        raise NoBodyError(
            f"its body asks for {kind.__name__}() of a value that differs between iterations, at "
            f"{caller()}"
        )

    def check(self, condition: Any) -> bool:
        self.checks.append(condition)
        return True

    def show(self, tracer: Tracer) -> Any:
        raise NoBodyError(f"its body converts a value to text, at {caller()}")


def _refuse_effect() -> None:
    raise NoBodyError(f"its body has a side effect, at {caller()}")


def _is_outer(arg: Any, trace: Any) -> bool:
    """Return whether an operand must be an input: another trace's value, or a writeable array."""
    if isinstance(arg, Tracer):
        return arg._trace is not trace
    return hasattr(arg, "dtype") and hasattr(arg, "shape") and not is_locked(arg)


def example(value: Any) -> Any:
    """Return a plain value with the aval of a traced one; for a batch, its first example's."""
    while isinstance(value, Tracer):
        if type(value) is BatchTracer:
            first = example(value.value)
            return first[0] if len(first) else first.sum(0)
        value = value.value
    if isinstance(value, np.ndarray) and not value.ndim:
        return value[()]
    return value


def _like(value: Any) -> Any:
    """Return a value of the same aval whose elements take no memory."""
    if not getattr(value, "shape", ()):
        return value
    xp = array_module(value)
    return xp.broadcast_to(xp.zeros((), value.dtype), value.shape)


class Body:
    """A captured body.

    Attributes
    ----------
    program
        Its inputs are the given ones, and then the captured values.
    found
        The captured values.
    outs
        The results on the example values.
    is_checked
        Whether the last result is whether all checks of values hold.
    compiled
        Whether it is compiled before it runs.
    back
        Its pullbacks, by which inputs are differentiated.
    """

    __slots__ = (
        *("_captured", "_code", "_steps"),
        *("back", "compiled", "found", "is_checked", "outs", "program"),
    )

    def __init__(
        self, program: Program, found: list[Any], outs: list[Any], is_checked: bool = False
    ) -> None:
        self.program, self.found, self.outs = program, found, outs
        self.is_checked = is_checked
        self.compiled = False
        self._captured: Program | None = None
        self._code: Code | None = None
        self._steps: Run | None = None
        self.back: dict[Any, Body] = {}

    def forget(self) -> None:
        """Release the values of the first iteration, because programs with the loop live long."""
        self.found = [None] * len(self.found)
        self.outs = [_like(out) for out in self.outs]

    def compile(self) -> None:
        """Compile it, and its pullbacks."""
        self.compiled = True
        for body in (self, *self.back.values()):
            if body._code is not None:
                body._code.compile()

    def captured(self, leaves: Sequence[Any] = ()) -> Program:
        """Return the body as a program of arrays and numbers; leaves are those of a first run."""
        if self._captured is None:
            with np.errstate(all="ignore"):  # the iteration that follows will warn
                captured = capture(lambda given: evaluate(self.program, given), self, leaves)
            if captured.obstacle or captured.answers:
                raise RuntimeError(
                    f"fdbr.jit: a loop's body cannot be captured: {captured.obstacle}"
                )
            self._captured = captured.program
        return self._captured

    @property
    def has_run(self) -> bool:
        """Whether it has been captured as a program of arrays and numbers."""
        return self._captured is not None

    def steps(self, leaves: Sequence[Any]) -> Run:
        """Return the function that interprets the body."""
        if self._steps is None:
            program = self.captured(leaves)
            self._steps = stepwise(program.inputs, program.steps, program.outputs)
        return self._steps

    def code(self, leaves: Sequence[Any], runs: int = 0) -> Code:
        """Return the compiled body; an eager loop interprets it in the first iterations.

        If it will have more ``runs`` than these, it is compiled before the first one.
        """
        if self._code is None:
            at_once = self.compiled or runs >= _INTERPRETED
            interpreted = 0 if at_once else _INTERPRETED
            self._code = Code(self.captured(leaves), interpreted=interpreted)
        return self._code


def stage(f: Callable[[list[Any]], list[Any]], leaves: Sequence[Any], checks: bool = False) -> Body:
    """Capture a body, a function of leaves, on example values.

    With ``checks`` it may check values, and has one more result then, whether the checks hold.

    Raises
    ------
    NoBodyError
        If it cannot be captured.
    """
    with np.errstate(all="ignore"):  # the first iteration will warn
        trace = StageTrace(f)

        def checked(given: list[Any]) -> list[Any]:
            out = f(given)
            if trace.checks and not checks:
                raise NoBodyError("a function in its body checks values")
            return [*out, functools.reduce(operator.and_, trace.checks)] if trace.checks else out

        inputs = [CaptureTracer(trace, leaf, Variable(kind_of(leaf))) for leaf in leaves]
        for tracer in inputs:
            tracer._base = trace
        try:
            with effects.refusing_effects(_refuse_effect):
                out = run(trace, checked, inputs)
        except AbandonedError as error:
            raise NoBodyError(str(error)) from None
        outs = [trace.own(leaf) if _is_outer(leaf, trace) else leaf for leaf in out]
    if trace.obstacle:
        raise NoBodyError(trace.obstacle)
    outputs, shown = [], []
    for leaf in outs:
        mine = type(leaf) is CaptureTracer
        outputs.append(leaf.variable if mine else leaf)
        shown.append(leaf.value if mine else leaf)
    lifted = [trace.own(value) for value in trace.found]
    heads = tuple(tracer.variable for tracer in (*inputs, *lifted))
    trace.lifted.clear()  # its tracers refer to the trace: the cycle would delay freeing it
    program = Program(trace.origin[1], heads, tuple(trace.steps), tuple(outputs))
    return Body(program, trace.found, shown, bool(trace.checks))


def check(condition: Any) -> None:
    """Raise if the checks of a loop's values do not all hold.

    Raises
    ------
    NoBodyError
        If one does not: the loop in Python then raises its error.
    """
    if not holds(condition):
        raise NoBodyError("a check of values in its body fails")


def evaluate(
    program: Program, leaves: Sequence[Any], instead: Mapping[Primitive, Any] = MappingProxyType({})
) -> list[Any]:
    """Return the outputs of a staged program on arrays or traced values.

    Some primitives are replaced by the functions ``instead``.
    """
    values: dict[Any, Any] = dict(zip(program.inputs, leaves, strict=True))

    def value(operand: Any) -> Any:
        return values[operand] if type(operand) is Variable else operand

    for step in program.steps:
        assert isinstance(step, Instruction)
        args = tuple(map(value, step.operands))
        whole = instead.get(step.primitive) or exact(step.primitive, map(type, args))
        apply = step.primitive.apply if whole is None else whole
        out = apply(*args, **step.params)
        values.update(zip(step.outs, out if step.several else (out,), strict=True))
    return [value(output) for output in program.outputs]
