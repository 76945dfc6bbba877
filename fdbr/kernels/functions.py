"""The array module of kernels: functions of nodes under NumPy's names.

Polynomials stand in for the C library's functions, which a loop would call one by one.  Errors
are below 2 units in the last place (`exp`, `log`) or 3 (the others); of which formula and whose
coefficients, each says.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.kernels.expressions import FLOATS, InexpressibleError, Node, joined

__all__ = [
    *("ERF", "ERF_END", "TAIL", "TAIL_RATE", "abs", "absolute", "add"),
    *("asarray", "ceil", "copysign", "divide", "dtype", "equal", "erf"),
    *("erfc", "exp", "exp2", "expit", "hypot", "logit", "expm1", "floor", "fma", "full_like"),
    *("gaussian", "greater", "greater_equal", "isfinite", "isnan", "less", "less_equal"),
    *("log", "log1p", "logaddexp", "logical_and", "logical_not", "logical_or", "maximum"),
    *("minimum", "multiply", "ndtr", "negative", "not_equal", "ones_like", "positive"),
    *("reciprocal", "result_type", "round", "sign", "sqrt", "square", "subtract"),
    *("tanh", "trunc", "where", "zeros_like"),
]

dtype = np.dtype
_SINGLE = dtype(np.float32)

# --- arithmetic ---------------------------------------------------------------------


def add(x: Any, y: Any) -> Node:
    return joined("add", x, y)


def subtract(x: Any, y: Any) -> Node:
    return joined("sub", x, y)


def multiply(x: Any, y: Any) -> Node:
    return joined("mul", x, y)


def divide(x: Any, y: Any) -> Node:
    return joined("div", x, y)


def negative(x: Node) -> Node:
    return -x


def positive(x: Node) -> Node:
    return x


def absolute(x: Node) -> Node:
    return x.__abs__()


abs = absolute


def square(x: Node) -> Node:
    return x * x


def reciprocal(x: Node) -> Node:
    return 1 / x


def sqrt(x: Node) -> Node:
    return _only(x).graph.node("sqrt", x.dtype, (x,))


def maximum(x: Any, y: Any) -> Node:
    """The larger one; NaN if one is."""
    return joined("maximum", x, y)


def minimum(x: Any, y: Any) -> Node:
    """The smaller one; NaN if one is."""
    return joined("minimum", x, y)


def sign(x: Node) -> Node:
    return where(x > 0, 1, where(x < 0, -1, where(x == 0, full_like(x, 0), x)))


def asarray(x: Node) -> Node:
    return x


def result_type(*values: Any) -> Any:
    return np.result_type(*(v.dtype if isinstance(v, Node) else v for v in values))


def floor(x: Node) -> Node:
    return _only(x).graph.node("floor", x.dtype, (x,))


def ceil(x: Node) -> Node:
    return _only(x).graph.node("ceil", x.dtype, (x,))


def trunc(x: Node) -> Node:
    return _only(x).graph.node("trunc", x.dtype, (x,))


def round(x: Node) -> Node:
    """The nearest integer, halves to even."""
    return _only(x).graph.node("rint", x.dtype, (x,))


def fma(x: Any, y: Any, z: Any) -> Node:
    """``x * y + z``, rounded once."""
    return joined("fma", x, y, z)


# --- comparison and choice ----------------------------------------------------------


def equal(x: Any, y: Any) -> Node:
    return joined("eq", x, y)


def not_equal(x: Any, y: Any) -> Node:
    return joined("ne", x, y)


def less(x: Any, y: Any) -> Node:
    return joined("lt", x, y)


def less_equal(x: Any, y: Any) -> Node:
    return joined("le", x, y)


def greater(x: Any, y: Any) -> Node:
    return joined("gt", x, y)


def greater_equal(x: Any, y: Any) -> Node:
    return joined("ge", x, y)


def logical_and(x: Node, y: Node) -> Node:
    return x & y


def logical_or(x: Node, y: Node) -> Node:
    return x | y


def logical_not(x: Node) -> Node:
    return ~x


def isnan(x: Node) -> Node:
    return x != x


def isfinite(x: Node) -> Node:
    return x - x == 0


def where(condition: Node, x: Any, y: Any) -> Node:
    if condition.dtype != np.bool_:
        raise InexpressibleError("a choice by numbers")
    graph = condition.graph
    if not isinstance(x, Node) and not isinstance(y, Node):
        raise InexpressibleError("a choice of two numbers")
    dtype = np.result_type(*(v.dtype if hasattr(v, "dtype") else v for v in (x, y)))
    chosen = (v.astype(dtype) if isinstance(v, Node) else graph.constant(v, dtype) for v in (x, y))
    return graph.node("select", dtype, (condition, *chosen))


def full_like(x: Node, value: float, dtype: Any = None) -> Node:
    return x.graph.constant(value, np.dtype(dtype or x.dtype))


def zeros_like(x: Node, dtype: Any = None) -> Node:
    return full_like(x, 0, dtype)


def ones_like(x: Node, dtype: Any = None) -> Node:
    return full_like(x, 1, dtype)


# --- exponentials and logarithms ----------------------------------------------------


def _only(x: Node) -> Node:
    if x.dtype not in FLOATS:
        raise InexpressibleError("functions of integers")
    return x


def _polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """Horner's rule, from the highest power down."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = fma(total, x, coefficient)
    return total


