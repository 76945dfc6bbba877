"""Unpooling, interpolation and sampling: inverses, edges, and errors."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

X = np.random.default_rng(0).normal(size=(2, 4, 6, 4))


# --- pooling and back ---------------------------------------------------------------


def test_places_are_of_the_largest_in_the_flattened_axes():
    for largest, places in (
        ops.max_pool(X, 3, 2, 1, return_indices=True),
        ops.adaptive_max_pool(X, (4, 3), return_indices=True),
    ):
        flat = X.reshape(2, 4, 24)
        found = np.take_along_axis(flat, places.reshape(2, 4, -1), axis=-1)
        np.testing.assert_array_equal(found, largest.reshape(2, 4, -1))
        assert places.dtype == np.int64


def test_places_are_the_same_in_batches_and_jitted():
    f = lambda x: ops.max_pool(x, 3, 2, 1, return_indices=True)[1]
    np.testing.assert_array_equal(fdbr.vmap(f)(X[:, None])[:, 0], f(X))
    np.testing.assert_array_equal(fdbr.jit(f)(X), f(X))


def test_a_window_that_covers_all_may_begin_in_the_padding():
    x = np.arange(1.0, 4).reshape(1, 1, 3)
    np.testing.assert_array_equal(ops.max_pool(x, 2, padding=1, ceil_mode=True), [[[1, 3]]])
    covered = ops.max_pool(x, 2, padding=1, cover_all=True)
    np.testing.assert_array_equal(covered, [[[1, 3, -np.inf]]])
    covered = ops.max_pool(x[..., :2], 2, 3, padding=1, cover_all=True)
    np.testing.assert_array_equal(covered, [[[1, -np.inf]]])
    gradient = fdbr.grad(lambda x: ops.max_pool(x, 2, 3, padding=1, cover_all=True)[0, 0, 0])(
        x[..., :2]
    )
    np.testing.assert_array_equal(gradient, [[[1, 0]]])


def test_unpooling_undoes_what_max_pool_lost_nothing_of():
    largest, places = ops.max_pool(X, (3, 2), return_indices=True)
    back = ops.max_unpool(largest, places, (3, 2))
    assert back.shape == X.shape
    np.testing.assert_array_equal(back[back != 0], X[back != 0])
    np.testing.assert_array_equal(ops.max_pool(np.where(back, X, -9), (3, 2)), largest)


def test_the_norm_of_zeros_has_no_derivative_and_is_no_nan():
    gradient = fdbr.grad(lambda x: ops.lp_pool(x, 2, 2).sum())(np.array([[[0.0, 0.0, 3.0, 4.0]]]))
    assert_allclose(gradient, [[[0, 0, 0.6, 0.8]]])


def test_a_pyramid_has_chainers_windows():
    x = X[:, :, :5, :4]
    out = ops.spatial_pyramid_pooling(x, 3)
    assert out.shape == (2, 4 * 21, 1, 1)
    np.testing.assert_array_equal(out[:, :4, 0, 0], x.max((2, 3)))
    np.testing.assert_array_equal(out[:, 4, 0, 0], x[:, 0, :3, :2].max((1, 2)))
    last = out[:, 20:].reshape(2, 4, 4, 4)  # windows of two rows that begin one before the first
    np.testing.assert_array_equal(last[:, :, 0], x[:, :, 0])
    np.testing.assert_array_equal(last[:, :, 1], x[:, :, 1:3].max(2))
    assert np.isneginf(last[:, :, 3]).all()


# --- interpolation ------------------------------------------------------------------


def test_long_axes_are_interpolated_as_short_ones():
    x = np.sin(np.arange(500.0) / 20).reshape(1, 1, 500)
    places = np.clip((np.arange(700) + 0.5) * 5 / 7 - 0.5, 0, 499)
    expected = np.interp(places, np.arange(500), x[0, 0])
    assert_allclose(ops.interpolate(x, 700, mode="linear")[0, 0], expected)
    gradient = fdbr.grad(lambda x: ops.interpolate(x, 700, mode="linear").sum())(x)
    assert_allclose(gradient.sum(), 700.0)


def test_a_tuple_names_the_axes_that_are_interpolated():
    whole = ops.interpolate(X, (3, 5), mode="bilinear")
    assert_allclose(ops.interpolate(X[0, 0], (3, 5), mode="bilinear"), whole[0, 0])
    assert_allclose(
        ops.interpolate(X[0], 3, mode="bilinear"), ops.interpolate(X, 3, mode="bilinear")[0]
    )


def test_an_axis_whose_length_a_factor_leaves_is_copied_by_linear_interpolation():
    x = X[:, :, :3]
    np.testing.assert_array_equal(ops.interpolate(x, scale_factor=(1.3, 1.1), mode="bilinear"), x)
    wider = ops.interpolate(x, scale_factor=(1.3, 2.0), mode="bilinear")
    assert_allclose(wider, ops.interpolate(x, (3, 8), mode="bilinear"))
    smooth = ops.interpolate(x, scale_factor=(1.3, 0.5), mode="bicubic", antialias=True)
    rows = [
        ops.interpolate(x[:, :, i, :], scale_factor=0.5, mode="cubic", antialias=True)
        for i in range(3)
    ]
    assert_allclose(smooth, np.stack(rows, 2))


def test_whole_numbers_stay_so_for_the_nearest():
    x = np.arange(6).reshape(1, 1, 6)
    assert ops.interpolate(x, 3).dtype == x.dtype
    assert ops.interpolate(x, 3, mode="linear").dtype == np.float64
    assert ops.interpolate(x.astype(np.float16), 3, mode="linear").dtype == np.float16


# --- sampling -----------------------------------------------------------------------


def test_the_identity_samples_the_elements():
    grid = ops.affine_grid(np.array([[[1.0, 0, 0], [0, 1, 0]]] * 2), X.shape)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            found = ops.grid_sample(X, grid, mode=mode, padding_mode=padding)
            assert_allclose(found, X, atol=1e-12)


def test_places_that_are_no_numbers_make_no_warning():
    grid = np.full((2, 1, 1, 2), np.nan)
    assert ops.grid_sample(X, grid).shape == (2, 4, 1, 1)


def test_shuffles_undo_each_other():
    for mode in ("CRD", "DCR"):
        there = ops.pixel_shuffle(X, 2, mode=mode)
        assert there.shape == (2, 1, 12, 8)
        np.testing.assert_array_equal(ops.pixel_unshuffle(there, 2, mode=mode), X)
    np.testing.assert_array_equal(ops.channel_shuffle(ops.channel_shuffle(X, 2), 2), X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.max_pool(x, 2, ceil_mode=True, cover_all=True), "max_pool: ceil_mode and"),
        (lambda x: ops.avg_pool(x, 2, divisor_override=0), "avg_pool: divisor_override must not"),
        (lambda x: ops.lp_pool(x, 0, 2), "lp_pool: norm_type must be positive, got 0"),
        (lambda x: ops.lp_pool(x, 2, 9), r"lp_pool: windows \(9, 9\) long do not fit into x"),
        (lambda x: ops.spatial_pyramid_pooling(x, 4), "must have spatial axes.* at least 8 long"),
        (lambda x: ops.adaptive_max_pool(x, (2, 0)), "output_size must be a positive integer"),
        (lambda x: ops.max_unpool(x, np.zeros((2, 4)), 2), "max_unpool: indices float64.* must be"),
        (
            lambda x: ops.max_unpool(x, np.zeros(x.shape, int), 2, output_size=(20, 8)),
            r"output_size \(20, 8\) does not fit x",
        ),
        (lambda x: ops.unpooling(x, 1, padding=5), "leaves nothing of the windows"),
        (lambda x: ops.interpolate(x), "give one of size and scale_factor"),
        (lambda x: ops.interpolate(x, 3, 2.0), "give one of size and scale_factor"),
        (lambda x: ops.interpolate(x, 3, mode="cube"), "mode must be one of"),
        (lambda x: ops.interpolate(x, 3, align_corners=True), "do not apply to mode 'nearest'"),
        (lambda x: ops.interpolate(x, (3,), mode="bilinear"), "size must be a number, or one for"),
        (lambda x: ops.interpolate(x, scale_factor=0.1), r"would get spatial axes \(0, 0\)"),
        (lambda x: ops.pixel_shuffle(x, 3), "must be divisible by the 9 pixels of a block"),
        (lambda x: ops.pixel_unshuffle(x, 4), r"spatial axes \(6, 4\).* divisible by \(4, 4\)"),
        (lambda x: ops.pixel_shuffle(x, 2, mode="RCD"), "mode must be 'CRD' or 'DCR'"),
        (lambda x: ops.channel_shuffle(x, 3), "axis 1 of x .* divisible by 3 groups"),
        (lambda x: ops.affine_grid(x, (2, 1, 3, 3)), "affine_grid: theta .* must have shape"),
        (lambda x: ops.grid_sample(x, x[:1, ..., :2]), "grid_sample: x .* as many examples"),
        (lambda x: ops.grid_sample(x, x[..., :2], mode="linear"), "mode must be one of"),
        (lambda x: ops.grid_sample(x, x[..., :2], padding_mode="wrap"), "padding_mode must be one"),
        (lambda x: ops.grid_sample(x[:, :, :0], x[..., :2]), "has an empty spatial axis"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(X)


def test_a_place_outside_is_an_error():
    with pytest.raises(IndexError):
        ops.max_unpool(np.ones((1, 1, 1)), np.array([[[7]]]), 2)
