"""Exponentials, logarithms and powers of nodes, under NumPy's and SciPy's names.

Errors are below 2 units in the last place (`exp`, `log`) or 3 (the others); of which formula and
whose coefficients, each says.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.arithmetic import (
    absolute,
    equal,
    floating,
    floor,
    fma,
    full_like,
    maximum,
    multiply,
    result_type,
    sqrt,
    subtract,
    where,
)
from fdbr.backends.cpu.codegen.math.formulas import (
    bits_of,
    both,
    from_bits,
    held,
    in_double,
    integers,
    polynomial,
)
from fdbr.backends.cpu.codegen.math.remainders import copysign
from fdbr.core.expr import FLOATS, InexpressibleError, Node

__all__ = [
    *("entr", "exp", "exp2", "expit", "expm1", "log", "log10", "log1p", "log2", "logaddexp"),
    *("logaddexp2", "logit", "power", "tanh", "xlog1py", "xlogy"),
]

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_SQRT_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))  # its bits
_MOST = 9  # the highest power that is multiplied out
_FAR = 200.0  # the exponent of a power of 2 that is no single number, nor is its reciprocal

# By dtype: what lies beyond overflow and underflow, the number that rounds what is added to it,
# the bits of the exponent, the logarithm of 2 in two parts, and the polynomial of
# (exp(r) - 1 - r) / r**2: Cephes' expf; Taylor's.
_EXP: Any = {
    np.dtype(np.float32): (
        *(89.0, -104.0, 1.5 * 2**23, 23, 127, (0.693359375, -2.12194440e-4)),
        (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 0.16666666, 0.5),
    ),
    np.dtype(np.float64): (
        *(710.0, -746.0, 1.5 * 2**52, 52, 1023, (6.93147180369123816e-1, 1.90821492927058770e-10)),
        tuple(1 / math.factorial(k) for k in range(13, 1, -1)),
    ),
}


def _power_of_two(k: Node, dtype: Any) -> Node:
    *_, shift, bias, _, _ = _EXP[dtype]
    return from_bits(integers("shl", integers("iadd", k, bias), shift), dtype)


def _reduced(x: Node) -> tuple[Node, Node, Node]:
    """``n`` as an integer, ``r`` and ``(exp(r) - 1 - r)``, where ``x`` is ``n * log(2) + r``."""
    magic, (high, low), coefficients = (_EXP[x.dtype][i] for i in (2, 5, 6))
    moved = fma(x, 1 / math.log(2), magic)
    n = moved - magic
    r = fma(n, -low, fma(n, -high, x))
    k = integers("isub", bits_of(moved), _magic_bits(x.dtype))
    return k, r, polynomial(r, coefficients) * (r * r)


def _magic_bits(dtype: Any) -> int:
    return int(dtype.type(_EXP[dtype][2]).view(FLOATS[dtype]))


def exp2(x: Node) -> Node:
    """As `exp`, where nothing has to be taken apart."""
    magic, shift, bias, _, coefficients = _EXP[floating(x).dtype][2:]
    x = held(x, -float(bias + shift + 2), float(bias + 1))
    moved = x + magic
    r = (x - (moved - magic)) * math.log(2)
    k = integers("isub", bits_of(moved), _magic_bits(x.dtype))
    return _scaled((polynomial(r, coefficients) * (r * r) + r) + 1, k)


def _scaled(x: Node, k: Node) -> Node:
    """``x * 2**k``, in two steps, for the power itself may not be a number."""
    half = integers("ashr", k, 1)
    rest = integers("isub", k, half)
    return x * _power_of_two(half, x.dtype) * _power_of_two(rest, x.dtype)


def exp(x: Node) -> Node:
    """Cody and Waite's reduction and a polynomial."""
    most, least = _EXP[floating(x).dtype][:2]
    x = held(x, least, most)
    k, r, rest = _reduced(x)
    return _scaled((rest + r) + 1, k)


def expm1(x: Node) -> Node:
    """As `exp`, where the power of 2 is taken apart so that nothing cancels."""
    most, _ = _EXP[floating(x).dtype][:2]
    shift = _EXP[x.dtype][3]
    y = held(x, -(shift + 3) * math.log(2), most)
    k, r, rest = _reduced(y)
    # 2**k * (r + rest) + (2**k - 1); at the upper end 2**k itself would be infinite.
    half = _power_of_two(integers("isub", k, 1), x.dtype)
    value = 2 * (half * rest + (half * r + (half - 0.5)))
    # Of tiny numbers the half would lose the last digit, and of zero the sign.
    return where(absolute(x) < 2.0 ** -(shift + 2), x, value)


