"""Rules for identity elements, powers, and idempotent functions."""

import math
from typing import Any

import numpy as np

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Variable, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, Same, applied, between, rule

_MOST = 8  # the highest power that is expanded to products: its error stays below 4 ulps


def _is_complex(step: Instruction) -> bool:
    return step.outs[0].kind.dtype.kind == "c"


@rule(op.MULTIPLY)
def times_one(step: Instruction, facts: Facts) -> Found:
    """Simplify ``x * 1`` to ``x``; not for complex numbers, where infinity times 1 has a NaN."""
    x, y = step.operands
    if _is_complex(step):
        return None
    if facts.number(y) == 1:
        return Same(x)
    return Same(y) if facts.number(x) == 1 else None


@rule(op.SUBTRACT)
def minus_zero(step: Instruction, facts: Facts) -> Found:
    """Simplify ``x - 0`` to ``x``, unless the zero is negative."""
    x, y = step.operands
    return Same(x) if _is_zero(facts.number(y), 1.0) else None


def _is_zero(number: Any, sign: float) -> bool:
    """Return whether a number is the zero of a sign; integers have the positive one."""
    return number == 0 and math.copysign(1.0, number) == sign


@rule(op.DIVIDE)
def by_power_of_two(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x / 4`` as ``x * 0.25``: both round the same number, and a product is faster."""
    x, y = step.operands
    kind, divisor = step.outs[0].kind, facts.number(y)
    if divisor is None or type(y) is Variable or kind.dtype.kind != "f" or kind != kind_of(x):
        return None
    fraction, exponent = math.frexp(divisor)
    if abs(fraction) != 0.5 or abs(exponent) > np.finfo(kind.dtype).maxexp - 2:
        return None
    if type(y) in (int, float):
        return applied(step, op.MULTIPLY, x, 1 / divisor)
    inverse = np.divide(1, y)
    return applied(step, op.MULTIPLY, x, inverse) if inverse.dtype == kind_of(y).dtype else None


@rule(op.POSITIVE)
def plain(step: Instruction, facts: Facts) -> Found:
    """Simplify ``+x`` to ``x``: arrays in programs are not mutated, so no copy is needed."""
    return Same(step.operands[0])


# --- powers -------------------------------------------------------------------------


@rule(op.MULTIPLY)
def times_itself(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x * x`` as a square, which reads one array."""
    x, y = step.operands
    if x is not y or kind_of(x).is_number or kind_of(x).dtype.kind not in "iuf":
        return None  # `square` is not defined for booleans
    return applied(step, op.SQUARE, x)


@rule(op.POWER)
def to_constant_power(step: Instruction, facts: Facts) -> Found:
    """Rewrite constant powers such as ``x ** 2.0`` as products, which take 1 % of the time."""
    x, y = step.operands
    exponent = facts.number(y)
    return _product(step, x, exponent) if step.outs[0].kind.dtype.kind == "f" else None


@rule(op.INTEGER_POWER)
def to_integer_power(step: Instruction, facts: Facts) -> Found:
    """Rewrite ``x ** 3`` as ``square(x) * x``."""
    return _product(step, step.operands[0], step.params["exponent"])


def _product(step: Instruction, x: Any, exponent: Any) -> Found:
    kind = step.outs[0].kind
    if kind != kind_of(x) or kind.is_number or kind.dtype.kind not in "iuf":
        return None  # Python's integers are unbounded
    if exponent == -1 and kind.dtype.kind == "f":
        return applied(step, op.RECIPROCAL, x)
    if exponent not in range(1, _MOST + 1):
        return None
    if exponent == 1:
        return Same(x)
    made: list[Instruction] = []
    known = x
    for bit in f"{int(exponent):b}"[1:]:
        known, square = between(step, kind, op.SQUARE, known)
        made.append(square)
        if bit == "1":
            known, product = between(step, kind, op.MULTIPLY, known, x)
            made.append(product)
    last = made.pop()
    return [*made, applied(step, last.primitive, *last.operands)]


# --- idempotent functions -----------------------------------------------------------


@rule(op.MAXIMUM, op.MINIMUM)
def of_itself(step: Instruction, facts: Facts) -> Found:
    """Simplify ``maximum(x, x)`` to ``x``."""
    x, y = step.operands
    return Same(x) if x is y else None


@rule(op.RELU, op.REAL_ABS, op.FLOOR, op.CEIL, op.TRUNC, op.ROUND)
def again(step: Instruction, facts: Facts) -> Found:
    """Simplify idempotent functions: ``f(f(x)) = f(x)``."""
    (x,) = step.operands
    return Same(x) if facts.made_by(x, step.primitive) else None


@rule(op.ASTYPE_INEXACT, op.ASTYPE_EXACT)
def to_its_dtype(step: Instruction, facts: Facts) -> Found:
    """Drop conversions to the same dtype, and to a wider one and back."""
    (x,) = step.operands
    kind = step.outs[0].kind
    if kind_of(x) == kind:
        return Same(x)
    maker = facts.made_by(x, op.ASTYPE_INEXACT, op.ASTYPE_EXACT)
    if maker is None:
        return None
    first = maker.operands[0]
    return Same(first) if np.can_cast(kind_of(first).dtype, kind_of(x).dtype, "safe") else None
