"""Declare operations by their vjp and jvp rules, and operations without a derivative."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, Concatenate, overload

from fdbr.ops.declare.batches import aligned
from fdbr.ops.declare.operation import (
    Declaration,
    Operation,
    P,
    R_co,
    facts_in,
    operands_of,
    operation,
)
from fdbr.ops.declare.rules import Function, Rules, Unknown, names_of, saver, stated_rule
from fdbr.ops.declare.unbroadcast import dtype_of, fit, in_precision, match

__all__ = ["constant", "opaque", "several"]


def opaque(
    *,
    batch: Function | None = None,
    first: Function | None = None,
    **statements: Any,
) -> Declaration:
    """Declare an operation by a vjp and a jvp rule for each operand.

    Each operand has a pair of rules.  The vjp rule takes the cotangent, and what else its
    parameters name, to the operand's cotangent; the jvp rule takes the operand's tangent to its
    contribution to the output's tangent.  For an operation with several outputs, the cotangent
    and the output's tangent are tuples.  A pair of `Unknown` says that there is no derivative.
    If the vjp rules begin with the same computation, ``first`` does it once: its result is
    passed to them instead of the cotangent.  Fields of `fdbr.core.primitive.Facts` may be
    given beside the pairs.
    """
    facts = facts_in(statements)

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs = [statements.get(name, (None, None)) for name in operands]
        rules: Any = [stated_rule(vjp, operands, i) for i, (vjp, _) in enumerate(pairs)]
        jvps = [_jvp_rule(jvp, operands, i) for i, (_, jvp) in enumerate(pairs)]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total: Any = None
            for tangent, rule in zip(tangents, jvps, strict=True):
                if tangent is not None and rule is not None:
                    jvp, save = rule
                    total = _plus(total, jvp(tangent, *save(values, out, params)))
            return match(total, out)

        if first is not None:
            rules = Rules(rules.__getitem__, first=stated_rule(first, operands, 0))
        return operation(value, "opaque", rules, forward, batch, **facts)

    return declare


def several(**partials: Any) -> Declaration:
    """Declare an operation of several outputs that acts on each element alone.

    For each operand there is a function that returns the partial derivatives of all outputs as
    a tuple, or `Unknown`.  A partial derivative may itself be a function without parameters: it
    is called only if its output is used, which keeps an infinite derivative out of the others.
    """

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        pairs: dict[str, Any] = {
            name: _pair(partial, operands) for name, partial in partials.items()
        }
        return opaque(batch=aligned, **pairs)(value)

    return declare


def _pair(partial: Any, operands: tuple[str, ...]) -> tuple[Any, Any]:
    """Make the vjp and the jvp rule from partial derivatives.

    They are computed in the precision of the results, as those of `elementwise` are.
    """
    if isinstance(partial, Unknown):
        return partial, partial
    named = list(inspect.signature(partial).parameters.values())
    is_operand = [p.name in operands for p in named]

    def derivatives(saved: Any, dtype: Any) -> Any:
        pairs = zip(saved, is_operand, strict=True)
        return partial(*(in_precision(v, dtype) if own else v for v, own in pairs))

    def vjp(ct: Any, shape: Any, dtype: Any, *saved: Any) -> Any:
        dtype_of_ct = next(dtype_of(c) for c in ct if c is not None)
        pairs = zip(ct, derivatives(saved, dtype_of_ct), strict=True)
        terms = [c * (p() if callable(p) else p) for c, p in pairs if c is not None]
        return fit(functools.reduce(operator.add, terms), (shape, dtype))

    def jvp(tangent: Any, out: Any, *saved: Any) -> Any:
        rest = iter(saved)
        known = [out if p.name == "out" else next(rest) for p in named]
        return tuple(
            tangent * (p() if callable(p) else p) for p in derivatives(known, dtype_of(out[0]))
        )

    vjp.__signature__ = inspect.Signature(_parameters("ct", "shape", "dtype") + named)  # type: ignore[attr-defined]
    others = [p for p in named if p.name != "out"]
    jvp.__signature__ = inspect.Signature(_parameters("tangent", "out") + others)  # type: ignore[attr-defined]
    return vjp, jvp


def _parameters(*names: str) -> list[inspect.Parameter]:
    return [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]


def _jvp_rule(jvp: Any, operands: tuple[str, ...], index: int) -> Any:
    """Return the jvp rule of an operand and the function that collects its arguments."""
    if jvp is None:
        return None
    if isinstance(jvp, Unknown):
        return jvp, jvp.of(index).save
    return jvp, saver(names_of(jvp), operands, index)


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return tuple(map(_plus, a, b)) if type(a) is tuple else a + b


@overload
def constant(
    value: Callable[Concatenate[Any, P], R_co], *, batch: Function = ..., **facts: Any
) -> Operation[P, R_co]: ...


@overload
def constant(*, batch: Function = ..., **facts: Any) -> Declaration: ...


def constant(value: Function | None = None, *, batch: Function = aligned, **facts: Any) -> Any:
    """Declare an operation whose derivative is zero wherever it exists.

    It broadcasts as elementwise operations do, unless ``batch`` is given.  Fields of
    `fdbr.core.primitive.Facts` may be given beside it.
    """
    if value is None:
        return lambda value: constant(value, batch=batch, **facts)
    rules = Rules(lambda index: None)
    return operation(value, "constant", rules, None, batch, **facts)
