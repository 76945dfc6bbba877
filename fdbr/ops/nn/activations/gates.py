"""Activation functions along an axis, and those with learnable parameters."""

import math
from typing import Any

from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axis
from fdbr.ops.declare import constant, elementwise, shifted
from fdbr.ops.declare.unbroadcast import as_floats
from fdbr.ops.dtypes import astype, in_single, is_number, is_traced
from fdbr.ops.elementwise.arithmetic import clipped, hypot, minimum, sqrt
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.logistic import sigmoid, sigmoid_derivative
from fdbr.ops.nn.activations.exponentials import relu, softmax
from fdbr.ops.reductions.reduce import max, sum
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import concat, reshape
from fdbr.ops.special.library import refuse_complex
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "crelu",
    "glu",
    "maxout",
    "prelu",
    "softmin",
    "sparsemax",
    "squareplus",
    "swish",
]

# --- along an axis --------------------------------------------------------------------


@elementwise(
    x=lambda gate: sigmoid(gate),
    gate=lambda x, gate: x * sigmoid_derivative(gate),
    heavy=True,
    compound=True,
    floats=True,
)
def _gated(xp: Any, x: ArrayLike, gate: ArrayLike) -> Array:
    return x * (sigmoid(gate) if is_traced(gate) else sigmoid.primitive.on(xp)(xp, gate))


@public("fdbr.ops")
def glu(x: Any, /, *, axis: int = -1, dim: int | None = None) -> Any:
    """One half of an axis times the `sigmoid` of the other.

    Dauphin, Fan, Auli & Grangier, *Language modeling with gated convolutional networks*, ICML
    2017.

    Parameters
    ----------
    x
        An array whose ``axis`` is of even length.
    axis, dim
        The axis to halve.  (``dim`` is PyTorch's name.)

    Raises
    ------
    ValueError
        If the axis has odd length.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.glu(np.array([3.0, 0.0]))
    array([1.5])
    """
    x = floating(x)
    axis = either_axis("glu", axis, dim)
    position = normalize_axis(axis, x.ndim, "glu")
    half, odd = divmod(x.shape[position], 2)
    if odd:
        raise ValueError(f"fdbr.ops.glu: axis {axis} of x {describe(x)} must be of even length")
    before = (slice(None),) * position
    return _gated(x[(*before, slice(None, half))], x[(*before, slice(half, None))])


@public("fdbr.ops")
def crelu(x: ArrayLike, /, *, axis: int = 1) -> Array:
    """The positive and the negative parts, concatenated: ``concat([relu(x), relu(-x)])``.

    Shang, Sohn, Almeida & Lee, *Understanding and improving convolutional neural networks via
    concatenated rectified linear units*, ICML 2016.

    Parameters
    ----------
    x
        Real floating.
    axis
        The axis to concatenate along; in the result it is twice as long.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.crelu(np.array([[-1.0, 2.0]]))
    array([[0., 2., 1., 0.]])
    """
    x = floating(x)
    refuse_complex("crelu", x)
    position = normalize_axis(axis, x.ndim, "crelu")
    return concat([relu(x), relu(-x)], axis=position)


@public("fdbr.ops")
def maxout(x: ArrayLike, /, pool_size: int, *, axis: int = 1) -> Array:
    """The maximum of each group of ``pool_size`` neighbours along an axis.

    Goodfellow, Warde-Farley, Mirza, Courville & Bengio, *Maxout networks*, ICML 2013.

    Parameters
    ----------
    x
        Real floating.
    pool_size
        The number of elements in a group; it must divide the length of the axis.
    axis
        The axis to reduce by the factor ``pool_size``.

    Raises
    ------
    TypeError, ValueError
        If ``pool_size`` is not a positive integer, or does not divide the length of the axis.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.maxout(np.array([[1.0, 3.0, 0.0, -2.0]]), 2)
    array([[3., 0.]])
    """
    x = floating(x)
    position = normalize_axis(axis, x.ndim, "maxout")
    size = integer("fdbr.ops.maxout", "pool_size", pool_size, least=1)
    count, rest = divmod(x.shape[position], size)
    if rest:
        raise ValueError(
            f"fdbr.ops.maxout: pool_size {size} must divide the length of axis {axis} of x "
            f"{describe(x)}"
        )
    shape = (*x.shape[:position], count, size, *x.shape[position + 1 :])
    return max(reshape(x, shape), axis=position + 1)


