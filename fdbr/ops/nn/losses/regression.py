"""Regression losses."""

from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import abs, clip, clipped
from fdbr.ops.nn.activations.nonlinearities import softplus
from fdbr.ops.nn.losses.checks import (
    check_reduction,
    reduce_losses,
    same_shape,
    setting_of,
    weighted_mean,
)
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.reductions.squared_error import squared_distance
from fdbr.ops.shape.creation import asarray, floating
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, Reduction

__all__ = [
    "absolute_error",
    "huber_loss",
    "l1_loss",
    "log_cosh",
    "mean_absolute_error",
    "mean_squared_error",
    "mse_loss",
    "smooth_l1_loss",
    "squared_difference",
    "squared_error",
]

_LOG_2 = 0.6931471805599453


def _weighted(name: str, losses: Any, weight: Any, reduction: str, by_weights: bool = True) -> Any:
    """Multiply losses by weights of elements, and compute the sum or mean."""
    if weight is None:
        return reduce_losses(losses, reduction)
    weight = setting_of(name, "weight", weight, losses)
    if weight.shape != losses.shape:
        raise ValueError(
            f"fdbr.ops.{name}: weight {describe(weight)} must have the shape of x, {losses.shape}"
        )
    losses = losses * weight
    if reduction == "mean" and by_weights:
        return weighted_mean(losses, weight)
    return reduce_losses(losses, reduction)


# --- absolute -----------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def absolute_error(x: ArrayLike, y: ArrayLike, /) -> Array:
    """``abs(x - y)``, element by element; its derivative at equality is taken as 0.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.

    Returns
    -------
    array
        In their shape.

    Raises
    ------
    ValueError
        If the shapes differ.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array([0., 2.])
    """
    x, y = same_shape("absolute_error", x=x, y=y)
    return abs(x - y)


@public("fdbr.ops")
@in_single
def mean_absolute_error(x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "mean") -> Array:
    """The mean of ``abs(x - y)`` over all elements.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(1.0)
    """
    check_reduction("mean_absolute_error", reduction)
    x, y = same_shape("mean_absolute_error", x=x, y=y)
    return reduce_losses(abs(x - y), reduction)


@public("fdbr.ops")
@in_single
def l1_loss(
    x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "mean", weight: ArrayLike | None = None
) -> Array:
    """The absolute error, under PyTorch's name: see `mean_absolute_error`.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.
    weight
        A weight for each element, in the shape of ``x``; the mean divides by their sum.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]), weight=np.array([1.0, 3.0]))
    np.float64(1.5)
    """
    check_reduction("l1_loss", reduction)
    x, y = same_shape("l1_loss", x=x, y=y)
    return _weighted("l1_loss", abs(x - y), weight, reduction)


# --- squared ------------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def squared_error(x: Any, y: Any, /) -> Any:
    """``(x - y)**2``, element by element, of arrays of one shape.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.

    Raises
    ------
    ValueError
        If the shapes differ: broadcasting here is nearly always a mistake.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array([0., 4.])
    """
    x, y = same_shape("squared_error", x=x, y=y)
    difference = x - y
    return difference * difference


@public("fdbr.ops")
@in_single
def squared_difference(x: Any, y: Any, /) -> Any:
    """``(x - y)**2``, element by element: `squared_error`, under Chainer's other name.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.

    Raises
    ------
    ValueError
        If the shapes differ.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.squared_difference(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array([0., 4.])
    """
    x, y = same_shape("squared_difference", x=x, y=y)
    difference = x - y
    return difference * difference


@public("fdbr.ops")
@in_single
def mean_squared_error(x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "mean") -> Array:
    """The mean of ``(x - y)**2`` over all elements.

    Parameters
    ----------
    x, y
        Arrays of one shape.  Two arrays of integers are converted to float64 first.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ: broadcasting here is nearly always a mistake.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(2.0)
    """
    check_reduction("mean_squared_error", reduction)
    x, y = asarray(x), asarray(y)
    if dtype_kind(x.dtype) in "biu" and dtype_kind(y.dtype) in "biu":
        x, y = floating(x), floating(y)
    if x.shape != y.shape:
        raise ValueError(
            f"fdbr.ops.mean_squared_error: x {describe(x)} and y {describe(y)} differ in shape; "
            "reshape or broadcast one of them first"
        )
    return _squared(x, y, reduction)


def _squared(x: Any, y: Any, reduction: str) -> Any:
    is_large = x.nbytes >= squared_distance.least and x.dtype.char in "fd"
    if is_large and reduction != "none" and x.dtype == y.dtype:
        total = squared_distance(x, y, tuple(range(x.ndim))).reshape(())
        return total / x.size if reduction == "mean" else total
    difference = x - y
    return reduce_losses(difference * difference, reduction)


