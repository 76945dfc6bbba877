"""Metrics of predictions: accuracy, precision, recall, F-score and the R2 score."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, where_it_lies
from fdbr.core.tracer import stop_gradient
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import astype, float_dtype, in_single
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.segments import segment_sum
from fdbr.ops.nn.losses.checks import check_choice, counted_mean, same_shape, setting_of
from fdbr.ops.nn.losses.labels import checked_labels
from fdbr.ops.reductions.reduce import argmax, mean, sum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.pytrees.dtypes import dtype_kind

__all__ = [
    "accuracy",
    "binary_accuracy",
    "classification_summary",
    "f1_score",
    "precision",
    "r2_score",
    "recall",
]


@public("fdbr.ops")
@where_it_lies
@in_single
def accuracy(
    logits: Array, labels: Array, /, *, ignore_label: int | None = None, axis: int = -1
) -> Array:
    """The fraction of examples whose largest logit is the label's; its derivative is 0.

    Parameters
    ----------
    logits
        Shape ``(..., classes)``.
    labels
        Integers, shape ``(...)``.
    ignore_label
        A label whose examples are ignored; the result is 0 if none counts.
    axis
        The axis of the classes.

    Returns
    -------
    array
        A scalar in the floating dtype of ``logits``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.accuracy(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, 1]))
    np.float64(0.5)
    """
    logits, labels = _scores_and_labels("accuracy", logits, labels, axis)
    labels = beside(labels, logits)
    counted = None if ignore_label is None else labels != ignore_label
    labels = checked_labels("accuracy", labels, logits.shape[-1], counted)
    right = astype(argmax(logits, axis=-1) == labels, float_dtype(logits))
    if counted is None:
        return mean(right)
    return counted_mean(where(counted, right, 0), counted)


def _scores_and_labels(name: str, logits: Any, labels: Any, axis: int) -> tuple[Any, Any]:
    """Return scores with the classes on the last axis, and checked labels."""
    logits, labels = asarray(logits), asarray(labels)
    if logits.ndim and axis != -1:
        logits = moveaxis(logits, normalize_axis(axis, logits.ndim, name), -1)
    if labels.shape != logits.shape[:-1] or labels.dtype.kind not in "iu" or not logits.ndim:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} do not fit logits {describe(logits)}; "
            f"they must be integers of shape {logits.shape[:-1]}"
        )
    return logits, labels


@public("fdbr.ops")
@where_it_lies
@in_single
def binary_accuracy(x: Array, labels: Array, /, *, ignore_label: int | None = -1) -> Array:
    """The fraction of elements whose sign is that of their label; its derivative is 0.

    Elements of at least 0 predict label 1.

    Parameters
    ----------
    x
        Scores, floating, of any shape.
    labels
        Integers 0 or 1, in the shape of ``x``.
    ignore_label
        A label whose elements are ignored; the result is 0 if none counts.

    Returns
    -------
    array
        A scalar in the dtype of ``x``.

    Raises
    ------
    ValueError
        If the shapes differ, or a label is neither.
    TypeError
        If ``x`` is not real floating, or the labels are not integers.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.binary_accuracy(np.array([-2.0, 0.0, 3.0, -5.0]), np.array([0, 1, -1, 1]))
    np.float64(0.6666666666666666)
    """
    x, labels = asarray(x), asarray(labels)
    if dtype_kind(x.dtype) != "f" or labels.dtype.kind not in "iub":
        raise TypeError(
            f"fdbr.ops.binary_accuracy: x must be floating and labels integers, got {describe(x)} "
            f"and {describe(labels)}"
        )
    if x.shape != labels.shape:
        raise ValueError(
            f"fdbr.ops.binary_accuracy: x {describe(x)} and labels {describe(labels)} differ in "
            "shape"
        )
    labels = beside(labels, x)
    counted = None if ignore_label is None else labels != ignore_label
    if labels.dtype.kind != "b":
        labels = checked_labels("binary_accuracy", labels, 2, counted)
    right = astype((stop_gradient(x) >= 0) == (labels == 1), x.dtype)
    if counted is None:
        return mean(right)
    return counted_mean(where(counted, right, 0), counted)


# --- class by class -----------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
@in_single
def classification_summary(
    logits: Array,
    labels: Array,
    /,
    *,
    num_classes: int | None = None,
    beta: float = 1.0,
    ignore_label: int = -1,
    axis: int = -1,
) -> tuple[Any, Any, Any, Any]:
    """The precision, recall and F-score of each class, and the number of its labels.

    With ``tp`` true positives, ``fp`` false positives and ``fn`` false negatives of a class, the
    precision is ``tp / (tp + fp)``, the recall ``tp / (tp + fn)``, and the F-score their weighted
    harmonic mean ``(1 + b²) p r / (b² p + r)``.  0 / 0 is NaN, as in Chainer.  The derivatives are
    0.

    Parameters
    ----------
    logits
        Scores, floating, shape ``(..., classes)``; the largest one is the prediction.
    labels
        Integers, shape ``(...)``.
    num_classes
        The number of classes in the result; by default all classes of ``logits``.
    beta
        The weight of the recall in the F-score.
    ignore_label
        A label whose examples are ignored.
    axis
        The axis of the classes.

    Returns
    -------
    tuple
        Four arrays of shape ``(num_classes,)``: precision, recall and F-score in the dtype of
        ``logits``, and the number of labels, int64.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> scores = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    >>> precision, recall, f, support = ops.classification_summary(scores, np.array([0, 0, 1, 1]))
    >>> recall, support
    (array([0.5, 1. ]), array([2, 2]))
    """
    return _summary("classification_summary", logits, labels, num_classes, beta, ignore_label, axis)


def _summary(
    name: str,
    logits: Any,
    labels: Any,
    num_classes: int | None,
    beta: float,
    ignore_label: int,
    axis: int,
) -> tuple[Any, Any, Any, Any]:
    logits, labels = _scores_and_labels(name, logits, labels, axis)
    logits = stop_gradient(logits)
    known = logits.shape[-1]
    classes = (
        known
        if num_classes is None
        else integer(f"fdbr.ops.{name}", "num_classes", num_classes, least=1)
    )
    counted = labels != ignore_label
    labels = checked_labels(name, labels, classes, counted)
    labels, counted = beside(labels, logits), beside(counted, logits)
    found = argmax(logits, axis=-1)
    one = astype(counted, np.int64)
    relevant, support, right = (
        segment_sum(reshape(each, -1), reshape(index, -1), classes)
        for each, index in ((one, found), (one, labels), (one * (found == labels), labels))
    )
    dtype = float_dtype(logits)
    precision = _ratio(right, relevant, dtype)
    recall = _ratio(right, support, dtype)
    square = float(beta) ** 2
    score = _ratio((1 + square) * precision * recall, square * precision + recall, dtype)
    return precision, recall, score, support


def _ratio(numerator: Any, denominator: Any, dtype: Any) -> Any:
    """Divide without a warning; NaN where the denominator is 0."""
    nothing = denominator == 0
    return where(
        nothing, np.nan, astype(numerator, dtype) / astype(where(nothing, 1, denominator), dtype)
    )


@public("fdbr.ops")
@where_it_lies
@in_single
def precision(
    logits: Array,
    labels: Array,
    /,
    *,
    num_classes: int | None = None,
    ignore_label: int = -1,
    axis: int = -1,
) -> tuple[Any, Any]:
    """The precision of each class, ``tp / (tp + fp)``, and the number of its labels.

    See `classification_summary`, also for the parameters.

    Returns
    -------
    tuple
        Precisions in the dtype of ``logits``, NaN for 0 by 0, and numbers of labels.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.precision(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 0, 1]))[0]
    array([1. , 0.5])
    """
    found = _summary("precision", logits, labels, num_classes, 1.0, ignore_label, axis)
    return found[0], found[3]


@public("fdbr.ops")
@where_it_lies
@in_single
def recall(
    logits: Array,
    labels: Array,
    /,
    *,
    num_classes: int | None = None,
    ignore_label: int = -1,
    axis: int = -1,
) -> tuple[Any, Any]:
    """The recall of each class, ``tp / (tp + fn)``, and the number of its labels.

    See `classification_summary`, also for the parameters.

    Returns
    -------
    tuple
        Recalls in the dtype of ``logits``, NaN for 0 by 0, and numbers of labels.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.recall(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 0, 1]))[0]
    array([0.5, 1. ])
    """
    found = _summary("recall", logits, labels, num_classes, 1.0, ignore_label, axis)
    return found[1], found[3]


@public("fdbr.ops")
@where_it_lies
@in_single
def f1_score(
    logits: Array,
    labels: Array,
    /,
    *,
    num_classes: int | None = None,
    ignore_label: int = -1,
    axis: int = -1,
) -> tuple[Any, Any]:
    """The F1 score of each class, ``2 p r / (p + r)``, and the number of its labels.

    See `classification_summary`, also for the parameters.

    Returns
    -------
    tuple
        Scores in the dtype of ``logits``, NaN for 0 by 0, and numbers of labels.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a label is out of range.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.f1_score(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 0, 1]))[0]
    array([0.66666667, 0.66666667])
    """
    found = _summary("f1_score", logits, labels, num_classes, 1.0, ignore_label, axis)
    return found[2], found[3]


# --- regression -----------------------------------------------------------------------


@public("fdbr.ops")
@where_it_lies
@in_single
def r2_score(
    x: Array,
    y: Array,
    /,
    *,
    sample_weight: Array | None = None,
    multioutput: str = "uniform_average",
) -> Any:
    """The coefficient of determination of predictions: 1 is perfect, 0 is as good as the mean.

    ``1 - sum((y - x)**2) / sum((y - mean(y))**2)`` over the first axis, and 0 where all ``y`` are
    equal, as in Chainer.  It is differentiable.

    Parameters
    ----------
    x
        Predictions, floating, shape ``(batch, ...)``.
    y
        True values, in the same shape.
    sample_weight
        A weight for each example, shape ``(batch,)``.
    multioutput
        ``"uniform_average"`` for the mean over outputs, ``"raw_values"`` for one score per output.

    Returns
    -------
    array
        A scalar, or shape ``(...)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or an argument is unknown.
    TypeError
        If ``x`` is not real floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.r2_score(np.array([1.0, 2.0, 3.5]), np.array([1.0, 2.0, 3.0]))
    np.float64(0.875)
    """
    check_choice("r2_score", "multioutput", multioutput, ("uniform_average", "raw_values"))
    x, y = same_shape("r2_score", x=x, y=y)
    if not x.ndim or not x.shape[0]:
        raise ValueError(f"fdbr.ops.r2_score: x {describe(x)} has no examples")
    if sample_weight is None:
        weight: Any = 1.0 / x.shape[0]
    else:
        weight = setting_of("r2_score", "sample_weight", sample_weight, x)
        if weight.shape != x.shape[:1]:
            raise ValueError(
                f"fdbr.ops.r2_score: sample_weight {describe(weight)} must hold a number for each "
                f"of the {x.shape[0]} examples"
            )
        weight = reshape(weight / sum(weight), (-1,) + (1,) * (x.ndim - 1))
    away = y - sum(weight * y, axis=0, keepdims=True)
    rest, denominator = (sum(weight * numerator * numerator, axis=0) for numerator in (y - x, away))
    nothing = denominator == 0
    found = where(nothing, 0, 1 - rest / where(nothing, 1, denominator))
    return found if multioutput == "raw_values" else mean(found)
