"""Operations that act on each element alone."""

import inspect
import sys
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.core.tracer import plain
from fdbr.errors.checks import number_types
from fdbr.ops.declare.batches import aligned
from fdbr.ops.declare.large import LARGE, brought, evaluated, letting_go, multiplied, pulled
from fdbr.ops.declare.operation import Declaration, facts_in, operands_of, operation
from fdbr.ops.declare.rules import Function, Rule, Unknown
from fdbr.ops.declare.unbroadcast import dtype_of, fit, in_precision, match

__all__ = ["elementwise"]

_array = np.ndarray

_SUMMED = 8  # times as small as `LEAST` are arrays that kernels multiply and add up in one


def elementwise(*, heavy: bool | str = False, double: bool = False, **partials: Any) -> Declaration:
    """Declare an operation that acts on each element alone, with NumPy's broadcasting.

    The partial derivative in an operand is a function of what it names, or the number 1 or
    -1, or `None` where it is zero, or `Unknown`.  It is computed in the precision of the result:
    operands of lesser dtypes, integers above all, come to it converted.  An operation may say that
    its derivatives are to be computed in double precision, and rounded once, if in single
    precision they would lose digits.  It may say that it is heavy, if value and derivative take
    ten times as long as a multiplication: large arrays are then divided among threads.
    ``heavy="backward"`` says so of the derivative alone.  Facts may stand beside the derivatives
    (see `fdbr.core.primitive.Facts`).
    """
    facts = facts_in(partials)

    def declare(value: Function) -> Any:
        operands = operands_of(value)

        def again(*values: Any, **params: Any) -> Any:
            return function(*values, **params)

        rules = [
            _partial_rule(
                _in_double(partials[name], operands, again) if double else partials[name],
                operands,
                i,
                bool(heavy),
            )
            for i, name in enumerate(operands)
        ]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total = None
            for rule, tangent in zip(rules, tangents, strict=True):
                if tangent is not None and rule is not None:
                    _, *named = rule.save(values, out, params)
                    # The pull with nothing to fit is the product with the partial derivative.
                    term = rule.pull(in_precision(tangent, dtype_of(out)), None, *named)
                    total = term if total is None else total + term
            return match(total, out)

        value = evaluated(value, heavy is True, bool(facts.get("compound")))
        function = operation(
            value, "elementwise", rules, forward, aligned, elementwise=True, **facts
        )
        return letting_go(function) if _names_only_out(partials, value) else function

    return declare


def _names_only_out(partials: dict[str, Any], value: Function) -> bool:
    """Whether the operation has one operand and no keywords, and keeps its value alone."""
    (partial, *more), parameters = partials.values(), inspect.signature(value).parameters
    return (
        len(parameters) == 2
        and not more
        and callable(partial)
        and list(inspect.signature(partial).parameters) == ["out"]
    )


def _partial_rule(partial: Any, operands: tuple[str, ...], index: int, heavy: bool) -> Any:
    if partial is None:
        return None
    if isinstance(partial, Unknown):
        return partial.of(index)
    if isinstance(partial, int):
        pull = _identity_pull if partial == 1 else _negative_pull
        return Rule(pull, ["like"], operands, index)
    names = list(inspect.signature(partial).parameters)
    fixed = frozenset(i for i, name in enumerate(names) if name not in (*operands, "out"))
    if len(operands) == 1:
        pull = (_only_pull if len(names) == 1 else _partial_pull)(partial, heavy, fixed)
    elif len(names) == 1:
        pull = _partial_pull_of_one(partial, fixed)
    else:
        flags = [name in operands for name in names]
        pull = _partial_pull_of_some(partial, flags, heavy, fixed)
    return Rule(pull, ["like", *names], operands, index)


def _in_double(partial: Any, operands: tuple[str, ...], apply: Function) -> Any:
    """A partial derivative computed in double precision, and rounded to that of the operands.

    The result, if it is named, is computed anew: it was rounded, too.
    """
    if not callable(partial):
        return partial
    named = list(inspect.signature(partial).parameters)
    names = [*named, *(name for name in operands if "out" in named and name not in named)]

    def computed(*saved: Any) -> Any:
        found = dict(zip(names, saved, strict=True))
        strong = (found.get(name) for name in (*operands, "out"))
        dtypes = (getattr(v, "dtype", None) for v in strong if type(plain(v)) not in number_types)
        single = next((dtype for dtype in dtypes if dtype is not None), None)
        if single is None or single.char in "dD":
            return partial(*saved[: len(named)])
        double = np.dtype("D" if single.kind == "c" else "d")
        found |= {n: in_precision(found[n], double) for n in operands if n in found}
        if "out" in found:
            params = {n: found[n] for n in named if n not in operands and n != "out"}
            found["out"] = apply(*(found[name] for name in operands), **params)
        return in_precision(partial(*(found[name] for name in named)), single)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    computed.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return computed


