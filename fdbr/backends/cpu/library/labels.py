"""Labels of classes in NumPy's arrays: their check, selection by them, and their encoding."""

from typing import Any

import numpy as np

from fdbr.core.primitive import implement
from fdbr.ops.dtypes import astype
from fdbr.ops.nn.losses.labels import are_classes, label_key, select_labels
from fdbr.ops.nn.one_hot import ones_at

__all__: list[str] = []

_HANDFUL = 1 << 6  # labels that Python checks faster than NumPy
_MANY = 1 << 12  # elements from which on writing the ones is faster than comparing all elements


@implement(are_classes, np)
def _are_classes(labels: Any, classes: int) -> bool:
    if 0 < labels.size <= _HANDFUL:
        each = labels.reshape(-1).tolist()
        return min(each) >= 0 and max(each) < classes
    # Negative labels are large as unsigned integers.
    return not labels.size or bool(labels.astype(np.uint64).max() < classes)


@implement(select_labels, np)
def _select_labels(x: Any, labels: Any) -> Any:
    if type(labels) is np.ndarray:
        return x[label_key(np, labels)]
    return select_labels.definition(x, labels)


@implement(ones_at, np)
def _ones_at(indices: Any, is_counted: Any, count: int, position: int, dtype: Any) -> Any:
    if position < indices.ndim or indices.size * count < _MANY:
        return ones_at.definition(indices, is_counted, count, position, dtype)
    one = astype(np.ones(1), dtype)
    out = np.zeros((*indices.shape, count), one.dtype)
    rows = np.arange(indices.size) if is_counted is None else is_counted.reshape(-1).nonzero()[0]
    out.reshape(-1, count)[rows, indices.reshape(-1)[rows]] = one[0]
    return out
