"""Triangles of large matrices, which are copied and filled in by kernels."""

import hypothesis.strategies as st
import numpy as np
import pytest
from backends.cpu.library.test_copy import views
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.runtime import pool
from fdbr.backends.cpu.tuning import TUNING


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Arrays of any size are large, some rows are long, and there are threads."""
    monkeypatch.setattr(TUNING, "kernel_bytes", 0)
    monkeypatch.setattr(TUNING, "copy_row", 20)
    monkeypatch.setattr(TUNING, "copy_share", 64)
    monkeypatch.setattr(pool, "thread_count", lambda: 3)


@given(views(), st.integers(-12, 12))
@settings(max_examples=300)
def test_triangles_are_numpys_whatever_the_layout_and_dtype(x, k):
    if x.ndim < 2:
        return
    for found, desired in [(ops.triu(x, k=k), np.triu(x, k)), (ops.tril(x, k=k), np.tril(x, k))]:
        assert found.dtype == desired.dtype
        assert not np.shares_memory(found, x)
        np.testing.assert_array_equal(found, desired)


@pytest.mark.parametrize("columns", [3, 90])
def test_what_is_not_finite_leaves_zeros_beside_it(columns):
    x = np.full((4, columns, columns), np.nan, np.float32)
    assert np.array_equal(ops.triu(x, k=columns), np.zeros_like(x))
    (slope,) = fdbr.vjp(ops.tril, np.ones_like(x))[1](x)
    assert np.array_equal(np.isnan(slope), np.tril(np.ones_like(x), 0) == 1)
