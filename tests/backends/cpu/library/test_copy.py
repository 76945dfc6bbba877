"""Copies of arrays whose rows lie apart, and what is joined of them."""

import warnings
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library import copies, copy
from fdbr.backends.cpu.runtime import pool
from fdbr.core.array_modules import copy_of
from fdbr.ops.indexing import reading

DTYPES = ["float32", ">f8", "complex128", "float16", "int8", "bool", "O"]
CUTS = [slice(None), slice(1, None), slice(None, 1), slice(None, None, 2), slice(None, None, -1)]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Arrays of any size are large, and every row is long."""
    monkeypatch.setattr(copy, "LEAST", 0)
    monkeypatch.setattr(copies, "LEAST", 0)
    monkeypatch.setattr(copy, "_ROW", 1)
    monkeypatch.setattr(copy, "_SHARE", 64)
    monkeypatch.setattr(pool, "thread_count", lambda: 3)
    monkeypatch.setattr(reading, "_MANY", 1)


@st.composite
def views(draw, dims=None):
    """Arrays of any layout: parts of others, turned round and about."""
    ndim = dims or draw(st.integers(1, 4))
    shape = [draw(st.integers(0, 9)) for _ in range(ndim)]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    whole = rng.integers(0, 2, [2 * n + 2 for n in shape]).astype(draw(st.sampled_from(DTYPES)))
    whole = np.transpose(whole, draw(st.permutations(range(ndim))))
    return whole[tuple(draw(st.sampled_from(CUTS)) for _ in shape)]


@given(views())
@settings(max_examples=200)
def test_a_copy_has_the_elements_of_its_array(x):
    found = copy_of(x)
    assert found.dtype == x.dtype
    assert not np.shares_memory(found, x)
    assert found.base is None
    np.testing.assert_array_equal(found, x)


@given(views(), st.sampled_from([0, 1, -1, 2.5, True, 300, 1j, np.inf]))
@settings(max_examples=200)
def test_an_array_filled_with_a_number_is_numpys(x, value):
    def outcome(function):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of complex numbers that lose a part
            try:
                return function()
            except Exception as error:
                return type(error)

    for ours, numpys in [
        (lambda: ops.full_like(x, value), lambda: np.full_like(x, value)),
        (lambda: ops.ones_like(x), lambda: np.ones_like(x)),
        (lambda: ops.full(x.shape, value), lambda: np.full(x.shape, value)),
        (lambda: ops.full(7, value, dtype="i2"), lambda: np.full(7, value, "i2")),
        (lambda: ops.ones(x.shape, dtype="D"), lambda: np.ones(x.shape, "D")),
        (
            lambda: copy_of(np.broadcast_to(x[:1, ...], x.shape)),
            lambda: np.broadcast_to(x[:1, ...], x.shape),
        ),
    ]:
        found, desired = outcome(ours), outcome(numpys)
        if isinstance(desired, type):
            assert isinstance(found, type)
        else:
            np.testing.assert_array_equal(found, desired)
            assert found.dtype == desired.dtype


@given(views(), st.data())
@settings(max_examples=200)
def test_what_is_joined_is_what_numpy_joins(x, data):
    axis = data.draw(st.integers(0, x.ndim - 1))
    parts = [x, np.flip(x, 0), np.take(x, [0] * min(1, x.shape[axis]), axis), x.copy()]
    for found, desired in [
        (ops.concat(parts, axis=axis), np.concatenate(parts, axis)),
        (ops.stack([x, parts[1]], axis=axis), np.stack([x, parts[1]], axis)),
    ]:
        assert found.dtype == desired.dtype
        np.testing.assert_array_equal(found, desired)


@given(st.lists(st.integers(0, 7), min_size=2, max_size=5), st.booleans(), st.integers(0, 9))
def test_the_cotangents_of_slices_are_put_together(cuts, apart, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5, 8))
    ends = sorted({0, 8, *cuts}) if apart else [0, 8, 4, 6]

    def split(x):
        return tuple(x[:, i:j] for i, j in pairwise(ends))

    outs, pullback = fdbr.vjp(split, x)
    order = rng.permutation(len(outs))
    cts = tuple(rng.normal(size=out.shape) for out in outs)
    desired = np.zeros_like(x)
    for (i, j), ct in zip(pairwise(ends), cts, strict=True):
        desired[:, i:j] += ct
    np.testing.assert_allclose(pullback(cts)[0], desired)
    _, back = fdbr.vjp(lambda x: tuple(split(x)[k] for k in order), x)
    np.testing.assert_allclose(back(tuple(cts[k] for k in order))[0], desired)