@public("fdbr.ops")
def softmin(
    x: ArrayLike, /, *, axis: int | tuple[int, ...] = -1, dim: int | tuple[int, ...] | None = None
) -> Array:
    """The `softmax` of ``-x``.

    Parameters
    ----------
    x
        Real numbers.
    axis, dim
        The axis, or several axes together; ``dim`` is PyTorch's name for it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.softmin(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return softmax(-floating(x), axis=either_axis("softmin", axis, dim))


@public("fdbr.ops")
@in_single
def sparsemax(x: ArrayLike, /, *, axis: int = -1) -> Array:
    """The probabilities nearest to ``x`` in Euclidean distance; small elements have probability 0.

    ``max(x - t, 0)``, with the ``t`` for which they sum to 1: Martins & Astudillo, *From softmax
    to sparsemax*, ICML 2016.

    Parameters
    ----------
    x
        Real floating.
    axis
        The axis along which the probabilities sum to 1.

    Raises
    ------
    ValueError
        If the axis has length 0.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.sparsemax(np.array([1.0, 0.5, -2.0]))
    array([0.75, 0.25, 0.  ])
    """
    x = floating(x)
    refuse_complex("sparsemax", x)
    position = normalize_axis(axis, x.ndim, "sparsemax")
    if not x.shape[position]:
        raise ValueError(f"fdbr.ops.sparsemax: axis {axis} of x {describe(x)} has no elements")
    support = _support(x, axis=position)
    is_support = where(support, x, 0)
    count = sum(astype(support, x.dtype), axis=position, keepdims=True)
    shift = (sum(is_support, axis=position, keepdims=True) - 1) / count
    return where(support, x - shift, 0)


@constant(batch=shifted("axis"), total=True)
def _support(xp: Any, x: ArrayLike, *, axis: int) -> Array:
    """Mark the elements with nonzero probability: the largest ones."""
    ordered = xp.flip(xp.sort(x, axis=axis), axis=axis)
    counts = xp.cumsum(xp.ones_like(x), axis=axis)
    is_support = 1 + counts * ordered > xp.cumsum(ordered, axis=axis)
    least = xp.where(is_support, ordered, xp.full_like(ordered, math.inf)).min(
        axis=axis, keepdims=True
    )
    return x >= least


# --- with learnable parameters --------------------------------------------------------


def from_second_axis(function: str, name: str, value: Any, x: Any) -> Any:
    """Reshape a parameter of the axes of ``x`` after the first so that it broadcasts."""
    if is_number(value):  # traced or not, it stays weakly typed
        return value
    value = asarray(value)
    if value.ndim == 0 or value.shape == (1,):
        return reshape(value, ())
    if x.shape[1 : 1 + value.ndim] != value.shape:
        raise ValueError(
            f"fdbr.ops.{function}: {name} {describe(value)} must be one number, or have the "
            f"lengths of the axes of x {describe(x)} after the first"
        )
    return reshape(value, (*value.shape, *(1,) * (x.ndim - 1 - value.ndim)))


@elementwise(
    x=lambda x, weight: where(x > 0, 1, weight),
    weight=lambda x: minimum(x, 0),
    heavy="backward",
    compound=True,
)
def parametric_relu(xp: Any, x: Array, weight: Array) -> Array:
    """``x`` where it is positive and ``weight * x`` elsewhere, where ``weight`` broadcasts."""
    return clipped(xp, x, 0, math.inf) + weight * clipped(xp, x, -math.inf, 0)


@public("fdbr.ops")
def prelu(x: Any, weight: Any, /) -> Any:
    """``x`` where it is positive and ``weight * x`` elsewhere; its derivative at 0 is ``weight``.

    He, Zhang, Ren & Sun, *Delving deep into rectifiers*, ICCV 2015.

    Parameters
    ----------
    x
        Real floating, shape ``(N, C, ...)``; any shape if there is one slope.
    weight
        One slope, shape ``()`` or ``(1,)``; one for each channel, shape ``(C,)``; or one for each
        element of several axes after the first.

    Raises
    ------
    ValueError
        If ``weight`` does not fit ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.prelu(np.array([[-1.0, -1.0], [2.0, 2.0]]), np.array([0.5, 0.25]))
    array([[-0.5 , -0.25],
           [ 2.  ,  2.  ]])
    """
    x = floating(x)
    refuse_complex("prelu", x)
    return parametric_relu(x, from_second_axis("prelu", "weight", weight, x))


def _swish_derivative(x: Any, beta: Any) -> Any:
    argument = beta * x
    # In this order it is finite for infinite arguments, too.
    return sigmoid(argument) + x * (beta * sigmoid_derivative(argument))


@elementwise(
    x=_swish_derivative,
    beta=lambda x, beta: x * (x * sigmoid_derivative(beta * x)),
    heavy=True,
    compound=True,
    floats=True,
)
def _swish(xp: Any, x: ArrayLike, beta: ArrayLike) -> Array:
    argument = beta * x
    return x * (
        sigmoid(argument) if is_traced(argument) else sigmoid.primitive.on(xp)(xp, argument)
    )


@public("fdbr.ops")
@in_single
def swish(x: ArrayLike, beta: ArrayLike = 1.0, /) -> Array:
    """``x * sigmoid(beta * x)``; with ``beta = 1`` it is `silu`.

    Ramachandran, Zoph & Le, *Searching for activation functions*, arXiv:1710.05941.

    Parameters
    ----------
    x
        Real floating.
    beta
        One number, or an array with the lengths of the axes of ``x`` after the first.

    Raises
    ------
    ValueError
        If ``beta`` does not fit ``x``.

    >>> from fdbr import ops
    >>> round(float(ops.swish(1.0, 2.0)), 6)
    0.880797
    """
    x = floating(x)
    refuse_complex("swish", x)
    if not hasattr(beta, "shape"):
        return _swish(x, beta)
    return _swish(x, from_second_axis("swish", "beta", beta, x))


@elementwise(
    x=lambda out, x, root: out / hypot(x, root),
    root=lambda x, root: 0.5 * root / hypot(x, root),
    heavy=True,
    compound=True,
    floats=True,
)
def _squareplus(xp: Any, x: ArrayLike, root: ArrayLike) -> Array:
    # Half of each, because the sum may overflow where the result does not.
    half = 0.5 * xp.hypot(x, root) + 0.5 * xp.abs(x)
    return xp.where(x > 0, half, 0.25 * root * root / half)


@public("fdbr.ops")
@in_single
def squareplus(x: Any, b: Any = 4.0, /) -> Any:
    """``(x + sqrt(x**2 + b)) / 2``, similar to `softplus`, without exponentials.

    Barron, *Squareplus*, arXiv:2112.11687.

    Parameters
    ----------
    x
        Real floating.
    b
        A positive number or array that broadcasts: the width of the transition.

    >>> from fdbr import ops
    >>> round(float(ops.squareplus(0.0)), 6), round(float(ops.squareplus(1.5)), 6)
    (1.0, 2.0)
    """
    x = floating(x)
    refuse_complex("squareplus", x)
    if not hasattr(b, "shape"):
        return _squareplus(x, math.sqrt(b))
    x, b = as_floats((x, b))  # the root of a small integer would be rounded to float16
    return _squareplus(x, sqrt(b))
