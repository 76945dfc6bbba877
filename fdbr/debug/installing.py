"""Install observation in the engine, and take it out again.

While somebody observes, the values and forward rules of all primitives are replaced by ones
that tell of themselves, and so are a few functions by which the engine's modules begin traces
and run backward.  When the last one leaves, all is put back: unobserved, the engine has not a
single instruction more than if this did not exist.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fdbr.compiler import Jitted
from fdbr.compiler.engine import partition
from fdbr.core import tape
from fdbr.core.primitive import Primitive, registry
from fdbr.debug.observing import Observer, Place, current, enter, leave, place, run, traced
from fdbr.debug.programs import observed_call
from fdbr.debug.tape import observed_backward, observed_trace
from fdbr.ops.declare import operation, user_reductions
from fdbr.ops.nn.recurrent import sequence_rules
from fdbr.transforms import checkpoint, custom_rules, jvp, vjp, vmap

__all__ = ["observing"]

Function = Callable[..., Any]
Some = TypeVar("Some", bound=Observer)


@contextlib.contextmanager
def observing(observer: Some) -> Iterator[Some]:
    """Tell an observer of what this thread or task does in a block."""
    _installation.begin()
    try:
        enter(observer)
        try:
            yield observer
        finally:
            leave(observer)
    finally:
        _installation.end()


class _Installation:
    """The replacements, and how many blocks need them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._install()

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                self._restore()

    def _install(self) -> None:
        for primitive in list(registry.values()):
            self._watch(primitive)
        for module, name, kind in (
            (vjp, "ReverseTrace", tape.ReverseTrace),
            (partition, "ReverseTrace", tape.ReverseTrace),
            (user_reductions, "ReverseTrace", tape.ReverseTrace),
            (sequence_rules, "ReverseTrace", tape.ReverseTrace),
            (jvp, "ForwardTrace", jvp.ForwardTrace),
            (vmap, "BatchTrace", vmap.BatchTrace),
        ):
            self._replace(module, name, functools.partial(observed_trace, kind))
        run_backward = functools.partial(observed_backward, tape.backward)
        for module in (vjp, checkpoint, partition, user_reductions, sequence_rules):
            self._replace(module, "backward", run_backward)
        self._replace(custom_rules, "apply", functools.partial(_custom, custom_rules.apply))
        self._replace(operation, "Primitive", self._declared)
        self._replace(Jitted, "__call__", _jitted(Jitted.__call__))

    def _watch(self, primitive: Primitive) -> None:
        self._replace(primitive, "value", _value(primitive, primitive.value))
        if primitive.forward is not None:
            self._replace(primitive, "forward", _forward(primitive, primitive.forward))

    def _declared(self, *args: Any, **facts: Any) -> Primitive:
        """A primitive that is declared now; its forward rule may be given a moment later."""
        primitive = Primitive(*args, **facts)
        with self._lock:
            if self._count:
                self._watch(primitive)
        return primitive

    def _replace(self, target: Any, name: str, new: Any) -> None:
        old = getattr(target, name)
        setattr(target, name, new)
        self._replaced.append((target, name, new, old))

    def _restore(self) -> None:
        while self._replaced:
            target, name, new, old = self._replaced.pop()
            if getattr(target, name) is new:  # else somebody has replaced it meanwhile
                setattr(target, name, old)


_installation = _Installation()


def _value(primitive: Primitive, value: Function) -> Function:
    @functools.wraps(value)  # whose parameters are the operands' names
    def watched(xp: Any, *args: Any, **params: Any) -> Any:
        if not current():
            return value(xp, *args, **params)
        application = place().application(primitive.name, args, params)
        return run(application, functools.partial(value, xp, *args, **params))

    return watched


def _forward(primitive: Primitive, rule: Function) -> Function:
    def watched(values: Any, tangents: Any, out: Any, params: Any) -> Any:
        if not current():
            return rule(values, tangents, out, params)
        at = place()
        moving = [tangent for tangent in tangents if tangent is not None]
        application = at.application(
            primitive.name,
            (*values, *moving),
            params,
            roles=("operand",) * len(values) + ("tangent",) * len(moving),
            direction="backward" if at.direction == "backward" else "tangent",
            traced=traced((values, tangents, out)),
        )
        return run(application, functools.partial(rule, values, tangents, out, params))

    return watched


def _jitted(call: Function) -> Function:
    """Show the steps of a jitted function's program, or run the function itself.

    That is what it does for observers of operations, and where it has no program.
    """

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (observers := current()):
            return call(self, *args, **kwargs)
        if all(observer.programs for observer in observers):
            result = observed_call(self, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.__wrapped__(*args, **kwargs)

    return watched


def _custom(apply: Function, call: Any, leaves: Any) -> Any:
    """Apply a function that has a rule of its own."""
    if not current():
        return apply(call, leaves)
    at = place()
    application = at.application(call.name, leaves, traced=traced(list(leaves)), composite=True)
    inner = Place(at.direction, within=at.within, inside=at.inside)
    outs = run(application, functools.partial(apply, call, leaves), inner)
    for observer in current():
        observer.made(outs)
    return outs
