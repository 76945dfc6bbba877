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
from typing import Any

import numpy as np

from fdbr.advice import advise
from fdbr.backend import (
    array_module,
    is_locked,
    on_device,
    owner,
    see_through,
    several,
)
from fdbr.messages import describe, name_of, number_types, refusal, refuse_other_kinds
from fdbr.pytrees import settle, settling
from fdbr.whereabouts import placed

__all__ = [
    "EXPLAINED",
    "EscapedTracerError",
    "Primitive",
    "ReadOnly",
    "Trace",
    "Tracer",
    "as_view",
    "base_of",
    "below",
    "dispatch",
    "dispatch_view",
    "follow_runs",
    "follows_runs",
    "host_types",
    "learning",
    "next_level",
    "own",
    "registry",
    "run",
    "running",
]

_levels = itertools.count(1)
_replays = itertools.count(1)
learning: ContextVar[Callable[..., Any] | None] = ContextVar("learning", default=None)
"""What runs the functions of transformations while their control flow is learnt, if something does:
it is given the trace, the function, and its arguments."""

running: ContextVar[tuple["Trace", ...]] = ContextVar("running", default=())
"""The traces whose functions run here, the outermost first; empty as long as nobody follows them.

What all processes of a run do together each of them records in all of these, whether or not its
operands depend on what they trace: so all processes record the same.
"""

_followed = False  # whether anybody wants to know
_replaying: ContextVar[int] = ContextVar("replaying", default=0)
_reopened: ContextVar[tuple["Trace", ...]] = ContextVar("reopened", default=())
host_types = frozenset({np.ndarray, np.float64, np.float32})
_NUMPYS = (np.ndarray, np.number, np.bool_)  # the classes of plain values
_OBJECTS = np.dtype(object)
EXPLAINED = (TypeError, ValueError, IndexError, OverflowError, AttributeError)
"""The errors that array modules raise about operands that they cannot take."""
_plain_errors = (TypeError, IndexError, np.linalg.LinAlgError, ValueError, OverflowError)

registry: dict[str, "Primitive"] = {}
"""Every primitive by name."""


class EscapedTracerError(RuntimeError):
    """A traced value was used after the transformation that made it had returned."""


