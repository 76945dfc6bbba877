"""Elementwise activation functions of neural networks."""

import math
from typing import Any

from fdbr.core.routine import Routine
from fdbr.errors.public import public
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import as_weak, astype, in_single, is_traced, result_type
from fdbr.ops.elementwise.arithmetic import abs, clipped, maximum, minimum, square
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp, expm1, gaussian
from fdbr.ops.elementwise.logistic import sigmoid, sigmoid_derivative
from fdbr.ops.shape.creation import floating
from fdbr.ops.special.errors import ndtr
from fdbr.ops.special.library import is_small_integer, refuse_complex
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "celu",
    "clipped_relu",
    "elu",
    "gelu",
    "hard_tanh",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "mish",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
]

_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715
_GELU_END = 30.0  # beyond it the approximation is 0 or the identity in every dtype
_LOG_TWO = math.log(2)
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@Routine
def indicator(x: Any) -> Any:
    """1 where ``x`` is positive and 0 elsewhere, in the dtype of ``x``; faster than `where`."""
    return astype(x > 0, result_type(x))


# --- piecewise ------------------------------------------------------------------------


@elementwise(x=lambda out, low, high: (out > low) & (out < high), heavy="backward")
def _hard_limits(xp: Any, x: ArrayLike, *, low: float, high: float) -> Array:
    return clipped(xp, x, low, high)


@public("fdbr.ops")
def relu6(x: ArrayLike, /) -> Array:
    """``min(max(x, 0), 6)``; its derivative at both bounds is taken as 0.

    >>> from fdbr import ops
    >>> ops.relu6(-1.0), ops.relu6(2.0), ops.relu6(7.0)
    (0.0, 2.0, 6.0)
    """
    return _hard_limits(x, low=0, high=6)


@public("fdbr.ops")
def hard_tanh(x: ArrayLike, /, min_val: float = -1.0, max_val: float = 1.0) -> Array:
    """``min(max(x, min_val), max_val)``; its derivative at both bounds is taken as 0.

    Raises
    ------
    ValueError
        If ``min_val`` is larger than ``max_val``.

    >>> from fdbr import ops
    >>> ops.hard_tanh(-2.0), ops.hard_tanh(0.5), ops.hard_tanh(7.0, max_val=6.0)
    (-1.0, 0.5, 6.0)
    """
    low, high = float(min_val), float(max_val)
    if not low <= high:
        raise ValueError(
            f"fdbr.ops.hard_tanh: min_val must not be above max_val, got {min_val} and {max_val}"
        )
    return _hard_limits(x, low=low, high=high)


@public("fdbr.ops")
def clipped_relu(x: ArrayLike, /, z: float = 20.0) -> Array:
    """``min(max(x, 0), z)``; its derivative at both bounds is taken as 0.

    Raises
    ------
    ValueError
        If ``z`` is negative.

    >>> from fdbr import ops
    >>> ops.clipped_relu(-1.0), ops.clipped_relu(30.0)
    (0.0, 20.0)
    """
    if not z >= 0:
        raise ValueError(f"fdbr.ops.clipped_relu: z must not be negative, got {z}")
    return _hard_limits(x, low=0, high=float(z))


@elementwise(x=lambda x, slope: slope + (1 - slope) * indicator(x), heavy="backward", compound=True)
def _leaky_relu(xp: Any, x: ArrayLike, *, slope: float) -> Array:
    if getattr(x, "itemsize", 8) <= 2:
        slope = as_weak(slope, x)
    if 0 < slope <= 1:
        return xp.maximum(x, slope * x)
    return xp.maximum(x, 0) + slope * xp.minimum(x, 0)


@public("fdbr.ops")
def leaky_relu(
    x: ArrayLike, /, negative_slope: float = 0.01, *, slope: float | None = None
) -> Array:
    """``x`` where it is positive and ``negative_slope * x`` elsewhere.

    The default slope is that of PyTorch and JAX; Chainer's is 0.2.  The derivative at 0 is the
    slope.

    Parameters
    ----------
    x
        An array.
    negative_slope
        The slope for negative numbers.
    slope
        Another name for ``negative_slope``.

    >>> from fdbr import ops
    >>> ops.leaky_relu(-2.0, negative_slope=0.25)
    -0.5
    """
    return _leaky_relu(x, slope=float(negative_slope if slope is None else slope))


def _elu_derivative(x: Any, above: float, scale: float, alpha: float) -> Any:
    share = indicator(x)
    return above * share + (1 - share) * (scale / alpha) * exp(minimum(x, 0) / alpha)


@elementwise(x=_elu_derivative, heavy=True, compound=True)
def _elu(xp: Any, x: ArrayLike, *, above: float, scale: float, alpha: float) -> Array:
    below = clipped(xp, x, -math.inf, 0)
    if alpha != 1:
        below = below / alpha
    below = xp.expm1(below)
    if scale != 1:
        below = scale * below
    positive = clipped(xp, x, 0, math.inf)
    return (positive if above == 1 else above * positive) + below


