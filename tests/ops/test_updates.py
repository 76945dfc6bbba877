"""Functional updates by products, extremes and functions, compared with NumPy's loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

LOOPS = {
    "multiply": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}
KEYS = st.sampled_from(
    [
        np.array([0, 2, 0, 0, 3]),
        (np.array([1, 1]), np.array([0, 0])),
        (slice(1, 3), np.array([1, 1, 2])),
        np.array([[True, False, True]] * 4),
        (slice(None), 1),
        (2, slice(0, 2)),
        (Ellipsis, -1),
        np.zeros((2, 0), int),
    ]
)


def expected(name, x, key, values):
    out = x.copy()
    if name == "apply":
        np.tanh.at(out, key)
    elif name in LOOPS:
        LOOPS[name](out, key, values)
    else:  # the products of all values at an element
        products = np.ones_like(x)
        np.multiply.at(products, key, values)
        out = {"divide": np.divide, "power": np.power}[name](x, products)
    return out


def updated(name, x, key, values):
    place = ops.at(x)[key]
    return place.apply(np.tanh) if name == "apply" else getattr(place, name)(values)


@pytest.mark.parametrize("name", ["multiply", "divide", "power", "max", "min", "apply"])
@given(KEYS, st.integers(0, 100), st.booleans())
@settings(max_examples=10)
def test_an_update_is_numpys_loop_over_the_key(name, key, seed, is_number):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 2, (4, 3))
    values = 1.5 if is_number else rng.uniform(0.5, 2, x[key].shape)
    wanted = expected(name, x, key, values)
    assert_allclose(updated(name, x, key, values), wanted, rtol=1e-12)
    check_grads(lambda x, v: updated(name, x, key, v), x, np.asarray(values, float), order=1)
    compiled = fdbr.jit(lambda x, v: updated(name, x, key, v))
    assert_allclose(compiled(x, values), wanted, rtol=1e-12)
    batch = fdbr.vmap(lambda x: updated(name, x, key, values))(np.stack([x, 2 * x]))
    assert_allclose(batch[0], wanted, rtol=1e-12)
    tangent = fdbr.jvp(lambda x: x.at[key].multiply(2.0), (x,), (x,))[1]
    assert_allclose(tangent, expected("multiply", x, key, 2.0))


@pytest.mark.parametrize("name", ["multiply", "divide", "power", "max", "apply"])
def test_updates_have_second_derivatives(name):
    x, key, values = np.array([0.5, 1.5, 2.0]), np.array([0, 2, 0]), np.array([0.7, 1.2, 0.9])
    check_grads(lambda x, v: updated(name, x, key, v), x, values, order=2)


def test_the_key_of_an_update_may_be_traced():
    x = np.array([1.0, 2.0, 3.0])
    update = fdbr.jit(lambda x, i: ops.at(x)[i].multiply(3.0))
    for index in ([0, 0, 2], [1, 1, 1], [2, 1, 0]):
        assert_allclose(update(x, np.array(index)), expected("multiply", x, index, 3.0))
    each = fdbr.vmap(lambda i: ops.at(x)[i].max(2.5))(np.array([[0, 1], [2, 2]]))
    assert_allclose(each, [[2.5, 2.5, 3], [1, 2, 3]])


def test_products_with_0_have_finite_derivatives():
    x, index = np.array([2.0, 5.0]), np.array([0, 0, 0])
    gradient = fdbr.grad(lambda v: ops.at(x)[index].multiply(v)[0])
    np.testing.assert_array_equal(gradient(np.array([0.0, 3.0, 4.0])), [24, 0, 0])


def test_a_function_is_not_applied_beyond_its_domain():
    # log(log(0.5)) does not exist; only element 1 is selected twice.
    x, index = np.array([0.5, 20.0]), np.array([0, 1, 1])
    update = lambda x: ops.at(x)[index].apply(np.log)
    assert_allclose(update(x), [np.log(0.5), np.log(np.log(20.0))])
    assert_allclose(fdbr.grad(lambda x: update(x).sum())(x), [2, 1 / (20 * np.log(20.0))])


def test_integers_are_updated_exactly():
    x = np.array([2, 3, 2**40])
    np.testing.assert_array_equal(ops.at(x)[np.array([1, 1])].multiply(5), [2, 75, 2**40])
    np.testing.assert_array_equal(ops.at(x)[np.array([0, 2])].max(7), [7, 3, 2**40])
    np.testing.assert_array_equal(ops.at(x)[:2].min(2), [2, 2, 2**40])
    with pytest.raises(TypeError, match=r"divide of .*make the array floating first"):
        ops.at(x)[0].divide(2)


def test_errors_of_updates_say_what_is_wrong():
    x = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"multiply of .* does not broadcast"):
        ops.at(x)[0].multiply(np.ones(3))
    with pytest.raises(ValueError, match="apply needs an elementwise function"):
        ops.at(x)[0].apply(np.sum)
    with pytest.raises(TypeError, match="max of complex values"):
        ops.at(x)[0].max(1j)
    with pytest.raises(IndexError):
        ops.at(x)[np.array([3])].multiply(2.0)
