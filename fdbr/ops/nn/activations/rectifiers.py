"""Piecewise linear and quadratic activation functions, and shrinkage functions."""

import math
from typing import Any

import numpy as np

from fdbr.errors.public import public
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import astype, float_dtype, in_single, is_complex, result_type
from fdbr.ops.elementwise.arithmetic import abs, clipped, square
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.special.library import refuse_complex
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "soft_shrink",
    "sparse_plus",
    "sparse_sigmoid",
    "tanh_shrink",
    "threshold",
]


def _within(x: Any, low: float, high: float) -> Any:
    """1 where a value lies between two bounds and 0 elsewhere, in its dtype."""
    return astype((x > low) & (x < high), result_type(x))


# --- piecewise linear sigmoids --------------------------------------------------------


@elementwise(x=lambda out, slope: slope * _within(out, 0, 1), heavy="backward", compound=True)
def _hard_sigmoid(xp: Any, x: ArrayLike, *, slope: float) -> Array:
    return clipped(xp, x * slope + 0.5, 0, 1)


@public("fdbr.ops")
@in_single
def hard_sigmoid(x: ArrayLike, /, *, slope: float = 1 / 6) -> Array:
    """A piecewise linear `sigmoid`, ``min(max(slope * x + 1/2, 0), 1)``.

    The derivative at the two bounds is taken as 0.

    Parameters
    ----------
    x
        Real floating.
    slope
        The slope at 0; the default is that of JAX and PyTorch, Chainer's is 0.2.

    >>> from fdbr import ops
    >>> ops.hard_sigmoid(-4.0), ops.hard_sigmoid(1.5), ops.hard_sigmoid(1.0, slope=0.2)
    (0.0, 0.75, 0.7)
    """
    refuse_complex("hard_sigmoid", x)
    return _hard_sigmoid(x, slope=float(slope))


def _hard_swish_derivative(x: Any) -> Any:
    gate = _hard_sigmoid(x, slope=1 / 6)
    return gate + where((gate > 0) & (gate < 1), x * (1 / 6), 0)  # x may be infinite elsewhere


@elementwise(x=_hard_swish_derivative, heavy="backward", compound=True)
def _hard_swish(xp: Any, x: ArrayLike) -> Array:
    return x * clipped(xp, x * (1 / 6) + 0.5, 0, 1)


@public("fdbr.ops")
@in_single
def hard_swish(x: ArrayLike, /) -> Array:
    """``x * hard_sigmoid(x)``.

    Howard et al., *Searching for MobileNetV3*, ICCV 2019.

    >>> from fdbr import ops
    >>> ops.hard_swish(-4.0), ops.hard_swish(1.5), ops.hard_swish(4.0)
    (-0.0, 1.125, 4.0)
    """
    refuse_complex("hard_swish", x)
    return _hard_swish(x)


@public("fdbr.ops")
def hard_silu(x: ArrayLike, /) -> Array:
    """Another name of `hard_swish`, as in JAX.

    >>> from fdbr import ops
    >>> ops.hard_silu(1.5)
    1.125
    """
    return hard_swish(x)


# --- shrinking ----------------------------------------------------------------------


@elementwise(x=lambda x, lambd: astype(abs(x) > lambd, result_type(x)), compound=True)
def _hard_shrink(xp: Any, x: ArrayLike, *, lambd: float) -> Array:
    # NaN stays; abs(x) of the least integer would wrap.
    return xp.where((x >= -lambd) & (x <= lambd), xp.zeros_like(x), x)


@public("fdbr.ops")
@in_single
def hard_shrink(x: ArrayLike, /, lambd: float = 0.5) -> Array:
    """``x`` where ``abs(x) > lambd``, and 0 elsewhere.

    Raises
    ------
    ValueError
        If ``lambd`` is negative.

    >>> from fdbr import ops
    >>> ops.hard_shrink(0.5), ops.hard_shrink(-0.75)
    (0.0, -0.75)
    """
    refuse_complex("hard_shrink", x)
    return _hard_shrink(x, lambd=_not_negative("hard_shrink", "lambd", lambd))


@elementwise(x=lambda x, lambd: astype(abs(x) > lambd, result_type(x)), compound=True)
def _soft_shrink(xp: Any, x: ArrayLike, *, lambd: float) -> Array:
    return x - clipped(xp, x, -lambd, lambd)


