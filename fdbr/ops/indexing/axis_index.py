"""Indices along one axis of an array."""

import functools
from typing import Any

import numpy as np

from fdbr.core.devices import is_host

__all__ = ["iota_along"]

_SHORT = 1 << 8  # length up to which arrays are cached


def iota_along(n: int, axis: int, ndim: int, xp: Any = np) -> Any:
    """``0 … n - 1`` along an axis, with length 1 on the others, in an array that is not changed.

    >>> iota_along(3, 1, 2)
    array([[0, 1, 2]])
    """
    # Arrays in host memory belong to no device, so all threads can share them.
    return (_cached_iota if n <= _SHORT and is_host(xp) else _iota)(xp, n, axis, ndim)


def _iota(xp: Any, n: int, axis: int, ndim: int) -> Any:
    return xp.arange(n).reshape((1,) * axis + (n,) + (1,) * (ndim - axis - 1))


@functools.lru_cache(1 << 8)
def _cached_iota(xp: Any, n: int, axis: int, ndim: int) -> Any:
    iota = _iota(xp, n, axis, ndim)
    iota.setflags(write=False)
    return iota
