"""Check class labels, and select elements by them."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.routine import Routine
from fdbr.core.tracer import holds
from fdbr.errors.checks import describe
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.positions import checked_index
from fdbr.ops.indexing.reading import along_axis, pick
from fdbr.ops.nn.losses.checks import values_of
from fdbr.ops.shape.manipulation import expand_dims, squeeze

__all__ = [
    "are_classes",
    "check_labels",
    "checked_labels",
    "counted_labels",
    "label_key",
    "select_labels",
]

_UNSIGNED = np.dtype(np.uint64)


def label_key(xp: Any, labels: Any) -> tuple[Any, ...]:
    """Make the key that selects the element of each label along the last axis."""
    if labels.ndim == 1:
        return xp.arange(len(labels)), labels
    ones = (1,) * labels.ndim
    grid = [
        xp.arange(n).reshape((*ones[:i], n, *ones[i + 1 :])) for i, n in enumerate(labels.shape)
    ]
    return (*grid, labels)


@Routine
def select_labels(x: Any, labels: Any) -> Any:
    """Select the element of each label along the last axis."""
    if type(labels) is np.ndarray:
        return pick(x, label_key(np, labels))
    return squeeze(along_axis(x, expand_dims(labels, axis=-1), x.ndim - 1), axis=-1)


def check_labels(name: str, labels: Any, scores: Any, what: str = "logits") -> None:
    """Raise for labels that are not integers, or whose shape does not fit the scores."""
    if labels.dtype.kind not in "iu":
        also = ", or probabilities in the shape of the logits" * (what == "logits")
        raise TypeError(f"fdbr.ops.{name}: labels must be integers{also}, not {describe(labels)}")
    if labels.shape != scores.shape[:-1]:
        raise ValueError(
            f"fdbr.ops.{name}: labels {describe(labels)} do not fit {what} {describe(scores)}; "
            f"they need the shape {scores.shape[:-1]}"
        )


def counted_labels(name: str, labels: Any, classes: int, ignored: int | None) -> tuple[Any, Any]:
    """Return `checked_labels`, and which count; `None` if all do, unless that waits for a GPU."""
    if ignored is None:
        return checked_labels(name, labels, classes), None
    is_plain = type(labels) is np.ndarray and labels.size and not 0 <= ignored < classes
    if is_plain and are_classes.host(labels, classes):  # one pass, and no label is ignored
        return labels, None
    counted = labels != ignored
    if type(counted) is np.ndarray and counted.size and counted.all():
        counted = None
    return checked_labels(name, labels, classes, counted, hint=""), counted


def checked_labels(
    name: str,
    labels: Any,
    classes: int,
    counted: Any = None,
    hint: str | None = None,
    what: str = "labels",
) -> Any:
    """Check that labels are in ``0 … classes - 1``, and replace ignored labels by 0."""
    if counted is not None:
        labels = where(counted, labels, 0)
    if array_module(labels) is not np:
        return checked_index(labels, least=0, count=classes, name=name, error=ValueError)
    if not are_classes(labels, classes):
        hint = " (ignore_label names one that is left out)" if hint is None else hint
        values = values_of(labels)
        raise ValueError(
            f"fdbr.ops.{name}: {what} from {values.min()} to {values.max()} for {classes} classes; "
            f"they must lie in 0 … {classes - 1}" + (hint if counted is None else "")
        )
    return labels


@Routine
def are_classes(labels: Any, classes: int) -> bool:
    """Whether all labels are indices of classes."""
    # Negative labels are large as unsigned integers, so that one comparison is enough.
    values = values_of(labels)  # `None` if there are none
    if not labels.size or (values is not None and not values.size):
        return True
    return holds(labels.astype(_UNSIGNED).max() < classes)
