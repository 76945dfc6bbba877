"""Reductions along axes of few elements, and reshapes of arrays that repeat elements."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from fdbr import ops
from fdbr.backends.cpu.library.rows import by_slices

OF_NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@given(
    st.sampled_from(sorted(OF_NUMPY)),
    st.sampled_from([64, 300, 5_000]),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["float32", "float64", "float16", "complex64", "int8", ">f8"]),
    st.sampled_from("CF"),
)
@settings(max_examples=60, deadline=None)
def test_reductions_along_a_short_axis_are_numpys_to_the_last_bit(
    name, rows, count, inner, dtype, order
):
    x = np.random.default_rng(rows).normal(size=(rows, count, inner))
    x[0, -1], x[1, 0], x[2] = np.nan, np.inf, -0.0
    with np.errstate(all="ignore"):
        x = x.astype(dtype, order=order)
        expected = getattr(np, name)(x, axis=1)
        found = getattr(ops, name)(x, axis=1)
        if dtype in ("float32", "float64") and 1 < count < 8 and order == "C":
            assert by_slices(OF_NUMPY[name], x, 1) is not None
            np.testing.assert_array_equal(found, expected)
            if name == "sum":
                np.testing.assert_array_equal(ops.sum(x, axis=-2, keepdims=True)[:, 0], expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype.newbyteorder("=")


@pytest.mark.parametrize("axes", [(1, 3), (3,), (1,), (0, 3), (3, 1)])
@pytest.mark.parametrize("name", sorted(OF_NUMPY))
def test_reductions_along_several_short_axes_are_numpys(name, axes):
    x = np.random.default_rng(0).uniform(0.5, 1.5, (4, 5, 40, 3))
    found = getattr(ops, name)(x, axis=axes)
    np.testing.assert_allclose(found, getattr(np, name)(x, axis=axes), rtol=1e-14)
    assert found.flags.c_contiguous


@given(
    st.sampled_from([(50, 30), (7, 11, 40), (2, 3)]), st.integers(1, 9), st.sampled_from("fdFe?i")
)
@settings(max_examples=30, deadline=None)
def test_reshapes_of_repeated_elements_have_them_in_order(shape, times, dtype):
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    repeated = ops.broadcast_to(ops.expand_dims(x, axis=-1), (*shape, times))
    found = ops.reshape(repeated, (*shape[:-1], -1))
    np.testing.assert_array_equal(found, np.repeat(x, times, axis=-1))
    assert found.dtype == x.dtype
    kept = ops.reshape(repeated, (-1, times))
    np.testing.assert_array_equal(kept, np.repeat(x.reshape(-1, 1), times, axis=1))
