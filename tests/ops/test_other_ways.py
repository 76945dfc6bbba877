"""Large arrays, and sets of integers, go other ways than NumPy's, to the same results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.row_iteration import broadcast_product, unbuffered_rows

SEEDS = st.integers(0, 1000)


def normal(seed, *shape, dtype="f"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@given(
    st.sampled_from([(130, 200), (200, 130), (3, 150, 150), (1, 20_000)]), st.integers(-210, 210)
)
def test_triangles_of_large_matrices_are_numpys(shape, k):
    x = normal(0, *shape)
    assert np.array_equal(ops.tril(x, k=k), np.tril(x, k))
    assert np.array_equal(ops.triu(x, k=k), np.triu(x, k))


@given(
    st.sampled_from("bBhHiIqQ"),
    st.integers(1, 60),
    st.integers(-100, 100),
    st.integers(0, 300),
    SEEDS,
)
def test_sets_of_integers_are_numpys(code, count, least, spread, seed):
    drawn = np.random.default_rng(seed).integers(least, least + spread, (count, 2), endpoint=True)
    x = drawn.astype(code)
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    found = [ops.unique_values(x), *ops.unique_counts(x), *ops.unique_inverse(x)]
    expected = [values, values, counts, values, inverse.reshape(x.shape)]
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_sets_of_integers_that_are_far_apart_need_no_table(dtype):
    ends = np.array([np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    assert np.array_equal(ops.unique_values(ends), ends[::-1])


@given(
    st.sampled_from([(), (3,), (40, 1), (25, 40), (1, 300), (2, 3, 4), (0, 2), (700,)]),
    st.sampled_from([(), (700,), (25, 40), (2, 1, 30), (3, 0)]),
    st.sampled_from("fdqF"),
)
def test_outer_and_kronecker_products_are_numpys_to_the_last_bit(shape, other, code):
    x, y = (4 * normal(0, *shape)).astype(code), (4 * normal(1, *other)).astype(code)
    assert np.array_equal(ops.outer(x, y), np.outer(x, y))
    assert np.array_equal(ops.linalg.kron(x, y), np.kron(x, y))


@given(st.integers(1, 3), st.integers(1, 600), st.integers(1, 50))
def test_products_of_rows_where_they_lie_are_the_same(a, b, c):
    x, y = normal(0, a, 1, b, 1), normal(1, 1, c, 1, 30)
    assert np.array_equal(broadcast_product(x, y), x * y)


def size_of_buffers_then_error():
    with unbuffered_rows(999):
        raise ArithmeticError(np.getbufsize())


def test_buffers_are_as_they_were_after_an_error():
    before = np.getbufsize()
    with pytest.raises(ArithmeticError, match="992"):
        size_of_buffers_then_error()
    assert np.getbufsize() == before


@given(st.sampled_from([(3,), (2, 3), (2, 0), (2, 3, 4), ()]), st.integers(0, 3), st.booleans())
def test_stacks_are_numpys(shape, axis, mixed):
    axis = min(axis, len(shape))
    parts = [normal(i, *shape, dtype="d" if mixed and i else "f") for i in range(3)]
    found = ops.stack(parts, axis=axis)
    assert np.array_equal(found, np.stack(parts, axis=axis))
    assert found.dtype == np.stack(parts, axis=axis).dtype
    turned = [part.T for part in parts]
    assert np.array_equal(ops.stack(turned), np.stack(turned))


@given(st.sampled_from([(3, 4), (4, 3), (2, 3, 3), (0, 3), (3, 0), (1, 1)]), st.integers(-5, 5))
def test_the_gradient_of_a_diagonal_lies_on_it(shape, offset):
    x = normal(0, *shape)
    out, pullback = fdbr.vjp(lambda x: ops.diagonal(x, offset=offset), x)
    ct = normal(1, *out.shape)
    (slope,) = pullback(ct)
    assert np.array_equal(np.diagonal(slope, offset, -2, -1), ct)
    assert np.count_nonzero(slope) == np.count_nonzero(ct)


@given(st.integers(1, 40), st.sampled_from([1.0, 0.3, 7]))
def test_frequencies_are_numpys(n, d):
    np.testing.assert_allclose(ops.fft.fftfreq(n, d=d), np.fft.fftfreq(n, d), rtol=1e-15)
    np.testing.assert_allclose(ops.fft.rfftfreq(n, d=d), np.fft.rfftfreq(n, d), rtol=1e-15)


def test_an_array_filled_with_a_negative_zero_keeps_its_sign():
    assert np.signbit(ops.full_like(np.ones((2, 3)), -0.0)).all()
    assert not np.signbit(ops.zeros_like(-np.ones((2, 3)))).any()


def test_scattered_elements_are_the_same_with_and_without_a_trace():
    x, src = normal(0, 3, 4), normal(1, 3, 4)
    index = np.array([[0, 0, 1, 3], [1, -1, 2, 2], [3, 2, 1, 0]])
    plain = ops.scatter(x, 1, index, src)
    traced, _ = fdbr.vjp(lambda x: ops.scatter(x, 1, index, src), x)
    assert np.array_equal(plain, traced)
    with pytest.raises(IndexError, match=r"fdbr\.ops\.scatter"):
        ops.scatter(x, 1, index + 4, src)


ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.5, 1.0, 1e-30, 1e30]


@given(
    st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from([1.5, 2.5, 3.5, 6.5, 8.5, -1.5, -2.5, -5.5]),
    st.sampled_from([3, 300, 400_000]),
    st.lists(st.sampled_from(ENDS), max_size=4),
    SEEDS,
)
@settings(max_examples=60)
def test_powers_of_half_integers_are_numpys(dtype, exponent, size, ends, seed):
    x = np.exp(normal(seed, size, dtype="d")).astype(dtype)
    with np.errstate(all="ignore"):
        x[: len(ends)] = ends[:size]
        desired = np.power(x, np.array(exponent, dtype))
        found = ops.power(x, exponent)
        slope = fdbr.grad(lambda x: ops.sum(ops.power(x, exponent)))(x)
        derivatives = exponent * np.power(x, np.array(exponent - 1, dtype))
    assert found.dtype == slope.dtype == x.dtype
    inside = (x > 0) & (x < np.inf)  # at the ends the square root of 0.5 is not a power
    for ours, theirs in [(found, desired), (slope[inside], derivatives[inside])]:
        normals = np.abs(theirs) >= np.finfo(dtype).smallest_normal
        assert np.array_equal(np.isnan(ours), np.isnan(theirs))
        tolerance = (np.abs(exponent) + 2) * np.finfo(dtype).eps
        np.testing.assert_allclose(ours[normals], theirs[normals], rtol=tolerance)
        zeros = theirs == 0
        assert np.array_equal(ours[zeros] == 0, theirs[zeros] == 0)
        assert np.array_equal(np.signbit(ours[zeros]), np.signbit(theirs[zeros]))
