"""Variants of dropout, and random samples, with an explicit random key."""

import math
from typing import Any

import numpy as np

from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axis
from fdbr.ops.declare import constant, leading, shifted
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import as_weak, astype, is_number, rounded_like
from fdbr.ops.elementwise.arithmetic import add, multiply
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.exponential import exp
from fdbr.ops.nn.activations.exponentials import softmax
from fdbr.ops.nn.activations.gates import parametric_relu
from fdbr.ops.nn.activations.nonlinearities import leaky_relu
from fdbr.ops.nn.noise.dropout import check_key, check_rate, kept
from fdbr.ops.philox import random_words
from fdbr.ops.products import linear, matmul
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import expand_dims, squeeze
from fdbr.ops.special.errors import ndtri
from fdbr.ops.special.library import refuse_complex
from fdbr.pytrees.typing import Array, ArrayLike, Key

__all__ = [
    "alpha_dropout",
    "gaussian",
    "gaussian_dropout",
    "gumbel_softmax",
    "rrelu",
    "simplified_dropconnect",
    "zoneout",
]

_SELU_END = -1.7580993408473766  # the limit of `selu` at -inf


@constant(batch=leading(1), total=True)
def _noise(xp: Any, key: Any, *, shape: tuple[int, ...], law: str) -> Array:
    """Draw float64 numbers, equal to those of `fdbr.random` with the same key."""
    words = random_words.primitive.on(xp)(xp, key, 0, shape=shape, use=0)
    unit = ((words >> 12).astype(xp.float64) + 0.5) * 2.0**-52
    if law == "uniform":
        return unit
    if law == "normal":
        return ndtri.primitive.on(xp)(xp, unit)
    return -xp.log(-xp.log(unit))


def _draw(function: str, law: str, x: Any, key: Any) -> Any:
    """Draw numbers of the shape and dtype of ``x``."""
    key = beside(check_key(f"fdbr.ops.{function}", key), x)
    return astype(_noise(key, shape=x.shape, law=law), x.dtype)


def uniform_draws(function: str, shape: tuple[int, ...], key: Any, x: Any) -> Any:
    """Draw float64 numbers in [0, 1) on the device of an array."""
    return _noise(beside(check_key(function, key), x), shape=shape, law="uniform")


# --- variants of dropout --------------------------------------------------------------


@public("fdbr.ops")
def alpha_dropout(
    x: ArrayLike, rate: float = 0.5, *, p: float | None = None, channels: bool = False, key: Key
) -> Array:
    """Dropout that preserves mean 0 and variance 1, by setting elements to the limit of `selu`.

    Klambauer, Unterthiner, Mayr & Hochreiter, *Self-normalizing neural networks*, NIPS 2017.

    Parameters
    ----------
    x
        Real floating.
    rate, p, key
        As for `dropout`.
    channels
        Whether to drop whole channels; ``x`` then has shape ``(N, C, ...)``.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`, or if ``x`` has no channel axis.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> out = ops.alpha_dropout(np.zeros(1000), 0.5, key=fdbr.random.key(0))
    >>> sorted(set(out.round(3).tolist()))
    [-0.779, 0.779]
    """
    rate = check_rate("fdbr.ops.alpha_dropout", rate if p is None else p)
    x = floating(x)
    shape = x.shape
    if channels:
        if x.ndim < 2:
            raise ValueError(
                f"fdbr.ops.alpha_dropout: x must have shape (N, C, ...), got {describe(x)}"
            )
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    stay = kept("fdbr.ops.alpha_dropout", x, rate, key, shape)
    scale = 1 / math.sqrt((_SELU_END * _SELU_END * rate + 1) * (1 - rate))
    out = where(stay, x, as_weak(_SELU_END, x)) * scale - _SELU_END * scale * rate
    return rounded_like(out, x)


@public("fdbr.ops")
def gaussian_dropout(x: ArrayLike, rate: float = 0.5, *, key: Key) -> Array:
    """Multiply each element by normal noise with mean 1 and variance ``rate / (1 - rate)``.

    This is the variance of `dropout`: Srivastava et al., *Dropout*, JMLR 2014, section 10.

    Parameters
    ----------
    x
        Real floating.
    rate, key
        As for `dropout`.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> out = ops.gaussian_dropout(np.ones(10_000), 0.2, key=fdbr.random.key(0))
    >>> round(float(out.mean()), 1), round(float(out.std()), 1)
    (1.0, 0.5)
    """
    rate = check_rate("fdbr.ops.gaussian_dropout", rate)
    x = floating(x)
    noise = _draw("gaussian_dropout", "normal", x, key)
    return rounded_like(x + x * noise * math.sqrt(rate / (1 - rate)), x)


