"""Make a primitive, and the function that applies it, from a declaration."""

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import attrs
import numpy as np

from fdbr.core.observation import hook
from fdbr.core.primitive import Facts, Primitive, dispatch, dispatch_view
from fdbr.errors.boundary import boundary
from fdbr.ops.declare.rules import Function

__all__ = ["Declaration", "Operation", "facts_in", "operands_of", "operation"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Operation(Protocol[P, R_co]):
    """A function of arrays, raw or traced, which applies a primitive."""

    primitive: Primitive

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Declaration(Protocol):
    """A decorator that makes an operation of its value, a function of array module and arrays."""

    def __call__(self, value: Callable[Concatenate[Any, P], R_co], /) -> Operation[P, R_co]: ...


def operands_of(value: Function) -> tuple[str, ...]:
    """The names of the positional parameters after the array module."""
    parameters = list(inspect.signature(value).parameters.values())[1:]
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


_STATED = frozenset(attrs.fields_dict(Facts)) - {"effect", "collective"}


def facts_in(statements: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of `Facts` out of a declaration's statements; the others are operands."""
    return {name: statements.pop(name) for name in _STATED & statements.keys()}


def operation(
    value: Function,
    kind: str,
    rules: Any,
    forward: Function | None,
    batch: Function | None,
    **facts: Any,
) -> Any:
    """Make the primitive, and the function that applies it.

    ``facts`` are the fields of its `Facts`.  Elementwise and multilinear operations are fresh
    unless they say otherwise, because they write each result into new memory.  The function has
    the value's name, docstring, source, and signature without the array module.
    """
    facts.setdefault("fresh", kind == "multilinear" or facts.get("elementwise", False))
    stated = Facts(**facts)
    primitive = Primitive(value.__name__.strip("_"), kind, value, rules, forward, batch, stated)
    # Operands are positional only.
    parameters = [
        p.replace(kind=p.POSITIONAL_ONLY) if p.kind is p.POSITIONAL_OR_KEYWORD else p
        for p in list(inspect.signature(value).parameters.values())[1:]
    ]
    operands = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    star = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def explain(error: Exception, given: dict[str, Any]) -> Exception:
        args = [given[name] for name in operands] + [arg for name in star for arg in given[name]]
        error = primitive.explain(error, args)
        complete = str(error).startswith(f"fdbr.ops.{primitive.name}:")
        return error.with_traceback(None) if complete else error

    names = {"primitive": primitive, "none": {}, "hook": hook, "np": np, "array": np.ndarray}
    names["dispatch"] = dispatch_view if stated.view else dispatch
    function = boundary(parameters, _statement(operands, star, keywords), explain, names)
    function.__name__ = function.__qualname__ = value.__name__
    function.__module__ = value.__module__
    function.__doc__ = value.__doc__
    function.__signature__ = inspect.signature(function)
    function.__wrapped__ = value
    function.primitive = primitive
    return function


def _statement(operands: list[str], star: list[str], keywords: list[str]) -> str:
    """Return the statement that applies an operation.

    If all operands are NumPy's arrays it does the same as `dispatch`, without packing them: a
    small array's operation takes hardly longer than two calls.
    """
    given = "".join(f"{name}, " for name in operands) + "".join(f"*{name}, " for name in star)
    params = "{" + ", ".join(f"{k!r}: {k}" for k in keywords) + "}" if keywords else "none"
    usual = ""
    if operands and not star:
        arrays = "".join(f"type({name}) is array and " for name in operands)
        named = ", ".join(f"{k}={k}" for k in keywords)
        usual = f"if {arrays}hook.watch is None: return primitive.host(np, {given}{named})\n  "
    return f"{usual}return dispatch(primitive, ({given}), {params})"
