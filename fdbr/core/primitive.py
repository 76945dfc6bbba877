"""Primitives, and their dispatch to the innermost trace of their operands."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import numpy as np

from fdbr.core.array_modules import array_module, on_device, owner, several
from fdbr.core.devices import family
from fdbr.core.loading import first_use, when_loaded
from fdbr.core.observation import hook
from fdbr.core.routine import Routine
from fdbr.core.tracer import ReadOnly, Tracer, base_of, ended, escaped, plain
from fdbr.errors.checks import describe, is_refusal, number_types, refuse_other_kinds
from fdbr.errors.layer_path import placed
from fdbr.errors.public import unexplained
from fdbr.errors.tracebacks import is_users

__all__ = [
    "EXPLAINED",
    "Facts",
    "Primitive",
    "dispatch",
    "dispatch_view",
    "host_types",
    "implement",
    "implement_each",
    "registry",
    "seen",
]


_F = TypeVar("_F", bound=Callable[..., Any])

host_types = frozenset({np.ndarray, np.float64, np.float32})

EXPLAINED = (TypeError, ValueError, IndexError, OverflowError, AttributeError)
"""The errors that array modules raise about operands that they cannot take."""

_plain_errors = (TypeError, IndexError, np.linalg.LinAlgError, ValueError, OverflowError)

registry: dict[str, "Primitive"] = {}
"""Every primitive by name."""


@attrs.frozen(kw_only=True)
class Facts:
    """The facts about a primitive's value that compilers and in-place operators read.

    Attributes
    ----------
    effect
        Whether it has a side effect: such steps of a program are neither dropped nor merged, and
        keep their order.
    collective
        Whether all processes of a run do it together: each has to do it as often as the others
        and in the same order.  In a program such a step has a side effect whose results may be
        read.
    elementwise
        Whether each element of its value depends only on the operands' elements at the same index,
        after broadcasting.
    fresh
        Whether its value never shares memory with an operand.
    compound
        Whether a compiler may trace its value function, and fuse the operations it is made of with
        others; ``"small"`` if that pays for small arrays only.
    shorthand
        Whether its value applies other operations to traced operands: a compiler always traces
        those instead, which run faster fused than one by one.
    fold
        How it combines the elements along ``axes``: ``"sum"``, ``"mean"``, ``"max"``, ``"min"``;
        empty for other operations.
    cost
        About how many additions NumPy takes for an element, where it has a loop faster than any
        formula; 0 if unknown.
    heavy
        Whether an element takes about ten times as long as a multiplication.
    exact
        The function of Python numbers that computes the same without rounding; `None` if there is
        none.
    total
        Whether it has a value for all numbers that operands of such shapes and dtypes may hold, so
        that it raises no error for some of them.  Linear and multilinear operations without integer
        operands and folds are total anyway; other operations state it.
    view
        When NumPy's result is a view of the first operand: ``"always"``; ``"read-only"``;
        ``"elements"``, unless one element is taken; ``"contiguous"``, where the memory order allows
        it; empty for never.  In-place operators read it.
    """

    effect: bool = False
    collective: bool = False
    elementwise: bool = False
    fresh: bool = False
    compound: bool | str = False
    shorthand: bool = False
    fold: str = ""
    cost: int = 0
    heavy: bool = False
    exact: Callable[..., Any] | None = None
    total: bool = False
    view: str = ""


_NO_FACTS = Facts()


class Primitive:
    """An operation that transformations know.

    Operands are positional; all structure (axes, shapes, dtypes) is a keyword.

    Parameters
    ----------
    registered
        Whether it is an operation of the registry, or a step of programs alone.  Primitives with a
        side effect never are operations of the registry.

    Attributes
    ----------
    name
        Its name in the registry and in messages.
    kind
        The kind of declaration, which decides the rules it has.
    value
        ``value(xp, *operands, **params)``: the definition of the operation, for arrays of any
        module ``xp``.
    host
        The same for NumPy's arrays: the implementation of the CPU's back end (`implement`), or the
        definition.
    others
        The implementations for other array modules.
    rules
        ``rules[i]`` is the reverse rule of operand ``i``, `None` where the derivative is zero.
    forward
        ``forward(values, tangents, out, params)`` is the output's tangent; `None` where the
        derivative is zero.
    batch
        ``batch(apply, values, batched, size, params)`` is the operation on a batch.
    facts
        What compilers and in-place operators know about its value.
    """

    __slots__ = (
        *("batch", "facts", "forward", "host", "kind", "name", "others", "rules", "value"),
    )

    def __init__(
        self,
        name: str,
        kind: str,
        value: Callable[..., Any],
        rules: Any,
        forward: Callable[..., Any] | None,
        batch: Callable[..., Any] | None,
        facts: Facts = _NO_FACTS,
        *,
        registered: bool = True,
    ) -> None:
        registered = registered and not facts.effect
        if registered and name in registry:
            raise ValueError(f"there is a primitive named {name!r} already")
        self.name = name
        self.kind = kind
        self.value = value
        self.host = first_use(self, value)
        self.others: dict[Any, Callable[..., Any]] = {}
        self.rules = rules
        self.forward = forward
        self.batch = batch
        self.facts = facts
        if registered:
            registry[name] = self
        for module, make in _makers:
            _implement(self, module, make(self))

    def on(self, xp: Any) -> Callable[..., Any]:
        """Return the function that applies the operation to arrays of a module."""
        return self.host if xp is np else self.others.get(family(xp), self.value)

    def apply(self, *args: Any, **params: Any) -> Any:
        """Apply the operation, to arrays or traced values."""
        return dispatch(self, args, params)

    def explain(self, error: Exception, args: Any) -> Exception:
        """Return an error that names the operation and its operands, for an array module's error.

        Errors that are named already, or that array modules do not raise, are returned.
        """
        if not isinstance(error, EXPLAINED) or is_refusal(error) or is_users(error):
            return error
        error = unexplained(error)
        if str(error).startswith(("fdbr.", "scipy.special.")):
            return error
        operands = ", ".join(describe(arg) for arg in args)
        # An error that is made from a message only.
        kind = next((k for k in _plain_errors if isinstance(error, k)), TypeError)
        named = kind(placed(f"fdbr.ops.{self.name}: {error} (operands: {operands})"))
        named.__cause__ = error
        return named

    def __repr__(self) -> str:
        return f"<{self.kind} primitive {self.name}>"


def implement(target: Primitive | Routine, module: Any, *, least: float = 0) -> Callable[[_F], _F]:
    """Register an implementation of an operation for the arrays of a module.

    It takes what the definition (`Primitive.value`) takes, and has to return the same to the last
    digits that docs/accuracy.md promises.  Dispatch calls it in place of the definition, and so do
    compiled programs.  ``module`` is NumPy, or ``"cuda"`` for all modules that compile CUDA C.

    ``least`` is a routine's `Routine.least`.
    """

    def register(function: _F) -> _F:
        when_loaded(module, lambda: _implement(target, module, function, least))
        return function

    return register


def implement_each(module: Any) -> Callable[[_F], _F]:
    """Register implementations of many operations for the arrays of a module.

    ``make(primitive)`` returns one, or `None`.  It is called for each operation, those that are
    declared later included.
    """

    def register(make: _F) -> _F:
        when_loaded(module, functools.partial(_implement_each, module, make))
        return make

    return register


def _implement_each(module: Any, make: Callable[[Primitive], Any]) -> None:
    _makers.append((module, make))
    for primitive in list(registry.values()):
        _implement(primitive, module, make(primitive))


def _implement(target: Primitive | Routine, module: Any, function: Any, least: float = 0) -> None:
    if function is None:
        return
    if module is np:
        target.host = function
    else:
        target.others[module] = function
    if isinstance(target, Routine):
        target.least = least


_makers: list[tuple[Any, Callable[[Primitive], Any]]] = []


def dispatch(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive: to arrays at once, to traced values through the innermost trace."""
    try:
        if len(args) == 1 and type(args[0]) in host_types:  # a usual case, without the loop
            if hook.watch is not None:
                primitive = seen(primitive)
            return primitive.host(np, args[0], **params) if params else primitive.host(np, *args)
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
        if hook.watch is not None:
            primitive = seen(primitive)
        if host and not foreign:
            if not params and len(args) == 2:  # the usual case, without unpacking
                return primitive.host(np, args[0], args[1])
            return primitive.host(np, *args, **params)
        if not foreign:
            return _of_numbers(primitive, args, params)
        if several:
            with on_device(*args):
                return _elsewhere(primitive, args, params)
        return _elsewhere(primitive, args, params)
    except EXPLAINED as error:
        raise primitive.explain(error, args)  # noqa: B904


