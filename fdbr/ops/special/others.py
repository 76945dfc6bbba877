"""Further functions of one number: the logistic function and its inverse, sinc, cube roots.

And Lambert's function with its relative, Wright's omega.
"""

import math
from typing import Any

import numpy as np

from fdbr.errors.public import public
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import astype, result_type
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.special.library import scipy_function, scipy_special
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["cbrt", "expit", "lambertw", "log_expit", "logit", "sinc", "softplus", "wrightomega"]

_NEAR = 1.0  # up to which sinc's derivatives are sums of powers
_TERMS = 12
_TINY, _LEAST = 2.0**-30, 2.0**-24  # whose sine is itself; the latter in dtypes of two bytes


@elementwise(x=lambda x: expit(x) * expit(-x), heavy=True)
def expit(xp: Any, x: ArrayLike) -> Array:
    """The logistic function ``1 / (1 + exp(-x))``, accurate where it is small.

    `sigmoid` is the same with less care, and faster.

    >>> from fdbr import ops
    >>> ops.expit(-700.0) > 0
    True
    """
    return scipy_special.on(xp)(xp, "expit", x)


@elementwise(x=lambda x: 1 / (x * (1 - x)), heavy=True)
def logit(xp: Any, x: ArrayLike) -> Array:
    """The inverse of `expit`: ``log(x / (1 - x))``.

    >>> from fdbr import ops
    >>> ops.logit(0.5)
    0.0
    """
    return scipy_special.on(xp)(xp, "logit", x)


@elementwise(x=lambda out: 1 / (3 * out * out), heavy=True)
def cbrt(xp: Any, x: ArrayLike) -> Array:
    """The real cube root.

    >>> from fdbr import ops
    >>> ops.cbrt(-8.0)
    -2.0
    """
    return xp.cbrt(x)


@elementwise(double=True, heavy=True, x=lambda x, order: math.pi * _sinc(x, order=order + 1))
def _sinc(xp: Any, x: ArrayLike, *, order: int) -> Array:
    """The derivative of some order of ``sin(t) / t`` at ``t = pi * x``.

    Where ``t`` is large by ``t f(n)(t) = sin(t + n pi / 2) - n f(n-1)(t)``, which near 0 would
    lose all digits; there by the power series.
    """
    x = xp.asarray(x)
    if x.dtype == np.float32:  # whose multiples of pi would be rounded too much
        return _sinc.primitive.on(xp)(xp, x.astype(np.float64), order=order).astype(x.dtype)
    t = math.pi * x
    if order == 0:
        t = xp.where(t == 0, _TINY if t.itemsize > 2 else _LEAST, t)
        return (_sine(xp, x, t, 0) / t)[()]
    reach = _NEAR + order
    near = abs(t) < reach
    far = xp.where(near, reach, t)
    out = _sine(xp, x, far, 0) / far
    for n in range(1, order + 1):
        out = (_sine(xp, x, far, n) - n * out) / far
    return xp.where(near, _sinc_series(xp.where(near, t, 0), order), out)[()]


def _sine(xp: Any, x: Any, t: Any, n: int) -> Any:
    """``sin(t + n * pi / 2)``; where ``t`` is ``pi * x``, kernels have it to the last digit."""
    if xp is not np and hasattr(xp, "sinpi"):  # NumPy's module takes long to say no
        found = xp.sinpi(x, n)
        return found if n else xp.where(x == 0, t, found)
    return xp.sin(t + n * (math.pi / 2)) if n else xp.sin(t)


def _sinc_series(t: Any, order: int) -> Any:
    """The sum of ``(-1)**k t**(2k - n) / ((2k - n)! (2k + 1))`` over ``2k >= n``."""
    first = (order + 1) // 2
    total = 0.0 * t
    for k in range(first + _TERMS + order, first - 1, -1):
        power = 2 * k - order
        factor = (-1) ** k / (math.factorial(power) * (2 * k + 1))
        total = total * t * t + factor
    return total * t if order % 2 else total


@public("fdbr.ops")
def sinc(x: ArrayLike, /) -> Array:
    """``sin(pi * x) / (pi * x)``, and 1 at 0, where its derivatives are right too.

    >>> from fdbr import ops
    >>> ops.sinc(0.0), ops.sinc(0.5) * 1.5707963267948966
    (1.0, 1.0)
    """
    return _sinc(x, order=0)


log_expit = scipy_function(
    *("log_expit", "x", "The logarithm of `expit`, without underflow."), x=lambda x: expit(-x)
)


def softplus(x: ArrayLike) -> Array:
    """``log(1 + exp(x))``, without overflow.

    >>> from fdbr.ops import special
    >>> special.softplus(1000.0)
    1000.0
    """
    if hasattr(x, "dtype") and x.dtype.kind in "biu":  # -x would wrap
        x = astype(x, result_type(x.dtype, np.float32))
    return -log_expit(-x)


_lambertw = scipy_function(
    *("_lambertw", "z k tol", ""), z=lambda out: exp(-out) / (1 + out), k=None, tol=None
)


def lambertw(z: ArrayLike, k: ArrayLike = 0, tol: float = 1e-8) -> Array:
    """Lambert's function, complex: the solution ``w`` of ``w * exp(w) = z`` on branch ``k``.

    >>> from fdbr.ops import special
    >>> complex(special.lambertw(0.0))
    0j
    """
    return _lambertw(z, k, tol)


wrightomega = scipy_function(
    *("wrightomega", "z", "Wright's omega: the solution ``w`` of ``w + log(w) = z``."),
    z=lambda out: out / (1 + out),
)
