"""Losses of distances between similar and dissimilar vectors."""

from collections.abc import Callable
from typing import Any

from fdbr.core.array_modules import Array, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import either_axis, normalize_axis
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.arithmetic import maximum, minimum, sqrt
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.linalg.norms import vector_norm
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.losses.checks import (
    any_known,
    check_reduction,
    check_signs,
    extremes,
    floats_of,
    reduce_losses,
    same_shape,
)
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_shapes, broadcast_to

__all__ = [
    "contrastive",
    "cosine_embedding_loss",
    "cosine_similarity",
    "pairwise_distance",
    "triplet",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

_TINY = 1e-12  # added to squared lengths, as in PyTorch


def _rows(name: str, least: int = 1, **operands: Any) -> list[Any]:
    """Check arrays of one shape with an axis of vectors."""
    found = same_shape(name, **operands)
    if found[0].ndim < least:
        what = "an axis of vectors" if least == 1 else "axes of examples and of vectors"
        argument = next(iter(operands))
        raise ValueError(f"fdbr.ops.{name}: {argument} {describe(found[0])} must have {what}")
    return found


# --- distances ----------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def cosine_similarity(
    x: Array,
    y: Array,
    /,
    *,
    axis: int | None = None,
    eps: float = 1e-8,
    dim: int | None = None,
) -> Any:
    """The cosine of the angle between vectors: their inner product divided by their norms.

    Parameters
    ----------
    x, y
        Vectors along ``axis``, floating; the shapes broadcast.
    axis, dim
        The axis of the vectors: by default the second, as in PyTorch, or the only one.  ``dim`` is
        PyTorch's name.
    eps
        The least norm in the divisor.

    Returns
    -------
    array
        In the shape of ``x`` and ``y`` without ``axis``.

    Raises
    ------
    ValueError
        If the shapes do not broadcast, or the axis does not exist.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.cosine_similarity(np.array([1.0, 0.0]), np.array([3.0, 4.0]))
    np.float64(0.6)
    """
    x, y = floats_of("cosine_similarity", x=x, y=y)
    shape = broadcast_shapes("cosine_similarity", x.shape, y.shape)
    ndim = len(shape)
    if not ndim:
        raise ValueError("fdbr.ops.cosine_similarity: x and y are numbers; give arrays of vectors")
    axis = either_axis("cosine_similarity", axis, dim, None)
    axis = min(1, ndim - 1) if axis is None else axis
    axis = normalize_axis(axis, ndim, "cosine_similarity") - ndim
    if any(v.ndim < -axis or v.shape[axis] != shape[axis] for v in (x, y)):
        x, y = (broadcast_to(v, shape) for v in (x, y))  # scalars broadcast to vectors
    lengths = (maximum(vector_norm(v, axis=axis, keepdims=True), eps) for v in (x, y))
    a, b = (v / length for v, length in zip((x, y), lengths, strict=True))
    return sum(a * b, axis=axis)


def _distance(x: Any, y: Any, p: float, eps: float, keepdims: bool = False) -> Any:
    return vector_norm(x - y + eps, axis=-1, ord=p, keepdims=keepdims)


@public("fdbr.ops")
@in_single
def pairwise_distance(
    x: Array,
    y: Array,
    /,
    *,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdims: bool = False,
    keepdim: bool = False,
) -> Any:
    """The ``p``-norm of ``x - y + eps`` along the last axis.

    Parameters
    ----------
    x, y
        Vectors along the last axis, floating; the shapes broadcast.
    p
        The order of the norm.
    eps
        A number added to the differences, so that the derivative exists at 0.
    keepdims, keepdim
        Whether to keep the last axis with length 1; ``keepdim`` is PyTorch's name.

    Raises
    ------
    ValueError
        If the shapes do not broadcast, or have no axis.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.pairwise_distance(np.array([[3.0, 4.0]]), np.array([[0.0, 0.0]]), eps=0)
    array([5.])
    """
    x, y = floats_of("pairwise_distance", x=x, y=y)
    if not broadcast_shapes("pairwise_distance", x.shape, y.shape):
        raise ValueError("fdbr.ops.pairwise_distance: x and y are numbers; give arrays of vectors")
    return _distance(x, y, p, eps, keepdims or keepdim)


