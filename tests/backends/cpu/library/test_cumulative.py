"""Running products of rows."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from fdbr import ops
from fdbr.backends.cpu.library import cumulative, scans


@given(st.integers(1, 60), st.integers(1, 40), st.sampled_from(["float32", "float64", ">f4", "f2"]))
def test_running_products_of_rows_are_numpys_to_the_last_bit(rows, columns, dtype):
    x = np.random.default_rng(rows).normal(size=(2, rows, columns)).astype(dtype)
    x[0, 0, 0], x[-1, -1, -1], x[0, -1, 0] = np.nan, np.inf, 0
    for each in (x, np.asfortranarray(x), x[:, ::-1]):
        found = cumulative.products_of_rows(each)
        if found is None:
            assert x.dtype not in (np.float32, np.float64) or 2 * rows < 16
        else:
            np.testing.assert_array_equal(found, np.cumprod(each, axis=-1))


def test_many_rows_have_them(monkeypatch):
    x = np.random.default_rng(0).normal(size=(600, 900)).astype(np.float32)
    desired = np.cumprod(x, axis=1)
    np.testing.assert_array_equal(ops.cumulative_prod(x, axis=1), desired)
    monkeypatch.setattr(scans, "_columns", lambda *_: pytest.fail("by NumPy"))
    np.testing.assert_array_equal(ops.cumulative_prod(x, axis=1), desired)