def fourth_of_expm1(x: Node) -> Node:
    """``(exp(x) - 1) / 4`` of what is not negative, up to a little beyond where `exp` overflows."""
    k, r, rest = _reduced(held(x, 0.0, _EXP[floating(x).dtype][0] + 0.6))
    power = _power_of_two(integers("isub", k, 2), x.dtype)
    return power * rest + (power * r + (power - 0.25))


# The polynomial of log(1 + r): Cephes' logf, by r - r**2/2 + r**3 * p(r).
_LOG_SINGLE = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
# FreeBSD's, in (m - 1) / (m + 1).
_LOG_DOUBLE = (
    *(1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01),
    *(2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01),
    6.666666666666735130e-01,
)


def log(x: Node) -> Node:
    """Reduction to [sqrt(1/2), sqrt(2)] and a polynomial."""
    e, r = _taken_apart(x)
    high, low = _EXP[x.dtype][5]
    s = r * r
    if x.dtype == _SINGLE:
        out = fma(e, low, r * s * polynomial(r, _LOG_SINGLE))
        out = fma(e, high, fma(s, -0.5, out) + r)
    else:
        half = 0.5 * s
        out = fma(e, high, r - (half - (_log_rest(r, half) + e * low)))
    return _of_positive(x, out)


def log2(x: Node) -> Node:
    """As `log`, with the exponent as it is: powers of 2 are exact."""
    e, r = _taken_apart(x)
    return _of_positive(x, fma(_log_of_rest(r), 1 / math.log(2), e))


_LOG10_2 = 0.3010299956639812, -2.8037281277851704e-18


def log10(x: Node) -> Node:
    e, r = _taken_apart(x)
    rest = fma(_log_of_rest(r), 1 / math.log(10), e * _LOG10_2[1])
    return _of_positive(x, fma(e, _LOG10_2[0], rest))


def _taken_apart(x: Node) -> tuple[Node, Node]:
    """An exponent of 2, and the factor beside it less 1."""
    _, _, _, shift, _, _, _ = _EXP[floating(x).dtype]
    tiny = x < float(np.finfo(x.dtype).smallest_normal)
    y = where(tiny, x * 2.0**shift, x)
    # The exponent of y / sqrt(1/2), and y over that power of 2.
    start = int(x.dtype.type(math.sqrt(0.5)).view(FLOATS[x.dtype]))
    bits = integers("isub", bits_of(y), start)
    k = integers("ashr", bits, shift)
    rest = integers("iand", bits, (1 << shift) - 1)
    r = from_bits(integers("iadd", rest, start), x.dtype) - 1
    return k.graph.node("number", x.dtype, (k,)) - where(tiny, full_like(x, shift), 0), r


def _log_rest(r: Node, half: Node) -> Node:
    """``log(1 + r) - r + r**2 / 2``, of which ``half`` is the last."""
    t = r / (2 + r)
    z = t * t
    return t * (half + z * polynomial(z, _LOG_DOUBLE))


def _log_of_rest(r: Node) -> Node:
    """``log(1 + r)``."""
    half = 0.5 * (r * r)
    if r.dtype == _SINGLE:
        return fma(r * r * r, polynomial(r, _LOG_SINGLE), r - half)
    return r - (half - _log_rest(r, half))


def _of_positive(x: Node, out: Node) -> Node:
    """A logarithm of ``x``, where it has none, too."""
    out = where(x > 0, out, where(x == 0, full_like(x, -math.inf), math.nan))
    return where(x == math.inf, x, out)


def log1p(x: Node) -> Node:
    """``log(u)`` for ``u = 1 + x``, times what the rounding of ``u`` took (Kahan)."""
    u = 1 + x
    d = u - 1
    found = log(u) * (x / where(d == 0, 1, d))
    return where((d == 0) | (u == math.inf), x, found)


# Cephes' tanhf near 0; the rational function of its tanh.
_TANH = -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1
_TANH_ABOVE = -9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3
_TANH_BELOW = (
    *(1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3),
)


def tanh(x: Node) -> Node:
    """A polynomial or rational function near 0, and by `exp` elsewhere."""
    a = absolute(x)
    e = exp(-2 * a)
    s = x * x
    if x.dtype == _SINGLE:
        near = fma(a * s, polynomial(s, _TANH), a)
    else:
        near = fma(a * s, polynomial(s, _TANH_ABOVE) / polynomial(s, _TANH_BELOW), a)
    return copysign(where(a < 0.625, near, (1 - e) / (1 + e)), x)


def logaddexp(x: Any, y: Any) -> Node:
    return _sum_of_powers(x, y, exp, 1.0)


