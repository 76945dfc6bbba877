"""Every operation's derivatives, of first and second order, against differences of values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from ops.cases import CASES, Case, bent, few

import fdbr
from fdbr import tree
from fdbr.testing import assert_allclose, check_grads

every_case = pytest.mark.parametrize("case", CASES, ids=repr)


def gradient(case: Case, args: Any) -> Any:
    """The gradient of the case's bent output, summed."""
    out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
    return pullback(np.ones_like(out) if np.ndim(out) else out.dtype.type(1))[0]


def in_dtypes(args: Any, dtypes: Any) -> Any:
    """The floating arguments in some dtypes, from the first on; the last is for all the rest."""
    dtypes = list(dtypes)
    return tuple(
        x.astype(dtypes.pop(0) if len(dtypes) > 1 else dtypes[0]) if x.dtype.kind == "f" else x
        for x in args
    )


@every_case
def test_derivatives_of_two_orders_are_those_of_differences(case):
    @few()
    @given(case.arguments)
    def check(args):
        check_grads(lambda *args: bent(case.function(*args)), *args)

    check()


@every_case
def test_float32_gradients_are_float32_and_agree_with_float64(case):
    @few(10)
    @given(case.arguments)
    def check(args):
        narrow = gradient(case, in_dtypes(args, [np.float32]))
        for x, g in zip(args, narrow, strict=True):
            assert g is None or (g.dtype == np.float32 and g.shape == x.shape)
        scale = [float(np.abs(g).max(initial=1)) for g in tree.leaves(narrow)]
        assert_allclose(narrow, gradient(case, args), rtol=1e-4, atol=1e-5 * max(scale))

    check()


@pytest.mark.parametrize("dtypes", [("f4", "f8"), ("f8", "f4")], ids="-".join)
@pytest.mark.parametrize("case", [c for c in CASES if "," in c.name or "number" in c.name or c.op in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "hypot", "atan2", "logaddexp", "remainder", "where", "clip", "matmul", "linear", "tensordot", "dot", "inner", "outer", "vecdot", "einsum", "concat", "stack", "at", "asarray", "full_like", "linspace", "mean_squared_error", "softmax_cross_entropy", "broadcast_arrays")], ids=repr)  # fmt: skip
def test_each_gradient_has_the_dtype_of_its_own_operand(case, dtypes):
    pass
