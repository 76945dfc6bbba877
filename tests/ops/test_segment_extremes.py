"""Maxima and minima by segment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

EXTREMES = {"segment_max": (ops.segment_max, np.max), "segment_min": (ops.segment_min, np.min)}
each = pytest.mark.parametrize("name", EXTREMES)


def by_rows(reduce, x, ids, count, empty):
    out = np.full((count, *x.shape[1:]), empty, x.dtype)
    for segment in set(ids.tolist()) & set(range(count)):
        out[segment] = reduce(x[ids == segment], axis=0)
    return out


@each
@given(
    st.integers(0, 9),
    st.sampled_from([(), (2,), (2, 3)]),
    st.integers(1, 4),
    st.sampled_from(["float64", "float32", "float16", "int64", "int8", "uint8", "bool"]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, deadline=None)
def test_they_are_the_extremes_of_the_rows(name, rows, inner, count, dtype, seed):
    function, reduce = EXTREMES[name]
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 100, (rows, *inner)).astype(dtype)
    ids = draw.integers(-1, count + 1, rows)
    kind = np.dtype(dtype).kind
    empty = -np.inf if kind == "f" else False if kind == "b" else np.iinfo(dtype).min
    if name == "segment_min":
        empty = np.inf if kind == "f" else True if kind == "b" else np.iinfo(dtype).max
    expected = by_rows(reduce, x, ids, count, empty)
    for f in (function, fdbr.jit(lambda x, ids, count: function(x, ids, count))):
        found = f(x, ids, count)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert (found == expected).all()
    assert (function(np.asfortranarray(x)[::-1], ids[::-1], count) == expected).all()


@each
@pytest.mark.parametrize("shape", [(6,), (6, 2)])
def test_their_derivatives_are_right_under_all_transformations(name, shape):
    function = EXTREMES[name][0]
    x = np.random.default_rng(0).permutation(np.arange(np.prod(shape))).reshape(shape) / 3.0
    ids = np.array([0, 2, 0, 1, 2, 5])
    f = lambda x: function(x, ids, 3)
    check_grads(f, x)
    check_grads(fdbr.jit(f), x)
    batch = np.stack([x, -x])
    assert_allclose(fdbr.vmap(f)(batch), np.stack([f(x), f(-x)]))
    slopes = fdbr.grad(lambda x: ops.sum(f(x) ** 2))
    assert_allclose(fdbr.vmap(slopes)(batch), np.stack([slopes(x), slopes(-x)]))
    several = np.stack([ids, ids[::-1]])
    found = fdbr.vmap(lambda x, i: function(x, i, 3))(batch, several)
    assert_allclose(found, np.stack([function(x, ids, 3), function(-x, ids[::-1], 3)]))


@each
def test_equal_extremes_share_the_derivative_and_nan_stays_in_its_segment(name):
    function = EXTREMES[name][0]
    ids = np.array([0, 0, 1, -1])
    slope = fdbr.grad(lambda x: ops.sum(function(x, ids, 2)))(np.ones(4))
    assert slope.tolist() == [0.5, 0.5, 1.0, 0.0]
    worst = np.full(4, -np.inf if name == "segment_max" else np.inf)
    assert fdbr.grad(lambda x: ops.sum(function(x, ids, 2)))(worst).tolist() == slope.tolist()
    found = function(np.array([np.nan, 1.0, 2.0, 3.0]), ids, 2)
    assert np.isnan(found[0])
    assert found[1] == 2


@each
def test_errors_name_the_function(name):
    function = EXTREMES[name][0]
    with pytest.raises(TypeError, match=f"fdbr.ops.{name}: segment_ids must be integers"):
        function(np.ones(2), np.ones(2), 2)
    with pytest.raises(ValueError, match=f"fdbr.ops.{name}: .*one number for each row"):
        function(np.ones(2), np.zeros(3, int), 2)


@pytest.mark.parametrize("function", [ops.layer_norm, ops.rms_norm])
@pytest.mark.parametrize("lengths", [3, (3,), [3], (2, 3), (5, 2)])
def test_lengths_in_the_place_of_the_weight_are_refused(function, lengths):
    x = np.ones((5, 2)) if lengths == (5, 2) else np.ones((2, 3))
    with pytest.raises(TypeError, match=r"second argument is the weight.*normalized_shape="):
        function(x, lengths)
    assert function(x, normalized_shape=lengths).shape == x.shape
    assert function(x, [1.0] * x.shape[-1]).shape == x.shape


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("shape", [(70, 40), (40, 70), (4000,), (3000, 2), (12, 20, 12)])
@pytest.mark.parametrize("rows", [True, False])  # whether whole rows go to one place
def test_extremes_of_many_elements_are_the_extremes_by_index(reduce, include_self, shape, rows):
    draw = np.random.default_rng(0)
    count = 9
    x, src = draw.standard_normal((count, *shape[1:])), draw.standard_normal(shape)
    src.flat[7] = np.nan
    index = draw.integers(-count, count, shape[:1] if rows else shape)
    if rows:
        index = np.broadcast_to(index.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    expected = x.copy()
    key = (index, *np.indices(shape, sparse=True)[1:])
    if not include_self:
        expected[key] = -np.inf if reduce == "amax" else np.inf
    with np.errstate(invalid="ignore"):
        (np.maximum if reduce == "amax" else np.minimum).at(expected, key, src)
    for order in "CF":
        given = np.asarray(src, order=order), np.asarray(x, order=order)
        found = ops.scatter(given[1], 0, index, given[0], reduce=reduce, include_self=include_self)
        np.testing.assert_array_equal(found, expected)
