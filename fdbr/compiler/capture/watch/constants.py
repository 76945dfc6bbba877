"""The captured arrays of a function, as constants of its program."""

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

_LARGE = 4096  # bytes from which on it pays to look for constants with equal elements


def snapshot(array: Any) -> Any:
    """Return a read-only copy of an array with the same memory layout."""
    return lock(array.copy(order="K")) if is_a(array, np.ndarray) else keep(array)


class Constants:
    """The constants of a trace, each array as it was when it was used.

    A writeable array is represented in the program by a copy.

    Parameters
    ----------
    known
        Captured arrays, with copies.
    """

    __slots__ = ("_copies", "_known")

    def __init__(self, known: Iterable[tuple[Any, Any]] = ()) -> None:
        self._known = {id(pair[0]): pair for pair in known}
        self._copies: dict[int, tuple[Any, Any]] = {}

    def keep(self, value: Any) -> Any:
        """Return the operand that represents a value in the program."""
        if type(value) is list or type(value) is tuple:
            return lock(np.array(value))
        if not is_array(value) or is_locked(value):
            return value
        known = self._copies.get(id(value)) or self._known.get(id(value))
        if known is not None and same_elements(value, known[1]):
            return known[1]
        copy = snapshot(value)
        if known is None:  # otherwise the function is filling an array of its own
            self._copies[id(value)] = value, copy
        return copy

    def shared(self) -> tuple[tuple[Any, Any], ...]:
        """Return the arrays that other code may refer to, each with its copy.

        Arrays that the function made, and that have no other references, are freed.
        """
        families: dict[int, list[tuple[Any, Any]]] = {}
        while self._copies:
            pair = self._copies.popitem()[1]
            families.setdefault(id(owner(pair[0])), []).append(pair)
            del pair
        found = [pairs for pairs in families.values() if _is_known(pairs)]
        return tuple(pair for pairs in found for pair in pairs)


def _is_known(pairs: list[tuple[Any, Any]]) -> bool:
    """Return whether other code refers to one of some arrays with the same memory."""
    whole = owner(pairs[0][0])
    # CPython's counts: `whole` has references here and from getrefcount, and one from each pair.
    if sys.getrefcount(whole) > 2 + len(pairs):
        return True
    for array, _ in pairs:
        if array is whole:
            continue
        # `array` has references here, in its pair and from getrefcount.
        if sys.getrefcount(array) > 3 or array.base is not whole or type(whole) is not np.ndarray:
            return True
    return False


def narrowed(operands: list[Any]) -> list[Any]:
    """Return broadcasting operands with a constant of equal elements reduced to one element.

    The shape of the result stays, and the cotangent of the operand needs no memory.
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
    """Return the shape of an operand or of a variable."""
    found: tuple[int, ...] = getattr(getattr(operand, "kind", operand), "shape", ())
    return found


def _is_uniform(array: Any) -> bool:
    first = array[(0,) * array.ndim]
    if array[(-1,) * array.ndim] != first:
        return False
    return same_elements(array, np.broadcast_to(first, array.shape))


def first_changed(pairs: Iterable[tuple[Any, Any]]) -> Any:
    """Return the first array that differs from its copy; `None` if none does.

    The host synchronises once for all arrays on one device.
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
    """Return whether an array is bitwise equal to its copy: NaN equals NaN, -0.0 differs from 0."""
    if not is_a(array, np.ndarray):
        return _all_same([(array, copy)])
    if array.shape != copy.shape or array.dtype != copy.dtype:
        return False
    if array.dtype.kind == "c":
        return same_elements(array.real, copy.real) and same_elements(array.imag, copy.imag)
    if array.dtype.kind == "f" and array.itemsize <= 8:
        array, copy = array.view(f"u{array.itemsize}"), copy.view(f"u{array.itemsize}")
    elif array.dtype.kind in "mM":
        array, copy = array.view("i8"), copy.view("i8")  # NaT is not equal to itself
    elif array.dtype.kind in "fV":
        return bool(array.tobytes() == copy.tobytes())
    return bool((array == copy).all())


def _all_same(pairs: list[tuple[Any, Any]]) -> bool:
    """Return whether several arrays on one device equal their copies."""
    if any(a.shape != c.shape or a.dtype != c.dtype for a, c in pairs):
        return False
    with on_device(*pairs[0]):
        same = [((a == c) | (a != a) & (c != c)).all() for a, c in pairs]
        return bool(functools.reduce(operator.and_, same))
