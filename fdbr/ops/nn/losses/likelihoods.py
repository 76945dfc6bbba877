"""Negative log likelihoods of distributions, and divergences between distributions."""

import math
from typing import Any

from fdbr.core.array_modules import Array
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import in_single
from fdbr.ops.elementwise.arithmetic import maximum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp, expm1, log
from fdbr.ops.nn.activations.nonlinearities import softplus
from fdbr.ops.nn.losses.checks import (
    any_known,
    check_reduction,
    extremes,
    floats_of,
    reduce_losses,
    safe_ratio,
    same_shape,
    setting_of,
)
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.manipulation import expand_dims
from fdbr.ops.special.entropies import xlogy

__all__ = [
    "bernoulli_nll",
    "gaussian_kl_divergence",
    "gaussian_nll",
    "gaussian_nll_loss",
    "kl_div_loss",
    "poisson_nll_loss",
]

_LOG_TWO_PI = math.log(2 * math.pi)


# --- variational autoencoders, as in Chainer ------------------------------------------


@public("fdbr.ops")
@in_single
def bernoulli_nll(x: Array, y: Array, /, *, reduction: str = "sum") -> Any:
    """The negative log likelihood of booleans with probabilities ``sigmoid(y)``.

    ``softplus(y) - x * y``; `binary_cross_entropy_with_logits` is the same with swapped operands.

    Parameters
    ----------
    x
        Truth values, or numbers in [0, 1], floating.
    y
        Logits, in the same shape.
    reduction
        ``"sum"``, as in Chainer, ``"mean"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.bernoulli_nll(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    np.float64(1.3862943611198906)
    """
    check_reduction("bernoulli_nll", reduction)
    x, y = same_shape("bernoulli_nll", x=x, y=y)
    return reduce_losses(softplus(y) - x * y, reduction)


@public("fdbr.ops")
@in_single
def gaussian_nll(x: Array, mean: Array, ln_var: Array, /, *, reduction: str = "sum") -> Any:
    """The negative log likelihood of a normal distribution, with the logarithm of the variance.

    ``0.5 * (ln_var + log(2 * pi) + (x - mean)**2 * exp(-ln_var))``

    Parameters
    ----------
    x
        Numbers, floating.
    mean, ln_var
        Means and logarithms of variances, in the same shape.
    reduction
        ``"sum"``, as in Chainer, ``"mean"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.gaussian_nll(np.array([1.0]), np.array([0.0]), np.array([0.0]))
    np.float64(1.4189385332046727)
    """
    check_reduction("gaussian_nll", reduction)
    x, mean, ln_var = same_shape("gaussian_nll", x=x, mean=mean, ln_var=ln_var)
    away = x - mean
    return reduce_losses(0.5 * (ln_var + _LOG_TWO_PI + away * away * exp(-ln_var)), reduction)


@public("fdbr.ops")
@in_single
def gaussian_kl_divergence(mean: Array, ln_var: Array, /, *, reduction: str = "sum") -> Any:
    """The Kullback-Leibler divergence of normal distributions from the standard one.

    ``0.5 * (mean**2 + exp(ln_var) - ln_var - 1)``: Kingma & Welling, *Auto-encoding variational
    Bayes*, ICLR 2014.

    Parameters
    ----------
    mean, ln_var
        Means and logarithms of variances, of one shape.
    reduction
        ``"sum"``, as in Chainer, ``"mean"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.
    TypeError
        If ``mean`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.gaussian_kl_divergence(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    np.float64(0.5)
    """
    check_reduction("gaussian_kl_divergence", reduction)
    mean, ln_var = same_shape("gaussian_kl_divergence", mean=mean, ln_var=ln_var)
    return reduce_losses(0.5 * (mean * mean + (expm1(ln_var) - ln_var)), reduction)


