"""The logistic function and `logaddexp`, element by element.

Derivatives are computed from the operand.  The usual formula in the result, ``out * (1 - out)``,
cancels where the result is near 1.
"""

import math
from typing import Any

import numpy as np

from fdbr.ops.declare import elementwise
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.trigonometric import negative_abs, tanh
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["logaddexp", "sigmoid", "sigmoid_derivative"]


@elementwise(x=lambda x, out: -out * tanh(x / 2), heavy=True, floats=True)
def sigmoid_derivative(xp: Any, x: Array) -> Array:
    """``exp(-abs(x)) / (1 + exp(-abs(x)))**2``, the derivative of the logistic function."""
    decay = xp.exp(negative_abs(xp, x))
    return decay / xp.square(1 + decay)


@elementwise(x=lambda x: sigmoid_derivative(x), heavy=True, floats=True)
def sigmoid(xp: Any, x: ArrayLike) -> Array:
    """The logistic function ``1 / (1 + exp(-x))``, accurate however small it is.

    >>> from fdbr import ops
    >>> ops.sigmoid(0.0)
    0.5
    """
    if hasattr(xp, "expit"):  # kernels have a function of their own
        return xp.expit(x)
    with np.errstate(over="ignore"):  # far below 0 the exponential is infinite
        return xp.reciprocal(1 + xp.exp(-x))


@elementwise(
    x=lambda x, y: _softmax_weight(x, y),
    y=lambda x, y: _softmax_weight(y, x),
    heavy=True,
    double=True,
)
def logaddexp(xp: Any, x: ArrayLike, y: ArrayLike) -> Array:
    """``log(exp(x) + exp(y))``, without overflow.

    Derivatives are 0 where both operands are -inf, as in `logsumexp`, and 1/2 where both are inf.

    >>> from fdbr import ops
    >>> round(ops.logaddexp(0.0, 0.0), 6)
    0.693147
    """
    return xp.logaddexp(x, y)


def _softmax_weight(x: Any, y: Any) -> Any:
    """``exp(x) / (exp(x) + exp(y))``; 0 where both are -inf, 1/2 where both are inf."""
    same = (x == y) & (abs(x) == math.inf)
    weight = sigmoid(where(same, 0, x) - where(same, 0, y))
    return where(same & (x < 0), 0, weight)