@public("fdbr.ops")
@in_single
def mse_loss(
    x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "mean", weight: ArrayLike | None = None
) -> Array:
    """The squared error, under PyTorch's name: see `mean_squared_error`.

    Parameters
    ----------
    x, y
        Arrays of one shape.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.
    weight
        A weight for each element, in the shape of ``x``; the mean divides by their sum.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]), reduction="sum")
    np.float64(4.0)
    """
    check_reduction("mse_loss", reduction)
    x, y = same_shape("mse_loss", x=x, y=y)
    if weight is None:
        return _squared(x, y, reduction)
    difference = x - y
    return _weighted("mse_loss", difference * difference, weight, reduction)


# --- squared for small differences, absolute for large ones ---------------------------


def _huber_derivative(difference: Any, delta: float, divisor: float) -> Any:
    clipped_difference = clip(difference, -delta, delta)
    return clipped_difference if divisor == 1 else clipped_difference / divisor


@elementwise(difference=_huber_derivative, compound=True)
def scaled_huber(xp: Any, difference: Array, *, delta: float, divisor: float) -> Array:
    """Half the square up to ``delta``, continued by a line, divided by ``divisor``."""
    clipped_difference = clipped(xp, difference, -delta, delta)
    return clipped_difference / divisor * (difference - 0.5 * clipped_difference)


@public("fdbr.ops")
@in_single
def huber_loss(
    x: Any,
    y: Any,
    /,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weight: Any = None,
) -> Any:
    """The Huber loss: half the square of ``x - y`` up to ``delta``, and linear beyond it.

    ``0.5 * a**2`` where ``a = abs(x - y)`` is at most ``delta``, and elsewhere
    ``delta * (a - 0.5 * delta)``: Huber, *Robust estimation of a location parameter*, 1964.
    The default is PyTorch's; Chainer's is ``reduction="sum_along_second_axis"``.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    delta
        A positive number.
    reduction
        ``"mean"``, ``"sum"``, ``"none"``, or ``"sum_along_second_axis"``.
    weight
        A weight for each element, in the shape of ``x``; the mean divides by the number of
        elements, as in PyTorch.

    Raises
    ------
    ValueError
        If the shapes differ, ``delta`` is not positive, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.huber_loss(np.array([0.0, 0.0]), np.array([1.0, 4.0]), reduction="none")
    array([0.5, 3.5])
    """
    check_reduction("huber_loss", reduction, "sum_along_second_axis")
    if not delta > 0:
        raise ValueError(f"fdbr.ops.huber_loss: delta must be positive, got {delta}")
    x, y = same_shape("huber_loss", x=x, y=y)
    losses = scaled_huber(x - y, delta=float(delta), divisor=1.0)
    if reduction != "sum_along_second_axis":
        return _weighted("huber_loss", losses, weight, reduction, by_weights=False)
    if x.ndim < 2:
        raise ValueError(
            f"fdbr.ops.huber_loss: reduction 'sum_along_second_axis' of {describe(x)}, which has "
            "no second axis; give 'mean', 'sum' or 'none'"
        )
    return sum(_weighted("huber_loss", losses, weight, "none"), axis=1)


@public("fdbr.ops")
@in_single
def smooth_l1_loss(x: Any, y: Any, /, *, beta: float = 1.0, reduction: Reduction = "mean") -> Any:
    """`huber_loss` divided by ``beta``: the absolute error, smooth near 0.

    ``0.5 * a**2 / beta`` where ``a = abs(x - y)`` is below ``beta``, and elsewhere
    ``a - 0.5 * beta``: Girshick, *Fast R-CNN*, ICCV 2015.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    beta
        The difference at which the square ends; with 0 it is `l1_loss`.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, ``beta`` is negative, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.smooth_l1_loss(np.array([0.0, 0.0]), np.array([1.0, 4.0]), beta=2.0, reduction="none")
    array([0.25, 3.  ])
    """
    check_reduction("smooth_l1_loss", reduction)
    if not beta >= 0:
        raise ValueError(f"fdbr.ops.smooth_l1_loss: beta must be at least 0, got {beta}")
    x, y = same_shape("smooth_l1_loss", x=x, y=y)
    beta, difference = float(beta), x - y
    return reduce_losses(
        abs(difference) if beta == 0 else scaled_huber(difference, delta=beta, divisor=beta),
        reduction,
    )


@public("fdbr.ops")
@in_single
def log_cosh(x: ArrayLike, y: ArrayLike, /, *, reduction: Reduction = "none") -> Array:
    """``log(cosh(x - y))``: about half the square near 0, and linear for large values.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    reduction
        ``"none"`` by default, as in Optax; ``"mean"`` or ``"sum"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.log_cosh(np.array([0.0, 1000.0]), np.array([0.0, 0.0]))
    array([  0.        , 999.30685282])
    """
    check_reduction("log_cosh", reduction)
    x, y = same_shape("log_cosh", x=x, y=y)
    difference = x - y
    return reduce_losses(difference + softplus(-2.0 * difference) - _LOG_2, reduction)
