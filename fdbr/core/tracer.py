"""Primitives, traced values, and how the one finds the other.

A transformation runs a function on *traced values*: each holds a plain value (or a traced
value of an outer transformation) and belongs to a `Trace`, the one run of one
transformation.  A *primitive* applied to traced values hands itself to the innermost of
their traces, whose `process` takes one layer off and applies the primitive to what is
below, until only arrays are left.

Traces are numbered in the order of their beginning, and a trace that began later is the
inner one of any two that meet in an operation.  Nothing else orders them: there is no
stack, so threads, generators, coroutines and exceptions have nothing to disturb.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from fdbr.core.array_modules import is_locked, owner, see_through
from fdbr.core.observation import hook
from fdbr.errors.checks import name_of, number_types, refusal, refuse_other_kinds
from fdbr.errors.hints import advise
from fdbr.pytrees.structure import settle, settling

__all__ = [
    "EscapedTracerError",
    "ReadOnly",
    "Trace",
    "Tracer",
    "as_view",
    "base_of",
    "below",
    "ended",
    "escaped",
    "follow_runs",
    "follows_runs",
    "holds",
    "innermost",
    "is_differentiated",
    "next_level",
    "own",
    "plain",
    "reopened",
    "replay",
    "replaying",
    "run",
    "running",
    "shown",
    "stop_gradient",
    "whole",
]


_levels = itertools.count(1)

_replays = itertools.count(1)

running: ContextVar[tuple["Trace", ...]] = ContextVar("running", default=())
"""The traces whose functions run here, the outermost first; empty until `follow_runs`.

A collective is recorded by all of them, whether or not its operands depend on what they trace, so
that all processes record the same.
"""

_followed = False  # whether `running` is kept

_replaying: ContextVar[int] = ContextVar("replaying", default=0)

_reopened: ContextVar[tuple["Trace", ...]] = ContextVar("reopened", default=())

_NUMPYS = (np.ndarray, np.number, np.bool_)  # the classes of plain values

_OBJECTS = np.dtype(object)


class EscapedTracerError(RuntimeError):
    """A traced value was used after the transformation that made it had returned."""


class Trace:
    """One run of one transformation.

    Attributes
    ----------
    level
        Its number; the larger of two is the inner one.
    origin
        What is being transformed, for messages: ``("grad", loss)``.
    running
        Whether the transformed function has yet to return.
    borrowed
        The identities of the memory owners that callers handed in and can write to.
    records
        Whether later runs evaluate the conditions of Python control flow again.
    is_staged
        Whether transformations may follow later, so that no conversion to a number is refused yet.
    finishing
        Functions that are called when the traced function has returned, before the trace ends.
    cut
        Whether it ended before its function, whose values are plain since then.
    awaited
        The entries of a tape that backward visits even if no cotangent reaches them; `None` if
        there are none.
    refused
        The last error of a traced value in a conversion to a plain value; unset before the first.
    """

    __slots__ = ("awaited", "borrowed", "finishing", "level", "origin", "refused", "running")

    records = False
    is_staged = False
    cut = False

    def __init__(self, transformation: str, function: Any) -> None:
        if settling:
            settle()
        self.level = next(_levels)
        self.origin = (transformation, getattr(function, "__qualname__", None) or name_of(function))
        self.running = True
        self.borrowed: set[int] = set()
        self.finishing: Sequence[Callable[[], object]] = ()
        self.awaited: list[Any] | None = None  # here, because a tape's own __init__ takes longer
        if (watch := hook.watch) is not None:
            watch.began(self)

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply a primitive to arguments, at least one of which belongs to this trace."""
        raise TypeError(f"{type(self).__name__} has no rule for {primitive.name}")

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply a higher-order primitive by its rule for such traces."""
        raise primitive.missing(self)

    def unwrap(self, operands: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        """Take this trace off operands; their values, and which belonged to it."""
        values, mine = [], []
        for leaf in operands:
            own = issubclass(type(leaf), Tracer) and leaf._trace is self
            mine.append(own)
            values.append(leaf.value if own else leaf)
        return values, mine

    def lower(self, tracer: "Tracer") -> Any:
        """Take this trace off a traced value, for `stop_gradient`."""
        raise TypeError(f"{type(self).__name__} has no rule for stop_gradient")

    def whole(self, tracer: "Tracer") -> Any:
        """Take this trace off a traced value, for `whole`."""
        return self.lower(tracer)

    def decide(self, tracer: "Tracer", kind: type) -> Any:
        """Return a traced value's truth or integer, for Python control flow."""
        return kind(tracer.value)

    def check(self, condition: "Tracer") -> bool:
        """Return whether a condition holds that values are checked by; see `holds`."""
        return bool(condition)

    def each(self, tracer: "Tracer", kind: type) -> list[Any]:
        """Return `decide` for each element of a traced vector."""
        return list(tracer)  # type: ignore[call-overload]

    def show(self, tracer: "Tracer") -> Any:
        """Return the plain value of a traced value, to make text of it."""
        return shown(tracer.value)

    def references(self, tracer: "Tracer") -> int:
        """Count the references to a traced value that the trace itself keeps."""
        return 0

    def borrow(self, value: Any) -> None:
        """Note that ``value`` came from the caller, who may write to it."""
        while isinstance(value, Tracer):
            if ended(value._trace):
                raise escaped(value._trace, f"fdbr.{self.origin[0]}")
            self.borrowed |= value._trace.borrowed
            value = value.value
        refuse_other_kinds(value, f"fdbr.{self.origin[0]}")
        if not is_locked(value):
            self.borrowed.add(id(owner(value)))

    def admit(self, leaf: Any) -> Any:
        """Return a leaf of the result that is not this trace's; raise if it has escaped."""
        if isinstance(leaf, Tracer):
            if ended(leaf._trace) or leaf._trace.level > self.level:
                raise escaped(leaf._trace, f"fdbr.{self.origin[0]}")
        elif getattr(leaf, "dtype", None) is _OBJECTS and any(
            isinstance(part, Tracer) for part in leaf.reshape(-1).tolist()
        ):
            error = TypeError(
                f"fdbr.{self.origin[0]}: {self.origin[1]} returned traced values in an array of "
                "objects, where nothing finds them; join them by ops.stack, or return a list"
            )
            raise refusal(error)
        return leaf

    def __repr__(self) -> str:
        return f"{self.origin[0]}({self.origin[1]})"