def _bits(x: Node) -> Node:
    return x.graph.node("bits", FLOATS[x.dtype], (x,))


def _integers(op: str, x: Node, y: Any) -> Node:
    other = y if isinstance(y, Node) else x.graph.constant(y, x.dtype)
    return x.graph.node(op, x.dtype, (x, other))


def _float(bits: Node, dtype: Any) -> Node:
    return bits.graph.node("float", dtype, (bits,))


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
    return _float(_integers("shl", _integers("iadd", k, bias), shift), dtype)


def _reduced(x: Node) -> tuple[Node, Node, Node]:
    """``n`` as an integer, ``r`` and ``(exp(r) - 1 - r)``, where ``x`` is ``n * log(2) + r``."""
    magic, (high, low), coefficients = (_EXP[x.dtype][i] for i in (2, 5, 6))
    moved = fma(x, 1 / math.log(2), magic)
    n = moved - magic
    r = fma(n, -low, fma(n, -high, x))
    k = _integers("isub", _bits(moved), _magic_bits(x.dtype))
    return k, r, _polynomial(r, coefficients) * (r * r)


def _magic_bits(dtype: Any) -> int:
    return int(dtype.type(_EXP[dtype][2]).view(FLOATS[dtype]))


def exp2(x: Node) -> Node:
    """As `exp`, where nothing has to be taken apart."""
    magic, shift, bias, _, coefficients = _EXP[_only(x).dtype][2:]
    x = _held(x, -float(bias + shift + 2), float(bias + 1))
    moved = x + magic
    r = (x - (moved - magic)) * math.log(2)
    k = _integers("isub", _bits(moved), _magic_bits(x.dtype))
    return _scaled((_polynomial(r, coefficients) * (r * r) + r) + 1, k)


def _scaled(x: Node, k: Node) -> Node:
    """``x * 2**k``, in two steps, for the power itself may not be a number."""
    half = _integers("ashr", k, 1)
    rest = _integers("isub", k, half)
    return x * _power_of_two(half, x.dtype) * _power_of_two(rest, x.dtype)


def exp(x: Node) -> Node:
    """Cody and Waite's reduction and a polynomial."""
    most, least = _EXP[_only(x).dtype][:2]
    x = _held(x, least, most)
    k, r, rest = _reduced(x)
    return _scaled((rest + r) + 1, k)


