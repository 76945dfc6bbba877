"""Every operation's value, against NumPy and SciPy, on every array module."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sharing import sampled, shared

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from ops.cases import CASES, bent, few

DTYPES_SET = {"astype"}
"""Operations that set a dtype rather than keep their operands'."""


def on(xp: Any, args: Any, dtype: Any = np.float64) -> Any:
    """The arguments as arrays of a module, the floating ones in a dtype."""
    return tuple(
        xp.asarray(x.astype(dtype) if x.dtype.kind == "f" else np.asarray(x)) for x in args
    )


@pytest.mark.parametrize("case", shared(CASES), ids=repr)
def test_values_are_those_of_numpy_on_raw_and_on_traced_arrays(case, xp):
    @few(4)
    @given(case.arguments)
    def check(args):
        desired = case.reference(*args)
        mine = on(xp, args)
        raw = case.function(*mine)
        assert_allclose(raw, desired, rtol=1e-12, atol=1e-12)
        traced, _ = fdbr.vjp(lambda args: case.function(*args), mine)
        assert_allclose(traced, desired, rtol=1e-12, atol=1e-12)
        if xp is not np:
            assert type(raw) is type(traced) is type(mine[0])

    check()


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled([c for c in CASES if c.op not in DTYPES_SET], 0), ids=repr)
def test_float32_stays_float32(case, xp):
    @few(10)
    @given(case.arguments)
    def check(args):
        mine = on(xp, args, np.float32)
        raw = case.function(*mine)
        traced, _ = fdbr.vjp(lambda args: case.function(*args), mine)
        assert raw.dtype == traced.dtype == np.float32
        assert_allclose(raw, case.reference(*args), rtol=1e-5, atol=1e-5)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 2), ids=repr)
@pytest.mark.parametrize("xp", ["shadow", "cupy"], indirect=True)
def test_gradients_are_the_same_as_with_numpy(case, xp):
    def gradient(args: Any) -> Any:
        out, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
        return pullback(fdbr.backend.array_module(args[0]).ones(out.shape, dtype=out.dtype))[0]

    def twice(args: Any) -> Any:
        first, pullback = fdbr.vjp(lambda args: fdbr.tree.leaves(gradient(args)), args)
        return pullback([fdbr.backend.array_module(g).ones(g.shape, dtype=g.dtype) for g in first])

    @few(10)
    @given(case.arguments)
    def check(args):
        mine = on(xp, args)
        assert_allclose(gradient(mine), gradient(args))
        assert_allclose(twice(mine), twice(args), atol=1e-9)

    check()


# --- weak numbers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "desired"),
    [
        (lambda: ops.add(1.0, 2), 3.0),
        (lambda: ops.multiply(2.0, 3.0), 6.0),
        (lambda: ops.power(2.0, 3), 8.0),
        (lambda: ops.power(2.0, 3.0), 8.0),
        (lambda: ops.exp(0.0), 1.0),
        (lambda: ops.sign(-2.5), -1.0),
        (lambda: ops.floor(2.5), 2.0),
        (lambda: ops.round(2.5), 2.0),
        (lambda: ops.floor_divide(7.0, 2.0), 3.0),
        (lambda: ops.less(1.0, 2.0), True),
        (lambda: ops.relu(-1.0), 0.0),
    ],
)
def test_of_python_numbers_comes_a_python_number(call, desired):
    assert call() == desired
    assert type(call()) is type(desired)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 2.0,
        lambda x: 2 / x,
        lambda x: x**1.5,
        lambda x: 2.0**x,
        lambda x: ops.maximum(x, 0.5),
        lambda x: ops.where(x > 0, x, 1.0),
        lambda x: ops.clip(x, 0.0, 1.0),
        lambda x: ops.stack([x, x]) * ops.multiply(2.0, 3.0),
        lambda x: ops.full_like(x, 2.0) * x,
        lambda x: ops.mean(x) / ops.std(x),
        lambda x: ops.cumulative_sum(x, include_initial=True),
    ],
)
def test_python_numbers_do_not_widen(f, xp):
    x = xp.asarray(np.array([0.25, 1.5], dtype=np.float32))
    out, pullback = fdbr.vjp(f, x)
    assert f(x).dtype == out.dtype == np.float32
    assert pullback(xp.ones(out.shape, dtype=np.float32))[0].dtype == np.float32


def test_a_numpy_scalar_widens_as_in_numpy():
    x = np.ones(2, dtype=np.float32)
    out, pullback = fdbr.vjp(lambda x: x * np.float64(2), x)
    assert out.dtype == np.float64
    assert pullback(np.ones(2))[0].dtype == np.float32