class Primitive:
    """An operation that transformations know.

    Operands are positional; everything that is structure (axes, shapes, dtypes) is a
    keyword.

    Attributes
    ----------
    name
        Its name in the registry and in messages.
    kind
        The kind by which it was declared: it tells which rules it has and why.
    value
        ``value(xp, *operands, **params)``: the operation on arrays of the module ``xp``.
    rules
        ``rules[i]`` is the reverse rule of operand ``i``, `None` where the derivative is zero.
    forward
        ``forward(values, tangents, out, params)`` is the output's tangent; `None` where the
        derivative is zero.
    batch
        ``batch(apply, values, batched, size, params)`` is the operation on a batch.
    effect
        Whether it does something beside what it gives: such steps of a program are neither
        dropped nor merged, and keep their order.  It is no operation of the registry then.
    elementwise
        Whether each element of its value depends on nothing but the elements of the operands at
        the same place, after broadcasting.
    fresh
        Whether its value never shares memory with an operand.
    compound
        Whether a compiler may follow its value function, and join the operations that it is made
        of with others.
    shorthand
        Whether its value applies other operations to traced operands: a compiler takes those in
        its place, which is faster than they are one by one.
    fold
        How it combines the elements along ``axes``: ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, or
        not at all.
    cost
        About how many additions NumPy takes for an element, where it has a loop faster than any
        formula; 0 where nobody said so.
    exact
        The function of Python's numbers that it stands for, which is not rounded.
    meeting
        Whether all processes of a run do it together, which is an effect: each has to do it as
        often as the others and in the same order, and what it gives may be read.
    total
        Whether it has a value for whatever numbers operands of such shapes and dtypes hold: it
        raises no error for some of them.  Linear and multilinear operations have, but for the
        integers among their operands, and so have folds; others say so.
    view
        How NumPy's result shows the memory of the first operand: ``"always"``; ``"read-only"``;
        ``"elements"``, unless one element is taken; ``"contiguous"``, where that memory allows
        it; empty if it never does.  In-place operators ask for it.

    One that is not ``registered`` is no operation of the registry, but a part of programs alone.
    """

    __slots__ = (
        *(
            "batch",
            "compound",
            "cost",
            "effect",
            "elementwise",
            "exact",
            "fold",
            "forward",
            "fresh",
            "meeting",
            "shorthand",
            "total",
        ),
        *("kind", "name", "rules", "value", "view"),
    )

    def __init__(
        self,
        name: str,
        kind: str,
        value: Callable[..., Any],
        rules: Any,
        forward: Callable[..., Any] | None,
        batch: Callable[..., Any] | None,
        effect: bool = False,
        *,
        elementwise: bool = False,
        fresh: bool = False,
        compound: bool = False,
        shorthand: bool = False,
        fold: str = "",
        cost: int = 0,
        exact: Callable[..., Any] | None = None,
        total: bool = False,
        registered: bool = True,
        meeting: bool = False,
        view: str = "",
    ) -> None:
        registered = registered and not effect
        if registered and name in registry:
            raise ValueError(f"there is a primitive named {name!r} already")
        self.name = name
        self.kind = kind
        self.value = value
        self.rules = rules
        self.forward = forward
        self.batch = batch
        self.effect = effect
        self.elementwise = elementwise
        self.fresh = fresh
        self.compound = compound
        self.shorthand = shorthand
        self.fold = fold
        self.cost = cost
        self.exact = exact
        self.total = total
        self.meeting = meeting
        self.view = view
        if registered:
            registry[name] = self

    def apply(self, *args: Any, **params: Any) -> Any:
        """Apply the operation, to arrays or traced values."""
        return dispatch(self, args, params)

    def explain(self, error: Exception, args: Any) -> Exception:
        """The error of an array module, with the op and its operands named."""
        if str(error).startswith("fdbr."):
            return error
        operands = ", ".join(describe(arg) for arg in args)
        # One that is made from a message alone.
        kind = next((k for k in _plain_errors if isinstance(error, k)), TypeError)
        return kind(placed(f"fdbr.ops.{self.name}: {error} (operands: {operands})"))

    def __repr__(self) -> str:
        return f"<{self.kind} primitive {self.name}>"


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
        Whether what Python control flow asks is asked again of other values, in runs to come.
    finishing
        What is called when the function has returned, and the trace is about to end.
    cut
        Whether it has come to its end before the function has, whose values are plain since.
    awaited
        The entries of a tape that backward visits whatever comes to them, if there are some.
    transposed
        The custom functions of which it transposes the jvp rule, each within the one before.
    """

    __slots__ = ("awaited", "borrowed", "finishing", "level", "origin", "running", "transposed")

    records = False
    cut = False

    def __init__(self, transformation: str, function: Any) -> None:
        if settling:
            settle()
        self.level = next(_levels)
        self.origin = (transformation, getattr(function, "__qualname__", None) or name_of(function))
        self.running = True
        self.borrowed: set[int] = set()
        self.finishing: Sequence[Callable[[], object]] = ()
        self.awaited: list[Any] | None = None
        self.transposed: tuple[Any, ...] = ()

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply a primitive to arguments of which at least one belongs to this trace."""
        raise TypeError(f"{type(self).__name__} has no rule for {primitive.name}")

    def lower(self, tracer: "Tracer") -> Any:
        """Take this trace off a traced value, for `stop_gradient`."""
        raise TypeError(f"{type(self).__name__} has no rule for stop_gradient")

    def whole(self, tracer: "Tracer") -> Any:
        """Take this trace off a traced value, for `whole`."""
        return self.lower(tracer)

    def decide(self, tracer: "Tracer", kind: type) -> Any:
        """Answer Python control flow about a traced value: its truth, or an integer."""
        return kind(tracer.value)

    def each(self, tracer: "Tracer", kind: type) -> list[Any]:
        """`decide` for every element of a traced value of one dimension, or what does for it."""
        return list(tracer)  # type: ignore[call-overload]

    def show(self, tracer: "Tracer") -> Any:
        """The plain value of a traced value, of which text is made."""
        return shown(tracer.value)

    def references(self, tracer: "Tracer") -> int:
        """The number of references to a traced value that the trace itself keeps."""
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
        """A leaf of the function's result that is not this trace's, if it may be there."""
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
    """The level of a run that is no trace: those that begin in it have a higher one."""
    return next(_levels)


