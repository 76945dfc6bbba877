"""Products and running sums of many elements: blocks and quotients must not show."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

SHAPES = [(40_000,), (19_997,), (200, 250), (250, 200), (3, 10_007), (5, 64, 80), (70, 90, 3)]


def numbers(shape, low=0.5, high=1.5, dtype="float64"):
    return np.random.default_rng(0).uniform(low, high, shape).astype(dtype)


def every_axis(shapes):
    return [(shape, axis) for shape in shapes for axis in range(len(shape))]


@pytest.mark.parametrize(("shape", "axis"), every_axis(SHAPES))
def test_running_sums_of_many_elements_are_those_of_numpy(shape, axis):
    x = numbers(shape, -1, 1)
    found, pullback = fdbr.vjp(lambda x: ops.cumulative_sum(x, axis=axis), x)
    assert_allclose(found, np.cumsum(x, axis=axis), atol=1e-11)
    expected = np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis)
    assert_allclose(pullback(x)[0], expected, atol=1e-11)
    single = ops.cumulative_sum(x.astype("float32"), axis=axis)
    assert_allclose(single, np.cumsum(x, axis=axis).astype("float32"), atol=1e-3)


@pytest.mark.parametrize("shape", [(40_000,), (200, 250)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_what_is_not_finite_counts_in_running_sums_from_its_place_on(shape, value):
    x = numbers(shape)
    x.reshape(-1)[[100, 30_000]] = value
    with np.errstate(over="ignore"):
        found, expected = ops.cumulative_sum(x, axis=-1), np.cumsum(x, axis=-1)
    assert_allclose(found, expected)


@pytest.mark.parametrize(("shape", "axis"), every_axis(SHAPES))
def test_running_products_of_many_elements_are_those_of_numpy(shape, axis):
    x = numbers(shape, 0.999, 1.001)
    assert_allclose(ops.cumulative_prod(x, axis=axis), np.cumprod(x, axis=axis))


@given(
    st.sampled_from([((16_383,), 0), ((16_384,), 0), ((3, 9_001), 1), ((9_001, 3), 0)]),
    st.sampled_from([None, 0.0, np.nan, np.inf, 1e-30, 1e-42]),
    st.integers(0, 16_382),
    st.sampled_from(["float32", "float64"]),
)
def test_running_products_in_blocks_are_those_of_steps(case, value, place, dtype):
    shape, axis = case
    x = numbers(shape, 0.99, 1.01, dtype) * np.random.default_rng(1).choice([-1, 1], shape)
    if value is not None:
        x.reshape(-1)[[place, -place]] = value
    for each in (x.astype(dtype), np.asfortranarray(x), x[..., ::-1]):
        with np.errstate(invalid="ignore"):
            found, expected = ops.cumulative_prod(each, axis=axis), np.cumprod(each, axis=axis)
        assert_allclose(found, expected, rtol=1e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("times", [2, 3, 7])
def test_running_products_return_to_the_range_that_their_factors_leave(times):
    x = np.repeat(np.tile(np.array([1e20, 1e-20], "float32"), 4_000), times)[: 8_000 * times]
    with np.errstate(over="ignore", invalid="ignore"):
        assert_allclose(ops.cumulative_prod(x), np.cumprod(x), rtol=1e-3)


@pytest.mark.parametrize("count", [2_046, 2_048, 10_000, 300_000])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_periodic_factors_of_a_product_do_not_overflow(count, axis):
    x = np.tile(np.array([1e30, 1e-30], "float32"), (4, count // 2))
    x = x if axis != 0 else np.ascontiguousarray(x.T)
    assert_allclose(
        ops.prod(x, axis=axis), np.ones(() if axis is None else 4, "float32"), rtol=1e-2
    )


def derivative_of_running_product(ct, x):
    """From the end: what all later elements contribute, times what came before."""
    before = np.concatenate([[1.0], np.cumprod(x)[:-1]])
    later, out = 0.0, np.empty_like(x)
    for i in reversed(range(len(x))):
        later = ct[i] + (x[i + 1] * later if i + 1 < len(x) else 0.0)
        out[i] = later * before[i]
    return out


@pytest.mark.parametrize("zeros", [[], [0], [7], [150, 151], [-1], [3, 200]])
@pytest.mark.parametrize("count", [2, 65, 300, 5000])
def test_the_derivative_of_running_products_is_right_at_zeros(count, zeros):
    x, ct = numbers(count, 0.99, 1.01), numbers(count)
    x[[i for i in zeros if i < count]] = 0
    (found,) = fdbr.vjp(ops.cumulative_prod, x)[1](ct)
    assert_allclose(found, derivative_of_running_product(ct, x), rtol=1e-9)
    each = fdbr.vmap(lambda x, ct: fdbr.vjp(ops.cumulative_prod, x)[1](ct)[0])
    assert_allclose(each(x[None], ct[None])[0], found, rtol=1e-9)


@pytest.mark.parametrize("function", [ops.prod, lambda x: ops.cumulative_prod(x)[-1]])
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1e-200, 1e-200], [1e-200, 1e-200]),
        ([1e200, 1e200], [1e200, 1e200]),
        ([0.0, 1e-320, 2.0], [2e-320, 0.0, 0.0]),
        ([1e-300, 1e-10, 1.0], [1e-10, 1e-300, 1e-310]),
        ([np.inf, 2.0], [2.0, np.inf]),
        ([-0.5, 4.0], [4.0, -0.5]),
    ],
)
def test_the_derivative_of_a_product_is_that_of_the_others_where_the_product_itself_is_lost(
    function, x, expected
):
    with np.errstate(over="ignore", invalid="ignore"):
        found = fdbr.grad(function)(np.array(x))
    assert_allclose(found, np.array(expected), rtol=1e-5)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("zero", [False, True])
def test_products_over_axes_of_many_elements_and_their_derivatives(axis, zero):
    x = numbers((30, 31, 33), 0.99, 1.01)
    if zero:
        x[3, 4, 5] = 0
    found, pullback = fdbr.vjp(lambda x: ops.prod(x, axis=axis, keepdims=True), x)
    assert_allclose(found, np.prod(x, axis=axis, keepdims=True))
    ones = np.where(x == 0, 1, x)
    others = np.prod(ones, axis=axis, keepdims=True) / ones
    lost = (x == 0).sum(axis=axis, keepdims=True)
    expected = np.where(lost == (x == 0), others, 0)
    assert_allclose(pullback(np.ones_like(found))[0], expected)


def test_a_product_of_many_does_not_leave_the_range_that_its_parts_keep_to():
    assert_allclose(ops.prod(np.tile([1e200, 1e-200], 5000)), np.float64(1.0))


def test_curvatures_of_products_are_right_at_zeros():
    for function in (ops.prod, lambda x: ops.sum(ops.cumulative_prod(x))):
        for x in ([0.0, 2.0, 3.0, 4.0], [0.0, 2.0, 0.0, 4.0], [1.0, 2.0, 3.0, 5.0]):
            fdbr.testing.check_grads(function, np.array(x))


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (4, 1, 1), (1, 4, 1), (2, 3, 1), (1, 1), (0, 1)])
def test_running_products_with_zeros_along_every_axis_have_the_derivatives_of_their_rows(shape):
    x = np.arange(math.prod(shape), dtype=float).reshape(shape) % 3 - 1.0
    weights = np.cos(x + np.arange(x.size).reshape(shape))
    for axis in range(-len(shape), len(shape)):
        check_grads(lambda x, axis=axis: np.cumprod(x, axis) * weights, x, order=2)
