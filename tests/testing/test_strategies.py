"""Strategies of arrays, trees and keys, and the decorator that makes tests of them."""

import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops, tree
from fdbr.testing import arrays, assert_allclose, broadcastable, gradient_property, keys, trees

DTYPES = ("float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "uint8")


def smallest(strategy, condition=lambda x: True):
    return hypothesis.find(strategy, condition, settings=settings(database=None, max_examples=200))


# --- arrays -------------------------------------------------------------------------


@given(st.sampled_from(DTYPES).flatmap(lambda d: st.tuples(st.just(d), arrays(d))))
def test_arrays_have_the_dtype_and_the_usual_bounds(drawn):
    dtype, x = drawn
    assert x.dtype == dtype
    assert x.ndim <= 3
    assert all(1 <= n <= 3 for n in x.shape)
    assert (abs(x.real) <= 3).all()
    assert (abs(x.imag) <= 3).all()


@given(arrays(st.sampled_from(DTYPES), min_dims=1, max_dims=2, min_side=0, max_side=5))
def test_dtypes_may_be_drawn_and_shapes_bounded(x):
    assert x.dtype.name in DTYPES
    assert 1 <= x.ndim <= 2
    assert all(n <= 5 for n in x.shape)


@given(st.data(), st.sampled_from(DTYPES))
def test_elements_keep_away_from_places_and_from_each_other(data, dtype):
    x = data.draw(arrays(dtype, shape=2, away_from=(0, 1), gap=0.25, distinct=True))
    assert (abs(x) >= 0.25).all()
    assert (abs(x - 1) >= 0.25).all()
    apart = abs(x[:, None].astype(complex) - x) + 9 * np.eye(2)
    assert (apart >= 0.25).all()


@given(arrays(shape=(2, 2), min_value=1000, max_value=1001))
def test_bounds_may_be_narrow_and_far_from_nought(x):
    assert (x >= 1000).all()
    assert (x <= 1001).all()


@given(arrays(bool, shape=3))
def test_truth_values_can_be_drawn(x):
    assert x.dtype == bool


def test_arrays_are_of_the_array_module_asked_for(xp):
    @settings(max_examples=5)
    @given(arrays("float32", xp=xp))
    def check(x):
        assert type(x) is type(xp.zeros(1))
        assert x.dtype == np.float32

    check()


def test_arrays_shrink_to_the_simplest():
    assert smallest(arrays()) == 0.0
    assert smallest(arrays(shape=2, away_from=0), lambda x: x[1] < 0).tolist() == [0.125, -0.125]
    assert smallest(arrays("int64", shape=2), lambda x: x.sum() > 4).tolist() in ([3, 2], [2, 3])


def test_every_element_of_the_grid_is_drawn():
    assert smallest(arrays(shape=()), lambda x: x > 2.5) > 2.5
    assert smallest(arrays("complex64", shape=()), lambda z: z.real < -1 and z.imag > 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_value": 1, "max_value": 0}, "must not exceed"),
        ({"min_value": -1, "max_value": 1, "away_from": 0, "gap": 2}, "no float64 at a distance"),
        ({"dtype": str}, "one of numbers, not <U0"),
    ],
)
def test_impossible_elements_are_told_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        arrays(**options)


def test_too_many_distinct_elements_are_told():
    @given(arrays(shape=20, gap=1, distinct=True))
    def check(x):
        raise AssertionError

    with pytest.raises(ValueError, match=r"20 distinct elements .* widen the bounds"):
        check()


# --- several arrays, trees, keys ----------------------------------------------------


@given(broadcastable(3, min_side=0))
def test_broadcastable_arrays_broadcast(found):
    x, y, z = found
    assert (x + y + z).ndim <= 3


@given(broadcastable(2, shapes=True, max_dims=2, max_side=4))
def test_broadcastable_shapes_broadcast(shapes):
    assert all(n <= 4 for n in np.broadcast_shapes(*shapes))


@given(broadcastable([{"dtype": "float32"}, {"away_from": 0, "dtype": "float64"}], max_value=1))
def test_broadcastable_arrays_have_options_of_their_own(pair):
    x, y = pair
    assert (x.dtype, y.dtype) == (np.float32, np.float64)
    assert (abs(y) >= 0.125).all()
    assert (y <= 1).all()


@given(broadcastable(2, distinct=True, max_dims=2))
def test_distinct_arrays_are_nowhere_equal(pair):
    x, y = pair
    assert (abs(x.reshape(-1, 1) - y.reshape(-1)) >= 0.125).all()


