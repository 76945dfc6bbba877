"""The order of elements, by sorting numbers that tell element and place at once.

NumPy sorts integers several times as fast as it finds the order of anything.  So elements of up to
32 bits are made integers in the same order, and joined with their places: no two are equal, and of
equal elements the first comes first.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.util.threads import divide, parts
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array

__all__ = ["ordered", "ranked_places"]

_MANY = 1 << 12  # elements from which on it pays to look for another way to sort
_SHARE = 1 << 15  # elements that are worth a thread's waking
_LOW = 0xFFFFFFFF
_HALVES = (0, 1) if sys.byteorder == "little" else (1, 0)  # of a number: the lower, the higher
_LIMITS = np.iinfo(np.int32)


def _code(x: Any) -> Callable[[Any], Any] | None:
    """A function to integers of 32 bits in the order of an array's elements, if there is one."""
    kind = dtype_kind(x.dtype)
    if kind == "f" and x.dtype.itemsize <= 4:
        return _of_floats
    if kind == "b" or (kind in "iu" and x.dtype.itemsize < 4):
        return lambda x: x.astype(np.int32)
    if kind in "iu":
        least, most = int(x.min()), int(x.max())
        if most - least <= _LIMITS.max:
            return lambda x: (x - x.dtype.type(least)).astype(np.int32)
    return None


def _of_floats(x: Any) -> Any:
    """NaN is the largest, and zeros are equal."""
    x = x.astype(np.float32) + np.float32(0)
    bits = x.view(np.int32)
    bits ^= (bits >> 31) & _LIMITS.max  # of negative ones all but the sign
    nan = (bits > _INFINITE) | (bits < ~_INFINITE)
    if nan.any():
        bits[nan] = _LIMITS.max
    return bits


_INFINITE = int(np.float32(np.inf).view(np.int32))


def _joined(x: Any, code: Callable[[Any], Any]) -> Any:
    """Element and place in one number, along the last axis."""
    both = np.empty((*x.shape, 2), np.int32)
    both[..., _HALVES[1]] = code(x)
    both[..., _HALVES[0]] = np.arange(x.shape[-1], dtype=np.int32)
    return both.view(np.int64)[..., 0]


def _rows(x: Any, axis: int) -> Any:
    """An array as rows along an axis, and what they are coded by; `None` for few elements."""
    if x.size < _MANY or x.shape[axis] > _LIMITS.max:
        return None
    code = _code(x)
    if code is None:
        return None
    turned = np.moveaxis(x, axis, -1)
    return turned, turned.reshape(-1, turned.shape[-1]), code


def _share(rows: Any, work: Callable[[slice], None]) -> None:
    if rows.size < 2 * _SHARE:
        work(slice(None))
    else:
        divide(work, parts(len(rows), rows.size // _SHARE))


def ordered(x: Array, axis: int) -> Any:
    """The places of the elements in their order; `None` where another way is as good.

    >>> import numpy as np
    >>> x = np.arange(5000, dtype="float32")[::-1]
    >>> ordered(x, 0)[:3]
    array([4999, 4998, 4997])
    """
    found = _rows(x, axis)
    if found is None:
        return None
    turned, rows, code = found
    out = np.empty(rows.shape, np.intp)

    def work(piece: slice) -> None:
        both = _joined(rows[piece], code)
        both.sort(axis=-1)
        np.bitwise_and(both, _LOW, out=out[piece])

    if len(rows) > 1:
        _share(rows, work)
    else:
        np.bitwise_and(_sorted_row(_joined(rows[0], code)), _LOW, out=out[0])
    return np.moveaxis(out.reshape(turned.shape), -1, axis)


def _sorted_row(row: Any) -> Any:
    """A row in order: pieces are sorted by several threads, and then merged, by a stable sort."""
    if len(row) >= 4 * _SHARE:
        divide(lambda piece: row[piece].sort(), parts(len(row), 4))
        row.sort(kind="stable")
    else:
        row.sort()
    return row


def ranked_places(x: Array, ranks: tuple[int, ...], axis: int) -> Any:
    """The places of the elements that come to some ranks; `None` where another way is as good."""
    found = _rows(x, axis)
    if found is None:
        return None
    turned, rows, code = found
    chosen = sorted({rank % x.shape[axis] for rank in ranks})
    out = np.empty((len(rows), len(ranks)), np.intp)

    def work(piece: slice) -> None:
        both = _joined(rows[piece], code)
        both.partition(chosen, axis=-1)
        np.bitwise_and(both[:, list(ranks)], _LOW, out=out[piece])

    _share(rows, work)
    return np.moveaxis(out.reshape(*turned.shape[:-1], len(ranks)), -1, axis)
