"""Pooling of regions: samples by hand, the forms of boxes, and errors."""

import math

import numpy as np
import pytest
from compiler.comparing import plainly

import fdbr
from fdbr import ops
from fdbr.ops.nn.pooling import region_products
from fdbr.testing import assert_allclose, check_grads

X = np.random.default_rng(0).normal(size=(2, 2, 5, 4))
BOXES = np.array([[0, 0.3, 0.4, 3.2, 4.3], [1, -2.5, -0.2, 2.3, 7.7], [1, 1.1, 2, 1.3, 2.2]])
ALIGNED = (ops.roi_average_align, ops.roi_max_align)
POOLED = (ops.roi_max_pool, ops.roi_average_pool)


def sample(image, y, x):
    """An image at a place between its elements, or None outside."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return None
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    rows = np.maximum(1 - np.abs(np.arange(height) - y), 0)
    columns = np.maximum(1 - np.abs(np.arange(width) - x), 0)
    return np.einsum("chw,h,w->c", image, rows, columns)


def by_hand(boxes, size, ratio, aligned, largest):
    """Sample by sample."""
    out = np.full((len(boxes), X.shape[1], *size), -np.inf if largest else 0.0)
    for k, (n, *corners) in enumerate(boxes):
        left, top, right, bottom = (c - 0.5 * aligned for c in corners)
        height, width = bottom - top, right - left
        if not aligned:
            height, width = max(height, 1), max(width, 1)
        steps = height / size[0], width / size[1]
        counts = [ratio if ratio > 0 else math.ceil(step) for step in steps]
        for i, j in np.ndindex(*size):
            for a, b in np.ndindex(*counts):
                y = top + (i + (a + 0.5) / counts[0]) * steps[0]
                x = left + (j + (b + 0.5) / counts[1]) * steps[1]
                found = sample(X[int(n)], y, x)
                if found is not None and largest:
                    out[k, :, i, j] = np.maximum(out[k, :, i, j], found)
                elif found is not None:
                    out[k, :, i, j] += found / math.prod(counts)
    return out


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 1, 3])
@pytest.mark.parametrize("size", [(2, 3), (1, 1)])
def test_samples_are_those_of_each_window(size, ratio, aligned):
    for pool, largest in zip(ALIGNED, (False, True), strict=True):
        found = pool(X, BOXES, size, sampling_ratio=ratio, aligned=aligned)
        assert_allclose(found, by_hand(BOXES, size, ratio, aligned, largest))


def test_regions_are_given_in_four_ways():
    for pool in (*ALIGNED, *POOLED):
        expected = pool(X, BOXES, 2)
        corners, images = BOXES[:, 1:], BOXES[:, 0].astype(int)
        assert_allclose(pool(X, corners, 2, batch_index=images), expected)
        assert_allclose(pool(X, [corners[:1], corners[1:]], 2), expected)
        turned = corners[:, [1, 0, 3, 2]]
        assert_allclose(pool(X, turned, 2, batch_index=images, box_format="yxyx"), expected)
        assert_allclose(pool(X[1:], corners[1:], 2), expected[1:])
        larger = np.concatenate([BOXES[:, :1], 4 * corners], axis=1)
        assert_allclose(pool(X, larger, 2, 0.25), expected)


def test_chainers_regions_leave_out_the_last_corner():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    boxes = np.array([[0, 1, 2, 3], [5, 5, 6, 6]])
    given = {"box_format": "yxyx", "inclusive": False}
    found = ops.roi_max_pool(x, boxes, 1, empty=-math.inf, **given).ravel()
    np.testing.assert_array_equal(found, [6, -math.inf])
    found = ops.roi_max_pool(x, boxes, 1, box_format="yxyx").ravel()
    np.testing.assert_array_equal(found, [11, 0])
    np.testing.assert_array_equal(ops.roi_average_pool(x, boxes, 1, **given).ravel(), [3.5, 0])


def test_no_region_gives_nothing_and_no_gradient():
    for pool in (*ALIGNED, *POOLED):
        assert pool(X, np.zeros((0, 5)), (2, 3)).shape == (0, 2, 2, 3)
        gradient = fdbr.grad(lambda x, pool=pool: pool(x, np.zeros((0, 5)), 2).sum())(X)
        assert not gradient.any()


def test_several_samples_are_differentiated_in_elements_and_corners():
    images = np.array([0, 1])
    for pool in ALIGNED:
        f = lambda x, b, pool=pool: pool(x, b, 2, sampling_ratio=(2, 1), batch_index=images)
        check_grads(f, X, np.array([BOXES[0, 1:], [-1.7, -0.2, 2.3, 5.1]]), order=1)


def test_places_of_pooled_regions_have_no_derivative():
    for pool in POOLED:
        f = lambda b, pool=pool: pool(X, b, 2, batch_index=np.array([0, 1, 1])).sum()
        assert not fdbr.grad(f)(BOXES[:, 1:]).any()


def test_a_batch_of_boxes_and_images_is_that_of_each():
    more = BOXES + np.array([0, 0.1, 0, 0.2, 0.3])
    for pool in (*ALIGNED, *POOLED):
        f = lambda x, b, pool=pool: pool(x, b, 2)
        g = fdbr.grad(lambda x, b, f=f: (f(x, b) ** 2).sum())
        for function in (f, g):
            found = fdbr.vmap(function)(np.stack([X, 2 * X]), np.stack([BOXES, more]))
            assert_allclose(found[1], function(2 * X, more))
            found = fdbr.vmap(function, (None, 0))(X, np.stack([BOXES, more]))
            assert_allclose(found[1], function(X, more))
        jitted = fdbr.jit(g)
        assert_allclose(jitted(X, BOXES), g(X, BOXES))
        assert_allclose(jitted(X, more), g(X, more))


@pytest.mark.parametrize("pool", [*ALIGNED, *POOLED])
def test_what_does_not_fit_is_named(pool):
    name = pool.__name__
    for call, message in (
        (lambda: pool(X[0], BOXES, 2), "x must be real images of shape"),
        (lambda: pool(X, BOXES[:, 1:], 2), "with batch_index"),
        (lambda: pool(X, BOXES[:, :3], 2), r"boxes float64\[3,3\] must have shape"),
        (lambda: pool(X[:1], BOXES, 2), "images 0 to 1 must lie in 0 … 0"),
        (lambda: pool(X, [BOXES[:, 1:]], 2), "an array for each image"),
        (
            lambda: pool(X, BOXES + np.array([0, 0, 0, np.inf, 0]), 2),
            "box 0 of boxes is not finite",
        ),
        (lambda: pool(X, BOXES, (2, 0)), "output_size must be"),
        (lambda: pool(X, BOXES, 2, 0.0), "spatial_scale must be a positive number, not 0.0"),
        (lambda: pool(X, BOXES, 2, box_format="xywh"), "box_format must be 'xyxy' or 'yxyx'"),
    ):
        with pytest.raises(ValueError, match=f"fdbr.ops.{name}: .*{message}"):
            call()


EACH = (*ALIGNED, *POOLED, *(getattr(ops, f"ps_{pool.__name__}") for pool in (*ALIGNED, *POOLED)))


@pytest.mark.parametrize("pool", EACH)
def test_what_is_special_is_the_same_in_all_transformations(pool):
    """Of images and boxes of several dtypes, boxes that are not finite, and images without rows."""
    boxes, index = BOXES[:, 1:], np.array([1, 0, 1])
    x = np.concatenate([X, X], axis=1)

    def f(x, boxes):
        return pool(x, boxes, 2, batch_index=index)

    batched = fdbr.vmap(f, (None, 0))
    functions = f, plainly(f), lambda x, boxes: batched(x, boxes[None])[0]
    for function in functions:
        with pytest.raises(ValueError, match=f"ops.{pool.__name__}: box (0, )?1 of boxes is not"):
            function(x, np.where(np.arange(3)[:, None] == 1, np.nan, boxes))
        for dtype in ("float16", "float32"):
            found = function(x.astype(dtype), boxes.astype("float32"))
            assert found.dtype == dtype
            np.testing.assert_allclose(found, f(x, boxes), rtol=0.01, atol=0.01)
        for shape in ((2, 4, 0, 3), (2, 4, 3, 0)):
            outside = -np.inf if pool.__name__.endswith("max_align") else 0
            found = function(np.zeros(shape), boxes)
            np.testing.assert_array_equal(found, np.full(found.shape, outside))
    bfloat16 = pytest.importorskip("ml_dtypes", reason="ml_dtypes has bfloat16").bfloat16
    assert f(x.astype(bfloat16), boxes).dtype == bfloat16


def test_samples_at_the_very_edge_are_valid_as_in_torchvision():
    # The samples -1 and 2 of -10, -7 … 8 are valid; rounded in another order, 2 is larger than 2.
    box = np.array([[0, -11.5, 1, 9.5]])
    found = ops.roi_average_align(np.ones((1, 1, 2, 1)), box, 1, sampling_ratio=(7, 1))
    np.testing.assert_allclose(found, 2 / 7)


def test_small_images_are_multiplied_whole_if_all_elements_are_finite(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 2, 5, 4))
    corner = x[:, :, 4, 3].copy()
    corners = rng.uniform(-1, 4, (40, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.5, 3, (40, 2))], axis=1)
    index = np.array([2, 0] * 20)  # no region of the second image

    def products(x, weights):
        def pool(x):
            return ops.roi_average_align(x, boxes, 3, batch_index=index)

        out, pullback = fdbr.vjp(pool, x)
        return out, *pullback(weights)

    weights = rng.normal(size=(40, 2, 3, 3))
    whole = products(x, weights)
    x[:, :, 4, 3] = np.nan
    inner = (boxes[:, 3] < 2.9) | (boxes[:, 2] < 1.9)
    assert 10 < inner.sum() < 40
    assert_allclose(products(x, weights)[0][inner], whole[0][inner])
    monkeypatch.setattr(region_products, "_SMALL", 0)
    x[:, :, 4, 3] = corner
    for one, each in zip(whole, products(x, weights), strict=True):
        assert_allclose(one, each)
