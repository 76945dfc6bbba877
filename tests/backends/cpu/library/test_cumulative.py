"""Cumulative sums and products by kernels."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fdbr import ops
from fdbr.backends.cpu.library import cumulative, scans

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