def _held(x: Node, low: float, high: float) -> Node:
    """``x`` between bounds; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def expm1(x: Node) -> Node:
    """As `exp`, where the power of 2 is taken apart so that nothing cancels."""
    most, _ = _EXP[_only(x).dtype][:2]
    shift = _EXP[x.dtype][3]
    y = _held(x, -(shift + 3) * math.log(2), most)
    k, r, rest = _reduced(y)
    # 2**k * (r + rest) + (2**k - 1); at the upper end 2**k itself would be infinite.
    half = _power_of_two(_integers("isub", k, 1), x.dtype)
    value = 2 * (half * rest + (half * r + (half - 0.5)))
    return where(x == 0, x, value)


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
    single = _only(x).dtype == _SINGLE
    _, _, _, shift, _, (high, low), _ = _EXP[x.dtype]
    tiny = x < float(np.finfo(x.dtype).smallest_normal)
    y = where(tiny, x * 2.0**shift, x)
    # The exponent of y / sqrt(1/2), and y over that power of 2.
    start = int(x.dtype.type(math.sqrt(0.5)).view(FLOATS[x.dtype]))
    bits = _integers("isub", _bits(y), start)
    k = _integers("ashr", bits, shift)
    rest = _integers("iand", bits, (1 << shift) - 1)
    r = _float(_integers("iadd", rest, start), x.dtype) - 1
    e = k.graph.node("number", x.dtype, (k,)) - where(tiny, full_like(x, shift), 0)
    s = r * r
    if single:
        out = fma(e, low, r * s * _polynomial(r, _LOG_SINGLE))
        out = fma(e, high, fma(s, -0.5, out) + r)
    else:
        t = r / (2 + r)
        z = t * t
        half = 0.5 * s
        found = t * (half + z * _polynomial(z, _LOG_DOUBLE))
        out = fma(e, high, r - (half - (found + e * low)))
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
        near = fma(a * s, _polynomial(s, _TANH), a)
    else:
        near = fma(a * s, _polynomial(s, _TANH_ABOVE) / _polynomial(s, _TANH_BELOW), a)
    return copysign(where(a < 0.625, near, (1 - e) / (1 + e)), x)


def copysign(x: Node, y: Node) -> Node:
    """The magnitude of ``x`` with the sign of ``y``, of one dtype."""
    sign = -(1 << 8 * x.itemsize - 1)
    bits = _integers("iand", _bits(x), ~sign)
    return _float(_integers("ior", bits, _integers("iand", _bits(y), sign)), x.dtype)


def logaddexp(x: Any, y: Any) -> Node:
    larger = maximum(x, y)
    found = larger + log1p(exp(-absolute(subtract(x, y))))
    return where(equal(x, y), larger + math.log(2), found)  # two infinities among them


def expit(x: Node) -> Node:
    """By the exponential that does not overflow, so that the result is not 0 before it must be."""
    e = exp(-absolute(x))
    share = 1 / (1 + e)
    return where(x < 0, e * share, share)


def logit(x: Node) -> Node:
    """``log(x / (1 - x))``: in double precision nothing is lost near 1/2."""
    wide = _single(x).astype(np.float64)
    return log(wide / (1 - wide)).astype(np.float32)


def hypot(x: Any, y: Any) -> Node:
    """By the quotient of the smaller and the larger one, without overflow."""
    sides = [absolute(v) if isinstance(v, Node) else math.fabs(v) for v in (x, y)]
    larger = maximum(*sides)
    ratio = minimum(*sides) / where(larger == 0, 1, larger)
    out = larger * sqrt(1 + ratio * ratio)
    for side in sides:  # even beside NaN
        out = where(side == math.inf, math.inf, out) if isinstance(side, Node) else out
    return out


# --- the normal distribution --------------------------------------------------------

# erf(x) is tanh(x * p(x**2)), with a polynomial that was fitted here for the least error relative
# to erf(x), 7.1e-8; beyond the end both are 1 in float32.  Lowest power first.
ERF_END = 3.9
ERF = (
    *(1.1283792471902032, 0.10276986403744685, -0.00019528781492339086, -0.0006148387128120084),
    *(8.459685670874113e-05, -4.794678512366526e-06, 2.7584918896820987e-08, 5.421224429654585e-09),
)

# The upper tail of the normal distribution is half of exp(-t**2 / 2) r p(1 - 2 r), where r is
# 1 / (1 + 5 t / 8), with a polynomial that was fitted here to a relative error of 2.3e-8.
TAIL_RATE = 0.625
TAIL = (
    *(0.7883732323294013, -0.2816167464947942, -0.0543107338139023, 0.03210262182643515),
    *(0.01966350437194548, 0.000990091242604756, -0.00439103177936108, -0.002973455821879365),
    *(-0.0005331655296784558, 0.0009243901873996116, 0.0006914961107006461, -8.79587551463215e-05),
    -0.00015438210329895614,
)
_TAIL_END = 40.0  # where it is 0 in float32


def _single(x: Node) -> Node:
    if x.dtype != _SINGLE:
        raise InexpressibleError("what has no formula as exact in double precision")
    return x


def gaussian(x: Node, rate: float) -> Node:
    """``exp(-rate * x**2)`` with what the square loses."""
    t = _held(x, -_TAIL_END, _TAIL_END)
    s = t * t
    e = exp(-rate * s)
    return fma(-e, rate * fma(t, t, -s), e)


def _twice_upper(t: Node, bell: Node) -> Node:
    """Twice the upper tail at ``t``, where ``bell`` is ``exp(-t**2 / 2)``."""
    share = 1 / fma(t, TAIL_RATE, 1)
    return bell * share * _polynomial(fma(-2, share, 1), TAIL[::-1])


def erf(x: Node) -> Node:
    x = _held(_single(x), -ERF_END, ERF_END)
    return tanh(x * _polynomial(x * x, ERF[::-1]))


def erfc(x: Node) -> Node:
    t = absolute(_single(x))
    tail = _twice_upper(math.sqrt(2) * t, gaussian(t, 1.0))
    return where(x < 0, 2 - tail, tail)


def ndtr(x: Node) -> Node:
    t = absolute(_single(x))
    tail = 0.5 * _twice_upper(t, gaussian(t, 0.5))
    return where(x > 0, 1 - tail, tail)