def _partial_pull(partial: Function, heavy: bool, fixed: frozenset[int]) -> Function:
    def pull(ct: Any, like: Any, *saved: Any) -> Any:
        try:
            ct = multiplied(ct, partial, saved, heavy, fixed)
        except ZeroDivisionError:
            ct = ct * partial(*map(_as_scalar, saved))
        return ct if like is None else fit(ct, like)

    return pull


def _partial_pull_of_some(
    partial: Function, flags: list[bool], heavy: bool, fixed: frozenset[int]
) -> Function:
    # Of several operands one may be less precise than the result, which the cotangent is like.
    def pull(ct: Any, like: Any, *saved: Any) -> Any:
        dtype = ct.dtype
        precise = [
            in_precision(value, dtype) if flag else value
            for value, flag in zip(saved, flags, strict=True)
        ]
        try:
            if like is not None and _is_large(ct) and like[0] != ct.shape:
                return _brought(ct, partial, precise, like, heavy, fixed)
            ct = multiplied(ct, partial, precise, heavy, fixed)
        except ZeroDivisionError:
            ct = ct * partial(*map(_as_scalar, precise))
        if (
            like is None
        ):  # a traced number is weak, and what a partial derivative makes of it is not
            return ct if ct.dtype is dtype else in_precision(ct, dtype)
        return fit(ct, like)

    return pull


def _partial_pull_of_one(partial: Function, fixed: frozenset[int]) -> Function:
    # The usual case without the packing of arguments.
    def pull(ct: Any, like: Any, saved: Any) -> Any:
        dtype = ct.dtype
        if getattr(saved, "dtype", None) is not dtype:
            saved = in_precision(saved, dtype)
        try:
            if like is not None and _is_large(ct) and like[0] != ct.shape:
                return _brought(ct, partial, (saved,), like, False, fixed)
            if type(ct) is _array and ct.nbytes >= LARGE:
                ct = multiplied(ct, partial, (saved,), False, fixed)
            else:
                ct = ct * partial(saved)
        except ZeroDivisionError:
            ct = ct * partial(_as_scalar(saved))
        if like is None:  # as above
            return ct if ct.dtype is dtype else in_precision(ct, dtype)
        return fit(ct, like)

    return pull


def _brought(
    ct: Any, partial: Function, saved: Any, like: Any, heavy: bool, fixed: frozenset[int]
) -> Any:
    """The cotangent of an operand that was repeated, by that of a large result."""
    found = brought(ct, partial, saved, like, fixed)
    return fit(multiplied(ct, partial, saved, heavy, fixed) if found is None else found, like)


def _is_large(value: Any) -> bool:
    return type(value) is _array and value.nbytes * _SUMMED >= kernels.LEAST


def _only_pull(partial: Function, heavy: bool, fixed: frozenset[int]) -> Function:
    # Where there is but one operand, the cotangent is not needed for another.
    def pull(ct: Any, like: Any, saved: Any) -> Any:
        if type(ct) is _array and ct.nbytes >= LARGE and like is None:
            return pulled(sys.getrefcount(ct), ct, partial, saved, heavy, fixed)
        try:
            ct = ct * partial(saved)
        except ZeroDivisionError:
            ct = ct * partial(_as_scalar(saved))
        return ct if like is None else fit(ct, like)

    return pull


def _as_scalar(value: Any) -> Any:
    """A Python number as NumPy's, which divides by zero as arrays do: by giving inf or NaN."""
    if type(value) is complex:
        return np.complex128(value)
    return np.float64(value) if type(value) in (float, int) else value


def _identity_pull(ct: Any, like: Any) -> Any:
    return ct if like is None else fit(ct, like)


def _negative_pull(ct: Any, like: Any) -> Any:
    return -ct if like is None else fit(-ct, like)
