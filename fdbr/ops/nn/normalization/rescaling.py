"""Normalization by neighbouring channels, by norms, and by known statistics."""

from typing import Any

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axes
from fdbr.ops.declare import aligned, constant, linear, shifted
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.arithmetic import maximum, sqrt
from fdbr.ops.linalg.norms import vector_norm
from fdbr.ops.nn.normalization.statistics import batch_norm, layer_norm
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import reshape
from fdbr.ops.special.library import refuse_complex

__all__ = ["batch_renorm", "local_response_norm", "normalize", "standardize"]


@linear(
    x=lambda ct, low, high, axis: _window_sums(ct, low=high, high=low, axis=axis),
    batch=shifted("axis"),
)
def _window_sums(xp: Any, x: Array, *, low: int, high: int, axis: int) -> Array:
    """Sum each element and its neighbours, ``low`` before and ``high`` after it, along an axis."""
    out = x.copy()
    before = (slice(None),) * axis
    length = x.shape[axis]
    for steps in range(1, min(low, length - 1) + 1):
        out[(*before, slice(steps, None))] += x[(*before, slice(None, length - steps))]
    for steps in range(1, min(high, length - 1) + 1):
        out[(*before, slice(None, length - steps))] += x[(*before, slice(steps, None))]
    return out


@public("fdbr.ops")
@in_single
def local_response_norm(
    x: Array,
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    average: bool = True,
) -> Any:
    """Divide each element by a power of the squares in neighbouring channels.

    ``x / (k + alpha * mean of squares) ** beta``: Krizhevsky, Sutskever & Hinton, *ImageNet
    classification with deep convolutional neural networks*, NIPS 2012.

    Parameters
    ----------
    x
        Real floating, shape ``(N, C, *spatial)``.
    size
        The number of channels in a window: ``size // 2`` before each channel, and
        ``(size - 1) // 2`` after it; channels outside ``x`` count as 0.
    alpha, beta, k
        Numbers, with PyTorch's defaults.
    average
        Whether to divide the sum of squares by ``size``, as in PyTorch.  Chainer and the paper do
        not, over ``size // 2`` channels on both sides: their defaults are ``average=False, k=2``.

    Raises
    ------
    TypeError, ValueError
        If ``x`` has no channel axis or is complex, or ``size`` is not a positive integer.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[1.0, 2.0, 3.0]])
    >>> ops.local_response_norm(x, 3, alpha=1.0, beta=1.0, average=False, k=0.0)
    array([[0.2       , 0.14285714, 0.23076923]])
    """
    name = "fdbr.ops.local_response_norm"
    x = floating(x)
    count = integer(name, "size", size, least=1)
    if x.dtype.kind == "c":
        raise TypeError(f"{name}: x must be real, not {describe(x)}")
    if x.ndim < 2:
        raise ValueError(f"{name}: x must have shape (N, C, ...), got {describe(x)}")
    high = (count - 1) // 2 if average else count // 2
    squares = _window_sums(x * x, low=count // 2, high=high, axis=1)
    rate = float(alpha) / count if average else float(alpha)
    return x * (squares * rate + float(k)) ** -float(beta)


@public("fdbr.ops")
@in_single
def normalize(
    x: Array,
    p: float = 2.0,
    axis: int | tuple[int, ...] = 1,
    eps: float = 1e-12,
    *,
    add_eps: bool = False,
    dim: int | tuple[int, ...] | None = None,
) -> Any:
    """Divide vectors along an axis by their norm: ``x / max(norm(x), eps)``.

    Parameters
    ----------
    x
        An array.
    p
        The norm's order; 2 is the Euclidean one.
    axis, dim
        The axis or axes of the vectors; ``dim`` is PyTorch's name.
    eps
        The least divisor.
    add_eps
        Whether to add ``eps`` to the norm instead, as in Chainer, where it is 1e-5.

    Raises
    ------
    ValueError
        If the axis does not exist.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = floating(x)
    axes = normalize_axes(either_axis("normalize", axis, dim, 1), x.ndim, "normalize")
    norm = vector_norm(x, axis=axes, keepdims=True, ord=p)
    return x / (norm + float(eps) if add_eps else maximum(norm, float(eps)))


@public("fdbr.ops")
@in_single
def standardize(
    x: Array,
    *,
    axis: int | tuple[int, ...] = -1,
    mean: Array = None,
    variance: Array = None,
    eps: float = 1e-5,
) -> Any:
    """``(x - mean) / sqrt(variance + eps)``, with known statistics or those over some axes.

    Parameters
    ----------
    x
        Real floating.
    axis
        The axes of the statistics, if none are given.
    mean, variance
        Known statistics, which broadcast with ``x``.
    eps
        A positive number that avoids division by 0.

    Raises
    ------
    ValueError
        If only one of the statistics is given.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.standardize(np.array([1.0, 3.0]), eps=0.0)
    array([-1.,  1.])
    """
    if (mean is None) != (variance is None):
        raise ValueError("fdbr.ops.standardize: give both mean and variance, or neither")
    if mean is None:
        return layer_norm(x, axis=axis, eps=eps)
    refuse_complex("standardize", asarray(x))
    return (floating(x) - mean) / sqrt(asarray(variance) + float(eps))


# --- batch renormalization ----------------------------------------------------------


@constant(batch=aligned)
def _clipped_ratio(xp: Any, variance: Array, known: Array, *, eps: float, limit: float) -> Array:
    """The ratio of a batch's standard deviations to the known ones, within limits."""
    ratio = xp.sqrt((variance + eps) / (known + eps))
    return xp.minimum(xp.maximum(ratio, 1 / limit), limit)


@constant(batch=aligned)
def _clipped_shift(
    xp: Any, mean: Array, known: Array, variance: Array, *, eps: float, limit: float
) -> Array:
    """The difference of a batch's means from the known ones, in known deviations, within limits."""
    away = (mean - known) / xp.sqrt(variance + eps)
    return xp.minimum(xp.maximum(away, -limit), limit)


@public("fdbr.ops")
@in_single
def batch_renorm(
    x: Array,
    weight: Array = None,
    bias: Array = None,
    *,
    running_mean: Array,
    running_var: Array,
    r_max: float = 3.0,
    d_max: float = 5.0,
    axis: int = 1,
    eps: float = 1e-5,
) -> tuple[Any, Any, Any]:
    """`batch_norm` with a bounded correction towards known statistics.

    ``batch_norm(x) * r + d`` with ``r = std / running_std``, clipped to ``[1 / r_max, r_max]``, and
    ``d = (mean - running_mean) / running_std``, clipped to ``[-d_max, d_max]``; ``r`` and ``d`` are
    constants for derivatives: Ioffe, *Batch renormalization*, NIPS 2017.

    Parameters
    ----------
    x, weight, bias, axis, eps
        As for `batch_norm`.  (Chainer's eps is 2e-5.)
    running_mean, running_var
        The known statistics, shape ``(C,)``.
    r_max, d_max
        The limits.  With 1 and 0, Chainer's defaults, it is `batch_norm`; the paper starts with
        these and ends at 3 and 5.

    Returns
    -------
    out
        The normalized array, times weight, plus bias.
    mean, variance
        The statistics of ``x``, as of `batch_norm`.

    Raises
    ------
    TypeError, ValueError
        As for `batch_norm`, or if ``r_max`` is below 1 or ``d_max`` below 0.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> known = {"running_mean": np.array([0.0]), "running_var": np.array([1.0])}
    >>> out, _, _ = ops.batch_renorm(np.array([[1.0], [3.0]]), eps=0.0, **known)
    >>> out
    array([[1.],
           [3.]])
    """
    name = "fdbr.ops.batch_renorm"
    if not (r_max >= 1 and d_max >= 0):
        raise ValueError(
            f"{name}: r_max must be at least 1 and d_max at least 0, got {r_max} and {d_max}"
        )
    x = floating(x)
    out, mean, variance = batch_norm(x, axis=axis, eps=eps)
    known = {"running_mean": asarray(running_mean), "running_var": asarray(running_var)}
    for title, value in known.items():
        known[title] = astype(value, mean.dtype)
        if value.shape != mean.shape:
            raise ValueError(
                f"{name}: {title} {describe(value)} does not fit x {describe(x)}; it must have "
                f"shape {mean.shape}"
            )
    center, spread = known.values()
    scale = _clipped_ratio(variance, spread, eps=float(eps), limit=float(r_max))
    offset = _clipped_shift(mean, center, spread, eps=float(eps), limit=float(d_max))
    return _scale_and_shift(name, out, scale, offset, weight, bias, axis), mean, variance


def _scale_and_shift(
    name: str, out: Any, scale: Any, offset: Any, weight: Any, bias: Any, axis: int
) -> Any:
    """``(out * scale + offset) * weight + bias`` along one axis."""
    for title, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != tuple(scale.shape):
            raise ValueError(
                f"{name}: {title} {describe(value)} does not fit {describe(out)}; it must have "
                f"shape {tuple(scale.shape)}"
            )
    lengths = [1] * out.ndim
    lengths[axis] = -1
    out = out * reshape(scale, lengths) + reshape(offset, lengths)
    if weight is not None:
        out = out * reshape(weight, lengths)
    return out if bias is None else out + reshape(bias, lengths)
