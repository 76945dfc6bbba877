"""Operations that act on each element alone."""

import functools
import inspect
import sys
from typing import Any

import numpy as np

from fdbr.core.tracer import plain
from fdbr.errors.checks import number_types
from fdbr.ops.declare.batches import aligned
from fdbr.ops.declare.cotangent_products import (
    cotangent_product,
    only_cotangent_product,
    summed_product,
)
from fdbr.ops.declare.memory_saving import reusing_operand
from fdbr.ops.declare.operation import Declaration, facts_in, operands_of, operation
from fdbr.ops.declare.rules import Function, Rule, Unknown
from fdbr.ops.declare.unbroadcast import as_floats, dtype_of, fit, in_precision, match

__all__ = ["elementwise"]

_array = np.ndarray


def elementwise(
    *, heavy: bool | str = False, double: bool = False, floats: bool = False, **partials: Any
) -> Declaration:
    """Declare an operation that acts on each element alone, with NumPy's broadcasting.

    The partial derivative in an operand is a function whose parameters name what it needs, the
    number 1 or -1, `None` if it is zero, or `Unknown`.  It is computed in the precision of the
    result: operands of smaller dtypes, and integers, are converted first.

    ``double=True`` computes derivatives in double precision and rounds them once, for those that
    lose digits in single precision.  ``floats=True`` converts integers and truth values to a
    floating dtype before the value is computed, because arithmetic in theirs wraps.
    ``heavy=True`` says that value and derivative take about ten times as long as a multiplication,
    ``heavy="backward"`` that the derivative does.  With ``double`` both do.  Fields of
    `fdbr.core.primitive.Facts` may be given beside the derivatives.
    """
    facts = facts_in(partials)
    heavy = heavy or double

    def declare(value: Function) -> Any:
        operands = operands_of(value)
        if floats:
            value = _in_floats(value)

        def apply(*values: Any, **params: Any) -> Any:
            return function(*values, **params)

        rules = [
            _partial_rule(
                _in_double(partials[name], operands, apply) if double else partials[name],
                operands,
                i,
                heavy,
            )
            for i, name in enumerate(operands)
        ]

        def forward(values: Any, tangents: Any, out: Any, params: Any) -> Any:
            total = None
            for rule, tangent in zip(rules, tangents, strict=True):
                if tangent is not None and rule is not None:
                    _, *named = rule.save(values, out, params)
                    # With like=None the rule only multiplies by the partial derivative.
                    term = rule.pull(in_precision(tangent, dtype_of(out)), None, *named)
                    total = term if total is None else total + term
            return match(total, out)

        stated = {"elementwise": True, "heavy": heavy is True, **facts}
        function = operation(value, "elementwise", rules, forward, aligned, **stated)
        return reusing_operand(function) if _names_only_out(partials, value) else function

    return declare


def _in_floats(value: Function) -> Function:
    """Wrap a value to convert integers and truth values first."""

    @functools.wraps(value)
    def computed(xp: Any, *operands: Any, **params: Any) -> Any:
        for x in operands:
            if getattr(x, "dtype", _FLOAT).kind in "biu":
                operands = as_floats(operands)
                break
        return value(xp, *operands, **params)

    return computed


_FLOAT = np.dtype(float)


def _names_only_out(partials: dict[str, Any], value: Function) -> bool:
    """Whether the operation has one operand, no keywords, and saves its value alone."""
    (partial, *more), parameters = partials.values(), inspect.signature(value).parameters
    return (
        len(parameters) == 2
        and not more
        and callable(partial)
        and list(inspect.signature(partial).parameters) == ["out"]
    )


def _partial_rule(partial: Any, operands: tuple[str, ...], index: int, heavy: bool | str) -> Any:
    if partial is None:
        return None
    if isinstance(partial, Unknown):
        return partial.of(index)
    if isinstance(partial, int):
        vjp = _identity_vjp if partial == 1 else _negative_vjp
        return Rule(vjp, ["like"], operands, index)
    names = list(inspect.signature(partial).parameters)
    fixed = frozenset(i for i, name in enumerate(names) if name not in (*operands, "out"))
    if len(operands) == 1:
        vjp = (_vjp_of_only_operand if len(names) == 1 else _partial_vjp)(partial, heavy, fixed)
    elif len(names) == 1:
        vjp = _vjp_of_one_name(partial, fixed)
    else:
        flags = [name in operands for name in names]
        vjp = _vjp_of_several(partial, flags, heavy, fixed)
    return Rule(vjp, ["like", *names], operands, index)


