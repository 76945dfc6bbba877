"""The watch that tells the observers of a context what the engine does in it.

`fdbr.core.observation` has the hook.  It is empty while nothing observes.  Other threads and
tasks find no observers in their context, and run as they would.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fdbr.compiler import Jitted
from fdbr.core import observation
from fdbr.core.primitive import Primitive
from fdbr.core.tracer import Trace
from fdbr.debug.observing import Observer, Place, current, enter, leave, place, run, traced
from fdbr.debug.programs import observed_call
from fdbr.debug.tape import observed_backward, observed_kinds

__all__ = ["observing"]

Function = Callable[..., Any]
Some = TypeVar("Some", bound=Observer)

_lock = threading.Lock()
_open: list[object] = []
"""One entry for each block that observes now, in whatever thread."""


@contextlib.contextmanager
def observing(observer: Some) -> Iterator[Some]:
    """Tell an observer of what this thread or task does in a block."""
    block = object()
    with _lock:
        _open.append(block)
        observation.install(_watch)
    try:
        enter(observer)
        try:
            yield observer
        finally:
            leave(observer)
    finally:
        with _lock:
            _open.remove(block)
            if not _open:
                observation.install(None)


class _Watch:
    """The `fdbr.core.observation.Watch` that asks which observers the context has."""

    def seen(self, primitive: Any) -> Any:
        """Return a primitive that tells the observers, if there are any."""
        return _Told(primitive) if current() and type(primitive) is not _Told else primitive

    def began(self, trace: Trace) -> None:
        """Have a trace note where what it records comes from."""
        observers = current()
        kind = observed_kinds.get(type(trace))
        if observers and kind is not None:
            trace.__class__ = kind  # it has the same fields, and a `process` that notes
            for observer in observers:
                observer.began(trace)

    def backward(self, roots: Any, until: int, cotangents: Any) -> Any:
        """Run a backward pass whose rules are observed."""
        return observed_backward(roots, until, cotangents) if current() else NotImplemented

    def custom(self, name: str, leaves: Sequence[Any], call: Callable[[], Any]) -> Any:
        """Run a function that has a derivative rule of its own."""
        if not current():
            return call()
        at = place()
        application = at.application(name, leaves, traced=traced(list(leaves)), composite=True)
        outs = run(application, call, Place(at.direction, within=at.within, inside=at.inside))
        for observer in current():
            observer.made(outs)
        return outs

    def jitted(self, jitted: Jitted[..., Any], args: Any, kwargs: Any) -> Any:
        """Show the steps of a jitted function's program, or run the function itself.

        The function runs for observers of operations, and where it has no program.
        """
        if not (observers := current()):
            return NotImplemented
        if all(observer.programs for observer in observers):
            result = observed_call(jitted, args, kwargs)
            if result is not NotImplemented:
                return result
        return vars(jitted)["__wrapped__"](*args, **kwargs)


_watch = _Watch()


class _Told:
    """A primitive whose value and forward rule tell the observers."""

    __slots__ = ("_primitive",)

    def __init__(self, primitive: Primitive) -> None:
        self._primitive = primitive

    def __getattr__(self, name: str) -> Any:
        return getattr(self._primitive, name)

    def value(self, xp: Any, *args: Any, **params: Any) -> Any:
        primitive = self._primitive
        application = place().application(primitive.name, args, params)
        return run(application, functools.partial(primitive.on(xp), xp, *args, **params))

    host = value

    def on(self, xp: Any) -> Any:
        return self.value

    def forward(self, values: Any, tangents: Any, out: Any, params: Any) -> Any:
        primitive = self._primitive
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
        rule: Any = primitive.forward
        return run(application, functools.partial(rule, values, tangents, out, params))