# --- as in PyTorch ------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def gaussian_nll_loss(
    x: Array,
    y: Array,
    var: Array,
    /,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """The negative log likelihood of ``y`` under a normal distribution with mean ``x``.

    ``0.5 * (log(var) + (x - y)**2 / var)``, where smaller variances are replaced by ``eps``, and
    their derivative is taken at ``eps``.

    Parameters
    ----------
    x, y
        Arrays of one shape; ``x`` is floating.
    var
        Variances, at least 0: a number; or an array of the shape of ``x``, without its last axis,
        or with one axis of length 1.
    full
        Whether to add the constant ``0.5 * log(2 * pi)``.
    eps
        The least variance.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a variance is negative, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.gaussian_nll_loss(np.array([0.0, 0.0]), np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    np.float64(1.25)
    """
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    x, y = same_shape(name, x=x, y=y)
    if hasattr(var, "dtype"):
        var = floats_of(name, x=x, var=var)[1]
    else:
        var = setting_of(name, "var", var, x)
    if var.ndim and var.shape != x.shape:
        if var.shape == x.shape[:-1]:
            var = expand_dims(var, axis=-1)
        elif var.ndim != x.ndim or [
            a for a, b in zip(var.shape, x.shape, strict=True) if a != b
        ] != [1]:
            raise ValueError(
                f"fdbr.ops.{name}: var {describe(var)} does not fit x {describe(x)}; give one "
                "variance for each element, or leave out the last axis"
            )
    if any_known(var < 0):
        raise ValueError(f"fdbr.ops.{name}: var must be at least 0, got values{extremes(var)}")
    var = var + stop_gradient(maximum(var, eps) - var)
    away = x - y
    losses = 0.5 * (log(var) + away * away / var)
    return reduce_losses(losses + 0.5 * _LOG_TWO_PI if full else losses, reduction)


def _is_one_short(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a shape equals another, except that one axis has length 1."""
    if len(shape) != len(whole):
        return False
    return [n for n, m in zip(shape, whole, strict=True) if n != m] == [1]


@public("fdbr.ops")
@in_single
def poisson_nll_loss(
    x: Array,
    y: Array,
    /,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """The negative log likelihood of counts ``y`` under a Poisson distribution.

    Parameters
    ----------
    x
        The logarithms of the expected counts, floating; without ``log_input`` the counts.
    y
        Counts, in the same shape.
    log_input
        Whether the loss is ``exp(x) - y * x``, or else ``x - y * log(x + eps)``.
    full
        Whether to add Stirling's approximation ``y * log(y) - y + 0.5 * log(2 * pi * y)`` where
        ``y`` is above 1.
    eps
        A number added to ``x`` without ``log_input``.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.poisson_nll_loss(np.array([0.0, 0.0]), np.array([1.0, 2.0]))
    np.float64(1.0)
    """
    check_reduction("poisson_nll_loss", reduction)
    x, y = same_shape("poisson_nll_loss", x=x, y=y)
    losses = exp(x) - y * x if log_input else x - y * log(x + eps)
    if full:
        many = y > 1
        count = where(many, y, 1)
        stirling = (count + 0.5) * log(count) - count + 0.5 * _LOG_TWO_PI
        losses = losses + where(many, stirling, 0)
    return reduce_losses(losses, reduction)


@public("fdbr.ops")
@in_single
def kl_div_loss(
    log_probs: Array, target: Array, /, *, reduction: str = "mean", log_target: bool = False
) -> Any:
    """The Kullback-Leibler divergence ``target * (log(target) - log_probs)``, element by element.

    It is PyTorch's ``kl_div``; `kl_div` is SciPy's, of probabilities.

    Parameters
    ----------
    log_probs
        Logarithms of probabilities, floating.
    target
        Probabilities in the same shape; 0 contributes nothing.
    reduction
        ``"mean"`` over all elements; ``"batchmean"``, the sum divided by the length of the first
        axis, which is the divergence; ``"sum"`` or ``"none"``.
    log_target
        Whether ``target`` holds logarithms as well.

    Raises
    ------
    ValueError
        If the shapes differ, or ``reduction`` is unknown.
    TypeError
        If ``log_probs`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.kl_div_loss(np.log([[0.5, 0.5]]), np.array([[1.0, 0.0]]), reduction="batchmean")
    np.float64(0.6931471805599453)
    """
    check_reduction("kl_div_loss", reduction, "batchmean")
    log_probs, target = same_shape("kl_div_loss", log_probs=log_probs, target=target)
    if log_target:
        losses = exp(target) * (target - log_probs)
    else:
        losses = xlogy(target, target) - target * log_probs
    if reduction != "batchmean":
        return reduce_losses(losses, reduction)
    return safe_ratio(sum(losses), losses.shape[0] if losses.ndim else 1)
