"""Trees as vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import fdbr
from fdbr import ops, testing, tree


@fdbr.frozen
class Model:
    weight: object
    scale: object
    steps: object = 3
    running: object = fdbr.buffer(default=None)


LEAVES = (
    testing.arrays(st.sampled_from(["float16", "float32", "float64", "complex64"]), min_side=0)
    | testing.arrays("int32")
    | st.floats(allow_nan=False)
    | st.integers()
    | st.none()
    | st.just("text")
)


def same(a, b):
    if hasattr(a, "dtype"):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    return type(a) is type(b) and a == b


@given(testing.trees(LEAVES))
def test_a_tree_is_bitwise_what_its_vector_gives_back(values):
    vector, unravel = tree.ravel(values)
    again = unravel(vector)
    assert tree.structure(again) == tree.structure(values)
    assert all(map(same, tree.leaves(values), tree.leaves(again)))
    assert vector.ndim == 1
    assert vector.dtype.kind in "fc"


def test_the_vector_of_a_model_is_as_long_as_that_of_its_gradient():
    model = Model(np.ones((2, 3), "float32"), 2.0, running=np.zeros(4))
    slope = fdbr.grad(lambda m: ops.sum(m.weight) * m.scale)(model)
    vector, unravel = tree.ravel(model)
    assert tree.ravel(slope)[0].shape == vector.shape == (7,)
    again = unravel(2 * np.asarray(vector))
    assert again.weight.dtype == "float32"
    assert type(again.scale) is float
    assert (again.steps, again.running) == (3, model.running)


def test_what_is_unravelled_does_not_follow_the_vector():
    vector, unravel = tree.ravel([np.ones(2), 1.0])
    mine = np.array(vector)
    found = unravel(mine)
    mine[:] = 7
    assert found[0].tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        found[0][0] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0.0


def test_both_ways_are_differentiable(xp):
    p = {"w": xp.asarray([[1.0, -2.0]]), "b": xp.asarray(0.5), "n": xp.asarray([1, 2])}
    weights = xp.asarray([1.0, 2.0, 3.0])
    testing.check_grads(lambda p: ops.sum(weights * tree.ravel(p)[0] ** 3), p)
    _, unravel = tree.ravel(p)
    testing.check_grads(lambda v: unravel(v)["w"] * unravel(v)["b"], xp.asarray([0.5, 1.5, 2.0]))
    doubled = fdbr.jit(lambda p: tree.ravel(p)[1](2 * tree.ravel(p)[0]))(p)
    assert [leaf.shape for leaf in tree.leaves(doubled)] == [(), (2,), (1, 2)]


def test_models_are_fitted_by_scipy():
    x = np.linspace(-1, 1, 20)
    model = Model(np.zeros(2, "float32"), 0.0)
    start, unravel = tree.ravel(model)

    def loss(m):
        return ops.mean((m.weight[0] * x + m.weight[1] * x**2 + m.scale - np.exp(x)) ** 2)

    def derivatives(vector):
        value, slope = fdbr.value_and_grad(loss)(unravel(vector))
        return float(value), np.asarray(tree.ravel(slope)[0], dtype=float)

    found = unravel(optimize.minimize(derivatives, start, jac=True).x)
    assert loss(found) < 1e-3
    assert found.weight.dtype == "float32"


@pytest.mark.parametrize("vector", [np.ones(2), np.ones((3, 1)), np.ones(3, complex), None, "abc"])
def test_a_vector_that_does_not_fit_is_refused(vector):
    _, unravel = tree.ravel([np.zeros(2), 0.0])
    with pytest.raises(ValueError, match=r"fdbr.tree.ravel: unravel takes a real vector of shape"):
        unravel(vector)