def logaddexp2(x: Any, y: Any) -> Node:
    return _sum_of_powers(x, y, exp2, 1 / math.log(2))


def _sum_of_powers(x: Any, y: Any, power: Any, unit: float) -> Node:
    """The logarithm of a sum of two powers, by the larger one; ``unit`` is that of e."""
    larger, rest = maximum(x, y), log1p(power(-absolute(subtract(x, y))))
    found = larger + (rest if unit == 1 else rest * unit)
    return where(equal(x, y), larger + math.log(2) * unit, found)  # two infinities among them


def expit(x: Node) -> Node:
    """By the exponential that does not overflow, so that the result is not 0 before it must be."""
    e = exp(-absolute(x))
    share = 1 / (1 + e)
    return where(x < 0, e * share, share)


@in_double
def logit(x: Node) -> Node:
    """``log(x / (1 - x))``: in double precision nothing is lost near 1/2."""
    return log(x / (1 - x))


# --- powers, and products with logarithms


def power(x: Node, y: Any) -> Node:
    """By products where the exponent is a small integer, or half of one; else by `exp`."""
    if not isinstance(y, Node):
        if float(y).is_integer() and 0 < abs(y) <= _MOST:
            return x ** int(y)
        if (y - 0.5).is_integer() and 0 < abs(y) <= _MOST:
            return _half_power(x, y)
    return _power(x, y)


def _half_power(x: Node, y: float) -> Node:
    if x.single and x.dtype == _SINGLE:  # rounded once
        return _half_power(x.astype(_DOUBLE), y).astype(_SINGLE)
    x = where((x == 0) | (x == -math.inf), absolute(x), x)  # as the C library has it
    root, whole = sqrt(x), int(abs(y) - 0.5)
    product = root * x**whole if whole else root
    return product if y > 0 else 1 / product


@in_double
def _power(x: Any, y: Any) -> Node:
    """By logarithms to base 2: of single numbers all are normal in double precision."""
    base, exponent = both(x, y)
    size, half = absolute(base), 0.5 * exponent
    whole, even = exponent == floor(exponent), half == floor(half)
    out = _short_exp2(exponent * _short_log2(size))
    out = where((exponent == 0) | ((size == 1) & (exponent == exponent)), 1, out)
    negative = copysign(full_like(base, 1), base) < 0
    out = where(negative & whole & ~even, -out, out)
    out = where((base < 0) & ~whole & (size < math.inf), math.nan, out)
    return where(base == 1, 1, out)


# Of log((1 + t) / (1 - t)), and of exp: as many terms as single numbers need.
_SHORT_LOG = tuple(2 / (k * math.log(2)) for k in range(13, 0, -2))
_SHORT_EXP = tuple(1 / math.factorial(k) for k in range(8, -1, -1))


def _short_log2(x: Node) -> Node:
    """The logarithm of what is not negative, to 38 bits."""
    shift = _EXP[_DOUBLE][3]
    bits = integers("isub", bits_of(x), _SQRT_HALF)
    k = integers("ashr", bits, shift)
    r = from_bits(integers("iadd", integers("iand", bits, (1 << shift) - 1), _SQRT_HALF), _DOUBLE)
    t = (r - 1) / (r + 1)
    found = fma(t, polynomial(t * t, _SHORT_LOG), k.graph.node("number", _DOUBLE, (k,)))
    return where(x == 0, -math.inf, where(x < math.inf, found, x))


def _short_exp2(x: Node) -> Node:
    """The power of 2, to 32 bits, as far as single numbers go and beyond."""
    x = held(x, -_FAR, _FAR)
    moved = x + _EXP[_DOUBLE][2]
    k = integers("isub", bits_of(moved), _magic_bits(_DOUBLE))
    r = (x - (moved - _EXP[_DOUBLE][2])) * math.log(2)
    return polynomial(r, _SHORT_EXP) * _power_of_two(k, _DOUBLE)


def entr(x: Node) -> Node:
    return where(x > 0, -x * log(x), where(x < 0, -math.inf, where(x == 0, 0, x)))


def xlogy(x: Any, y: Any) -> Node:
    return _share(x, y, log)


def xlog1py(x: Any, y: Any) -> Node:
    return _share(x, y, log1p)


def _share(x: Any, y: Any, logarithm: Callable[[Node], Node]) -> Node:
    """``x`` times a logarithm: 0 where ``x`` is, but for NaN."""
    if not isinstance(y, Node):
        raise InexpressibleError("a logarithm of a number")
    y = y.astype(result_type(x, y))  # as SciPy takes both, before the logarithm is rounded
    return where(equal(x, full_like(y, 0)) & (y == y), 0, multiply(x, logarithm(y)))
