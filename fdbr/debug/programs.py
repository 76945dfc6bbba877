"""Observe the programs of jitted functions: their steps, kernel by kernel."""

import functools
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from fdbr import tree
from fdbr.compiler import Jitted
from fdbr.compiler.backend import backend_of
from fdbr.compiler.capture.signature import unflatten_arguments
from fdbr.compiler.capture.tracers import CaptureTrace
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.engine.compiled_trace import CompiledTrace
from fdbr.compiler.engine.outputs import published
from fdbr.compiler.engine.specialization import Specialization
from fdbr.compiler.ir.guards import same
from fdbr.compiler.ir.interpreter import GuardFailure
from fdbr.compiler.ir.program import (
    Fused,
    Guard,
    Instruction,
    Program,
    Small,
    Step,
    Variable,
    is_variable,
    unfused,
)
from fdbr.core.effects import without_effects
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Tracer
from fdbr.debug.observing import Observer, only, place, run
from fdbr.debug.sources import Source

__all__ = ["observed_call"]

_FEW = 4  # names of operations that a kernel is called by

_Origin = tuple[str, Source | None]
_Told = tuple[Step, str, _Origin, Callable[..., Any]]
_told: WeakKeyDictionary[CompiledTrace, list[_Told]] = WeakKeyDictionary()


def observed_call(jitted: Jitted[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a jitted function, whose program's steps observers are told of.

    `NotImplemented` where there is no program: inside of other transformations, and where the
    function is run as it is.
    """
    if any(isinstance(leaf, Tracer) for leaf in tree.leaves((args, kwargs))):
        return NotImplemented
    with only():
        entry, trace, leaves, structure = jitted.fitting(args, kwargs)
        if trace is None:
            return NotImplemented
        if trace not in _told:
            origins = _origins(jitted, entry, trace, leaves, structure)
            _told[trace] = [_step(step, origins) for step in trace.program.steps]
    moving = entry.moving_leaves(leaves)
    outs = _run(trace.program, _told[trace], moving)
    return tree.unflatten(trace.form, published(outs, moving))


def _run(program: Program, told: list[_Told], leaves: list[Any]) -> list[Any]:
    values: dict[Variable, Any] = dict(zip(program.inputs, leaves, strict=True))

    def value(operand: Any) -> Any:
        return values[operand] if is_variable(operand) else operand

    for step, name, (direction, source), function in told:
        if isinstance(step, Guard):
            answer = step.question(value(step.operand))
            if not same(answer, step.answer):
                raise GuardFailure(step.index, answer)
            continue
        given = [values[variable] for variable in dict.fromkeys(step.reads)]
        application = place().application(name, given, direction=direction)
        application = attrs.evolve(application, source=source, rule=None)
        outs = run(application, functools.partial(_silently, function, given))
        values.update(zip(step.outs, outs, strict=True))
    return [value(output) for output in program.outputs]


def _silently(function: Callable[..., Any], given: list[Any]) -> Any:
    with only():
        return function(*given)


def _step(step: Step, origins: Mapping[Variable, _Origin]) -> _Told:
    """A step, what it is called, where it comes from, and what does it alone."""
    if isinstance(step, Guard):
        return step, "guard", ("forward", None), step.question
    if isinstance(step, Fused):
        step = attrs.evolve(step, over={})  # arguments are not written over
    program = Program(_name(step), tuple(dict.fromkeys(step.reads)), (step,), step.outs)
    known = [origins[out] for part in unfused([step]) for out in part.outs if out in origins]
    origin = known[-1] if known else ("forward", None)
    return step, program.name, origin, backend_of(program).generate(program, products=True)


def _name(step: Instruction | Fused | Small) -> str:
    """Name a step by the operations that it does."""
    if isinstance(step, Instruction):
        return step.primitive.name
    names = list(dict.fromkeys(part.primitive.name for part in step.steps))
    more = [f"{len(names) - _FEW} more"] * (len(names) > _FEW)
    return f"kernel({', '.join(names[:_FEW] + more)})"


# --- which line of the user's program a step comes from -----------------------------


class _Located(CaptureTrace):
    """A trace that notes where its steps come from."""

    __slots__ = ("origins",)

    def __init__(self, origins: dict[int, _Origin], function: Any, known: Any) -> None:
        super().__init__(function, known)
        self.origins = origins

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        out = super().process(primitive, args, params)
        found = place().application(primitive.name, ())
        self.origins[len(self.steps) - 1] = found.direction, found.source
        return out


def _origins(
    jitted: Jitted[..., Any],
    entry: Specialization,
    trace: CompiledTrace,
    leaves: list[Any],
    structure: Any,
) -> dict[Variable, _Origin]:
    """Directions and lines of the variables that a function's program makes.

    The function is traced once more for that, and takes the same steps.
    """
    found: dict[int, _Origin] = {}
    function: Any = vars(jitted)["__wrapped__"]

    def again(traced: list[Any]) -> list[Any]:
        args, kwargs = unflatten_arguments(structure, entry.filled(leaves, traced))
        return tree.leaves(function(*args, **kwargs))

    with only(Observer()), without_effects():
        captured = capture(
            entry.with_inputs(again),
            function,
            entry.moving_leaves(leaves),
            trace.captures.arrays,
            functools.partial(_Located, found),
        )
    steps = trace.raw.steps
    if [_kind(step) for step in captured.program.steps] != [_kind(step) for step in steps]:
        return {}
    return {out: found[i] for i, step in enumerate(steps) if i in found for out in step.outs}


def _kind(step: Step) -> Any:
    return step.primitive if isinstance(step, Instruction) else type(step)
