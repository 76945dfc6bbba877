"""Position-sensitive pooling of regions: windows by hand, torchvision, derivatives and errors."""

import itertools
import math

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose, check_grads

X = np.random.default_rng(0).normal(size=(2, 8, 5, 6))
BOXES = np.array([[0, 0.3, 0.4, 3.2, 4.3], [1, -2.5, -0.2, 2.3, 7.7], [1, 1.1, 2, 4.3, 3.2]])
ALIGNED = ops.ps_roi_average_align, ops.ps_roi_max_align
POOLED = ops.ps_roi_average_pool, ops.ps_roi_max_pool
ALL = (*ALIGNED, *POOLED)


def sample(image, y, x):
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return None
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    rows = np.maximum(1 - np.abs(np.arange(height) - y), 0)
    columns = np.maximum(1 - np.abs(np.arange(width) - x), 0)
    return rows @ image @ columns


def elements(image, start, step, i, j):
    """The elements of a window whose ends are rounded outwards."""
    begin = [math.floor(k * d + s) for k, d, s in zip((i, j), step, start, strict=True)]
    end = [math.ceil((k + 1) * d + s) for k, d, s in zip((i, j), step, start, strict=True)]
    slices = [slice(max(b, 0), max(e, 0)) for b, e in zip(begin, end, strict=True)]
    return list(image[tuple(slices)].reshape(-1))


def samples(image, start, step, i, j, ratio):
    counts = [ratio if ratio > 0 else math.ceil(s) for s in step]
    found = [
        sample(image, *(s + (k + (p + 0.5) / c) * d for s, k, p, c, d in
                        zip(start, (i, j), at, counts, step, strict=True)))
        for at in np.ndindex(*counts)
    ]  # fmt: skip
    return found, math.prod(counts)


def by_hand(pool, size, groups, chainer, ratio=-1):
    channels = X.shape[1] // math.prod(groups)
    out = np.zeros((len(BOXES), channels, *size))
    for k, (n, left, top, right, bottom) in enumerate(BOXES):
        start, end = np.array([top, left]), np.array([bottom, right])
        if pool in ALIGNED:
            start, end = (start, end) if chainer else (start - 0.5, end - 0.5)
            length = np.maximum(end - start, 0.1) if chainer else end - start
        else:
            if not chainer:
                start, end = (np.sign(v) * np.floor(np.abs(v) + 0.5) for v in (start, end))
            length = np.maximum(end - start, 0.1 if chainer else 1)
        step = length / size
        for c, i, j in itertools.product(range(channels), *map(range, size)):
            g, h = i * groups[0] // size[0], j * groups[1] // size[1]
            image = X[int(n), (c * groups[0] + g) * groups[1] + h]
            if pool in ALIGNED:
                found, count = samples(image, start, step, i, j, ratio)
                found = [f for f in found if f is not None]
            else:
                if pool is ops.ps_roi_average_pool and not chainer:
                    image = image[:-1, :-1]
                found = elements(image, start, step, i, j)
                count = len(found)
            if pool in (ops.ps_roi_average_align, ops.ps_roi_average_pool):
                out[k, c, i, j] = sum(found) / max(count, 1)
            else:
                out[k, c, i, j] = max(found, default=-np.inf)
    return out


@pytest.mark.parametrize("pool", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("chainer", [False, True])
@pytest.mark.parametrize(
    ("size", "groups"), [((2, 2), None), ((4, 1), None), ((2, 6), (1, 4)), ((3, 2), (2, 2))]
)
def test_windows_read_channels_of_their_group(pool, chainer, size, groups):
    more = {"empty": -np.inf} if "max" in pool.__name__ else {}
    for ratio in (-1, 2) if pool in ALIGNED else (-1,):
        if pool in ALIGNED:
            more["sampling_ratio"] = ratio
        found = pool(X, BOXES, size, group_size=groups, chainer=chainer, **more)
        assert_allclose(found, by_hand(pool, size, groups or size, chainer, ratio))
        swapped = pool(
            X, BOXES[:, [2, 1, 4, 3]], size, batch_index=BOXES[:, 0].astype(int),
            group_size=groups, chainer=chainer, box_format="yxyx", **more,
        )  # fmt: skip
        assert_allclose(swapped, found)


def test_poolings_are_those_of_torchvision():
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    x, boxes = (torch.from_numpy(v) for v in (X, BOXES))
    for ratio in (-1, 2):
        ours = ops.ps_roi_average_align(X, BOXES, 2, 0.9, ratio)
        assert_allclose(ours, torchvision.ops.ps_roi_align(x, boxes, 2, 0.9, ratio).numpy())
    ours = ops.ps_roi_average_pool(X, BOXES, 2, 0.9)
    assert_allclose(ours, torchvision.ops.ps_roi_pool(x, boxes, 2, 0.9).numpy())


@pytest.mark.slow
@pytest.mark.parametrize("pool", ALL, ids=lambda f: f.__name__)
def test_derivatives_exist_to_the_second_order(pool):
    image = X[:1, :4, :3, :3].copy()
    check_grads(lambda x: pool(x, BOXES[:1], 2), image, order=2)
    if pool in ALIGNED:
        corners = np.array([[0.3, 0.4, 2.2, 2.3]])
        check_grads(lambda b: pool(image, b, 2, sampling_ratio=2), corners, order=2)


@pytest.mark.parametrize("pool", ALL, ids=lambda f: f.__name__)
def test_batches_traces_and_dtypes(pool):
    many = np.stack([X[:1], X[1:]])
    found = fdbr.vmap(lambda x: pool(x, BOXES[:1], 2))(many)
    assert_allclose(found, np.stack([pool(x, BOXES[:1], 2) for x in many]))
    jitted = fdbr.jit(lambda x: pool(x, BOXES, 2))
    assert_allclose(jitted(X), pool(X, BOXES, 2))
    half = pool(X.astype("float16"), BOXES.astype("float16"), 2)
    assert half.dtype == np.float16
    assert pool(X, np.zeros((0, 5)), 2).shape == (0, 2, 2, 2)


@pytest.mark.parametrize("pool", ALL, ids=lambda f: f.__name__)
def test_groups_must_divide_the_channels(pool):
    with pytest.raises(ValueError, match=rf"ops.{pool.__name__}: group_size \(3, 3\) must divide"):
        pool(X, BOXES, 3)
