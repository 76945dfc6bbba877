"""`distributed.value_and_grad`: gradients that are averaged while backward runs."""

import threading

import numpy as np
import pytest
from distributed.gradients.models import assert_close, assert_same_bits

import fdbr
from fdbr import distributed as d
from fdbr import ops
from fdbr.distributed.gradients.background import observing


def loss(params, x):
    """A chain of layers, of which the first is used twice, and which reads one array by rows."""
    a, b, rows = params["a"], params["b"], params["rows"]
    x = ops.tanh(x @ a)
    for i in range(3):
        x = x + rows[i]
    x = ops.tanh(x @ b) @ a
    return ops.mean(x * x)


PARAMS = {
    "a": np.linspace(-1, 1, 9).reshape(3, 3),
    "b": np.linspace(1, -2, 9).reshape(3, 3),
    "rows": np.linspace(0, 1, 9).reshape(3, 3),
    "unused": np.ones(4),
    "count": 3,
}
X = np.random.default_rng(0).normal(size=(6, 3))


@pytest.mark.parametrize("limit", [1, 100, 10**6])
def test_the_gradient_is_that_of_all_examples(limit):
    value, whole = fdbr.value_and_grad(loss)(PARAMS, X)

    def f(comm):
        gradient = d.value_and_grad(loss, comm, weight=lambda params, x: len(x), bucket_bytes=limit)
        return gradient(PARAMS, X[:2] if comm.rank == 0 else X[2:])

    first, second = d.run_in_threads(f, 2)
    np.testing.assert_allclose((2 * first[0] + 4 * second[0]) / 6, value)
    assert_close(first[1], whole, 1e-12)
    assert_same_bits(first[1], second[1])


def test_it_takes_the_arguments_of_value_and_grad():
    def f(comm):
        g = d.value_and_grad(lambda x, y: (x * y, {"sum": x + y}), comm, (0, 1), True)
        return g(2.0, 3.0 + comm.rank)

    (value, aux), derivatives = d.run_in_threads(f, 2)[1]
    assert (value, aux["sum"], *derivatives) == (8.0, 6.0, 3.5, 2.0)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match=r"value_and_grad: comm must be a communicator"):
        d.value_and_grad(loss, None)
    with pytest.raises(TypeError, match=r"value_and_grad: f must be a function"):
        d.value_and_grad(3, d.serial())
    with pytest.raises(TypeError, match=r"value_and_grad: weight must be a number"):
        d.value_and_grad(loss, d.serial(), weight="many")
    with pytest.raises(ValueError, match="the weights of all ranks are 0"):
        d.value_and_grad(loss, d.serial(), weight=0)(PARAMS, X)


def test_a_function_that_gives_its_argument_has_a_gradient():
    def f(comm):
        return d.value_and_grad(lambda x: x, comm)(3.0)[1]

    assert d.run_in_threads(f, 2) == [1.0, 1.0]


def test_a_bucket_is_sent_before_backward_has_ended():
    began = threading.Event()
    waited = []

    @fdbr.custom_vjp
    def marked(x):
        return x * 1.0

    def backward(_, ct):
        waited.append(began.wait(10))
        return (ct,)

    marked.defvjp(lambda x: (x * 1.0, None), backward)

    def f(comm):
        def two_layers(params, x):
            return ops.sum(marked(x @ params["first"]) @ params["second"])

        with observing(lambda span: began.set()):
            params = {"first": np.eye(2), "second": np.eye(2)}
            return d.value_and_grad(two_layers, comm, bucket_bytes=1)(params, np.ones((1, 2)))[1]

    grads = d.run_in_threads(f, 2)
    assert waited == [True, True]
    np.testing.assert_array_equal(grads[0]["second"], np.ones((2, 2)))


def test_ranks_whose_graphs_differ_reduce_the_same_buckets():
    def f(comm):
        def tree_like(params, depth):
            x = params["leaf"]
            for _ in range(depth):
                x = x * params["node"]
            return ops.sum(x)

        params = {"leaf": np.array([1.0, 2.0]), "node": np.array([3.0, 4.0])}
        return d.value_and_grad(tree_like, comm, bucket_bytes=1)(params, comm.rank)[1]

    for found in d.run_in_threads(f, 3):
        np.testing.assert_allclose(found["leaf"], [(1 + 3 + 9) / 3, (1 + 4 + 16) / 3])
        np.testing.assert_allclose(found["node"], [(1 + 6) / 3, (2 + 16) / 3])


def test_one_rank_may_jit_what_another_one_calls():
    def f(comm):
        gradient = d.value_and_grad(loss, comm, weight=lambda p, x: len(x), bucket_bytes=80)
        step = fdbr.jit(gradient) if comm.rank else gradient
        for _ in range(6):
            found = step(PARAMS, X[comm.rank :])
        return found[1]

    first, second = d.run_in_threads(f, 2)
    assert_close(first, second, 1e-12)


def test_other_transformations_go_through_it():
    def f(comm):
        gradient = d.value_and_grad(lambda w, x: ops.sum(ops.sin(w * x)), comm)
        x = np.array([1.0, 2.0]) * (1 + comm.rank)
        return fdbr.grad(lambda w: ops.sum(gradient(w, x)[1] ** 2))(np.array([0.3, 0.7]))

    def whole(w):
        xs = [np.array([1.0, 2.0]), np.array([2.0, 4.0])]
        mean = sum(x * ops.cos(w * x) for x in xs) / 2
        return 2 * ops.sum(mean**2)

    expected = fdbr.grad(whole)(np.array([0.3, 0.7]))
    np.testing.assert_allclose(sum(d.run_in_threads(f, 2)), expected, 1e-12)


def test_an_error_in_the_function_leaves_nothing_under_way():
    def f(comm):
        gradient = d.value_and_grad(loss, comm, weight=2)
        with pytest.raises(ValueError, match="matmul"):
            gradient(PARAMS, np.ones((2, 5)))
        return gradient(PARAMS, X)[1]

    assert_close(d.run_in_threads(f, 2)[1], fdbr.grad(loss)(PARAMS, X), 1e-12)


def test_ranks_with_other_parameters_are_told():
    def f(comm):
        return d.value_and_grad(lambda w: ops.sum(w), comm)(np.ones(2 + comm.rank))

    with pytest.raises(d.MismatchError, match=r"rank 1: all_reduce\(op='mean'\) of float64\[3\]"):
        d.run_in_threads(f, 2, timeout=10)
