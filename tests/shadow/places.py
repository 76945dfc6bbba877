"""Reading and writing at places that index arrays name, as CuPy does it.

Places out of range wrap around; of several values for one place the first stays in one call and
the last in the next; and few dtypes can be added or compared in place.
"""

import itertools
import math
from typing import Any

import numpy as np

_iterations = itertools.count()

_ADDABLE = set("iIlLqQefd")  # no complex numbers, truth values and small integers
_COMPARABLE = set("iIlLqQfd")  # nor float16


def wrapped(key: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A key of NumPy arrays whose places wrap around, as a tuple."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [np.asarray(part) if isinstance(part, list) else part for part in parts]
    taken = sum(map(_axes, parts))
    out = []
    axis = 0
    for part in parts:
        if part is Ellipsis:
            axis += len(shape) - taken
        elif isinstance(part, np.ndarray) and part.dtype.kind in "iu" and part.ndim:
            n = shape[axis] if axis < len(shape) else 0
            part = part.astype(np.int64) % n if n else part
        axis += _axes(part)
        out.append(part)
    return tuple(part.astype(int) if _is_empty(part) else part for part in out)


def _is_empty(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.size == 0 and part.dtype.kind == "f"


def _axes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _is_advanced(key: tuple[Any, ...]) -> bool:
    return any(isinstance(part, np.ndarray) and part.ndim for part in key)


def write(data: np.ndarray, key: Any, value: Any) -> None:
    """``data[key] = value``."""
    key = wrapped(key, data.shape)
    if not _is_advanced(key):
        data[key] = value
        return
    places = np.arange(data.size).reshape(data.shape)[key]
    values = np.broadcast_to(np.asarray(value).astype(data.dtype), places.shape)
    order = slice(None, None, -1 if next(_iterations) % 2 else 1)
    data[np.unravel_index(places.ravel()[order], data.shape)] = values.ravel()[order]


def at(name: str, data: np.ndarray, key: Any, values: Any) -> None:
    """``np.add.at`` and the like."""
    key = wrapped(key, data.shape)
    values = np.asarray(values)
    if not _is_advanced(key):
        data[key] = getattr(np, name)(data[key], values)
        return
    if name not in ("add", "maximum", "minimum"):
        raise NotImplementedError(f"`cupy_{name}.at` is not supported yet")
    if data.dtype.char not in (_ADDABLE if name == "add" else _COMPARABLE):
        raise TypeError(f"cupy.{name}.at does not support {data.dtype}")
    values = values.astype(data.dtype)
    if name == "add" or data.dtype.kind != "f":
        getattr(np, name).at(data, key, values)
        return
    # Its atomic maximum of double precision is computed in single precision, and skips NaN.
    meet = np.fmax if name == "maximum" else np.fmin
    meet.at(data, key, values.astype(np.float32))


def take(data: np.ndarray, places: Any, axis: int | None = None, mode: str = "wrap") -> Any:
    """``np.take``, but out of range it wraps around."""
    return np.take(data, places, axis=axis, mode="wrap" if mode == "raise" else mode)


def take_along_axis(data: np.ndarray, places: Any, axis: int | None = -1) -> Any:
    """``np.take_along_axis``, but out of range it wraps around."""
    n = math.prod(data.shape) if axis is None else data.shape[axis]
    return np.take_along_axis(data, places % n if n else places, axis)
