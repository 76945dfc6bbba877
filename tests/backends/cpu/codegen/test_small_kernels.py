"""Kernels for small arrays: what they look up, and which steps come together in one."""

import sys

import numpy as np
import pytest
from compiler.comparing import assert_as_eager, assert_same
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.compiler.ir.program import Small

X = np.linspace(-2.0, 3.0, 12).reshape(4, 3)
ROWS = np.arange(4)


def kernels(jitted):
    (program,) = jitted.programs()
    return [step for step in program.steps if isinstance(step, Small)]


def names(small):
    return [step.primitive.name for step in small.steps]


def looked_up(x, i, j):
    y = ops.exp(x) + 1
    return y[i, j] * 2 + y[j, j] - 1, (x > 0)[i, j], y


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_elements_are_looked_up_at_indices_from_either_end(dtype, index):
    x = X.astype(dtype)
    places = [np.array(p, index) for p in ([0, 1, 2, 1], [-1, -3, 2, 0], [1, 1, 1, 1])]
    jitted = assert_as_eager(looked_up, *[(x, ROWS, place) for place in places])
    (small,) = kernels(jitted)
    assert names(small).count("gather") == 3


@given(st.lists(st.integers(-6, 6), min_size=4, max_size=4))
def test_an_index_without_a_place_is_the_error_that_it_ever_was(indices):
    def f(x, j):
        return looked_up(x, ROWS, j)

    jitted = fdbr.jit(f)
    jitted(X, np.zeros(4, int))
    place = np.array(indices)
    if -3 <= place.min() and place.max() < 3:
        assert_same(jitted(X, place), f(X, place))
    else:
        with pytest.raises(IndexError) as desired:
            f(X, place)
        with pytest.raises(IndexError) as found:
            jitted(X, place)
        assert str(found.value) == str(desired.value)
    assert_same(jitted(X, np.ones(4, int)), f(X, np.ones(4, int)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_classifier_has_its_loss_and_its_derivative_in_one_kernel(dtype):
    def f(x, labels):
        return fdbr.value_and_grad(lambda x: ops.softmax_cross_entropy(x, labels))(x)

    x = X.astype(dtype)
    jitted = assert_as_eager(f, *[(x * s, np.array([0, 2, 1, 1])) for s in (1, -3, 100)])
    (small,) = kernels(jitted)
    assert {"exp", "gather", "subtract_at_labels"} <= {*names(small)}
    for wrong in (3, -1):
        with pytest.raises(ValueError, match="labels"):
            jitted(x, np.array([0, wrong, 1, 1]))


def test_sums_of_many_small_elements_are_as_exact_as_those_of_numpy():
    x = np.linspace(0.5, 1.5, 1000, dtype="float32")
    assert_as_eager(lambda x: (ops.exp(x) * x - 1).sum() + 1, (x,), ulps=4)


def test_small_steps_wait_for_each_other_between_large_ones():
    def f(params, x):
        for w, b in params:
            x = ops.tanh(x @ w + b)
        return [(w - 0.1 * x.sum(), b * 2 + 1) for w, b in params], x

    params = [(np.eye(70), np.full(70, 0.1 * i)) for i in range(3)]
    jitted = assert_as_eager(f, (params, np.eye(70)), (params, 2 * np.eye(70)))
    (small,) = kernels(jitted)
    assert names(small) == ["multiply", "add"] * 3


def test_a_decision_does_not_wait():
    def f(x, y):
        z = ops.exp(x * 2 + 1) + x
        if z[0] > 0:
            return z * 2 + y
        return z

    jitted = assert_as_eager(f, (X[2], X), (X[2] - 9, X), (X[2] + 1, X), (X[2] - 9, X))
    assert len(jitted.programs()) == 2


def test_calls_leave_references_as_they_were():
    jitted = fdbr.jit(lambda x: ops.exp(x) * 2 + 1 - x)
    for _ in range(3):
        result = jitted(X)
    before = sys.getrefcount(X), sys.getrefcount(None)
    for _ in range(1000):
        result = jitted(X)
    assert sys.getrefcount(X) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100
    assert sys.getrefcount(result) == 2
