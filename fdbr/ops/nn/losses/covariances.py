"""Losses that decorrelate features, or separate clusters."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import where_it_lies
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.arithmetic import maximum
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.linalg.norms import vector_norm
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.losses.checks import any_known, check_choice, extremes, floats_of
from fdbr.ops.reductions.reduce import mean, sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import expand_dims, matrix_transpose, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["cross_covariance", "decov", "discriminative_margin_based_clustering_loss"]

_REDUCTIONS = ("half_squared_sum", "none")


def _features(name: str, **operands: Any) -> list[Any]:
    """Check matrices with the same number of examples, and subtract their means."""
    found = floats_of(name, **operands)
    for argument, x in zip(operands, found, strict=True):
        if x.ndim != 2 or x.shape[0] != found[0].shape[0] or not x.shape[0]:
            raise ValueError(
                f"fdbr.ops.{name}: {argument} must be a matrix with a row for each example, got "
                f"{describe(x)}" + (f" beside {describe(found[0])}" if x is not found[0] else "")
            )
    return [x - mean(x, axis=0, keepdims=True) for x in found]


def _half_squares(covariance: Any, reduction: str) -> Any:
    return covariance if reduction == "none" else 0.5 * sum(covariance * covariance)


@public("fdbr.ops")
@in_single
def cross_covariance(
    x: ArrayLike, y: ArrayLike, /, *, reduction: str = "half_squared_sum"
) -> Array:
    """Half the sum of squares of the covariances between two sets of features.

    Cheung, Livezey, Bansal & Olshausen, *Discovering hidden factors of variation in deep networks*,
    ICLR 2015 workshop.

    Parameters
    ----------
    x, y
        Floating, shapes ``(batch, m)`` and ``(batch, n)``.
    reduction
        ``"half_squared_sum"``, or ``"none"`` for the matrix of covariances, shape ``(m, n)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cross_covariance(np.array([[1.0], [-1.0]]), np.array([[2.0], [0.0]]))
    np.float64(0.5)
    """
    check_choice("cross_covariance", "reduction", reduction, _REDUCTIONS)
    x, y = _features("cross_covariance", x=x, y=y)
    return _half_squares(matrix_transpose(x) @ y / x.shape[0], reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def decov(x: ArrayLike, /, *, reduction: str = "half_squared_sum") -> Array:
    """Half the sum of squared covariances between different features.

    Cogswell et al., *Reducing overfitting in deep networks by decorrelating representations*,
    ICLR 2016.

    Parameters
    ----------
    x
        Floating, shape ``(batch, n)``.
    reduction
        ``"half_squared_sum"``, or ``"none"`` for the matrix of covariances, shape ``(n, n)``,
        with zeros on its diagonal.

    Raises
    ------
    ValueError
        If ``x`` is not a matrix with examples, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.decov(np.array([[1.0, 2.0], [-1.0, 0.0]]))
    np.float64(1.0)
    """
    check_choice("decov", "reduction", reduction, _REDUCTIONS)
    (x,) = _features("decov", x=x)
    covariance = matrix_transpose(x) @ x / x.shape[0]
    diagonal = beside(np.eye(x.shape[1], dtype=bool), x)
    return _half_squares(where(diagonal, 0, covariance), reduction)


def _norms(x: Any, excluded: Any, axis: Any, ord: int) -> Any:
    """Return the norms of vectors, and 0 with derivatives 0 of all orders for excluded vectors.

    The second derivatives of the norm of a vector of zeros are NaN.
    """
    kept = where(expand_dims(excluded, axis=-1), 1, x)
    return where(excluded, 0, vector_norm(kept, axis=axis, ord=ord))


@public("fdbr.ops")
@where_it_lies
@in_single
def discriminative_margin_based_clustering_loss(
    embeddings: ArrayLike,
    labels: ArrayLike,
    /,
    *,
    delta_v: float = 0.5,
    delta_d: float = 1.5,
    max_embedding_dim: int | None = None,
    norm: int = 1,
    alpha: float = 1.0,
    beta: float = 1.0,
    gamma: float = 0.001,
) -> tuple[Any, Any, Any]:
    """The discriminative loss: embeddings of one instance attract, instances repel each other.

    De Brabandere, Neven & Van Gool, *Semantic instance segmentation with a discriminative loss
    function*, CVPR 2017 workshop; as in Chainer, instances missing in an image have mean 0.

    Parameters
    ----------
    embeddings
        Floating, shape ``(batch, size, *pixels)``.
    labels
        Integers, shape ``(batch, *pixels)``: the instances 1, 2, …; other labels mean no instance.
    delta_v
        The distance of a pixel from the mean of its instance up to which there is no loss.
    delta_d
        Half the distance between means of instances from which on there is no loss.
    max_embedding_dim
        The number of instances; by default ``size``, which it must be in Chainer.
    norm
        1 for the L1 distance, 2 for the Euclidean distance.
    alpha, beta, gamma
        The weights of the three losses.

    Returns
    -------
    tuple
        Three scalars: the losses of pixels far from the mean of their instance, of means near each
        other, and of means far from 0.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is larger than the number of instances, or a setting is
        wrong.
    TypeError
        If the embeddings are not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> near, apart, size = ops.discriminative_margin_based_clustering_loss(
    ...     np.array([[[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 0.0, 2.0]]]), np.array([[1, 1, 2, 2]])
    ... )
    >>> near, apart, round(size, 6)
    (np.float64(0.125), np.float64(0.0), np.float64(0.0025))
    """
    name = "discriminative_margin_based_clustering_loss"
    if norm not in (1, 2):
        raise ValueError(f"fdbr.ops.{name}: norm must be 1 or 2, got {norm}")
    (x,), labels = floats_of(name, embeddings=embeddings), asarray(labels)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: labels must be integers, not {describe(labels)}")
    if x.ndim < 2 or labels.shape != (x.shape[0], *x.shape[2:]):
        raise ValueError(
            f"fdbr.ops.{name}: embeddings {describe(x)} must have shape (batch, size, *pixels), and"
            f" labels {describe(labels)} the same without the size"
        )
    count = x.shape[1] if max_embedding_dim is None else max_embedding_dim
    count = integer(f"fdbr.ops.{name}", "max_embedding_dim", count, least=1)
    batch = max(x.shape[0], 1)
    area = math.prod(x.shape[2:])
    pixels = reshape(x, (*x.shape[:2], area))
    labels = reshape(beside(labels, x), (x.shape[0], area, 1))
    if any_known(labels > count):
        raise ValueError(
            f"fdbr.ops.{name}: labels{extremes(labels)} for {count} instances, 1 … {count}; "
            "max_embedding_dim is their number"
        )
    own = labels == beside(np.arange(1, count + 1), x)
    of = astype(own, x.dtype)  # (batch, pixels, instances)
    sizes = sum(of, axis=1)
    means = matrix_transpose(of) @ matrix_transpose(pixels)
    means = means / expand_dims(maximum(sizes, 1), axis=-1)  # (batch, instances, size)

    away = matrix_transpose(pixels) - of @ means
    near_mean = vector_norm(stop_gradient(away), axis=-1, ord=norm) <= delta_v
    far = where(near_mean, 0, _norms(away, near_mean, -1, norm) - delta_v)
    spread = sum(expand_dims(far * far, axis=-1) * of, axis=(0, 1)) / maximum(sum(sizes, axis=0), 1)

    first, second = np.triu_indices(count, 1)
    gaps = means[:, beside(first, x)] - means[:, beside(second, x)]
    absent = (sizes[:, beside(first, x)] == 0) & (sizes[:, beside(second, x)] == 0)
    near = relu(2 * delta_d - _norms(gaps, absent, -1, norm))
    lengths = _norms(means, sum(sizes, axis=0) == 0, (0, 2), norm)
    return (
        alpha * (sum(spread) / count),
        beta * (sum(near * near) / max(len(first) * batch, 1)),
        gamma * (sum(lengths) / (count * batch)),
    )
