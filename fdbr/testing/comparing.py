"""Whether arrays are equal up to rounding, and where they differ most."""

from typing import Any

import numpy as np

from fdbr import tree
from fdbr.core.array_modules import is_array, to_numpy
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind, is_added, limits

__all__ = ["assert_allclose", "difference", "tolerance"]

# What differs by no more than this, relatively or absolutely, counts as equal: some hundred
# roundings.  By the bytes of a real number.
VALUES = {2: 1e-2, 4: 1e-5, 8: 1e-11}


@public("fdbr.testing")
def assert_allclose(
    actual: Any, desired: Any, rtol: float | None = None, atol: float | None = None
) -> None:
    """Check that two arrays, or two trees of arrays, are equal up to rounding.

    Parameters
    ----------
    actual, desired
        Arrays or numbers of one shape, or trees of one structure.  They may lie on different
        devices.  NaN equals NaN, and an infinity itself.
    rtol, atol
        An element passes if ``abs(actual - desired) <= atol + rtol * abs(desired)``.  Both are
        by default what the less precise of the two dtypes lets one expect: 1e-11 for float64,
        1e-5 for float32, 1e-2 for float16, and 0 where neither is floating.

    Raises
    ------
    AssertionError
        If structures, shapes or elements differ; the message names the worst element.

    >>> import numpy as np
    >>> assert_allclose(np.float32(0.1), 0.1)
    >>> assert_allclose(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 3.1]))
    Traceback (most recent call last):
        ...
    AssertionError: element [1] is 2.0, not 2.5: they differ by 0.5, and 3.5e-11 is allowed (2 of 3
    elements differ)
    """
    if is_array(actual) or is_array(desired):
        _assert_leaf(actual, desired, rtol, atol, "")
        return
    structures = tree.structure(actual), tree.structure(desired)
    if structures[0] != structures[1]:
        raise AssertionError(f"structures differ: {structures[0]}, not {structures[1]}")
    leaves = tree.leaves(actual), tree.leaves(desired), tree.paths(actual)
    for mine, other, path in zip(*leaves, strict=True):
        _assert_leaf(mine, other, rtol, atol, f"at {path}: " if path else "")


def _assert_leaf(
    actual: Any, desired: Any, rtol: float | None, atol: float | None, where: str
) -> None:
    a, b = to_numpy(actual), to_numpy(desired)
    if a.shape != b.shape:
        raise AssertionError(f"{where}shapes differ: {describe(a)}, not {describe(b)}")
    usual = tolerance(VALUES, a, b)
    problem = difference(a, b, usual if rtol is None else rtol, usual if atol is None else atol)
    if problem:
        raise AssertionError(where + problem)


def tolerance(table: dict[int, float], *arrays: Any) -> float:
    """The tolerance that the least precise of the arrays allows; 0 if all are exact."""
    inexact = [a.dtype for a in arrays if dtype_kind(a.dtype) in "fc"]
    return max((_allowed(table, dtype) for dtype in inexact), default=0.0)


def _allowed(table: dict[int, float], dtype: Any) -> float:
    if is_added(dtype):  # of float16 there is one in the table
        return table[2] * float(limits(np, dtype).eps / np.finfo(np.float16).eps)
    return table[min(dtype.itemsize // (2 if dtype.kind == "c" else 1), 8)]


def difference(a: Any, b: Any, rtol: float, atol: float, said: str = "is {}, not {}") -> str:
    """Describe the worst element of a NumPy array; empty if all are right."""
    kind = complex if "c" in (a.dtype.kind, b.dtype.kind) else float
    a, b = a.astype(kind), b.astype(kind)
    with np.errstate(all="ignore"):
        away = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        allowed = np.where(np.isfinite(b), atol + rtol * np.abs(b), 0.0)
        excess = np.where(np.isnan(away), np.inf, away - allowed)
    wrong = int((excess > 0).sum())
    if not wrong:
        return ""
    worst = np.unravel_index(int(excess.argmax()), a.shape)
    count = f" ({wrong} of {a.size} elements differ)" if a.size > 1 else ""
    return (
        f"{element(worst) or 'it'} "
        + said.format(a[worst], b[worst])
        + f": they differ by {away[worst]:.3g}, and {allowed[worst]:.3g} is allowed{count}"
    )


def element(place: Any) -> str:
    """The name of an element in messages; ``''`` for the only one of a number."""
    return f"element [{', '.join(map(str, place))}]" if len(place) else ""