def test_distinct_arrays_have_their_options_in_common():
    with pytest.raises(ValueError, match="have their options in common"):
        broadcastable([{}, {}], distinct=True)


@given(trees(max_leaves=4))
def test_trees_are_trees_of_arrays(found):
    assert 1 <= len(tree.leaves(found)) <= 4
    assert all(isinstance(leaf, np.ndarray) for leaf in tree.leaves(found))


@given(trees(st.integers()))
def test_leaves_of_trees_may_be_anything(found):
    assert all(type(leaf) is int for leaf in tree.leaves(found))


@pytest.mark.parametrize("kind", [list, tuple, dict, int])
def test_trees_are_of_every_kind(kind):
    assert isinstance(smallest(trees(st.integers()), lambda t: isinstance(t, kind)), kind)


@given(keys(), keys())
def test_keys_are_keys(one, other):
    same = (one == other).all()
    draws = fdbr.random.normal(one, (3,)), fdbr.random.normal(other, (3,))
    assert (draws[0] == draws[1]).all() == same


# --- properties ---------------------------------------------------------------------


@gradient_property(arrays(max_dims=1))
def test_a_property_of_one_argument(x):
    return np.tanh(x) ** 2


@gradient_property(broadcastable(2, distinct=True, max_dims=2).map(list), order=2)
def test_a_property_of_a_tree(pair):
    return ops.maximum(*pair)


@pytest.fixture(scope="module")
def factor():
    return 3.0


@settings(max_examples=5)
@gradient_property(arrays("float32", shape=3), trees(arrays("float32", shape=3)), modes=("jvp",))
def test_fixtures_come_first_and_settings_above(factor, x, weights):
    assert factor == 3.0
    return [factor * x * w for w in tree.leaves(weights)]


class TestMethods:
    @gradient_property(arrays(shape=(2, 2)))
    def test_methods_can_be_properties(self, x):
        return x @ x


def test_a_property_has_no_deadline_but_that_of_settings_above_it():
    settings.register_profile("hasty", max_examples=2, deadline=1e-3, database=None)
    before = settings.get_current_profile_name()
    settings.load_profile("hasty")
    try:
        patient = gradient_property(arrays(shape=2), modes=("vjp",))(lambda x: ops.tanh(x))
        by_hand = gradient_property(arrays(shape=2), modes=("vjp",))
        hasty = settings(max_examples=2)(by_hand(lambda x: ops.sin(x)))
    finally:
        settings.load_profile(before)
    patient()
    with pytest.raises((hypothesis.errors.DeadlineExceeded, ExceptionGroup)):
        hasty()


def test_a_wrong_derivative_is_reported_with_the_smallest_arguments():
    @settings(database=None)
    @gradient_property(arrays(), modes=("vjp",))
    def wrong_above_one(x):
        return ops.where(x > 1, x * fdbr.stop_gradient(x), x * x)

    with pytest.raises(AssertionError, match="wrong_above_one: mode vjp") as caught:
        wrong_above_one()
    notes = "\n".join(caught.value.__notes__)
    assert "x=array(1.)" in notes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gradient_property(arrays(), orders=2), r"options \['orders'\] are not among"),
        (lambda: gradient_property(np.ones(2)), "argument 0 must be a hypothesis strategy"),
        (lambda: gradient_property(arrays(), arrays())(lambda x: x), "2 strategies for .*lambda"),
        (lambda: gradient_property()(lambda x: x), "0 strategies for .*lambda"),
    ],
)
def test_wrong_uses_of_the_decorator_are_named(make, words):
    with pytest.raises(TypeError, match=words):
        make()


# --- hypothesis is optional ---------------------------------------------------------


def test_without_hypothesis_all_but_the_strategies_works():
    script = """
import sys
sys.modules["hypothesis"] = None
import fdbr, numpy as np
fdbr.testing.check_grads(np.tanh, np.ones(2))
for make in (fdbr.testing.arrays, fdbr.testing.trees, fdbr.testing.keys,
             lambda: fdbr.testing.broadcastable(2), fdbr.testing.gradient_property):
    try:
        make()
    except ModuleNotFoundError as error:
        assert "needs hypothesis; install it with: pip install hypothesis" in str(error)
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_fdbr_does_not_import_hypothesis():
    script = "import sys, fdbr; assert fdbr.testing; assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_elements_are_exact_in_every_dtype():
    for dtype in ("float16", "float32", "complex64"):
        x = smallest(arrays(dtype, shape=2), lambda x: abs(x).min() > 1)
        assert_allclose(x.astype(complex), x, rtol=0, atol=0)
