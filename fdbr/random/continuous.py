"""Distributions of floating numbers."""

import math
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer import holds, stop_gradient
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import limits
from fdbr.random.arguments import Shape, check_order, checked, drawing, give, parameter
from fdbr.random.keys import bits

__all__ = [
    "cauchy",
    "exponential",
    "gumbel",
    "laplace",
    "logistic",
    "normal",
    "open_unit",
    "truncated_normal",
    "uniform",
]


@public("fdbr.random")
@drawing
def uniform(
    key: Any, shape: Shape = (), dtype: Any = np.float64, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Uniform on [minval, maxval).

    The draws are differentiable with respect to the bounds.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.
    dtype
        A floating dtype: float64 has 53 random bits, float32 24.
    minval, maxval
        Numbers, or arrays that broadcast to ``shape``.

    Returns
    -------
    array
        ``minval + u * (maxval - minval)``, never rounded up to ``maxval``.

    Raises
    ------
    TypeError, ValueError
        If a bound does not broadcast, is not below the other, or lies too far from it.

    >>> import fdbr
    >>> fdbr.random.uniform(fdbr.random.key(0), (2,), "float32").dtype
    dtype('float32')
    """
    shape, dtype = checked("uniform", key, shape, dtype)
    words = bits(key, shape)
    low = parameter("uniform", "minval", minval, shape, dtype)
    high = parameter("uniform", "maxval", maxval, shape, dtype)
    plain_low, plain_high = stop_gradient(low), stop_gradient(high)
    most = float(limits(np, dtype).max)
    fits = (abs(plain_low) <= most) & (abs(plain_high) <= most)
    if not holds(fits & (plain_low < plain_high)):
        raise ValueError(
            f"fdbr.random.uniform: minval must lie below maxval everywhere, and both be numbers "
            f"that {dtype} holds, got {minval!r} and {maxval!r}"
        )
    digits = limits(np, dtype).nmant + 1
    unit = ops.astype(words >> (64 - digits), dtype) * 2.0**-digits
    if type(minval) is type(maxval) is float and (minval, maxval) == (0.0, 1.0):
        return give(unit, dtype)
    # The distance of the bounds may overflow; halves of them give the same digits.
    half = 0.5 * plain_high - 0.5 * plain_low
    if holds(half <= 0.5 * most):
        value = low + unit * (high - low)
    else:
        value = 2 * (0.5 * low + unit * (0.5 * high - 0.5 * low))
    last = ops.nextafter(_array_like(unit, plain_high), _array_like(unit, plain_low))
    return give(ops.where(value < high, value, last), dtype)


def _array_like(x: Any, value: Any) -> Any:
    """A parameter as an array: a number in the dtype of ``x``, where ``x`` lies."""
    return value if hasattr(value, "dtype") else ops.full_like(x, value)


@public("fdbr.random")
@drawing
def normal(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard normal, by inversion of the distribution function.

    Parameters
    ----------
    key, shape, dtype
        As for `uniform`.

    Returns
    -------
    array
        Of that shape and dtype; no draw is infinite.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.

    >>> import fdbr
    >>> fdbr.random.normal(fdbr.random.key(0), (2, 3)).shape
    (2, 3)
    """
    u, dtype = open_unit("normal", key, shape, dtype)
    return give(ops.special.ndtri(u), dtype)


@public("fdbr.random")
@drawing
def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: Any = np.float64
) -> Any:
    """Standard normal, given that it lies in [lower, upper].

    The draws are differentiable with respect to the bounds.

    Parameters
    ----------
    key, dtype
        As for `uniform`.
    lower, upper
        Numbers, or arrays that broadcast to ``shape``; they may be infinite.
    shape
        The shape of the result; by default that to which the bounds broadcast.

    Returns
    -------
    array
        Of that shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If a bound does not broadcast, or is not below the other.

    >>> import fdbr
    >>> draws = fdbr.random.truncated_normal(fdbr.random.key(0), -2, 2, (100,))
    >>> bool((abs(draws) <= 2).all())
    True
    """
    if shape is None:
        shape = np.broadcast_shapes(getattr(lower, "shape", ()), getattr(upper, "shape", ()))
    u, dtype = open_unit("truncated_normal", key, shape, dtype)
    low = parameter("truncated_normal", "lower", lower, u.shape, u.dtype)
    high = parameter("truncated_normal", "upper", upper, u.shape, u.dtype)
    check_order("truncated_normal", "lower", stop_gradient(low), "upper", stop_gradient(high))
    low, high = _array_like(u, low), _array_like(u, high)
    # Above zero the distribution function has no digits left to tell tails apart: mirror.
    sign = ops.where(low > 0, -1.0, 1.0)
    one, other = sign * low, sign * high
    lower, upper = ops.where(low > 0, other, one), ops.where(low > 0, one, other)
    if holds(upper >= -_FAR):
        bottom, top = ops.special.ndtr(lower), ops.special.ndtr(upper)
        draws = ops.special.ndtri(bottom + u * (top - bottom))
    else:
        far = upper < -_FAR
        bottom, top = (
            ops.special.ndtr(ops.where(far, -1.0, lower)),
            ops.special.ndtr(ops.where(far, 1.0, upper)),
        )
        tail = _tail_draws(u, ops.where(far, -upper, _FAR), ops.where(far, -lower, math.inf))
        draws = ops.where(far, -tail, ops.special.ndtri(bottom + u * (top - bottom)))
    return give(ops.clip(sign * draws, low, high), dtype)