# --- pairs --------------------------------------------------------------------------


def _labels_of_pairs(name: str, labels: Any, x: Any) -> Any:
    labels = asarray(labels)
    if labels.dtype.kind not in "iubf":
        raise TypeError(f"fdbr.ops.{name}: labels must be numbers, not {describe(labels)}")
    if labels.shape != x.shape[:-1]:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} must be one for each pair of {describe(x)}"
            f": shape {x.shape[:-1]}"
        )
    return labels


@public("fdbr.ops")
@where_it_lies
@in_single
def contrastive(
    x: Array, y: Array, labels: Array, /, *, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """The contrastive loss: similar pairs attract, others repel up to a margin.

    ``0.5 * d**2`` for pairs with label 1 and ``0.5 * max(margin - d, 0)**2`` for those with 0,
    where ``d`` is the distance: Hadsell, Chopra & LeCun, *Dimensionality reduction by learning an
    invariant mapping*, CVPR 2006.

    Parameters
    ----------
    x, y
        Vectors along the last axis, floating, of one shape ``(..., size)``.
    labels
        1 for pairs that are similar and 0 for others, shape ``(...)``.
    margin
        A positive number.
    reduction
        ``"mean"`` over pairs, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is neither 0 nor 1, or an argument is invalid.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[-2.0, 3.0, 0.5], [5.0, 2.0, -0.5]])
    >>> y = np.array([[-1.0, 3.0, 1.0], [3.5, 0.5, -2.0]])
    >>> ops.contrastive(x, y, np.array([1, 0]))
    np.float64(0.3125)
    """
    check_reduction("contrastive", reduction)
    _check_margin("contrastive", margin)
    x, y = _rows("contrastive", x=x, y=y)
    labels = _labels_of_pairs("contrastive", labels, x)
    if any_known((labels != 0) & (labels != 1)):
        raise ValueError(
            f"fdbr.ops.contrastive: labels must be 0 or 1, got {describe(labels)}{extremes(labels)}"
        )
    share = astype(beside(labels, x), x.dtype)
    away = x - y
    apart = relu(margin - vector_norm(away, axis=-1))
    losses = 0.5 * (share * sum(away * away, axis=-1) + (1 - share) * apart * apart)
    return reduce_losses(losses, reduction)


def _check_margin(name: str, margin: float) -> None:
    if not margin > 0:
        raise ValueError(f"fdbr.ops.{name}: margin must be positive, got {margin}")


@public("fdbr.ops")
@where_it_lies
@in_single
def cosine_embedding_loss(
    x: Array, y: Array, labels: Array, /, *, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """The cosine loss: ``1 - cos`` for label 1, and ``max(0, cos - margin)`` for label -1.

    Parameters
    ----------
    x, y
        Vectors along the last axis, floating, of one shape ``(..., size)``.
    labels
        1 for pairs that are similar and -1 for others, shape ``(...)``.
    margin
        The cosine of dissimilar pairs up to which there is no loss, from -1 to 1.
    reduction
        ``"mean"`` over pairs, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is neither 1 nor -1, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, y = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> ops.cosine_embedding_loss(x, y, np.array([1, -1]), reduction="none")
    array([1., 1.])
    """
    name = "cosine_embedding_loss"
    check_reduction(name, reduction)
    x, y = _rows(name, x=x, y=y)
    labels = _labels_of_pairs(name, labels, x)
    check_signs(name, labels)
    squares = (sum(x * x, axis=-1) + _TINY) * (sum(y * y, axis=-1) + _TINY)
    cosines = sum(x * y, axis=-1) / sqrt(squares)
    losses = where(beside(labels, x) > 0, 1 - cosines, relu(cosines - margin))
    return reduce_losses(losses, reduction)


# --- triplets -----------------------------------------------------------------------


@public("fdbr.ops")
@in_single
def triplet(
    anchor: Array,
    positive: Array,
    negative: Array,
    /,
    *,
    margin: float = 0.2,
    reduction: str = "mean",
) -> Any:
    """The triplet loss of squared distances: ``max(d(a, p) - d(a, n) + margin, 0)``.

    This is Chainer's loss; PyTorch's, of distances, is `triplet_margin_loss`.  Wang et al.,
    *Learning fine-grained image similarity with deep ranking*, CVPR 2014.

    Parameters
    ----------
    anchor, positive, negative
        Floating, of one shape ``(batch, size, ...)``: distances are along the second axis.
    margin
        A positive number.
    reduction
        ``"mean"``, the sum divided by the length of the first axis, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or an argument is invalid.
    TypeError
        If ``anchor`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> a, p, n = np.zeros((1, 2)), np.full((1, 2), 0.5), np.array([[0.0, 0.5]])
    >>> ops.triplet(a, p, n)
    np.float64(0.45)
    """
    check_reduction("triplet", reduction)
    _check_margin("triplet", margin)
    anchor, positive, negative = _rows(
        "triplet", 2, anchor=anchor, positive=positive, negative=negative
    )
    near, far = anchor - positive, anchor - negative
    losses = relu(sum(near * near - far * far, axis=1) + margin)
    if reduction == "mean" and losses.ndim > 1:
        return sum(losses) / losses.shape[0]
    return reduce_losses(losses, reduction)


@public("fdbr.ops")
@in_single
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    /,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """The triplet loss of distances: ``max(d(a, p) - d(a, n) + margin, 0)``.

    Balntas et al., *Learning shallow convolutional feature descriptors with triplet losses*,
    BMVC 2016.

    Parameters
    ----------
    anchor, positive, negative
        Vectors along the last axis, floating, of one shape.
    margin
        A positive number.
    p, eps
        The order of the norm, and what is added to differences: see `pairwise_distance`.
    swap
        Whether the distance between ``positive`` and ``negative`` takes the place of that between
        ``anchor`` and ``negative`` where it is smaller.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or an argument is invalid.
    TypeError
        If ``anchor`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> a, p, n = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 1.0]])
    >>> round(ops.triplet_margin_loss(a, p, n), 4)
    np.float64(5.0)
    """
    name = "triplet_margin_loss"
    check_reduction(name, reduction)
    _check_margin(name, margin)
    rows = _rows(name, anchor=anchor, positive=positive, negative=negative)

    def distance(x: Any, y: Any) -> Any:
        return _distance(x, y, p, eps)

    return reduce_losses(_margins(rows, distance, margin, swap), reduction)


@public("fdbr.ops")
def triplet_margin_with_distance_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    /,
    *,
    distance_function: Callable[..., Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """`triplet_margin_loss` with a custom distance.

    Parameters
    ----------
    anchor, positive, negative
        Arguments of the distance function; for the default, floating arrays of one shape.
    distance_function
        A function of two of them that returns an array of distances; `pairwise_distance` by
        default.
    margin
        A positive number.
    swap
        Whether the distance between ``positive`` and ``negative`` takes the place of that between
        ``anchor`` and ``negative`` where it is smaller.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, or an argument is invalid.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> def cosine(x, y):
    ...     return 1 - ops.cosine_similarity(x, y, axis=-1)
    >>> x = np.eye(2)
    >>> ops.triplet_margin_with_distance_loss(x, x, x[::-1], distance_function=cosine)
    np.float64(0.0)
    """
    name = "triplet_margin_with_distance_loss"
    check_reduction(name, reduction)
    _check_margin(name, margin)
    rows = [anchor, positive, negative]
    if distance_function is None:
        distance_function = pairwise_distance
        rows = _rows(name, anchor=anchor, positive=positive, negative=negative)
    return reduce_losses(_margins(rows, distance_function, margin, swap), reduction)


def _margins(rows: list[Any], distance: Any, margin: float, swap: bool) -> Any:
    anchor, positive, negative = rows
    far = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return relu(distance(anchor, positive) - far + float(margin))
