"""Every operation in floating dtypes of 16 bits: values, derivatives, and their dtypes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import tree
from ops.cases import CASES, Case, few
from ops.short import SHORT, eps, wide


def dtypes(out: Any) -> list[Any]:
    return [getattr(leaf, "dtype", type(leaf)) for leaf in tree.leaves(out)]


def inexact(values: Any) -> list[Any]:
    """The floating and complex leaves."""
    return tree.leaves(tree.trainable(values))


def derivatives(function: Any, args: Any) -> tuple[Any, Any, Any]:
    """The value, the gradients by the floating arguments, and the tangents with all moved."""
    value, pullback = fdbr.vjp(lambda args: function(*args), args)
    ones = tree.map(lambda x: np.ones_like(x)[()] if inexact(x) else None, value)
    moves = [np.ones_like(x) if inexact(x) else None for x in args]
    return value, pullback(ones)[0], fdbr.jvp(function, args, moves)[1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", {case.op: case for case in CASES}.values(), ids=repr)
def test_operations_are_differentiated_in_dtypes_of_16_bits(case: Case) -> None:
    @few(3)
    @given(case.arguments)
    def check(args: Any) -> None:
        for dtype in SHORT:
            in_dtype(case, dtype, args)

    check()


def in_dtype(case: Case, dtype: Any, args: Any) -> None:
    args = tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in args)
    exact = tuple(wide(x) if x.dtype == dtype else x for x in args)
    try:
        value = case.function(*args)
    except (TypeError, ValueError) as error:
        if not str(error).startswith("fdbr."):
            raise
        return  # NumPy refuses it, too
    if not inexact(value) or not inexact(args):
        return
    traced, grads, tangents = derivatives(case.function, args)
    assert dtypes(traced) == dtypes(value)
    _, right, moved = derivatives(case.function, exact)
    rough = 30 * eps(dtype)
    for x, found, expected in zip(args, grads, right, strict=True):
        if found is not None:
            assert found.dtype == x.dtype
            close(found, expected, rough)
    for found, expected in zip(inexact(tangents), inexact(moved), strict=True):
        close(found, expected, rough)


def close(found: Any, expected: Any, rough: float) -> None:
    size = np.max(np.abs(expected), initial=0.1)
    if size < 6e4:
        np.testing.assert_allclose(wide(found), expected, rough, rough * size)