@public("fdbr.ops")
@in_single
def soft_shrink(x: ArrayLike, /, lambd: float = 0.5) -> Array:
    """``sign(x) * max(abs(x) - lambd, 0)``, the proximal operator of ``lambd * abs(x)``.

    Raises
    ------
    ValueError
        If ``lambd`` is negative.

    >>> from fdbr import ops
    >>> ops.soft_shrink(0.25), ops.soft_shrink(-0.75)
    (0.0, -0.25)
    """
    refuse_complex("soft_shrink", x)
    return _soft_shrink(x, lambd=_not_negative("soft_shrink", "lambd", lambd))


# The series of (x cosh(x) - sinh(x)) / x**3 in x**2, to double precision.
_SHRUNK = tuple(2 * k / math.factorial(2 * k + 1) for k in range(13, 0, -1))
_FLOAT = np.dtype(float)
_SHRUNK_END = 2.0  # from here on x - tanh(x) does not cancel


@elementwise(x=lambda x: square(tanh(x)), heavy=True, compound=True)
def _tanh_shrink(xp: Any, x: ArrayLike) -> Array:
    near = clipped(xp, x, -_SHRUNK_END, _SHRUNK_END)
    square = near * near
    series = 0.0 * square
    for coefficient in _SHRUNK:
        series = series * square + coefficient
    series = series * square * near / xp.cosh(near)
    return xp.where((x > -_SHRUNK_END) & (x < _SHRUNK_END), series, x - xp.tanh(x))


@public("fdbr.ops")
@in_single
def tanh_shrink(x: ArrayLike, /) -> Array:
    """``x - tanh(x)``, without cancellation near 0.

    >>> from fdbr import ops
    >>> round(ops.tanh_shrink(1.0), 6)
    0.238406
    """
    if getattr(x, "dtype", _FLOAT).kind in "biu":
        x = astype(x, float_dtype(x))  # NumPy's tanh of int8 has half precision
    return x - tanh(x) if is_complex(x) else _tanh_shrink(x)


@public("fdbr.ops")
@in_single
def threshold(x: ArrayLike, /, threshold: float, value: float) -> Array:
    """``x`` where it is larger than ``threshold``, and ``value`` elsewhere; NaN stays.

    >>> from fdbr import ops
    >>> float(ops.threshold(0.5, 0.1, 20.0)), float(ops.threshold(0.0, 0.1, 20.0))
    (0.5, 20.0)
    """
    return where(x <= threshold, float(value), x)


# --- piecewise quadratic --------------------------------------------------------------


@elementwise(x=lambda x: _hard_sigmoid(x, slope=0.5), heavy=True, compound=True)
def _sparse_plus(xp: Any, x: ArrayLike) -> Array:
    middle = clipped(xp, x, -1.0, 1.0)  # floats, because unsigned integers have no -1
    return (middle + 1) * (middle + 1) * 0.25 + (clipped(xp, x, 1.0, math.inf) - 1)


@public("fdbr.ops")
@in_single
def sparse_plus(x: ArrayLike, /) -> Array:
    """0 up to -1, ``x`` from 1 on, and ``(x + 1)**2 / 4`` between; as in JAX.

    Its derivative is `sparse_sigmoid`.

    >>> from fdbr import ops
    >>> ops.sparse_plus(-2.0), ops.sparse_plus(0.0), ops.sparse_plus(3.0)
    (0.0, 0.25, 3.0)
    """
    refuse_complex("sparse_plus", x)
    return _sparse_plus(x)


@public("fdbr.ops")
def sparse_sigmoid(x: ArrayLike, /) -> Array:
    """``min(max((x + 1) / 2, 0), 1)``, as in JAX: `sparsemax` of ``(x, 0)``.

    Martins & Astudillo, *From softmax to sparsemax*, ICML 2016.

    >>> from fdbr import ops
    >>> ops.sparse_sigmoid(-2.0), ops.sparse_sigmoid(0.5)
    (0.0, 0.75)
    """
    return hard_sigmoid(x, slope=0.5)


def _not_negative(function: str, name: str, value: float) -> float:
    if not value >= 0:
        raise ValueError(f"fdbr.ops.{function}: {name} must not be negative, got {value}")
    return float(value)