@public("fdbr.ops")
def zoneout(h: ArrayLike, x: ArrayLike, rate: float = 0.5, *, key: Key) -> Array:
    """Keep each element of the old state with probability ``rate``, and take the new one otherwise.

    Krueger et al., *Zoneout: regularizing RNNs by randomly preserving hidden activations*, ICLR
    2017.  In inference the result is ``x`` in Chainer, and ``rate * h + (1 - rate) * x`` in the
    paper: this function is for training alone.

    Parameters
    ----------
    h
        The old state.
    x
        The new state, of the same shape.
    rate, key
        As for `dropout`.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`, or if the shapes differ.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.zoneout(np.zeros(6), np.ones(6), 0.5, key=fdbr.random.key(0)).tolist()
    [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    """
    rate = check_rate("fdbr.ops.zoneout", rate)
    h, x = floating(h), floating(x)
    if h.shape != x.shape:
        raise ValueError(
            f"fdbr.ops.zoneout: h {describe(h)} and x {describe(x)} must have one shape"
        )
    return where(kept("fdbr.ops.zoneout", x, rate, key), x, h)


@public("fdbr.ops")
def simplified_dropconnect(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    rate: float = 0.5,
    *,
    batchwise: bool = True,
    mask: ArrayLike | None = None,
    key: Key | None = None,
) -> Array:
    """`linear` with dropout of elements of the weight, the others divided by ``1 - rate``.

    After Wan et al., *Regularization of neural networks using DropConnect*, ICML 2013; simplified:
    inference uses the weight itself, where the paper samples.

    Parameters
    ----------
    x
        Shape ``(N, ..., in)``.
    weight
        Shape ``(out, in)``.
    bias
        Shape ``(out,)``, or `None`.
    rate, key
        As for `dropout`.
    batchwise
        Whether each example (each row of ``x``) drops its own elements, or all drop the same.
    mask
        The elements to keep, instead of ``key``: booleans of shape ``(*x.shape[:-1], out, in)``, or
        ``(out, in)``.

    Returns
    -------
    array
        Shape ``(N, ..., out)``.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`, or if shapes do not fit.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> x, weight = np.ones((2, 3)), np.ones((1, 3))
    >>> ops.simplified_dropconnect(x, weight, rate=0.5, key=fdbr.random.key(0)).tolist()
    [[4.0], [6.0]]
    """
    name = "fdbr.ops.simplified_dropconnect"
    rate = check_rate(name, rate)
    x, weight = floating(x), floating(weight)
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{name}: x {describe(x)} must have shape (..., in), and weight {describe(weight)} "
            "shape (out, in)"
        )
    per_example = (*x.shape[:-1], *weight.shape)
    if mask is None:
        mask = kept(name, weight, rate, key, per_example if batchwise else weight.shape)
    elif tuple(mask.shape) not in (per_example, weight.shape):
        raise ValueError(
            f"{name}: mask {describe(mask)} must have shape {weight.shape}, or {per_example}"
        )
    scaled = where(mask, weight, 0) * (1 / (1 - rate))
    if scaled.ndim == 2:
        return rounded_like(linear(x, scaled, bias), x, weight)
    out = squeeze(matmul(scaled, expand_dims(x, axis=-1)), axis=-1)
    out = rounded_like(out, x, weight)
    return out if bias is None else out + bias


