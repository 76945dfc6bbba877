"""Many places at once: read, written and added to as one by one."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.gather_scatter.flat_index import add_at, read_at, scatter_add
from fdbr.ops.indexing.regions import region_shape

R = np.random.default_rng(0)
MANY = 5000


def index(low, high, *shape):
    return R.integers(low, high, shape)


KEYS = {
    "an axis": ((40, 30), (index(-40, 40, MANY),)),
    "a vector": ((70,), index(-70, 70, MANY)),
    "short rows": ((70, 3), (index(0, 70, MANY),)),
    "rows of a stack": ((2, 20, 30), (slice(None), index(0, 20, 90))),
    "the last axis": ((300, 40), (slice(None), index(0, 40, 30))),
    "an axis in two dimensions": ((4, 30, 9), (slice(None), index(0, 30, 20, 15))),
    "rows and an ellipsis": ((40, 5, 9), (index(0, 40, 200), Ellipsis)),
    "all axes": ((60, 50), (index(-60, 60, MANY), index(0, 50, MANY))),
    "all axes, broadcast": ((60, 50), (np.arange(60)[:, None], index(0, 50, 60, 90))),
    "all axes, small integers": ((60, 50), (index(0, 60, MANY).astype("uint8"), np.array(3))),
    "unsigned": ((60,), (index(0, 60, MANY).astype("uint64"),)),
    "an array and a number": ((60, 50), (index(0, 60, MANY), 4)),
    "an array and a slice": ((60, 50, 2), (index(0, 60, MANY), slice(1, 9, 3), index(0, 2, MANY))),
    "a new axis": ((60, 50), (index(0, 60, 100), None)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16", "int8", "bool"])
@pytest.mark.parametrize(("shape", "key"), KEYS.values(), ids=KEYS)
def test_places_are_read_and_added_to_as_numpy_does(shape, key, dtype):
    x = index(0, 3, *shape).astype(dtype)
    np.testing.assert_array_equal(read_at(np, x, key), x[key])
    np.testing.assert_array_equal(read_at(np, x.T.copy().T, key), x[key])
    assert region_shape(shape, key) == x[key].shape
    values = index(0, 2, *x[key].shape).astype(dtype)
    expected = np.zeros(shape, dtype)
    np.add.at(expected, key, values)
    found = scatter_add(np, shape, key, values)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    add_at(np, found, key, values)
    np.add.at(expected, key, values)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("shape", "key"), KEYS.values(), ids=KEYS)
def test_of_values_for_one_place_the_last_stays_and_has_the_derivative(shape, key):
    x, y = R.normal(size=shape), R.normal(size=np.zeros(shape)[key].shape)
    found, pullback = fdbr.vjp(lambda x, y: ops.at(x)[key].set(y), x, y)
    expected = x.copy()
    expected[key] = y
    np.testing.assert_array_equal(found, expected)
    ct = R.normal(size=shape)
    of_x, of_y = pullback(ct)
    untouched = np.ones(shape)
    untouched[key] = 0
    np.testing.assert_array_equal(of_x, ct * untouched)
    np.testing.assert_allclose((of_y * y).sum(), (ct * (expected - x * untouched)).sum())


@pytest.mark.parametrize("bad", [40, -41])
@pytest.mark.parametrize("shape", [(40,), (40, 30), (40, 2)])
def test_a_place_that_there_is_not_is_an_error_among_many_too(shape, bad):
    places = index(0, 40, MANY)
    places[77] = bad
    with pytest.raises(IndexError, match="out of bounds"):
        ops.take(np.ones(shape), places, axis=0)
    with pytest.raises(IndexError, match="out of bounds"):
        fdbr.grad(lambda x: ops.sum(x[places]))(np.ones(shape))
    with pytest.raises(IndexError, match="out of bounds"):
        ops.at(np.ones(shape))[places].add(1.0)
    with pytest.raises(IndexError, match="out of bounds"):
        ops.gather(np.ones((40, MANY)), 0, np.stack([places]))


@given(st.data())
def test_the_shape_of_what_a_key_names_is_that_of_numpy(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=2, max_side=4))
    basic = st.sampled_from([slice(None), slice(1, None), slice(None, None, -2), 1, None])
    places = hnp.arrays(int, hnp.broadcastable_shapes((2, 3), max_dims=2, max_side=3))
    part = st.one_of(basic, places.map(lambda array: array % 2))
    key = []
    while len([p for p in key if p is not None]) < len(shape) and data.draw(st.booleans()):
        key.append(data.draw(part))
    if data.draw(st.booleans()):
        key.insert(data.draw(st.integers(0, len(key))), Ellipsis)
    key = tuple(key)
    assert region_shape(shape, key) == np.ones(shape)[key].shape