def _elsewhere(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Apply a primitive to arrays that are not all NumPy's own."""
    xp = array_module(*args)
    return primitive.on(xp)(xp, *args, **params)


def dispatch_view(primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """`dispatch` for an operation with a `view`: a traced result refers to its base."""
    x = args[0]
    if not isinstance(x, Tracer):
        return dispatch(primitive, args, params)
    trace = x._trace
    if not trace.running and ended(trace):
        raise escaped(trace, f"fdbr.ops.{primitive.name}")
    out: Any = trace.process(primitive, args, params)
    if type(out) is not type(x):  # the trace was cut
        return out
    view = primitive.facts.view
    if view == "elements":
        key = params["key"]  # with ``...`` one element is a view, too, without dimensions
        sized = out.shape
        if sized or key is ... or (type(key) is tuple and ... in key):
            out._base = x
    elif view == "read-only":
        out._base = ReadOnly(x)
    elif view == "always" or _shows(out.value, x.value) or base_of(x) is None:
        out._base = x
    return out


def seen(primitive: Primitive) -> Primitive:
    """The primitive to apply to arrays while some context is observed."""
    watch = hook.watch  # another thread may have taken it out
    found: Primitive = primitive if watch is None else watch.seen(primitive)
    return found


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
    if primitive.kind in ("program", "higher-order"):  # which take numbers as they are
        return primitive.host(np, *args, **params)
    if primitive.kind != "elementwise" and primitive.facts.exact is None:
        return primitive.host(np, *[np.asarray(arg)[()] for arg in args], **params)
    out = primitive.host(np, *args, **params)
    return out.item() if hasattr(out, "item") else out