def run(trace: Trace, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the function of a trace, which ends with it."""
    learner = learning.get()
    token = running.set((*running.get(), trace)) if _followed else None
    try:
        out = f(*args, **kwargs) if learner is None else learner(trace, f, args, kwargs)
        for finish in trace.finishing:
            finish()
        return out
    except (TypeError, ValueError, AttributeError) as error:
        advise(error)
        raise
    finally:
        trace.running = False
        if token is not None:
            running.reset(token)


def follow_runs() -> None:
    """Have `running` say from now on which traces' functions run."""
    global _followed
    _followed = True


def follows_runs() -> bool:
    """Whether `running` says which traces' functions run."""
    return _followed


@contextlib.contextmanager
def below(trace: Trace) -> Iterator[None]:
    """A block that stands for what a trace does with an operation: only traces around it run."""
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

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the plain value, so that `isinstance` answers as it would for that.

        Of a batch of scalars it is that of one of them.  ``type(x)`` is what it is.  So is the
        class where the plain value is of another array module, or a scalar of a dtype that is none
        of NumPy's own: the operators of CuPy and of ml_dtypes take whatever says that it is theirs,
        and would read its memory.
        """
        value = self.value
        if type(value) is np.ndarray and self.shape:  # type: ignore[attr-defined]
            return np.ndarray  # the usual case
        value = plain(value)
        kind = type(value)
        if kind is np.ndarray:
            if not value.ndim or self.shape:  # type: ignore[attr-defined]
                return kind
            kind = value.dtype.type
        return kind if kind in number_types or issubclass(kind, _NUMPYS) else type(self)


see_through(Tracer)


class ReadOnly:
    """The base of a traced value that is a read-only view in NumPy."""

    __slots__ = ("base",)

    def __init__(self, base: Tracer) -> None:
        self.base = base


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


def dispatch(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive: to arrays at once, to traced values through the innermost trace."""
    if len(args) == 1 and type(args[0]) in host_types:  # a usual case, without the loop
        try:
            return primitive.value(np, args[0], **params) if params else primitive.value(np, *args)
        except EXPLAINED as error:
            raise primitive.explain(error, args) from error
    top = None
    level = 0
    host = False
    foreign = False
    for arg in args:
        kind = type(arg)
        if kind in host_types:
            host = True
        elif kind not in number_types:
            if isinstance(arg, Tracer):
                if arg._trace.level > level:
                    top = arg._trace
                    level = top.level
            else:
                foreign = True
    if top is not None:
        if not top.running and ended(top):
            raise escaped(top, f"fdbr.ops.{primitive.name}")
        if foreign:
            args = _as_arrays(args, f"fdbr.ops.{primitive.name}")
        return top.process(primitive, args, params)
    try:
        if host and not foreign:
            if not params and len(args) == 2:  # the usual case, without unpacking
                return primitive.value(np, args[0], args[1])
            return primitive.value(np, *args, **params)
        if not foreign:
            return _of_numbers(primitive, args, params)
        if several:
            with on_device(*args):
                return primitive.value(array_module(*args), *args, **params)
        return primitive.value(array_module(*args), *args, **params)
    except EXPLAINED as error:
        raise primitive.explain(error, args) from error


def dispatch_view(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """`dispatch` for an operation with a `view`: a traced result refers to its base."""
    x = args[0]
    if type(x) in host_types:
        try:
            return primitive.value(np, x, **params)
        except EXPLAINED as error:
            raise primitive.explain(error, args) from error
    if not isinstance(x, Tracer):
        return dispatch(primitive, args, params)
    trace = x._trace
    if not trace.running and ended(trace):
        raise escaped(trace, f"fdbr.ops.{primitive.name}")
    out: Any = trace.process(primitive, args, params)
    if type(out) is not type(x):  # the trace was cut
        return out
    view = primitive.view
    if view == "elements":
        key = params["key"]  # with ``...`` one element is a view, too, without dimensions
        sized = out.shape  # type: ignore[attr-defined]
        if sized or key is ... or (type(key) is tuple and ... in key):
            out._base = x
    elif view == "read-only":
        out._base = ReadOnly(x)
    elif view == "always" or _shows(out.value, x.value) or base_of(x) is None:
        out._base = x
    return out


def _shows(view: Any, array: Any) -> bool:
    """Whether an array that was made of another one shows its memory."""
    if type(view) is np.ndarray and type(array) is np.ndarray:
        base = view.base
        return base is array or (base is not None and base is array.base)
    return owner(plain(view)) is owner(plain(array))


def _as_arrays(args: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """The operands with arrays in the place of sequences, whose axes a batch would not see."""
    for arg in args:
        refuse_other_kinds(arg, where)
    if not any(type(arg) is list or type(arg) is tuple for arg in args):
        return args
    xp = array_module(*args)
    return tuple(xp.asarray(arg) if type(arg) in (list, tuple) else arg for arg in args)


def _of_numbers(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive to nothing but Python numbers, which are weak and have no methods."""
    if primitive.kind == "program":  # whose steps take numbers as they are
        return primitive.value(np, *args, **params)
    if primitive.kind != "elementwise":
        return primitive.value(np, *[np.asarray(arg)[()] for arg in args], **params)
    out = primitive.value(np, *args, **params)
    return out.item() if hasattr(out, "item") else out


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
    """The number of the repeated run that goes on at present; 0 if there is none."""
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
