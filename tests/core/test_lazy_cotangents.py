"""Cotangents of one value from many uses are computed together, and nobody can tell by the sum."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import debug, ops
from fdbr.core.lazy_cotangents import Deferred


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


def uses(x, weight, key):
    """What may be done with a matrix of ``(100, 50)`` at one step; each gives a scalar."""
    return {
        "affine": lambda: ops.sum(ops.linear(x, weight, weight[:, 0]) ** 2),
        "linear": lambda: ops.sum(ops.linear(x, weight) ** 2),
        "product": lambda: ops.sum((x[:, :1] @ weight[:1]) ** 2),
        "matmul": lambda: ops.sum((ops.matmul(x, weight.T)) ** 2),
        "row": lambda: ops.sum(weight[key] ** 2),
        "rows": lambda: ops.sum(weight[key:] ** 3),
        "element": lambda: weight[key, 3] ** 2,
        "places": lambda: ops.sum(weight[np.array([key, key, 1])] ** 2),
        "table": lambda: ops.sum(ops.embed(weight, np.array([[key, 2], [key, 99]])) ** 2),
        "unsigned": lambda: ops.sum(ops.embed(weight, np.array([key], "uint64")) ** 2),
        "whole": lambda: ops.sum(weight**2),
    }


NAMES = sorted(uses(None, None, None))


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 99)), min_size=1, max_size=40),
    st.sampled_from([1, 20, 63, 65, 300]),
    st.sampled_from(["float32", "float64"]),
)
def test_the_gradient_of_many_uses_is_the_sum_of_those_of_each(steps, rows, dtype):
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 50)).astype(dtype)
    weight = rng.normal(size=(100, 50)).astype(dtype)

    def loss(weight, steps):
        total = 0.0
        for name, key in steps:
            total = total + uses(x, weight, key)[name]()
        return total

    found = fdbr.grad(loss)(weight, steps)
    each = [fdbr.grad(loss)(weight, [step]) for step in steps]
    expected = np.sum(np.array(each, "float64"), axis=0)
    assert found.dtype == dtype
    scale = np.abs(np.array(each, "float64")).sum(axis=0).max() + 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=100 * np.finfo(dtype).eps * scale)
    tangent = rng.normal(size=weight.shape).astype(dtype)
    slope = fdbr.jvp(lambda w: loss(w, steps), (weight,), (tangent,))[1]
    near = 1e4 * np.finfo(dtype).eps * np.abs(found * tangent).sum()
    np.testing.assert_allclose(np.vdot(found, tangent), slope, rtol=0, atol=near + 1e-30)


def test_second_derivatives_of_a_recurrence_are_those_of_numerics():
    x = normal(6, 4, 3)

    def loss(weight):
        state = x[0]
        for t in range(6):
            state = ops.tanh(state @ weight + x[t])
        return ops.sum(state**2)

    fdbr.testing.check_grads(loss, normal(3, 3) / 2, order=2)


def test_cotangents_of_several_dtypes_are_promoted():
    x, y = np.ones((3, 4), "float32"), np.ones((3, 2))
    terms = [(x, 1.5 * x), (y, y)]
    one = Deferred(lambda terms: sum(a.T @ b for a, b in terms), terms[0], 3, 100)
    assert (one + np.full((4, 4), 1j)).value().dtype == "complex128"


def test_a_loop_over_rows_takes_memory_for_few_arrays():
    table = normal(1000, 1000)

    def loss(table):
        total = 0.0
        for row in range(1000):
            total = total + ops.sum(table[row])
        return total

    fdbr.grad(loss)(table)
    tracemalloc.start()
    gradient = fdbr.grad(loss)(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * table.nbytes
    assert (gradient == 1).all()


def test_a_long_recurrence_keeps_few_of_its_terms():
    weight = np.eye(200)
    steps = 200

    def loss(weight, x):
        total = 0.0
        for t in range(steps):
            total = total + ops.sum(x[t] @ weight)
        return total

    x = normal(steps, 50, 200)
    tracemalloc.start()
    gradient = fdbr.grad(loss)(weight, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(gradient, np.repeat(x.sum((0, 1))[:, None], 200, 1), rtol=1e-10)
    assert peak < 2 * x.nbytes


def test_hooks_see_every_term_computed():
    weight, x = np.ones((100, 50)), np.ones((3, 50))

    def loss(weight):
        return ops.sum(ops.linear(x, weight)) + ops.sum(weight[0]) + ops.sum(ops.linear(x, weight))

    with debug.nan_check():
        found = fdbr.grad(loss)(weight)
    np.testing.assert_array_equal(found, fdbr.grad(loss)(weight))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_pullback_gives_belongs_to_the_caller(name):
    x, weight = normal(3, 50), normal(100, 50)
    _, pullback = fdbr.vjp(lambda weight: uses(x, weight, 3)[name](), weight)
    (first,), (second,) = pullback(1.0), pullback(1.0)
    assert isinstance(first, np.ndarray)
    np.testing.assert_array_equal(first, second)
