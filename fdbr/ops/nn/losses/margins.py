"""Margin losses of scores."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.reading import along_axis
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.attention.embedding import embed
from fdbr.ops.nn.losses.checks import (
    check_reduction,
    check_signs,
    floats_of,
    reduce_losses,
    same_shape,
    setting_of,
)
from fdbr.ops.nn.losses.labels import check_labels, checked_labels, select_labels
from fdbr.ops.reductions.cumulative import cumulative_sum
from fdbr.ops.reductions.reduce import any as any_of
from fdbr.ops.reductions.reduce import sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import expand_dims

__all__ = [
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
]


@public("fdbr.ops")
@where_it_lies
@in_single
def margin_ranking_loss(
    x: Array, y: Array, labels: Array, /, *, margin: float = 0.0, reduction: str = "mean"
) -> Any:
    """The ranking loss ``max(0, -label * (x - y) + margin)`` of pairs of scores.

    Parameters
    ----------
    x, y
        Scores, floating, of one shape.
    labels
        1 where ``x`` should be larger and -1 where ``y`` should be, in the same shape.
    margin
        The difference from which on there is no loss.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, a label is neither 1 nor -1, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.margin_ranking_loss(np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([1, 1]))
    np.float64(1.0)
    """
    name = "margin_ranking_loss"
    check_reduction(name, reduction)
    x, y, labels = same_shape(name, x=x, y=y, labels=labels)
    check_signs(name, labels)
    return reduce_losses(relu(margin - labels * (x - y)), reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def hinge_embedding_loss(
    x: Array, labels: Array, /, *, margin: float = 1.0, reduction: str = "mean"
) -> Any:
    """Distances themselves for label 1, and ``max(0, margin - x)`` for label -1.

    Parameters
    ----------
    x
        Distances, floating.
    labels
        1 for pairs that are similar and -1 for others, in the same shape.
    margin
        The distance of dissimilar pairs from which on there is no loss.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``.

    Raises
    ------
    ValueError
        If the shapes differ, a label is neither 1 nor -1, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.hinge_embedding_loss(np.array([0.5, 0.25]), np.array([1, -1]), reduction="none")
    array([0.5 , 0.75])
    """
    name = "hinge_embedding_loss"
    check_reduction(name, reduction)
    x, labels = same_shape(name, x=x, labels=labels)
    check_signs(name, labels)
    return reduce_losses(where(labels > 0, x, relu(margin - x)), reduction)


@public("fdbr.ops")
@where_it_lies
@in_single
def multi_margin_loss(
    x: Array,
    labels: Array,
    /,
    *,
    p: int = 1,
    margin: float = 1.0,
    weight: Array | None = None,
    reduction: str = "mean",
) -> Any:
    """The mean over the other classes of ``max(0, margin - x[label] + x)**p``, by all classes.

    Parameters
    ----------
    x
        Scores, floating, shape ``(..., classes)``.
    labels
        Integers in ``0 … classes - 1``, shape ``(...)``.
    p
        1 or 2.
    margin
        The difference of the label's score to others from which on there is no loss.
    weight
        A weight for each class, shape ``(classes,)``.
    reduction
        ``"mean"`` over examples, ``"sum"``, or ``"none"`` for one loss for each example.

    Raises
    ------
    ValueError
        If the shapes do not fit, a label is out of range, or an argument is unknown.
    TypeError
        If ``x`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.multi_margin_loss(np.array([[0.5, 0.25, 0.0]]), np.array([0]))
    np.float64(0.4166666666666667)
    """
    name = "multi_margin_loss"
    check_reduction(name, reduction)
    if p not in (1, 2):
        raise ValueError(f"fdbr.ops.{name}: p must be 1 or 2, got {p}")
    (x,), labels = floats_of(name, x=x), asarray(labels)
    _check_classes(name, x)
    check_labels(name, labels, x, "x")
    labels = beside(checked_labels(name, labels, x.shape[-1], hint=""), x)
    numbers = beside(np.arange(x.shape[-1]), x)
    # A class at -inf has no loss, even if the label's score is -inf, whose difference is NaN.
    none = (numbers == expand_dims(labels, axis=-1)) | (x == -math.inf)
    above = where(none, 0, x) - expand_dims(select_labels(x, labels), axis=-1)
    gaps = relu(where(none, 0, above + margin))
    if p == 2:
        gaps = gaps * gaps
    losses = sum(gaps, axis=-1) / x.shape[-1]
    if weight is not None:
        weight = setting_of(name, "weight", weight, x)
        if weight.shape != x.shape[-1:]:
            raise ValueError(
                f"fdbr.ops.{name}: weight {describe(weight)} must hold a number for each of the "
                f"{x.shape[-1]} classes"
            )
        losses = losses * embed(weight, labels)
    return reduce_losses(losses, reduction)


def _check_classes(name: str, x: Any) -> None:
    if not x.ndim or not x.shape[-1]:
        raise ValueError(f"fdbr.ops.{name}: x {describe(x)} must have an axis of classes")


@public("fdbr.ops")
@where_it_lies
@in_single
def multilabel_margin_loss(x: Array, labels: Array, /, *, reduction: str = "mean") -> Any:
    """The sum over labels and other classes of ``max(0, 1 - x[label] + x[other])``, by classes.

    Parameters
    ----------
    x
        Scores, floating, shape ``(..., classes)``.
    labels
        Integers in the same shape: the labels of an example, and -1 after the last label; the
        remaining elements are ignored.
    reduction
        ``"mean"`` over examples, ``"sum"``, or ``"none"`` for one loss for each example.

    Raises
    ------
    ValueError
        If the shapes differ, a label is out of range, or ``reduction`` is unknown.
    TypeError
        If ``x`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.array([[0.1, 0.2, 0.4, 0.8]])
    >>> round(ops.multilabel_margin_loss(x, np.array([[3, 0, -1, 1]])), 6)
    np.float64(0.85)
    """
    name = "multilabel_margin_loss"
    check_reduction(name, reduction)
    (x,), labels = floats_of(name, x=x), asarray(labels)
    _check_classes(name, x)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"fdbr.ops.{name}: labels must be integers, not {describe(labels)}")
    if labels.shape != x.shape:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} must have the shape of x {describe(x)}; "
            "-1 stands behind the last label of an example"
        )
    labels = beside(labels, x)
    counted = cumulative_sum(astype(labels < 0, np.int64), axis=-1) == 0
    labels = checked_labels(name, labels, x.shape[-1], counted)
    numbers = beside(np.arange(x.shape[-1]), x)
    named = (expand_dims(labels, axis=-1) == numbers) & expand_dims(counted, axis=-1)
    others = ~any_of(named, axis=-2)
    of_labels = along_axis(x, labels, x.ndim - 1)
    gaps = relu(1 - expand_dims(of_labels, axis=-1) + expand_dims(x, axis=-2))
    pairs = expand_dims(counted, axis=-1) & expand_dims(others, axis=-2)
    losses = sum(where(pairs, gaps, 0), axis=(-2, -1)) / x.shape[-1]
    return reduce_losses(losses, reduction)
