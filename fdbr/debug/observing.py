"""Applications of operations, and the observers that are told of them.

An *application* is one call of an operation's value, or of one of its rules.  They are nested:
the rules of an operation apply others.  Who observes is ambient, in a context variable, so
threads and tasks that are not meant are not observed.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import attrs

from fdbr.core.tracer import Tracer
from fdbr.debug.sources import Source, user_source
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = [
    "Application",
    "Observer",
    "Place",
    "current",
    "enter",
    "leave",
    "only",
    "place",
    "run",
    "within",
]


@public("fdbr.debug")
@attrs.frozen(eq=False)
class Application:
    """One application of an operation, or of one of its rules.

    Attributes
    ----------
    op
        The operation's name.
    direction
        ``"forward"``; ``"tangent"`` for the forward rule; ``"backward"`` for the reverse rule,
        and for whatever else runs in a backward pass.
    source
        The user's line.  In a backward pass it is the line of the forward pass from which it
        comes.  `None` where it is not known.
    operands
        The operands; of a reverse rule the cotangent and the arrays that were kept for it; of a
        forward rule the operands and their tangents.
    roles
        What each operand is: ``"operand"``, ``"cotangent"``, ``"kept"`` or ``"tangent"``.
    params
        The keywords.
    rule
        The operation whose derivative this is a part of, if it is part of one.
    within
        The application in which this one runs, if there is one.
    traced
        Whether operands are traced values rather than arrays.
    composite
        Whether it is a function of the user's, such as one with a rule of its own, rather than
        an operation.
    """

    op: str
    direction: str
    source: Source | None
    operands: tuple[Any, ...]
    roles: tuple[str, ...]
    params: Mapping[str, Any] = attrs.field(factory=dict)
    rule: str | None = None
    within: "Application | None" = attrs.field(default=None, repr=False)
    traced: bool = False
    composite: bool = False

    def __str__(self) -> str:
        given = [describe(operand) for operand in self.operands]
        given += [f"{name}={value!r}" for name, value in self.params.items()]
        return f"{self.op}({', '.join(given)})"


class Observer:
    """One who is told of applications; each method may be overridden.

    Attributes
    ----------
    active
        Whether it is still to be told.
    programs
        Whether it is told of the steps of jitted functions' programs, rather than of the
        operations of the functions themselves.
    """

    active = True
    programs = False

    def sees(self, application: Application, inside: bool) -> bool:
        """Whether to be told of an application; ``inside`` one on arrays it is a detail."""
        return False

    def before(self, application: Application) -> Any:
        """Before an application; what this returns is given to `after`."""

    def wait(self, values: Any) -> None:
        """Wait until values are computed, where the clock is to tell that."""

    def after(self, application: Application, out: Any, seconds: float, given: Any) -> None:
        """After an application that raised nothing."""

    def reached(self, cotangents: Mapping[int, Any]) -> None:
        """After a backward pass, with the cotangents of its inputs."""

    def began(self, trace: Any) -> None:
        """After the beginning of a transformation."""

    def made(self, out: Any) -> None:
        """After a transformation made traced values."""


class _Clock:
    """Time spent within an application, and the observers' share of it."""

    __slots__ = ("inner", "overhead")

    def __init__(self) -> None:
        self.inner = 0.0
        self.overhead = 0.0


class Place(NamedTuple):
    """Within what the program is: what applications there are told to be."""

    direction: str = "forward"
    source: Source | None = None
    rule: str | None = None
    within: Application | None = None
    inside: bool = False
    clock: _Clock | None = None

    def application(self, op: str, operands: Any, params: Any = None, **more: Any) -> Application:
        """An application at this place."""
        return Application(
            op,
            more.pop("direction", self.direction),
            self.source or user_source(),
            tuple(operands),
            more.pop("roles", ("operand",) * len(operands)),
            params or {},
            rule=self.rule,
            within=self.within,
            **more,
        )


_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())
_place: ContextVar[Place] = ContextVar("place", default=Place())  # noqa: B039 (it is immutable)


def current() -> tuple[Observer, ...]:
    """Who observes this thread or task.

    A task may outlive the block in which it was begun, and with it the observers.
    """
    found = _observers.get()
    if not found or all(observer.active for observer in found):
        return found
    return tuple(observer for observer in found if observer.active)


def enter(observer: Observer) -> None:
    """Begin to tell an observer."""
    _observers.set((*current(), observer))


def leave(observer: Observer) -> None:
    """Tell it no more."""
    observer.active = False
    _observers.set(current())


@contextlib.contextmanager
def only(*observers: Observer) -> Iterator[None]:
    """Tell these observers, and no others, in a block."""
    token = _observers.set(observers)
    try:
        yield
    finally:
        _observers.reset(token)


def place() -> Place:
    """The place that the program has come to."""
    return _place.get()


def within(inner: Place, call: Callable[[], Any]) -> Any:
    """Call a function at a place."""
    token = _place.set(inner)
    try:
        return call()
    finally:
        _place.reset(token)


def run(application: Application, call: Callable[[], Any], inner: Place | None = None) -> Any:
    """Make an application, and tell the observers of it.

    What runs in it is a part of it, unless ``inner`` says where that is.
    """
    entered = time.perf_counter()
    outer = _place.get()
    told = [observer for observer in current() if observer.sees(application, outer.inside)]
    clock = _Clock() if told else outer.clock
    if inner is None:
        inner = Place(
            application.direction,
            application.source,
            application.rule or application.op,
            application,
            outer.inside or not application.traced,
        )
    inner = inner._replace(clock=clock)
    if not told:
        return within(inner, call)
    given = [observer.before(application) for observer in told]
    for observer in told:
        observer.wait(application.operands)
    start = time.perf_counter()
    out = within(inner, call)
    for observer in told:
        observer.wait(out)
    elapsed = time.perf_counter() - start
    assert clock is not None
    whole = elapsed - clock.overhead
    seconds = elapsed - clock.inner if application.composite else whole
    for observer, token in zip(reversed(told), reversed(given), strict=True):
        observer.after(application, out, seconds, token)
    if outer.clock is not None:
        total = time.perf_counter() - entered
        outer.clock.inner += total
        outer.clock.overhead += total - whole
    return out


def traced(value: Any) -> bool:
    """Whether there is a traced value in what a rule was given."""
    if isinstance(value, Tracer):
        return True
    if type(value) in (tuple, list):
        return any(map(traced, value))
    return type(value) is dict and any(map(traced, value.values()))