@public("fdbr.ops")
def rrelu(x: Any, lower: float = 1 / 8, upper: float = 1 / 3, *, key: Any = None) -> Any:
    """``x`` where it is positive, and elsewhere ``x`` times a random slope.

    Xu, Wang, Chen & Li, *Empirical evaluation of rectified activations in convolutional network*,
    arXiv:1505.00853.

    Parameters
    ----------
    x
        Real floating.
    lower, upper
        The bounds between which each element's slope is drawn uniformly.
    key
        A key; with `None`, as for inference, all slopes are the mean of the bounds.

    Raises
    ------
    ValueError
        If ``lower`` is above ``upper``.
    TypeError
        If ``key`` is not a key.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.rrelu(np.array([-8.0, 1.0]), 0.25, 0.5)
    array([-3.,  1.])
    """
    if not lower <= upper:
        raise ValueError(f"fdbr.ops.rrelu: lower must not be above upper, got {lower} and {upper}")
    refuse_complex("rrelu", x)
    if key is None:
        return leaky_relu(x, (lower + upper) / 2)
    x = floating(x)
    derivatives = multiply(_draw("rrelu", "uniform", x, key), float(upper - lower))
    return rounded_like(parametric_relu(x, add(derivatives, float(lower))), x)


# --- samples ------------------------------------------------------------------------


@public("fdbr.ops")
def gaussian(mean: ArrayLike, ln_var: ArrayLike, /, *, key: Key) -> Array:
    """A normal sample, ``mean + exp(ln_var / 2) * noise``, differentiable in both.

    Kingma & Welling, *Auto-encoding variational Bayes*, ICLR 2014.

    Parameters
    ----------
    mean, ln_var
        The means and the logarithms of the variances, of one shape.
    key
        A key of `fdbr.random`; the noise is that of `fdbr.random.normal` with this key.

    Raises
    ------
    ValueError
        If the shapes differ.
    TypeError
        If ``key`` is not a key.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> key = fdbr.random.key(0)
    >>> sample = ops.gaussian(np.ones(2), np.zeros(2), key=key)
    >>> bool((sample == 1 + fdbr.random.normal(key, (2,))).all())
    True
    """
    mean, ln_var = floating(mean), floating(ln_var)
    if mean.shape != ln_var.shape:
        raise ValueError(
            f"fdbr.ops.gaussian: mean {describe(mean)} and ln_var {describe(ln_var)} must have "
            "one shape"
        )
    out = mean + exp(ln_var * 0.5) * _draw("gaussian", "normal", mean, key)
    return rounded_like(out, mean, ln_var)


@public("fdbr.ops")
def gumbel_softmax(
    logits: ArrayLike,
    /,
    tau: float = 1.0,
    *,
    hard: bool = False,
    axis: int = -1,
    dim: int | None = None,
    key: Key,
) -> Array:
    """A differentiable sample of a class: the `softmax` of logits plus Gumbel noise.

    Jang, Gu & Poole, *Categorical reparameterization with Gumbel-softmax*, ICLR 2017.

    Parameters
    ----------
    logits
        The logarithms of probabilities, up to a constant.
    tau
        The temperature: samples approach one-hot vectors as it approaches 0.  (The default is
        PyTorch's; Chainer's is 0.1.)
    hard
        Whether the sample is one-hot, with the derivative of the soft one ("straight through").
    axis, dim
        The axis of the classes; ``dim`` is PyTorch's name.  (Chainer's default is 1.)
    key
        A key of `fdbr.random`.

    Raises
    ------
    ValueError
        If ``tau`` is not positive.
    TypeError
        If ``key`` is not a key.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.gumbel_softmax(np.zeros(3), hard=True, key=fdbr.random.key(0))
    array([0., 1., 0.])
    """
    logits = floating(logits)
    if not hasattr(tau, "shape") and not tau > 0:
        raise ValueError(f"fdbr.ops.gumbel_softmax: tau must be positive, got {tau}")
    position = normalize_axis(
        either_axis("gumbel_softmax", axis, dim), logits.ndim, "gumbel_softmax"
    )
    noise = _draw("gumbel_softmax", "gumbel", logits, key)
    if isinstance(tau, np.generic):
        tau = float(tau)
    soft = softmax((logits + noise) / tau, axis=position)
    if is_number(tau):
        soft = rounded_like(soft, logits)
    if not hard:
        return soft
    return _largest(soft, axis=position) + (soft - stop_gradient(soft))


@constant(batch=shifted("axis"), total=True)
def _largest(xp: Any, x: ArrayLike, *, axis: int) -> Array:
    """1 at the first of the largest elements along an axis, and 0 elsewhere."""
    indices = xp.cumsum(xp.ones(x.shape, dtype=xp.int64), axis=axis) - 1
    return (indices == xp.expand_dims(xp.argmax(x, axis=axis), axis)).astype(x.dtype)
