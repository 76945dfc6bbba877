"""Pooling: every geometry, ties, padding, errors."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.tuning import TUNING
from fdbr.testing import assert_allclose
from ops.cases_networks import pooled


def numbers(seed, *shape):
    return (
        np.random.Generator(np.random.Philox(seed)).permutation(int(np.prod(shape))).reshape(shape)
        / 4
        - 3
    )


@st.composite
def settings_of_pool(draw, dilated):
    """A shape and settings for which a window fits, of at most three dimensions."""
    rank = draw(st.integers(1, 3))

    def of_each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride = of_each(1, 3), of_each(1, 3)
    dilation = of_each(1, 2) if dilated else (1,) * rank
    extents = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding = tuple(
        (draw(st.integers(0, (e - 1) // 2)), draw(st.integers(0, (e - 1) // 2))) for e in extents
    )
    size = tuple(e + more for e, more in zip(extents, of_each(0, 3), strict=True))
    return (2, *size), kernel, stride, padding, dilation


@given(settings_of_pool(dilated=True))
@settings(max_examples=60)
def test_maxima_are_those_of_each_window(setting):
    shape, kernel, stride, padding, dilation = setting
    x = numbers(0, *shape)
    params = {"stride": stride, "padding": padding, "dilation": dilation}
    assert_allclose(
        ops.max_pool(x, kernel, **params), pooled(np.max, x, kernel, stride, padding, dilation)
    )
    gradient = fdbr.grad(lambda x: (ops.max_pool(x, kernel, **params) ** 2).sum())(x)
    largest = pooled(np.max, x, kernel, stride, padding, dilation)
    desired = np.zeros_like(x)
    for value in largest.ravel():  # all elements differ
        desired[x == value] += 2 * value
    assert_allclose(gradient, desired)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("shape", [(1, 2, 7, 5), (8, 8, 24, 24)], ids=["small", "large"])
def test_of_a_window_with_nan_its_first_is_the_largest(shape, stride, padding, jitted):
    generator = np.random.Generator(np.random.Philox(7))
    x = generator.standard_normal(shape).astype(np.float32)
    x[generator.random(shape) < 0.15] = np.nan

    def pool(x):
        return ops.max_pool(x, 3, stride=stride, padding=padding, return_indices=True)

    def both(x):
        values, pull, places = fdbr.vjp(pool, x, has_aux=True)
        return values, places, pull(np.ones(values.shape, np.float32))[0]

    values, places, derivatives = (fdbr.jit(both).compile(x) if jitted else both)(x)
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    numbers = np.pad(np.arange(x[0, 0].size).reshape(x.shape[2:]), padding)

    def windows_of(each):
        view = np.lib.stride_tricks.sliding_window_view(each, (3, 3), axis=(-2, -1))
        view = view[..., ::stride, ::stride, :, :]
        return view.reshape(*view.shape[:-2], 9)

    windows = windows_of(np.pad(x, sides, constant_values=-np.inf))
    order = windows_of(numbers)
    first = windows.argmax(-1)
    expected = np.take_along_axis(np.broadcast_to(order, windows.shape), first[..., None], -1)
    np.testing.assert_array_equal(places, expected[..., 0])
    np.testing.assert_array_equal(values, windows.max(-1))
    wanted = np.zeros((shape[0] * shape[1], x[0, 0].size), np.float32)
    for row, chosen in zip(wanted, expected.reshape(len(wanted), -1), strict=True):
        np.add.at(row, chosen, 1)
    np.testing.assert_array_equal(derivatives, wanted.reshape(shape))


@given(settings_of_pool(dilated=False))
@settings(max_examples=60)
def test_means_are_those_of_each_window(setting):
    shape, kernel, stride, padding, dilation = setting
    x = numbers(0, *shape)
    params = {"stride": stride, "padding": padding}
    assert_allclose(
        ops.avg_pool(x, kernel, count_include_pad=False, **params),
        pooled(np.mean, x, kernel, stride, padding, dilation),
    )
    assert_allclose(
        ops.avg_pool(x, kernel, **params),
        pooled(np.sum, x, kernel, stride, padding, dilation) / np.prod(kernel),
    )


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
def test_partial_windows_begin_within_the_array(n, kernel, stride):
    if n < kernel:
        return
    x = numbers(0, 1, 1, n)[0]
    starts = [s for s in range(0, n, stride) if s + kernel <= n or s + kernel - stride < n]
    out = ops.max_pool(x, (kernel,), stride=stride, ceil_mode=True)
    assert_allclose(out[0], [x[0, s : s + kernel].max() for s in starts])
    out = ops.avg_pool(x, (kernel,), stride=stride, ceil_mode=True)
    assert_allclose(out[0], [x[0, s : s + kernel].mean() for s in starts])


@given(st.integers(1, 10), st.integers(1, 10))
def test_adaptive_windows_cover_the_axis(n, m):
    x = numbers(0, 2, n)
    desired = [x[:, i * n // m : -(-(i + 1) * n // m)].mean(1) for i in range(m)]
    assert_allclose(ops.adaptive_avg_pool(x, (m,)), np.stack(desired, axis=1))


# --- edges --------------------------------------------------------------------------


def test_of_equal_elements_the_first_has_the_derivative():
    f = lambda x: ops.max_pool(x, (2, 2), stride=1)
    gradient = fdbr.grad(lambda x: f(x).sum())(np.zeros((3, 3)))
    np.testing.assert_array_equal(gradient, [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    _, tangent = fdbr.jvp(f, (np.zeros((3, 3)),), (np.arange(9.0).reshape(3, 3),))
    np.testing.assert_array_equal(tangent, [[0, 1], [3, 4]])


def test_second_derivatives_follow_the_first_of_equal_elements():
    cubes = lambda x: (ops.max_pool(x, (2,)) ** 3).sum()
    _, curvature = fdbr.jvp(fdbr.grad(cubes), (np.array([2.0, 2.0, 1.0, 3.0]),), (np.ones(4),))
    np.testing.assert_array_equal(curvature, [12, 0, 0, 18])


def test_padding_is_never_the_largest():
    x = np.full((1, 1, 3), -5.0)
    np.testing.assert_array_equal(ops.max_pool(x, 2, stride=2, padding=1), [[[-5, -5]]])
    whole = np.full((1, 1, 3), -5)
    np.testing.assert_array_equal(ops.max_pool(whole, 2, stride=2, padding=1), [[[-5, -5]]])


def test_not_a_number_is_the_largest():
    assert np.isnan(ops.max_pool(np.array([1.0, np.nan, 2.0]), (3,))).all()


def test_an_integer_kernel_is_for_all_axes_after_the_first_two():
    x = numbers(0, 2, 3, 4, 6)
    np.testing.assert_array_equal(ops.max_pool(x, 2), ops.max_pool(x, (2, 2)))
    np.testing.assert_array_equal(ops.avg_pool(x, 2), ops.avg_pool(x, (2, 2)))
    np.testing.assert_array_equal(ops.adaptive_avg_pool(x, 2), ops.adaptive_avg_pool(x, (2, 2)))


def test_float32_stays_and_integers_have_floating_means():
    x = numbers(0, 1, 1, 4).astype(np.float32)
    for f in (lambda x: ops.max_pool(x, 2), lambda x: ops.avg_pool(x, 2, padding=1)):
        assert f(x).dtype == fdbr.grad(lambda x, f=f: f(x).sum())(x).dtype == np.float32
    assert ops.avg_pool(np.ones((1, 1, 2), int), 2).dtype == np.float64


def test_means_of_complex_numbers_are_linear():
    z = numbers(0, 1, 1, 4) + 1j * numbers(1, 1, 1, 4)
    assert_allclose(ops.avg_pool(z, 2), (z[..., ::2] + z[..., 1::2]) / 2)
    with pytest.raises(TypeError, match="max_pool: x must be real numbers, not complex128"):
        ops.max_pool(z, 2)


def test_windows_of_more_than_256_elements_know_their_winner():
    x = numbers(0, 1, 1, 20, 20)
    gradient = fdbr.grad(lambda x: ops.max_pool(x, 20).sum())(x)
    np.testing.assert_array_equal(gradient, (x == x.max()).astype(float))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.max_pool(x, 9), r"windows \(9,\) long do not fit into x float64\[1,2,4\]"),
        (
            lambda x: ops.max_pool(x, 2, padding=2),
            r"padding \(\(2, 2\),\) would fill whole windows",
        ),
        (lambda x: ops.max_pool(x, (2, 2, 2, 2)), "needs a spatial axis for each entry of kernel"),
        (lambda x: ops.avg_pool(x[0], 2), "needs a spatial axis for each entry of kernel_size 2"),
        (lambda x: ops.avg_pool(x, 0), "avg_pool: kernel_size must be an integer of at .* is 0"),
        (lambda x: ops.avg_pool(x, 2, stride=(1, 1)), r"stride must be .* it is \(1, 1\)"),
        (lambda x: ops.max_pool(x, 2, dilation=0), "dilation must be .* it is 0"),
        (lambda x: ops.adaptive_avg_pool(x, 0), "size must be a positive integer.* it is 0"),
        (lambda x: ops.adaptive_avg_pool(x[..., :0], 2), r"axis 2 of x float64\[1,2,0\] is empty"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.zeros((1, 2, 4)))


@pytest.mark.parametrize("pool", [ops.max_pool, ops.avg_pool])
def test_windows_of_one_element_are_new_memory(pool):
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    for stride in (1, 2):
        out = pool(x, 1, stride=stride)
        assert np.array_equal(out, x[..., ::stride, ::stride])
        assert not np.shares_memory(out, x)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 0)])
def test_pooling_of_large_arrays_is_divided_and_gives_the_same(
    monkeypatch, kernel, stride, padding
):
    x = np.random.default_rng(0).integers(-9, 9, (3, 5, 13, 12)).astype(np.float32)

    def pooled(x):
        largest = ops.max_pool(x, kernel, stride=stride, padding=padding)
        return largest + ops.avg_pool(x, kernel, stride=stride, padding=padding)

    def run():
        out, pull = fdbr.vjp(pooled, x)
        tangent = fdbr.jvp(pooled, (x,), (np.cos(x),))[1]
        return [out, *pull(np.sin(out)), tangent]

    whole = run()
    monkeypatch.setattr(TUNING, "divide_share", 200)
    for found, wanted in zip(run(), whole, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
