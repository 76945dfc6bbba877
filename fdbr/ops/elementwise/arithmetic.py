"""Arithmetic, element by element: sums, products, powers, remainders, rounding, clipping."""

import math
import operator
from builtins import abs as abs_
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, dtype_of, elementwise, opaque
from fdbr.ops.dtypes import as_weak, astype, is_complex, is_number, result_type
from fdbr.ops.elementwise.comparison import bitwise_or, greater, less, not_equal, where
from fdbr.ops.elementwise.exponential import log
from fdbr.ops.shape.creation import zeros_like
from fdbr.pytrees.dtypes import is_added
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "abs",
    "add",
    "ceil",
    "clip",
    "copysign",
    "divide",
    "floor",
    "floor_divide",
    "fmod",
    "hypot",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "positive",
    "pow",
    "power",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "sqrt",
    "square",
    "subtract",
    "trunc",
]

HIGHEST_PRODUCT = 6  # the highest power computed by multiplications: its error stays below 4 ulps


@elementwise(x=1, y=1, exact=operator.add)
def add(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The sum ``x + y``, element by element, with NumPy's broadcasting and promotion.

    >>> from fdbr import ops
    >>> ops.add(1.0, 2.0)
    3.0
    """
    return xp.add(x, y)


@elementwise(x=1, y=-1, exact=operator.sub)
def subtract(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The difference ``x - y``, element by element.

    >>> from fdbr import ops
    >>> ops.subtract(3.0, 2.0)
    1.0
    """
    return xp.subtract(x, y)


@elementwise(x=lambda y: y, y=lambda x: x, exact=operator.mul)
def multiply(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The product ``x * y``, element by element.

    >>> import fdbr
    >>> from fdbr import ops
    >>> fdbr.grad(ops.multiply, argnums=(0, 1))(3.0, 2.0)
    (np.float64(2.0), np.float64(3.0))
    """
    return xp.multiply(x, y)


@elementwise(
    x=lambda y: 1 / y if hasattr(y, "shape") or y else math.inf,  # Python's 1 / 0 is an error
    y=lambda out, y: -out / y,
    exact=operator.truediv,
)
def divide(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The quotient ``x / y``, element by element; of integers it is floating.

    >>> from fdbr import ops
    >>> ops.divide(1.0, 4.0)
    0.25
    """
    return xp.divide(x, y)


@elementwise(x=-1, exact=operator.neg)
def negative(xp: Any, x: ArrayLike) -> Array:
    """The negation ``-x``.

    >>> from fdbr import ops
    >>> ops.negative(2.0)
    -2.0
    """
    return xp.negative(x)


@elementwise(x=1, exact=operator.pos)
def positive(xp: Any, x: ArrayLike) -> Array:
    """A copy of ``x``.

    >>> from fdbr import ops
    >>> ops.positive(2.0)
    2.0
    """
    return xp.positive(x)


@elementwise(x=lambda x: x + x, exact=lambda x: x * x)
def square(xp: Any, x: ArrayLike) -> Array:
    """The square ``x * x``.

    >>> from fdbr import ops
    >>> ops.square(3.0)
    9.0
    """
    return xp.square(x)


@elementwise(x=lambda out: -out * out)
def reciprocal(xp: Any, x: ArrayLike) -> Array:
    """The reciprocal ``1 / x`` of floating numbers.

    >>> from fdbr import ops
    >>> ops.reciprocal(4.0)
    0.25
    """
    return xp.reciprocal(x)


def _negative_power_derivative(t: Any, x: Any, exponent: float) -> Any:
    factor = exponent * power_or_zero(x, exponent=exponent - 1)
    return t * factor * where(x == 0, math.nan, 1)


# A factor of first derivatives that are taken as 0 at 0.  Its own derivative there is NaN, so that
# a second derivative is not 0 by the same convention.
@opaque(
    x=(_negative_power_derivative, _negative_power_derivative),
    batch=aligned,
    elementwise=True,
    compound=True,
)
def power_or_zero(xp: Any, x: Any, *, exponent: float) -> Any:
    """``x ** exponent``, and 0 where ``x`` is 0."""
    is_zero = x == 0
    base = xp.where(is_zero, 1, x)
    if exponent == -1:
        return xp.where(is_zero, 0, 1 / base)[()]
    power = 1 / xp.sqrt(base) if exponent == -0.5 else base**exponent
    return xp.where(is_zero, 0, power)[()]


@elementwise(x=lambda x, exponent: exponent * power_or_zero(x, exponent=exponent - 1), heavy=True)
def root_or_zero(xp: Any, x: Any, *, exponent: float) -> Any:
    """The power of a sum of powers, and 0 where ``x`` is 0, with 0 as the derivative there."""
    is_zero = x == 0
    base = xp.where(is_zero, 1, x)
    return xp.where(is_zero, 0, xp.sqrt(base) if exponent == 0.5 else base**exponent)[()]


@elementwise(x=lambda out: 0.5 / out)
def sqrt(xp: Any, x: ArrayLike) -> Array:
    """The square root.

    >>> from fdbr import ops
    >>> ops.sqrt(9.0)
    3.0
    """
    return xp.sqrt(x)


@elementwise(
    x=lambda x, y: _power_by_base(x, y),
    y=lambda x, out: _power_by_exponent(x, out),
    heavy=True,
    exact=operator.pow,
    cost=20,
)
def _power(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    return xp.power(x, y)


@elementwise(
    x=lambda x, exponent: exponent * power(x, exponent - 1) if exponent else zeros_like(x),
    heavy="backward",
    exact=lambda x, exponent: x**exponent,
)
def _integer_power(xp: Any, x: Any, *, exponent: int) -> Any:
    return x**exponent


@elementwise(x=lambda x, exponent: exponent * power(x, exponent - 1), heavy="backward")
def _half_integer_power(xp: Any, x: ArrayLike, *, exponent: float) -> Array:
    return xp.power(x, exponent)


@public("fdbr.ops", "pow")
def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The power ``x ** y``, element by element.

    A Python integer as exponent accepts every base, negative numbers and zero included.
    The derivative in the exponent is ``x**y * log(x)``, and 0 where ``x`` is 0.

    >>> import fdbr
    >>> from fdbr import ops
    >>> fdbr.grad(ops.power)(-3.0, 2)
    np.float64(-6.0)
    """
    if type(y) is int:
        return square(x) if y == 2 else positive(x) if y == 1 else _integer_power(x, exponent=y)
    if type(y) is float and getattr(getattr(x, "dtype", None), "kind", "") == "f":
        if y == 0.5:
            return sqrt(x)
        if y.is_integer() and abs_(y) <= HIGHEST_PRODUCT:
            return power(x, int(y))
        if (y - 0.5).is_integer() and abs_(y) <= HIGHEST_PRODUCT + 0.5:
            return _half_integer_power(x, exponent=y)
    return _power(x, y)


pow = power


def _power_by_base(x: Any, y: Any) -> Any:
    if hasattr(y, "shape") or not y:
        x = where((x == 0) & (y == 0), 1, x)  # instead of 0 * inf, the derivative is 0
    return y * _power(x, y - 1)


def _power_by_exponent(x: Any, out: Any) -> Any:
    if not hasattr(x, "shape"):
        return out * log(x) if x else 0 * out
    nonzero = x != 0
    return where(nonzero, out * log(where(nonzero, x, 1 + x)), 0 * out)


def _direction_derivative(t: Any, x: Any) -> Any:
    return t * where(x == 0, math.nan, 0)


# The derivative of `abs`.  As that is taken as 0 at 0, its own derivative there is NaN.
@opaque(x=(_direction_derivative, _direction_derivative), batch=aligned, elementwise=True)
def _direction(xp: Any, x: ArrayLike) -> Array:
    return xp.sign(x)


@elementwise(x=lambda x: _direction(x), exact=operator.abs)
def _real_abs(xp: Any, x: ArrayLike) -> Array:
    return xp.abs(x)


@opaque(
    x=(lambda ct, x: ct * sign(x).conj(), lambda t, x: (t * sign(x).conj()).real),
    batch=aligned,
    exact=operator.abs,
)
def _complex_abs(xp: Any, x: ArrayLike) -> Array:
    return xp.abs(x)


@public("fdbr.ops")
def abs(x: ArrayLike, /) -> Array:
    """The absolute value; its derivative at 0 is taken as 0, and its second derivative is NaN.

    >>> import fdbr
    >>> from fdbr import ops
    >>> fdbr.grad(ops.abs)(-2.0)
    np.float64(-1.0)
    """
    return (_complex_abs if is_complex(x) else _real_abs)(x)


@elementwise(x=lambda x, y: _share(x > y, x == y, x, y), y=lambda x, y: _share(y > x, x == y, x, y))
def maximum(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The larger of ``x`` and ``y``; where they are equal, each has half the derivative.

    >>> from fdbr import ops
    >>> ops.maximum(1.0, 2.0)
    2.0
    """
    return xp.maximum(x, y)


@elementwise(x=lambda x, y: _share(x < y, x == y, x, y), y=lambda x, y: _share(y < x, x == y, x, y))
def minimum(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The smaller of ``x`` and ``y``; where they are equal, each has half the derivative.

    >>> from fdbr import ops
    >>> ops.minimum(1.0, 2.0)
    1.0
    """
    return xp.minimum(x, y)


def _share(won: Any, tied: Any, x: Any, y: Any) -> Any:
    dtype = result_type(x, y)
    return astype(won, dtype) + astype(tied, dtype) / 2


@elementwise(x=1, y=lambda x, y: -floor_divide(x, y), heavy=True, exact=operator.mod)
def remainder(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The remainder of ``x / y`` with the sign of ``y``, as Python's ``%``.

    >>> from fdbr import ops
    >>> ops.remainder(-7.0, 3.0)
    2.0
    """
    return xp.remainder(x, y)


@elementwise(x=1, y=lambda x, y: -trunc(x / y), heavy=True)
def fmod(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The remainder of ``x / y`` with the sign of ``x``, as in C; see `remainder`.

    >>> from fdbr import ops
    >>> ops.fmod(-7.0, 3.0)
    -1.0
    """
    return xp.fmod(x, y)


@elementwise(
    x=lambda x, out: x * power_or_zero(out, exponent=-1),
    y=lambda y, out: y * power_or_zero(out, exponent=-1),
    heavy=True,
)
def hypot(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The length ``sqrt(x*x + y*y)``, without overflow.

    Its derivative at 0 is taken as 0; second derivatives are NaN there.

    >>> from fdbr import ops
    >>> ops.hypot(3.0, 4.0)
    5.0
    """
    return xp.hypot(x, y)


@elementwise(x=lambda x, out: _real_sign(x) * _real_sign(out), y=None)
def copysign(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The magnitude of ``x`` with the sign of ``y``.

    >>> from fdbr import ops
    >>> ops.copysign(3.0, -1.0)
    -3.0
    """
    return xp.copysign(x, y)


@elementwise(x=1, y=None)
def nextafter(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The floating number next to ``x`` towards ``y``.

    >>> from fdbr import ops
    >>> ops.nextafter(1.0, 2.0) - 1.0
    2.220446049250313e-16
    """
    return xp.nextafter(x, y)


@elementwise(x=None)
def _real_sign(xp: Any, x: ArrayLike) -> Array:
    return xp.sign(x)


def _perpendicular(t: Any, x: Any, direction: Any) -> Any:
    """The part of ``t`` perpendicular to ``x``, divided by ``abs(x)``; 0 at infinity, NaN at 0."""
    length = _complex_abs(x)
    near = (length != 0) & (length != math.inf)
    out = where(near, t - direction * (direction.conj() * t).real, 0) / where(near, length, 1)
    return out + t * where(length == 0, math.nan, 0)


@opaque(
    x=(
        lambda ct, x: _perpendicular(ct, x, sign(x).conj()),
        lambda t, x: _perpendicular(t, x, sign(x)),
    ),
    batch=aligned,
)
def _complex_sign(xp: Any, x: ArrayLike) -> Array:
    x = xp.asarray(x)
    length = xp.abs(x)
    near = (length > 0) & (length < math.inf)
    out = xp.empty_like(x)
    for part, of in ((out.real, x.real), (out.imag, x.imag)):
        far = xp.where(length > 0, xp.copysign(xp.isinf(of) * 1.0, of), length)
        part[...] = xp.where(near, of / xp.where(near, length, 1), far)
    both = xp.isinf(x.real) & xp.isinf(x.imag)
    return xp.where(both, xp.asarray(complex(math.nan, math.nan), x.dtype), out)


@public("fdbr.ops")
def sign(x: ArrayLike, /) -> Array:
    """The sign: -1, 0 or 1; of a complex number ``x / abs(x)``.

    Of real numbers its derivative is 0 wherever it exists; of complex numbers it is NaN at 0.

    >>> from fdbr import ops
    >>> ops.sign(-2.5)
    -1.0
    """
    return (_complex_sign if is_complex(x) else _real_sign)(x)


@elementwise(x=None)
def floor(xp: Any, x: ArrayLike) -> Array:
    """The largest integer not above ``x``, in ``x``'s dtype.

    Its derivative is 0 wherever it exists.

    >>> from fdbr import ops
    >>> ops.floor(-1.5)
    -2.0
    """
    return xp.floor(x)


@elementwise(x=None)
def ceil(xp: Any, x: ArrayLike) -> Array:
    """The smallest integer not below ``x``, in ``x``'s dtype.

    Its derivative is 0 wherever it exists.

    >>> from fdbr import ops
    >>> ops.ceil(-1.5)
    -1.0
    """
    return xp.ceil(x)


@elementwise(x=None)
def trunc(xp: Any, x: ArrayLike) -> Array:
    """The integer next to ``x`` towards zero, in ``x``'s dtype.

    Its derivative is 0 wherever it exists.

    >>> from fdbr import ops
    >>> ops.trunc(-1.5)
    -1.0
    """
    return xp.trunc(x)


@elementwise(x=None)
def round(xp: Any, x: ArrayLike) -> Array:
    """The nearest integer, halves to even, in ``x``'s dtype.

    Its derivative is 0 wherever it exists.

    >>> from fdbr import ops
    >>> ops.round(2.5)
    2.0
    """
    return xp.round(x)


@elementwise(x=None, y=None, heavy=True, exact=operator.floordiv)
def floor_divide(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """The quotient rounded down, as Python's ``//``; its derivative is 0 wherever it exists.

    >>> from fdbr import ops
    >>> ops.floor_divide(7.0, 2.0)
    3.0
    """
    return xp.floor_divide(x, y)


@elementwise(x=lambda x, out: x == out, heavy="backward")
def _clipped(xp: Any, x: ArrayLike, *, low: float, high: float) -> Array:
    return clipped(xp, x, low, high)


def clipped(xp: Any, x: Any, low: float, high: float) -> Any:
    """Compute the value of `clip`; a bound may be infinite."""
    return held(x, low, high)


@Routine
def held(x: Any, low: float, high: float) -> Any:
    xp = array_module(x)
    low, high = (as_weak(bound, x) for bound in (low, high))
    if low != -math.inf:
        x = xp.maximum(low, x)  # x where both are equal, so that zeros keep their sign
    return x if high == math.inf else xp.minimum(high, x)


def _is_plain_bound(bound: Any) -> bool:
    return bound is None or (type(bound) in (int, float) and bound == bound)


_SINGLE_AND_DOUBLE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


@public("fdbr.ops")
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """The elements limited to ``[min, max]``; `None` means no bound.

    Elements within the bounds, or equal to one, have derivative 1.  Elements replaced by a bound
    have derivative 0, and the bound has their cotangent.  A bound of NaN gives NaN.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.clip(np.array([-2.0, 0.5, 3.0]), 0.0, 1.0)
    array([0. , 0.5, 1. ])
    """
    # A traced Python number has a dtype, too.
    is_wide = dtype_of(x) in _SINGLE_AND_DOUBLE and (type(x) is np.ndarray or not is_number(x))
    if is_wide and _is_plain_bound(min) and _is_plain_bound(max):
        low, high = -math.inf if min is None else min, math.inf if max is None else max
        return _clipped(x, low=low, high=high)
    if min is max is None:
        return x
    if is_added(dtype_of(x)):  # bfloat16 and float8, which NumPy clips in float32
        x = astype(x, np.float32)
    if min is not None:
        x = where(_or_nan(less(x, min), min), min, x)
    if max is not None:
        x = where(_or_nan(greater(x, max), max), max, x)
    if is_wide and x.shape == () and all(b is None or is_number(b) for b in (min, max)):
        return x[()]  # a scalar, as by plain bounds
    return x


def _or_nan(beyond: Any, bound: Any) -> Any:
    """Whether elements are replaced by their bound: beyond it, or if it is NaN, as in NumPy."""
    return bitwise_or(beyond, not_equal(bound, bound))
