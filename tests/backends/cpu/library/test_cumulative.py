"""Cumulative sums and products by kernels."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fdbr import ops
from fdbr.backends.cpu.library import cumulative, scans
from fdbr.ops.reductions import cumulative as fdbr_cumulative

DTYPES = st.sampled_from(["float32", "float64", ">f4", "f2"])


@given(st.integers(1, 60), st.integers(1, 40), DTYPES, st.sampled_from(["sum", "prod"]))
def test_scans_along_every_axis_are_numpys_to_the_last_bit(rows, columns, dtype, name):
    x = np.random.default_rng(rows).normal(size=(2, rows, columns)).astype(dtype)
    x[0, 0, 0], x[-1, -1, -1], x[0, -1, 0], x[-1, 0] = np.nan, np.inf, 0, -0.0
    of_numpy = np.cumsum if name == "sum" else np.cumprod
    for each in (x, np.asfortranarray(x), x[:, ::-1]):
        for axis in range(3):
            with np.errstate(invalid="ignore"):
                found = cumulative.accumulated(name, each, axis)
                expected = of_numpy(each, axis=axis)
            if found is None:
                assert x.dtype not in (np.float32, np.float64)
            else:
                np.testing.assert_array_equal(found, expected)
                np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize(("shape", "axis"), [((600, 900), 1), ((100, 100), 0), ((70, 9, 20), 1)])
def test_many_chains_have_them(monkeypatch, shape, axis):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    desired = np.cumprod(x, axis=axis)
    np.testing.assert_array_equal(ops.cumulative_prod(x, axis=axis), desired)
    monkeypatch.setattr(scans, "_columns", lambda *_: pytest.fail("by NumPy"))
    np.testing.assert_array_equal(ops.cumulative_prod(x, axis=axis), desired)


@given(st.sampled_from([((9_000,), 0), ((2, 5_000), 1), ((100, 100), 0), ((3, 40, 90), 1)]), DTYPES)
@settings(max_examples=12)
def test_recurrences_of_many_elements_are_their_steps(case, dtype):
    shape, axis = case
    draw = np.random.default_rng(0)
    a, b = draw.uniform(0, 1, shape), draw.uniform(0, 1, shape)  # no sum cancels
    a, b = np.moveaxis(a.astype(dtype), axis, 0), np.moveaxis(b.astype(dtype), axis, 0)
    a[0], b[0, ...].flat[0], b[7, ...].flat[-1] = np.inf, -0.0, np.nan
    for reverse in (False, True):
        steps = slice(None, None, -1 if reverse else 1)
        expected = b[steps].copy()
        with np.errstate(all="ignore"):
            for i in range(1, len(b)):
                expected[i] += a[steps][i] * expected[i - 1]
            operands = [np.moveaxis(v, 0, axis) for v in (b, a)]
            primitive = fdbr_cumulative._recurrence.primitive
            found = primitive.host(np, *operands, axis=axis, reverse=reverse)
        assert found.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
        rtol = 0.05 if dtype == "f2" else 1e-4
        np.testing.assert_allclose(np.moveaxis(found, axis, 0)[steps], expected, rtol=rtol)
