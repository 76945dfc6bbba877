"""Every operation's derivatives, of first and second order, against differences of values.

Batches, float32 and complex numbers are in test_transformations.py.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sharing import shared

import fdbr
from fdbr import tree
from fdbr.testing import assert_allclose, check_grads
from ops.cases import CASES, Case, bent, few, jitted_if_asked

every_case = pytest.mark.parametrize("case", CASES, ids=repr)


def gradient(case: Case, args: Any) -> Any:
    """The gradient of the case's bent output, summed."""

    def run(args: Any) -> Any:
        out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
        return pullback(np.ones(np.shape(out), dtype=np.result_type(out)))[0]

    return jitted_if_asked(run)(args)


def in_dtypes(args: Any, dtypes: Any) -> Any:
    """The floating arguments in some dtypes, from the first on; the last is for all the rest."""
    dtypes = list(dtypes)
    return tuple(
        x.astype(dtypes.pop(0) if len(dtypes) > 1 else dtypes[0]) if x.dtype.kind == "f" else x
        for x in args
    )


@pytest.mark.parametrize("case", shared(CASES), ids=repr)
def test_derivatives_of_two_orders_are_those_of_differences(case):
    @few(20)
    @given(case.arguments)
    def check(args):
        f = jitted_if_asked(lambda *args: bent(case.function(*args)))
        check_grads(f, *args, modes=("vjp", "jvp"))

    check()


@pytest.mark.slow
@every_case
def test_gradients_have_the_dtypes_of_their_operands_and_agree_with_float64(case):
    @few(10)
    @given(case.arguments)
    def check(args):
        desired = gradient(case, args)
        largest = max(float(np.abs(g).max(initial=1)) for g in tree.leaves(desired))
        for dtypes in (["f4"], ["f4", "f8"], ["f8", "f4"]):
            mixed = in_dtypes(args, dtypes)
            found = gradient(case, mixed)
            for x, g in zip(mixed, found, strict=True):
                assert (
                    (g is None) if x.dtype.kind != "f" else (g.dtype, g.shape) == (x.dtype, x.shape)
                )
            assert_allclose(found, desired, rtol=1e-4, atol=1e-5 * largest)

    check()


@pytest.mark.slow
@every_case
def test_gradients_of_python_numbers_are_those_of_0d_arrays(case):
    @few(10)
    @given(case.arguments)
    def check(args):
        if any(x.dtype.kind != "f" or x.ndim for x in args):
            return
        assert_allclose(gradient(case, tuple(map(float, args))), gradient(case, args))

    check()
