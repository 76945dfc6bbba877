"""The arrays that a captured function uses and that are no arguments."""

import functools
import operator
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from fdbr.core.array_modules import (
    is_a,
    is_array,
    is_locked,
    keep,
    lock,
    number_of,
    on_device,
    owner,
)

__all__ = ["Constants", "first_changed", "narrowed", "same_elements", "snapshot"]

_LARGE = 4096  # bytes


def snapshot(array: Any) -> Any:
    """A read-only copy of an array, laid out as it is."""
    return lock(array.copy(order="K")) if is_a(array, np.ndarray) else keep(array)


class Constants:
    """The constants of a trace, each array as it was when it was used.

    An array that somebody can write to stands in the program as a copy.

    Parameters
    ----------
    known
        Arrays that may be used, with copies.
    """

    __slots__ = ("_copies", "_known")

    def __init__(self, known: Iterable[tuple[Any, Any]] = ()) -> None:
        self._known = {id(pair[0]): pair for pair in known}
        self._copies: dict[int, tuple[Any, Any]] = {}

    def keep(self, value: Any) -> Any:
        """The operand that represents a value in the program."""
        if type(value) is list or type(value) is tuple:
            return lock(np.array(value))
        if not is_array(value) or is_locked(value):
            return value
        known = self._copies.get(id(value)) or self._known.get(id(value))
        if known is not None and same_elements(value, known[1]):
            return known[1]
        copy = snapshot(value)
        if known is None:  # else the function is filling an array of its own
            self._copies[id(value)] = value, copy
        return copy

    def shared(self) -> tuple[tuple[Any, Any], ...]:
        """The arrays that others know too, each with its copy.

        What the function made, and nobody else refers to, is let go.
        """
        families: dict[int, list[tuple[Any, Any]]] = {}
        while self._copies:
            pair = self._copies.popitem()[1]
            families.setdefault(id(owner(pair[0])), []).append(pair)
            del pair
        found = [pairs for pairs in families.values() if _is_known(pairs)]
        return tuple(pair for pairs in found for pair in pairs)


def _is_known(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether others refer to one of some arrays that show the same memory, or to its owner."""
    whole = owner(pairs[0][0])
    # `whole` is ours, and the argument of getrefcount; each pair has it as array or as base.
    if sys.getrefcount(whole) > 2 + len(pairs):
        return True
    for array, _ in pairs:
        if array is whole:
            continue
        # `array`, its place in the pair and the argument of getrefcount are ours.
        if sys.getrefcount(array) > 3 or array.base is not whole or type(whole) is not np.ndarray:
            return True
    return False


def narrowed(operands: list[Any]) -> list[Any]:
    """The operands of what broadcasts, with one element for a constant that has one everywhere.

    So the cotangents of what was added up need no memory.  The shape of the result stays.
    """
    found = operands
    for i, operand in enumerate(operands):
        if type(operand) is np.ndarray and operand.nbytes >= _LARGE:
            rest = [*found[:i], *found[i + 1 :]]
            shape = np.broadcast_shapes(*map(_shape, rest))
            if np.broadcast_shapes(shape, operand.shape) == shape and _is_uniform(operand):
                found = list(found)
                found[i] = lock(operand[(0,) * operand.ndim].reshape(()))
    return found


def _shape(operand: Any) -> tuple[int, ...]:
    """The shape of an operand or of a variable."""
    found: tuple[int, ...] = getattr(getattr(operand, "kind", operand), "shape", ())
    return found


def _is_uniform(array: Any) -> bool:
    first = array[(0,) * array.ndim]
    if array[(-1,) * array.ndim] != first:
        return False
    return same_elements(array, np.broadcast_to(first, array.shape))


def first_changed(pairs: Iterable[tuple[Any, Any]]) -> Any:
    """The first array that is not as its copy any more; `None` if all are.

    For all arrays on one device the host waits once.
    """
    there: dict[int | None, list[tuple[Any, Any]]] = {}
    for array, copy in pairs:
        if not is_a(array, np.ndarray):
            there.setdefault(number_of(array), []).append((array, copy))
        elif not same_elements(array, copy):
            return array
    for group in there.values():
        if not _all_same(group):
            return next(array for array, copy in group if not same_elements(array, copy))
    return None


def same_elements(array: Any, copy: Any) -> bool:
    """Whether an array still is as its copy, bit by bit: -0.0 is not 0.0, and NaN is NaN."""
    if not is_a(array, np.ndarray):
        return _all_same([(array, copy)])
    if array.shape != copy.shape or array.dtype != copy.dtype:
        return False
    if array.dtype.kind == "c":
        return same_elements(array.real, copy.real) and same_elements(array.imag, copy.imag)
    if array.dtype.kind == "f" and array.itemsize <= 8:
        array, copy = array.view(f"u{array.itemsize}"), copy.view(f"u{array.itemsize}")
    elif array.dtype.kind in "fV":
        return bool(array.tobytes() == copy.tobytes())
    return bool((array == copy).all())


def _all_same(pairs: list[tuple[Any, Any]]) -> bool:
    """`same_elements` of several pairs of arrays on one device."""
    if any(a.shape != c.shape or a.dtype != c.dtype for a, c in pairs):
        return False
    with on_device(*pairs[0]):
        same = [((a == c) | (a != a) & (c != c)).all() for a, c in pairs]
        return bool(functools.reduce(operator.and_, same))