def next_level() -> int:
    """Return a level for a run that is no trace; traces that begin in it have higher ones."""
    return next(_levels)


def run(trace: Trace, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function of a trace, which ends with it."""
    token = running.set((*running.get(), trace)) if _followed else None
    try:
        out = f(*args, **kwargs)
        for finish in trace.finishing:
            finish()
        return out
    except Exception as error:
        refused = getattr(trace, "refused", None)
        meant = advise(error, refused and refused.error)
        try:
            if meant is not error and not trace.records:  # `jit` runs the function untraced
                raise meant.with_traceback(error.__traceback__) from error
            raise
        finally:
            del meant  # its traceback has this frame
    finally:
        trace.running = False
        if token is not None:
            running.reset(token)


def follow_runs() -> None:
    """Keep `running` from now on."""
    global _followed
    _followed = True


def follows_runs() -> bool:
    """Return whether `running` is kept."""
    return _followed


@contextlib.contextmanager
def below(trace: Trace) -> Iterator[None]:
    """Leave only the traces around a trace running, while that trace applies an operation."""
    if not _followed:
        yield
        return
    token = running.set(tuple(one for one in running.get() if one.level < trace.level))
    try:
        yield
    finally:
        running.reset(token)


class Tracer:
    """A value on its way through a transformation; it behaves as an array (see `array`).

    ``_base`` is set where NumPy's array would not be memory of its own, which in-place operators
    ask for: the traced value of which it is a view (`ReadOnly` where the view is), or for an
    argument of the transformed function its trace, or in words what else has the array.
    """

    __slots__ = ("__weakref__", "_base", "_trace", "value")

    _base: Any
    _trace: Any
    value: Any

    if TYPE_CHECKING:  # each class of traced values has its own

        @property
        def shape(self) -> Any: ...
        @property
        def dtype(self) -> Any: ...

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the plain value, so that `isinstance` answers as it would for that.

        Of a batch of scalars it is that of one of them.  ``type(x)`` is what it is.  So is the
        class where the plain value is of another array module, or a scalar of a dtype that is none
        of NumPy's own: the operators of CuPy and of ml_dtypes take whatever says that it is theirs,
        and would read its memory.
        """
        value = self.value
        if type(value) is np.ndarray and self.shape:
            return np.ndarray  # the usual case
        value = plain(value)
        kind = type(value)
        if kind is np.ndarray:
            if not value.ndim or self.shape:
                return kind
            kind = value.dtype.type
        return kind if kind in number_types or issubclass(kind, _NUMPYS) else type(self)


see_through(Tracer)


class ReadOnly:
    """The base of a traced value that is a read-only view in NumPy."""

    __slots__ = ("base",)

    def __init__(self, base: Tracer) -> None:
        self.base = base


def innermost(leaves: Sequence[Any]) -> Trace | None:
    """Find the innermost trace among leaves; `None` if none is traced."""
    found: Trace | None = None
    for leaf in leaves:
        if issubclass(type(leaf), Tracer):
            trace = leaf._trace
            if found is None or trace.level > found.level:
                found = trace
    return found


_base_of = vars(Tracer)["_base"].__get__  # does not ask `__getattr__` where there is none


def base_of(tracer: Tracer) -> Any:
    """The base of a traced value (see `Tracer`); `None` if its memory is its own."""
    try:
        return _base_of(tracer)
    except AttributeError:
        return None


def as_view(value: Any, base: Any) -> Any:
    """A traced value that NumPy has as a read-only view of another one.  Others stay themselves."""
    if isinstance(value, Tracer):
        value._base = ReadOnly(base)
    return value


def own(value: Any) -> Any:
    """A traced value with the same elements, in memory of its own: what a copy is in NumPy.

    No element is copied, because traced values are never written to.  Other values stay themselves.
    """
    if not isinstance(value, Tracer):
        return value
    kind = type(value)
    copy = object.__new__(kind)
    copy._trace, copy.value = value._trace, value.value
    for name in kind.__slots__:
        setattr(copy, name, getattr(value, name))
    return copy


def ended(trace: Trace) -> bool:
    """Whether a trace's function has returned, and is not being run again."""
    return not trace.running and not _replaying.get() and trace not in _reopened.get()


@contextlib.contextmanager
def reopened(trace: Trace) -> Iterator[None]:
    """Let functions that belong to a run of a transformation use its values after its end."""
    token = _reopened.set((*_reopened.get(), trace))
    try:
        yield
    finally:
        _reopened.reset(token)


def replay() -> int:
    """Return the number of the repeated run in progress; 0 if there is none."""
    return _replaying.get()


@contextlib.contextmanager
def replaying() -> Iterator[None]:
    """Let a function run again on traced values whose transformation has returned."""
    token = _replaying.set(next(_replays))
    try:
        yield
    finally:
        _replaying.reset(token)


def plain(value: Any) -> Any:
    """The array or number below a traced value; of a batch, that of all examples."""
    while isinstance(value, Tracer):
        value = value.value
    return value


def shown(value: Any) -> Any:
    """`plain`, for making text of it: traces that must know of it are told."""
    return value._trace.show(value) if isinstance(value, Tracer) else value


def stop_gradient(value: Any) -> Any:
    """One leaf, with every trace that differentiates taken off."""
    while isinstance(value, Tracer):
        if ended(value._trace):
            raise escaped(value._trace, "fdbr.stop_gradient")
        lowered = value._trace.lower(value)
        if lowered is value:
            return value
        if isinstance(lowered, Tracer) and lowered is not value.value:
            lowered._base = value
        value = lowered
    return value


def whole(value: Any) -> Any:
    """`stop_gradient`, and of a batch the array of all examples.

    For questions that one answer for all examples does for: is any of them refused, how much work
    is enough?
    """
    while isinstance(value, Tracer):
        below = value._trace.whole(value)
        if below is value:
            return value
        value = below
    return value


def holds(condition: Any) -> bool:
    """Whether a condition holds for all elements, and all examples of a batch.

    Checks of values use it instead of ``bool``.  In the body of a captured loop, where values
    differ between iterations, it returns True and collects the condition.  The loop then tests all
    collected conditions at its end, and runs again in Python if one does not hold, so that the
    check raises its error.
    """
    condition = whole(condition)
    if hasattr(condition, "all"):
        condition = condition.all()
    if isinstance(condition, Tracer):
        return condition._trace.check(condition)
    return bool(condition)


def is_differentiated(value: Any) -> bool:
    """Whether a value is traced by a transformation that differentiates."""
    return isinstance(value, Tracer) and stop_gradient(value) is not value


def escaped(trace: Trace, where: str) -> EscapedTracerError:
    """The error for a traced value that left its trace."""
    when = f"outside of {trace}" if trace.running else f"after {trace} had returned"
    return EscapedTracerError(
        f"{where}: a traced value of {trace} was used {when}. Return it from the transformed "
        "function (has_aux=True passes further results out) instead of storing it, or store "
        "fdbr.stop_gradient(value)."
    )