@public("fdbr.ops")
@in_single
def elu(x: ArrayLike, /, alpha: float = 1.0) -> Array:
    """``x`` where it is positive and ``alpha * (exp(x) - 1)`` elsewhere.

    Clevert, Unterthiner & Hochreiter, *Fast and accurate deep network learning by exponential
    linear units*, ICLR 2016.

    >>> from fdbr import ops
    >>> ops.elu(2.0), round(ops.elu(-1.0), 6)
    (2.0, -0.632121)
    """
    return _elu(x, above=1.0, scale=float(alpha), alpha=1.0)


@public("fdbr.ops")
@in_single
def celu(x: ArrayLike, /, alpha: float = 1.0) -> Array:
    """``x`` where it is positive and ``alpha * (exp(x / alpha) - 1)`` elsewhere.

    Its derivative is continuous for every ``alpha``: Barron, arXiv:1704.07483.

    >>> from fdbr import ops
    >>> ops.celu(2.0), round(ops.celu(-1.0, alpha=2.0), 6)
    (2.0, -0.786939)
    """
    return _elu(x, above=1.0, scale=float(alpha), alpha=float(alpha))


@public("fdbr.ops")
@in_single
def selu(x: ArrayLike, /) -> Array:
    """A scaled `elu` that preserves mean 0 and variance 1 of activations.

    ``1.0507 * elu(x, alpha=1.6733)``: Klambauer, Unterthiner, Mayr & Hochreiter,
    *Self-normalizing neural networks*, NIPS 2017.

    >>> from fdbr import ops
    >>> round(ops.selu(1.0), 6)
    1.050701
    """
    if is_small_integer(x):  # `expm1` has 16 bits then, and its product with a scale has 64
        x = floating(x)
    return _elu(x, above=_SELU_SCALE, scale=_SELU_SCALE * _SELU_ALPHA, alpha=1.0)


# --- smooth -------------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def softplus(x: ArrayLike, /, beta: float = 1.0, threshold: float | None = None) -> Array:
    """``log(1 + exp(beta * x)) / beta``, without overflow.

    Parameters
    ----------
    x
        Real floating.
    beta
        The inverse width of the transition.
    threshold
        Where ``beta * x`` is larger than this, the result is ``x``; by default nowhere.
        (PyTorch's default is 20, with a difference of 2e-9.)

    Raises
    ------
    ValueError
        If ``beta`` is 0.

    >>> from fdbr import ops
    >>> ops.softplus(1000.0), round(ops.softplus(0.0), 6)
    (1000.0, 0.693147)
    >>> round(ops.softplus(0.0, beta=2.0), 6)
    0.346574
    """
    if beta == 0:
        raise ValueError("fdbr.ops.softplus: beta must not be 0")
    out = _softplus(x, beta=float(beta))
    return out if threshold is None else where(x * float(beta) > threshold, x, out)


@elementwise(
    x=lambda x, beta: sigmoid(x if beta == 1 else beta * x), heavy=True, compound=True, floats=True
)
def _softplus(xp: Any, x: ArrayLike, *, beta: float) -> Array:
    """``log(1 + exp(beta * x)) / beta``."""
    refuse_complex("softplus", x)
    low, high = (0, math.inf) if beta > 0 else (-math.inf, 0)
    rest = xp.abs(x) if math.fabs(beta) == 1 else math.fabs(beta) * xp.abs(x)
    rest = xp.log1p(xp.exp(-rest))
    return clipped(xp, x, low, high) + (rest if beta == 1 else rest / beta)


@elementwise(x=lambda x: sigmoid(-x), heavy=True, compound=True, floats=True)
def log_sigmoid(xp: Any, x: ArrayLike) -> Array:
    """The logarithm of `sigmoid`, without underflow.

    >>> from fdbr import ops
    >>> ops.log_sigmoid(-1000.0)
    -1000.0
    """
    refuse_complex("log_sigmoid", x)
    return clipped(xp, x, -math.inf, 0) - xp.log1p(xp.exp(-xp.abs(x)))


def _log1mexp_derivative(x: Any) -> Any:
    """``1 / expm1(x)``, whose denominator would be infinite where x is large."""
    distance = -abs(x)
    return where(x > 0, exp(distance), -1) / -expm1(distance)


@elementwise(x=_log1mexp_derivative, heavy=True, compound=True, floats=True)
def log1mexp(xp: Any, x: ArrayLike) -> Array:
    """``log(1 - exp(-x))`` of positive numbers, without cancellation, as in JAX.

    >>> from fdbr import ops
    >>> round(ops.log1mexp(1.0), 6)
    -0.458675
    """
    refuse_complex("log1mexp", x)
    near = x < _LOG_TWO  # exp(-x) is near 1 here
    return xp.where(
        near, xp.log(-xp.expm1(-xp.where(near, x, 1))), xp.log1p(-xp.exp(-xp.where(near, 1, x)))
    )


