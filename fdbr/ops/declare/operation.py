"""Make a primitive, and the function that applies it, from a declaration."""

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import attrs
import numpy as np

from fdbr.core.observation import hook
from fdbr.core.primitive import EXPLAINED, Facts, Primitive, dispatch, dispatch_view
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
    parameters = list(inspect.signature(value).parameters.values())[1:]
    apply = dispatch_view if stated.view else dispatch
    scope = {"dispatch": apply, "primitive": primitive, "none": {}, "hook": hook, "np": np}
    scope |= {"array": np.ndarray, "explained": EXPLAINED, "__name__": __name__}
    scope |= {f"default_{p.name}": p.default for p in parameters}
    exec(_call_source(parameters), scope)
    function: Any = scope["call"]
    function.__name__ = function.__qualname__ = value.__name__
    function.__module__ = value.__module__
    function.__doc__ = value.__doc__
    function.__signature__ = inspect.signature(function)
    function.__wrapped__ = value
    function.primitive = primitive
    return function


def _call_source(parameters: list[inspect.Parameter]) -> str:
    """Return the source of the function that applies an operation.

    Where all operands are NumPy's arrays it does what `dispatch` does with them, without packing
    them: a small array's operation takes hardly longer than two calls.
    """
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    star = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    operands = "".join(f"{name}, " for name in positional) + "".join(f"*{n}, " for n in star)
    heads = [*positional, "/"] if positional else []  # operands are positional only
    heads += [f"*{star[0]}"] if star else ["*"] if keywords else []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY:
            heads.append(p.name if p.default is p.empty else f"{p.name}=default_{p.name}")
    params = "{" + ", ".join(f"{k!r}: {k}" for k in keywords) + "}" if keywords else "none"
    usual = ""
    if positional and not star:
        arrays = "".join(f"type({name}) is array and " for name in positional)
        named = ", ".join(f"{k}={k}" for k in keywords)
        usual = (
            f" if {arrays}hook.watch is None:\n"
            f"  try: return primitive.host(np, {operands}{named})\n"
            "  except explained as error:\n"
            f"   raise primitive.explain(error, ({operands})) from error\n"
        )
    rest = f" return dispatch(primitive, ({operands}), {params})\n"
    return f"def call({', '.join(heads)}):\n{usual}{rest}"