_FAR = 35.0  # from here on the distribution function underflows, or is about to


def _tail_draws(u: Any, low: Any, high: Any) -> Any:
    """Draws above a bound in the tail, and below another, by Newton's method.

    The logarithm of the survival function at ``low + d``, less its logarithm at ``low``, is
    ``-d * (low + d / 2)`` plus the logarithm of a ratio of scaled error functions.
    """
    root = math.sqrt(0.5)
    scaled = ops.special.erfcx(root * low)

    def log_survival(d: Any) -> Any:
        return ops.log(ops.special.erfcx(root * (low + d)) / scaled) - d * (low + 0.5 * d)

    # Beyond this distance nothing is left, and the bound may be infinite.
    is_near = (high - low) * low < 750.0
    rest = ops.exp(log_survival(ops.where(is_near, high - low, 1.0)))
    rest = ops.where(is_near, rest, 0.0)
    wanted = ops.log(rest + u * (1 - rest))
    d = -2 * wanted / (low + ops.hypot(low, ops.sqrt(-2 * wanted)))
    for _ in range(3):  # the first value is within 1e-3
        hazard = math.sqrt(2 / math.pi) / ops.special.erfcx(root * (low + d))
        d = d + (log_survival(d) - wanted) / hazard
    return low + d


@public("fdbr.random")
@drawing
def exponential(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Exponential of rate one: ``-log(u)``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> bool((fdbr.random.exponential(fdbr.random.key(0), (9,)) > 0).all())
    True
    """
    u, dtype = open_unit("exponential", key, shape, dtype)
    return give(-ops.log(u), dtype)


@public("fdbr.random")
@drawing
def gumbel(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Gumbel: ``-log(-log(u))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.gumbel(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = open_unit("gumbel", key, shape, dtype)
    return give(-ops.log(-ops.log(u)), dtype)


@public("fdbr.random")
@drawing
def laplace(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Laplace, density ``exp(-|x|) / 2``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.laplace(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = open_unit("laplace", key, shape, dtype)
    centred = u - 0.5
    return give(-ops.sign(centred) * ops.log1p(-2 * ops.abs(centred)), dtype)


@public("fdbr.random")
@drawing
def logistic(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard logistic: ``log(u / (1 - u))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.logistic(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = open_unit("logistic", key, shape, dtype)
    return give(ops.log(u) - ops.log1p(-u), dtype)


@public("fdbr.random")
@drawing
def cauchy(key: Any, shape: Shape = (), dtype: Any = np.float64) -> Any:
    """Standard Cauchy: ``tan(pi * (u - 1/2))``.  Arguments and errors as for `normal`.

    >>> import fdbr
    >>> fdbr.random.cauchy(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    u, dtype = open_unit("cauchy", key, shape, dtype)
    return give(ops.tan(math.pi * (u - 0.5)), dtype)


def open_unit(function: str, key: Any, shape: Shape, dtype: Any) -> tuple[Any, np.dtype[Any]]:
    """Draws from the open interval (0, 1), symmetric about 1/2, always in float64."""
    shape, dtype = checked(function, key, shape, dtype)
    words = bits(key, shape)
    return (ops.astype(words >> 12, np.float64) + 0.5) * 2.0**-52, dtype
