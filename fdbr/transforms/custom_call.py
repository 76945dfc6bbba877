"""Functions of leaves with custom derivatives, as a higher-order primitive.

A `Call` is one application of a function of `custom_vjp` or `custom_jvp`: the parameter of `CALL`,
whose rules apply the user's functions.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.higher_order import HigherOrder
from fdbr.core.ownership import apart, retain, unwritable
from fdbr.core.tape import ReverseTrace
from fdbr.core.tracer import Trace, Tracer, below, ended, escaped, innermost, reopened
from fdbr.errors.checks import refusal
from fdbr.ops.declare.unbroadcast import shape_of
from fdbr.pytrees import structure as tree
from fdbr.transforms.vjp import vjp
from fdbr.transforms.vmap import BatchTrace, BatchTracer, batches, vectorised
from fdbr.transforms.vmap_divergence import SubBatch, join

__all__ = ["CALL", "Call", "Zero", "apply", "captured_tracers", "zero_like"]

Leaves = Sequence[Any]


class Call:
    """An operation on leaves, with either a reverse or a forward rule.

    Attributes
    ----------
    name
        For messages and drawings.
    value
        ``value(*leaves) -> outs``, a tuple.
    fwd, bwd
        ``fwd(wanted, *leaves) -> (outs, residuals)`` and ``bwd(wanted, residuals, cotangents) ->
        cotangents``, where the cotangents of outputs that are not differentiated are `None`;
        ``wanted`` tells of which leaves cotangents are asked for.
    rule
        ``rule(moving, leaves, tangents) -> (outs, tangents)``, used if there is no ``bwd``;
        ``moving`` tells which leaves have a tangent.
    form
        An object whose attribute ``result`` a run sets to the structure of the result; or `None`.
    function
        The function whose calls these are.
    rules
        The functions by which its derivative is stated.
    batches
        The batches over which it is vectorised.
    """

    __slots__ = ("batches", "bwd", "form", "function", "fwd", "name", "rule", "rules", "value")

    def __init__(self, name: str, value: Callable[..., Any]) -> None:
        self.name = name
        self.value = value
        self.fwd: Any = None
        self.bwd: Any = None
        self.rule: Any = None
        self.form: Any = None
        self.function: Any = None
        self.rules: Leaves = ()
        self.batches: tuple[BatchTrace, ...] = ()


class _CapturedBatch(Exception):
    """The functions of a call captured values of a batch to which no operand belongs."""

    def __init__(self, trace: BatchTrace) -> None:
        super().__init__("captured values of a batch")
        self.trace = trace


class _CustomCall(HigherOrder):
    """The primitive of all calls; they are its parameter ``call``."""

    __slots__ = ()

    communicates = True

    def apply(self, *leaves: Any, call: Call) -> tuple[Any, ...]:
        top = innermost(leaves)
        if top is None:
            return call.value(*leaves)
        if ended(top):
            raise escaped(top, f"fdbr.{call.name}")
        params = {"call": call}
        inside = batches.get()
        captured = None
        if inside and inside[-1].level > top.level:
            captured = _captured_batch(call, top)
        if captured is None:
            try:
                return self.apply_in(top, leaves, params)
            except _CapturedBatch as found:
                captured = found.trace
        if isinstance(top, BatchTrace) or (call.rule and isinstance(top, ReverseTrace)):
            # For another batch, and for the transpose of a rule, captured examples are constants:
            # they are examples beside operands that are such, too.
            leaves = tuple(
                BatchTracer(captured, ops.broadcast_to(leaf, (captured.size, *shape_of(leaf))))
                if isinstance(leaf, Tracer)
                else leaf
                for leaf in leaves
            )
        return self.apply_in(captured, leaves, params)

    def apply_in(self, trace: Trace, operands: Leaves, params: dict[str, Any]) -> tuple[Any, ...]:
        call = params["call"]
        if _transposes.get() and any(f is call.function for f in _transposed(trace)):
            # Within the transpose of its own rule, the function is linear in the trace's values: it
            # is its own derivative, and the rule would apply itself without end.
            with below(trace):
                return call.value(*operands)
        return super().apply_in(trace, operands, params)

    def title(self, params: dict[str, Any]) -> str:
        return params["call"].name

    def resume(self, params: dict[str, Any], first: dict[str, Any]) -> None:
        form = first["call"].form
        if form is not None:
            params["call"].form.result = form.result


def _captured_batch(call: Call, top: Trace) -> BatchTrace | None:
    """The innermost batch that runs within a trace, and of which the call captured values."""
    traces = [tracer._trace for tracer in captured_tracers(call)]
    found = [trace for trace in traces if trace.level > top.level and _is_new(call, trace)]
    return max(found, key=lambda trace: trace.level, default=None)


def captured_tracers(call: Call) -> Iterator[Tracer]:
    """Yield the traced values that the functions of a call closed over."""
    return _closed_over((call.function, call.rules), set())


def _is_new(call: Call, trace: Trace) -> bool:
    """Whether a trace is of a batch that runs, and over which a call is not vectorised yet."""
    return isinstance(trace, BatchTrace) and trace not in call.batches and not ended(trace)


def _closed_over(values: Any, seen: set[int]) -> Iterator[Tracer]:
    """The traced values in a tree, and those that functions among its leaves closed over."""
    for leaf in tree.leaves(values):
        if isinstance(leaf, Tracer):
            yield leaf
        elif callable(leaf) and id(leaf) not in seen:
            seen.add(id(leaf))
            yield from _closed_over(_parts(leaf), seen)


def _parts(function: Any) -> Any:
    """The parts of a function that may be a traced value, or close over one."""
    if isinstance(function, functools.partial):
        return function.func, function.args, function.keywords
    if isinstance(function, MethodType):
        return function.__func__, function.__self__
    if isinstance(function, FunctionType):
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        return cells, function.__defaults__, function.__kwdefaults__, function.__dict__
    return getattr(function, "__dict__", {}).get("__wrapped__")


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (there is no other way to ask)
    except ValueError:
        return False
    return True


def _reverse(trace: Any, values: Leaves, mine: Sequence[bool], call: Call) -> Any:
    values = [unwritable(value) if own else value for value, own in zip(values, mine, strict=True)]
    return (_reverse_by_vjp if call.bwd else _reverse_by_jvp)(call, trace, values, mine)


def _forward(trace: Any, values: Leaves, tangents: Leaves, call: Call) -> Any:
    values = [v if t is None else unwritable(v) for v, t in zip(values, tangents, strict=True)]
    tangents = [t if t is None else unwritable(t) for t in tangents]
    found = (_forward_by_vjp if call.bwd else _forward_by_jvp)(call, trace, values, tangents)
    _check_arguments(call, trace, found)
    return found


def _batch(trace: BatchTrace, values: Leaves, batched: Sequence[bool], call: Call) -> Any:
    outs = apply(_batched(call, values, batched, trace), values)
    _check_arguments(call, trace, outs)
    return outs, [True] * len(outs)


def _capture(trace: Any, leaves: Leaves, call: Call) -> tuple[Any, ...]:
    """Capture the steps of the function, unless an outer transformation has to know the rule."""
    values, _ = trace.unwrap(leaves)
    outer = [value for value in values if isinstance(value, Tracer)]
    for value in outer:
        trace.constant(value)
    return tuple(apply(call, values) if outer else call.value(*leaves))


CALL = _CustomCall(
    "call",
    lambda xp, *leaves, call: tuple(call.value(*leaves)),
    reverse=_reverse,
    forward=_forward,
    batch=_batch,
    capture=_capture,
)
"""A function with a custom derivative, as a primitive."""


def apply(call: Call, leaves: Leaves) -> tuple[Any, ...]:
    """Apply a call to leaves, some of which may be traced."""
    return CALL.apply(*leaves, call=call)


_transposes: ContextVar[tuple[tuple[Trace, tuple[Any, ...]], ...]] = ContextVar(
    "transposes", default=()
)
"""The traces that transpose jvp rules here, each with the functions whose rules these are."""


def _transposed(trace: Trace) -> tuple[Any, ...]:
    """The functions whose jvp rules a trace transposes, each within the one before."""
    return next((functions for one, functions in _transposes.get() if one is trace), ())


def _check_arguments(call: Call, top: Trace, results: Any) -> None:
    """Have a call get every traced value of a trace that is taken off its operands from these."""
    for leaf in tree.leaves(results):
        if isinstance(leaf, Tracer) and leaf._trace.level >= top.level:
            trace = leaf._trace
            if trace is not top and _is_new(call, trace):
                raise _CapturedBatch(trace)
            error = TypeError(
                f"fdbr.{call.name}: its functions use a traced value of {trace} that is no "
                "argument, or a static one; pass it as an argument that is not static, so that its "
                "derivative is stated too"
            )
            raise refusal(error)


def _reverse_by_vjp(call: Call, top: Trace, values: Leaves, mine: Sequence[bool]) -> Any:
    """Reverse mode by a reverse rule."""
    outs, residuals = call.fwd(mine, *values)
    _check_arguments(call, top, (outs, residuals))
    outs = apart(outs, values, residuals)
    residuals = tree.map(retain, residuals)
    zeros = [Zero(out) for out in outs]

    def pull(cotangents: list[Any]) -> list[Any]:
        full = [unwritable(z.fill(ct)) for ct, z in zip(cotangents, zeros, strict=True)]
        found = apart(call.bwd(mine, residuals, full), full)
        return [ct for ct, own in zip(found, mine, strict=True) if own]

    return outs, pull


def _reverse_by_jvp(call: Call, top: Trace, values: Leaves, mine: Sequence[bool]) -> Any:
    """Reverse mode by a forward rule: the transpose of its linear part."""
    outs = apart(apply(call, values), values)
    _check_arguments(call, top, outs)
    values = [retain(value) for value in values]
    zeros = [Zero(out) for out in outs]
    functions = (*_transposed(top), call.function)

    def push(*tangents: Any) -> tuple[Any, ...]:
        given = iter(tangents)
        full = [
            next(given) if own else zero_like(value)
            for own, value in zip(mine, values, strict=True)
        ]
        token = _transposes.set((*_transposes.get(), (tangents[0]._trace, functions)))
        try:
            return tuple(call.rule(mine, values, full)[1])
        finally:
            _transposes.reset(token)

    push.__qualname__ = call.name

    def pull(cotangents: list[Any]) -> list[Any]:
        points = [zero_like(value) for value, own in zip(values, mine, strict=True) if own]
        _, back = vjp(push, *points)
        full = [z.fill(ct) for ct, z in zip(cotangents, zeros, strict=True)]
        return list(back(tuple(full)))

    return outs, pull


def _forward_by_jvp(call: Call, top: Trace, values: Leaves, tangents: Leaves) -> Any:
    """Forward mode by a forward rule."""
    full = [zero_like(v) if t is None else t for v, t in zip(values, tangents, strict=True)]
    outs, derivatives = call.rule([t is not None for t in tangents], values, full)
    return apart(outs, values, derivatives), apart(derivatives, full, outs)


def _forward_by_vjp(call: Call, top: Trace, values: Leaves, tangents: Leaves) -> Any:
    """Forward mode by a reverse rule: its transpose."""
    wanted = [tangent is not None for tangent in tangents]
    outs, residuals = call.fwd(wanted, *values)
    _check_arguments(call, top, (outs, residuals))
    outs = apart(outs, values, residuals)
    moved = [i for i, tangent in enumerate(tangents) if tangent is not None]
    derivatives: list[Any] = [None] * len(outs)
    moving = [i for i, out in enumerate(outs) if tree.is_inexact(out)]
    if not moving:
        return outs, derivatives

    def pull(*given: Any) -> tuple[Any, ...]:
        cotangents: list[Any] = [None] * len(outs)
        for i, ct in zip(moving, given, strict=True):
            cotangents[i] = ct
        found = call.bwd(wanted, residuals, cotangents)
        return tuple(zero_like(values[i]) if found[i] is None else found[i] for i in moved)

    pull.__qualname__ = call.name
    _, push = vjp(pull, *(zero_like(outs[i]) for i in moving))
    for i, slope in zip(moving, push(tuple(tangents[i] for i in moved)), strict=True):
        derivatives[i] = slope
    return outs, derivatives


# --- batches ------------------------------------------------------------------------


def _batched(call: Call, leaves: Leaves, mine: Sequence[bool], top: BatchTrace) -> Call:
    """The call on a whole batch, by `vmap` of its functions."""
    pairs = zip(leaves, mine, strict=True)
    zeros = [Zero(BatchTracer(top, leaf) if own else leaf) for leaf, own in pairs]
    axes = tuple(0 if own else None for own in mine)
    over = functools.partial(_over, call.name, top)
    whole = SubBatch(np.arange(top.size))
    new = Call(call.name, over(call.value, axes, whole))
    new.function, new.rules, new.batches = call.function, call.rules, (*call.batches, *top.outer())
    if call.rule:
        new.rule = lambda moving, leaves, tangents: over(
            functools.partial(call.rule, moving), (axes, axes), whole
        )(tuple(leaves), tuple(tangents))
        return new

    def fwd(wanted: Any, *leaves: Any) -> tuple[Any, list[Any]]:
        kept: list[Any] = []

        def one(chosen: Any, *leaves: Any) -> Any:
            outs, residuals = call.fwd(wanted, *leaves)
            if not chosen._trace.part.is_divided:  # else this is no path
                kept.append(_taken_off(chosen, residuals))
            return outs

        outs = over(one, (0, *axes), whole)(np.arange(top.size), *leaves)
        return outs, [path for path in kept if path[0].is_used]

    def bwd(wanted: Any, kept: list[Any], cotangents: Leaves) -> list[Any]:
        parts = []
        for part, leaves, places, structure in kept:

            def one(leaves: Any, cotangents: Any, structure: Any = structure) -> list[Any]:
                found = call.bwd(wanted, tree.unflatten(structure, leaves), cotangents)
                # Zeros rather than None, because another path may say otherwise.
                return [z.make() if ct is None else ct for ct, z in zip(found, zeros, strict=True)]

            given = [ct if ct is None else part.examples(ct, top.size) for ct in cotangents]
            found = over(one, (places, 0), part)(leaves, given)
            parts.append([(part, ct) for ct in found])
        return [
            None if found[0][1] is None else join(found) if own else _summed(found)
            for own, *found in zip(mine, *parts, strict=True)
        ]

    new.fwd, new.bwd = fwd, bwd
    return new


def _over(name: str, top: BatchTrace, f: Any, axes: Any, part: SubBatch) -> Callable[..., Any]:
    """`vmap` of a function of a call, which messages call by the call's name.

    The examples are those of a part of ``top``, of which the function may have captured values.
    """

    def named(*args: Any) -> Any:
        with contextlib.nullcontext() if top.running else reopened(top):
            return f(*args)

    named.__qualname__ = name
    size = len(part.chosen)
    return vectorised(named, axes, 0, size, top.max_paths, within=(top, part))


def _taken_off(chosen: BatchTracer, residuals: Any) -> tuple[Any, list[Any], list[Any], Any]:
    """The residuals of one path of a batch: its examples, leaves, batch axes and tree.

    What is the same for all examples stays as it is, be it an array or anything else.
    """
    leaves, structure = tree.flatten(residuals)
    leaves = [chosen._trace.own(leaf) for leaf in leaves]
    own = [isinstance(leaf, BatchTracer) and leaf._trace is chosen._trace for leaf in leaves]
    values = [leaf.value if mine else leaf for leaf, mine in zip(leaves, own, strict=True)]
    return chosen._trace.part, values, [0 if mine else None for mine in own], structure


def _summed(found: list[tuple[SubBatch, Any]]) -> Any:
    """The cotangent of a leaf that all examples share."""
    return functools.reduce(ops.add, [ops.sum(part.own_values(ct), axis=0) for part, ct in found])


# --- zeros --------------------------------------------------------------------------


def zero_like(value: Any) -> Any:
    """Zero in the shape and dtype of a leaf; `None` for what is not differentiated."""
    if not tree.is_inexact(value):
        return None
    return ops.zeros_like(value) if hasattr(value, "dtype") else 0.0


class Zero:
    """A zero that is made when it is needed, and keeps no array until then."""

    __slots__ = ("_dtype", "_inexact", "_shape", "_xp")

    def __init__(self, value: Any) -> None:
        self._inexact = tree.is_inexact(value)
        self._shape = getattr(value, "shape", ())
        self._dtype = getattr(value, "dtype", type(value))
        self._xp = array_module(value)

    def fill(self, ct: Any) -> Any:
        """A cotangent in the dtype of the value, or the zero in the place of none."""
        if ct is None:
            return self.make()
        fits = isinstance(self._dtype, type) or ct.dtype == self._dtype
        return ct if fits else ct.astype(self._dtype)

    def make(self) -> Any:
        """The zero; `None` for what is not differentiated."""
        if not self._inexact:
            return None
        if self._dtype is float:
            return 0.0
        return self._xp.zeros(self._shape, dtype=self._dtype)