@elementwise(x=lambda x: square(1 / (1 + abs(x))), heavy="backward", compound=True, floats=True)
def softsign(xp: Any, x: ArrayLike) -> Array:
    """``x / (1 + abs(x))``.

    >>> from fdbr import ops
    >>> ops.softsign(-1.0)
    -0.5
    """
    refuse_complex("softsign", x)
    return x / (1 + xp.abs(x))


def _silu_derivative(x: Any) -> Any:
    return sigmoid(x) + x * sigmoid_derivative(x)


@elementwise(x=_silu_derivative, heavy=True, compound=True, floats=True)
def silu(xp: Any, x: ArrayLike) -> Array:
    """``x * sigmoid(x)``, also called swish.

    >>> from fdbr import ops
    >>> ops.silu(0.0), round(ops.silu(1.0), 6)
    (0.0, 0.731059)
    """
    # Compilers call this function with a traced value to decompose it.
    return x * (sigmoid(x) if is_traced(x) else sigmoid.primitive.on(xp)(xp, x))


@elementwise(x=lambda x: gaussian(x, rate=0.5) / _ROOT_TWO_PI, heavy=True, compound=True)
def _normal_cdf(xp: Any, x: Array) -> Array:
    return ndtr.primitive.on(xp)(xp, x)


@elementwise(
    x=lambda x: _normal_cdf(x) + x * gaussian(x, rate=0.5) / _ROOT_TWO_PI, heavy=True, compound=True
)
def _gelu(xp: Any, x: ArrayLike) -> Array:
    return x * ndtr.primitive.on(xp)(xp, x)


def _gelu_tanh_derivative(x: Any) -> Any:
    x = minimum(maximum(x, -_GELU_END), _GELU_END)  # so that its powers are finite
    variable = 3 * _GELU_CUBE * x * x
    share = x * (1 + variable / 3) * (2 * _GELU_SCALE)
    return sigmoid(share) + sigmoid_derivative(share) * x * (1 + variable) * (2 * _GELU_SCALE)


@elementwise(x=_gelu_tanh_derivative, heavy=True, compound=True)
def _gelu_tanh(xp: Any, x: ArrayLike) -> Array:
    # 1 + tanh(u) is 2 sigmoid(2 u), which does not cancel where the tanh is near -1.
    share = x * (2 * _GELU_SCALE + 2 * _GELU_SCALE * _GELU_CUBE * (x * x))
    return x * (sigmoid(share) if is_traced(x) else sigmoid.primitive.on(xp)(xp, share))


@public("fdbr.ops")
@in_single
def gelu(x: ArrayLike, /, *, approximate: bool | str = False) -> Array:
    """``x * ndtr(x)``, with the cumulative distribution function of the normal distribution.

    With ``approximate`` it is ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``,
    which is faster and differs by less than 0.0005: Hendrycks & Gimpel, *Gaussian error linear
    units*, arXiv:1606.08415.

    Parameters
    ----------
    x
        Real floating.
    approximate
        True or ``"tanh"`` for the approximation, False or ``"none"`` for the exact function, as in
        JAX or PyTorch.  (JAX approximates by default; PyTorch and this function do not.)

    Raises
    ------
    ValueError
        If ``approximate`` is none of these.

    >>> from fdbr import ops
    >>> round(ops.gelu(1.0), 4), round(ops.gelu(1.0, approximate=True), 4)
    (0.8413, 0.8412)
    """
    if approximate is True or (isinstance(approximate, str) and approximate == "tanh"):
        return _gelu_tanh(x)
    if approximate is False or (isinstance(approximate, str) and approximate == "none"):
        return _gelu(x)
    raise ValueError(
        "fdbr.ops.gelu: approximate must be True or 'tanh', or False or 'none', not "
        f"{approximate!r}"
    )


_MISH_END = 21.0  # from here on tanh(softplus(x)) is 1 in every dtype


def _mish_derivative(x: Any) -> Any:
    x = minimum(x, _MISH_END)
    e = exp(x)
    numerator = e * (2 + e)  # the hyperbolic tangent of softplus(x) is part / (2 + part)
    denominator = 2 + numerator
    return numerator / denominator + x * (4 * e * (1 + e) / (denominator * denominator))


@elementwise(x=_mish_derivative, heavy=True, compound=True)
def _mish(xp: Any, x: ArrayLike) -> Array:
    e = xp.exp(clipped(xp, x, -math.inf, _MISH_END))
    numerator = e * (2 + e)
    return x * (numerator / (2 + numerator))


@public("fdbr.ops")
@in_single
def mish(x: ArrayLike, /) -> Array:
    """``x * tanh(softplus(x))``: Misra, arXiv:1908.08681.

    >>> from fdbr import ops
    >>> round(ops.mish(1.0), 6)
    0.865098
    """
    refuse_complex("mish", x)
    return _mish(x)
