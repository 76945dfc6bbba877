"""Sums of many elements are as exact as sums of few."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

SHAPES = {
    "columns": ((20_011, 70), 0),
    "few columns": ((60_013, 3), 0),
    "one column": ((60_013, 1), 0),
    "columns over two axes": ((150, 150, 40), (0, 1)),
    "rows": ((40, 20_011), 1),
    "rows over two axes": ((40, 150, 150), (1, 2)),
    "all": ((300, 301), None),
}


def ulps(found, exact):
    """The largest error, in units in the last place of the largest element."""
    return np.max(abs(found - exact)) / np.spacing(np.float32(np.max(exact)))


@pytest.mark.parametrize("name", SHAPES)
def test_the_error_of_a_sum_does_not_grow_with_the_number_of_terms(name):
    shape, axis = SHAPES[name]
    x = np.random.default_rng(0).random(shape, np.float32)
    exact = np.square(x).sum(axis=axis, dtype=np.float64)
    f = lambda x: ops.sum(x * x, axis=axis)
    jitted = fdbr.jit(f)
    for found in (f(x), jitted(x), jitted(x)):
        assert found.dtype == np.float32
        assert found.shape == exact.shape
        assert ulps(found, exact) <= 12
    assert ulps(ops.mean(x * x, axis=axis), exact * (exact.size / x.size)) <= 12


@pytest.mark.parametrize("columns", [3, 70])
def test_nor_does_that_of_the_gradient_of_what_was_repeated_in_every_row(columns):
    x = np.random.default_rng(0).random((60_013, columns), np.float32)
    exact = x.sum(axis=0, dtype=np.float64)
    f = fdbr.grad(lambda bias: ops.sum(x * (x + bias)))
    jitted, bias = fdbr.jit(f), np.zeros(columns, np.float32)
    for found in (f(bias), jitted(bias), jitted(bias)):
        assert ulps(found, exact) <= 12


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_infinity_and_nan_stay_in_their_columns(odd):
    x = np.ones((20_011, 3), np.float32)
    x[7_000, 1] = odd
    np.testing.assert_array_equal(ops.sum(x, axis=0), np.array([20_011, odd, 20_011], "float32"))
