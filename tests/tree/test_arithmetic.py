"""Arithmetic on trees."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, testing, tree


@fdbr.frozen
class Model:
    weight: object
    bias: object = None
    running: object = fdbr.buffer(default=None)
    name: str = fdbr.static(default="model")


DTYPES = st.sampled_from(["float32", "float64", "complex128"])
TREES = testing.trees(testing.arrays(DTYPES, min_side=0) | st.floats(-3, 3) | st.none())


def like(values, seed):
    """Another tree of the same structure, shapes and dtypes."""
    generator = np.random.Generator(np.random.Philox(seed))
    return tree.map(
        lambda leaf: (
            generator.normal(size=leaf.shape).astype(leaf.dtype)
            if hasattr(leaf, "dtype")
            else generator.normal()
        ),
        values,
    )


def flat(values):
    """All elements in one vector."""
    return np.concatenate([np.zeros(0), *(np.ravel(leaf) for leaf in tree.leaves(values))])


@given(TREES, st.integers(0, 99))
def test_arithmetic_on_trees_is_that_of_the_vectors_of_their_elements(x, seed):
    y = like(x, seed)
    u, v = flat(x), flat(y)
    for f in (operator.add, operator.sub, operator.mul, operator.truediv):
        name = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
        found = getattr(tree, name[f.__name__])(x, y)
        np.testing.assert_allclose(flat(found), f(u, v), rtol=1e-6)
        assert tree.structure(found) == tree.structure(x)
    np.testing.assert_allclose(flat(tree.axpy(0.3, x, y)), 0.3 * u + v, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tree.dot(x, y), np.vdot(u, v), rtol=1e-4, atol=1e-5)
    for p in (0, 1, 2, 3.5, np.inf):
        expected = np.linalg.norm(u, p) if u.size else 0.0
        np.testing.assert_allclose(tree.norm(x, ord=p), expected, rtol=1e-5)


@given(TREES, st.sampled_from([0.5, np.float64(0.5), np.float16(0.5), np.array(0.5)]))
def test_a_factor_does_not_decide_on_dtypes(x, factor):
    for found in (tree.scale(factor, x), tree.axpy(factor, x, x), tree.zeros_like(x)):
        for old, new in zip(tree.leaves(x), tree.leaves(found), strict=True):
            assert getattr(old, "dtype", None) in (None, getattr(new, "dtype", None))


def test_a_missing_leaf_counts_as_zero_whichever_tree_lacks_it():
    x, y = {"a": 1.0, "b": None, "c": None}, {"a": None, "b": 2.0, "c": None}
    assert tree.add(x, y) == {"a": 1.0, "b": 2.0, "c": None}
    assert tree.subtract(x, y) == {"a": 1.0, "b": -2.0, "c": None}
    assert tree.axpy(10, x, y) == {"a": 10.0, "b": 2.0, "c": None}
    assert tree.axpy(10, y, x) == {"a": 1.0, "b": 20.0, "c": None}
    assert tree.multiply(x, y) == {"a": None, "b": None, "c": None}
    assert (tree.dot(x, y), tree.norm(x)) == (0.0, 1.0)


def test_parameters_take_a_step_along_their_gradient():
    model = Model(np.ones(2), 3, running=np.zeros(2))
    slope = fdbr.grad(lambda m: ops.sum(m.weight**2))(model)
    moved = tree.axpy(-0.25, slope, model)
    assert moved.weight.tolist() == [0.5, 0.5]
    assert moved.bias is model.bias
    assert moved.running is model.running
    with pytest.raises(ValueError, match="read-only"):
        moved.weight[0] = 1.0


@pytest.mark.parametrize(
    "f",
    [
        lambda p: tree.dot(p, tree.scale(2.0, p)),
        lambda p: tree.norm(p) ** 3,
        lambda p: tree.norm(tree.axpy(tree.norm(p, ord=1), p, tree.ones_like(p)), ord=3),
        lambda p: tree.norm(p, ord=np.inf),
        lambda p: tree.norm(tree.divide(p, tree.add(p, tree.multiply(p, p)))),
    ],
)
def test_arithmetic_on_trees_has_derivatives_of_all_orders_and_batches(f, xp):
    p = {"w": xp.asarray([[1.0, -2.0], [0.5, 3.0]]), "b": (xp.asarray(0.75), None)}
    testing.check_grads(f, p)
    np.testing.assert_allclose(float(fdbr.jit(f)(p)), float(f(p)), rtol=1e-12)


def test_the_norm_of_nothing_has_no_derivative():
    slope = fdbr.grad(tree.norm)({"a": np.zeros(2), "b": 0.0})
    assert flat(slope).tolist() == [0.0, 0.0, 0.0]
    assert tree.norm({}) == tree.dot([], []) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tree.add([1.0, np.ones(2)], [1.0, np.ones((2, 1))]), r"tree.add: .*\[1\].*\[2\]"),
        (lambda: tree.add([1.0], [1.0, 2.0]), "tree.add: tree 2 does not fit"),
        (lambda: tree.dot({"a": "x"}, {"a": 1.0}), r"tree.dot: the leaf \['a'\] is no array"),
        (lambda: tree.scale(np.ones(2), [1.0]), "tree.scale: the factor must be one number"),
        (lambda: tree.norm([1.0], ord="fro"), "tree.norm: ord must be a number"),
        (lambda: tree.zeros_like([object()]), "tree.zeros_like: the leaf .*object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert str(caught.value).startswith("fdbr.tree.")