def _in_double(partial: Any, operands: tuple[str, ...], apply: Function) -> Any:
    """Wrap a partial derivative to compute in double precision and round to the operands' dtype.

    If it names ``out``, the result is recomputed from the operands: the saved one is rounded.
    """
    if not callable(partial):
        return partial
    named = list(inspect.signature(partial).parameters)
    names = [*named, *(name for name in operands if "out" in named and name not in named)]

    def computed(*saved: Any) -> Any:
        found = dict(zip(names, saved, strict=True))
        operands_and_out = (found.get(name) for name in (*operands, "out"))
        dtypes = (
            getattr(v, "dtype", None)
            for v in operands_and_out
            if type(plain(v)) not in number_types
        )
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


def _partial_vjp(partial: Function, heavy: bool | str, fixed: frozenset[int]) -> Function:
    def vjp(ct: Any, like: Any, *saved: Any) -> Any:
        try:
            ct = _product(ct, partial, saved, heavy, fixed)
        except ZeroDivisionError:
            ct = ct * partial(*map(_as_scalar, saved))
        return ct if like is None else fit(ct, like)

    return vjp


def _product(
    ct: Any, partial: Function, saved: Any, heavy: bool | str, fixed: frozenset[int]
) -> Any:
    if type(ct) is _array and ct.nbytes >= cotangent_product.least:
        return cotangent_product.host(ct, partial, saved, heavy, fixed)
    return ct * partial(*saved)


def _vjp_of_several(
    partial: Function, flags: list[bool], heavy: bool | str, fixed: frozenset[int]
) -> Function:
    # An operand may be less precise than the result and its cotangent.
    def vjp(ct: Any, like: Any, *saved: Any) -> Any:
        dtype = ct.dtype
        precise = [
            in_precision(value, dtype) if flag else value
            for value, flag in zip(saved, flags, strict=True)
        ]
        try:
            if like is not None and _is_large(ct) and like[0] != ct.shape:
                return _summed_product(ct, partial, precise, like, heavy, fixed)
            ct = _product(ct, partial, precise, heavy, fixed)
        except ZeroDivisionError:
            ct = ct * partial(*map(_as_scalar, precise))
        # The partial derivative of a traced Python number may have a wider dtype than ``ct``.
        if like is None:
            return ct if ct.dtype is dtype else in_precision(ct, dtype)
        return fit(ct, like)

    return vjp


def _vjp_of_one_name(partial: Function, fixed: frozenset[int]) -> Function:
    # The usual case, without packing arguments into tuples: this runs for every operation.
    def vjp(ct: Any, like: Any, saved: Any) -> Any:
        dtype = ct.dtype
        if getattr(saved, "dtype", None) is not dtype:
            saved = in_precision(saved, dtype)
        try:
            if like is not None and _is_large(ct) and like[0] != ct.shape:
                return _summed_product(ct, partial, (saved,), like, False, fixed)
            if type(ct) is _array and ct.nbytes >= cotangent_product.least:
                ct = cotangent_product.host(ct, partial, (saved,), False, fixed)
            else:
                ct = ct * partial(saved)
        except ZeroDivisionError:
            ct = ct * partial(_as_scalar(saved))
        if like is None:  # as in `_vjp_of_several`
            return ct if ct.dtype is dtype else in_precision(ct, dtype)
        return fit(ct, like)

    return vjp


def _summed_product(
    ct: Any, partial: Function, saved: Any, like: Any, heavy: bool | str, fixed: frozenset[int]
) -> Any:
    """Compute the cotangent of a broadcast operand from that of a large result."""
    found = summed_product.host(ct, partial, saved, like[0], fixed)
    return fit(_product(ct, partial, saved, heavy, fixed) if found is None else found, like)


def _is_large(value: Any) -> bool:
    return type(value) is _array and value.nbytes >= summed_product.least


def _vjp_of_only_operand(partial: Function, heavy: bool | str, fixed: frozenset[int]) -> Function:
    # With one operand no other rule needs the cotangent, so its memory may be reused.
    def vjp(ct: Any, like: Any, saved: Any) -> Any:
        if type(ct) is _array and ct.nbytes >= only_cotangent_product.least and like is None:
            references = sys.getrefcount(ct)
            return only_cotangent_product.host(ct, references, partial, saved, heavy, fixed)
        try:
            ct = _product(ct, partial, (saved,), heavy, fixed) if heavy else ct * partial(saved)
        except ZeroDivisionError:
            ct = ct * partial(_as_scalar(saved))
        return ct if like is None else fit(ct, like)

    return vjp


def _as_scalar(value: Any) -> Any:
    """Convert a Python number to a NumPy scalar, whose division by zero gives inf or NaN."""
    if type(value) is complex:
        return np.complex128(value)
    return np.float64(value) if type(value) in (float, int) else value


def _identity_vjp(ct: Any, like: Any) -> Any:
    return ct if like is None else fit(ct, like)


def _negative_vjp(ct: Any, like: Any) -> Any:
    return -ct if like is None else fit(-ct, like)
