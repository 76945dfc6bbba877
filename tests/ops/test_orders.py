"""The order of many elements, however it is found, is that of NumPy's stable sort."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.sort import sorting
from fdbr.backends.cpu.tuning import TUNING

DTYPES = [
    *("float32", ">f4", "float16", "float64", "complex64", "bool"),
    *("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", ">i4"),
]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few elements are many, and worth several threads."""
    monkeypatch.setattr(TUNING, "extra_pass", 1)
    monkeypatch.setattr(TUNING, "sort_share", 8)
    monkeypatch.setattr(TUNING, "kernel_bytes", 0)


@st.composite
def arrays(draw):
    """Arrays with elements that are equal, and, of floats, all kinds of special ones."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    shape = (*shape[:-1], shape[-1] * draw(st.sampled_from([1, 9])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = rng.integers(0 if dtype.kind in "ub" else -4, 5, shape)
    wide = draw(st.booleans()) and dtype.itemsize > 2
    x = (x * (2**28 if wide else 1)).astype(dtype)
    if dtype.kind in "fc":
        specials = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45], dtype)
        places = rng.integers(0, x.size, x.size // 2)
        x.flat[places] = rng.choice(specials, len(places))
    if draw(st.booleans()):
        x = np.asfortranarray(x)
    return x, draw(st.integers(0, x.ndim - 1))


@given(arrays(), st.booleans())
@settings(max_examples=200)
def test_the_places_of_elements_in_their_order_are_numpys(case, descending):
    x, axis = case
    found = ops.argsort(x, axis=axis, descending=descending)
    if descending:
        turned = np.flip(x, axis)
        desired = x.shape[axis] - 1 - np.flip(np.argsort(turned, axis=axis, kind="stable"), axis)
    else:
        desired = np.argsort(x, axis=axis, kind="stable")
    assert found.dtype == desired.dtype
    np.testing.assert_array_equal(found, desired)


@given(arrays(), st.integers(0, 99))
@settings(max_examples=100)
def test_some_places_of_the_order_are_those_of_all(case, seed):
    x, axis = case
    ranks = tuple(np.random.default_rng(seed).integers(0, x.shape[axis], 3).tolist())
    if x.dtype.kind == "c":
        return
    order = np.argsort(x, axis=axis, kind="stable")
    found = sorting._rank_indices(np, x, ranks=ranks, axis=axis)
    np.testing.assert_array_equal(found, np.take(order, ranks, axis))


@given(arrays())
@settings(max_examples=60)
def test_a_sorted_array_has_the_derivative_of_its_elements(case):
    x, axis = case
    if x.dtype not in (np.float32, np.float64):
        return
    out, pullback = fdbr.vjp(lambda x: ops.sort(x, axis=axis), x)
    order = np.argsort(x, axis=axis, kind="stable")
    np.testing.assert_array_equal(out, np.take_along_axis(x, order, axis))
    ct = np.random.default_rng(0).normal(size=x.shape).astype(x.dtype)
    desired = np.zeros_like(x)
    np.put_along_axis(desired, order, ct, axis)
    np.testing.assert_array_equal(pullback(ct)[0], desired)


@given(arrays(), arrays(), st.sampled_from(["left", "right"]))
@settings(max_examples=60)
def test_many_elements_are_sought_as_few_are(x, y, side):
    x, y = np.sort(x[0].reshape(-1)), y[0]
    found = ops.searchsorted(x, y, side=side)
    desired = np.searchsorted(x, y, side=side)
    assert found.dtype == desired.dtype
    np.testing.assert_array_equal(found, desired)


@given(arrays())
def test_the_places_of_what_is_not_zero_are_numpys(case):
    x, _ = case
    for found, desired in zip(ops.nonzero(x), x.nonzero(), strict=True):
        assert found.dtype == desired.dtype
        np.testing.assert_array_equal(found, desired)
