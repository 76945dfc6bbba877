"""Cases of pooling, region pooling and resampling."""

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from ops.cases import ANY, POSITIVE, array, arrays, case, grid


def _bins(n, m):
    return [slice(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _evenly_largest(x, rows, columns):
    return np.stack(
        [
            np.stack([x[..., r, c].max((-2, -1)) for c in _bins(x.shape[-1], columns)], -1)
            for r in _bins(x.shape[-2], rows)
        ],
        -2,
    )


def _distinct(shape):
    return array(shape, grid(-4, 4), unique=True).map(lambda x: (x,))


case(
    "adaptive_max_pool",
    _distinct((2, 3, 5)),
    lambda x: _evenly_largest(x, 2, 3),
    lambda x: ops.adaptive_max_pool(x, (2, 3)),
)
case(
    "adaptive_max_pool",
    _distinct((1, 2, 4)),
    lambda x: x.reshape(1, 2, 2, 2).max(-1),
    lambda x: ops.adaptive_max_pool(x, 2),
    "dividing",
)


def _largest_times_place(x):
    parts = [x[:, :3], x[:, 2:]]
    places = [parts[0].argmax(1), 2 + parts[1].argmax(1)]
    return np.stack([part.max(1) * at for part, at in zip(parts, places, strict=True)], 1)


def _times_place(x):
    largest, places = ops.max_pool(x, (3,), 2, return_indices=True)
    return largest * ops.astype(places, largest.dtype)


case("max_pool", _distinct((2, 5)), _largest_times_place, _times_place, "places")


def _fractional(x, starts, kernel):
    places = [[range(i, i + k) for i in each] for each, k in zip(starts, kernel, strict=True)]
    return np.array([[x[np.ix_(rows, cols)].max() for cols in places[1]] for rows in places[0]])


SHIFTS = np.array([0.75, 0.25])  # (5 - 2) / 2 = 1.5 and (6 - 3) / 2 = 1.5 elements apart
case(
    "fractional_max_pool",
    _distinct((5, 6)),
    lambda x: _fractional(x, [[0, 1, 3], [0, 1, 3]], [2, 3]),
    lambda x: ops.fractional_max_pool(x, (2, 3), (3, 3), samples=array_module(x).asarray(SHIFTS)),
)

# --- norms, pyramids, unpooling -----------------------------------------------------

case(
    "lp_pool",
    arrays(((1, 2, 5), POSITIVE)),
    lambda x: np.stack([(x[..., i : i + 3] ** 3).sum(-1) for i in (0, 2)], -1) ** (1 / 3),
    lambda x: ops.lp_pool(x, 3, 3, 2),
)
case(
    "lp_pool",
    _distinct((1, 2, 4)),
    lambda x: x.reshape(1, 2, 2, 2).max(-1),
    lambda x: ops.lp_pool(x, np.inf, 2),
    "largest",
)


def _pyramid(x):
    halves = np.stack([x[..., :3].max(-1), x[..., 3:].max(-1)], -1)
    return np.concatenate([x.max(-1), halves.reshape(1, 4)], 1)[..., None]


case(
    "spatial_pyramid_pooling",
    _distinct((1, 2, 6)),
    _pyramid,
    lambda x: ops.spatial_pyramid_pooling(x, 2),
)


def _spread_over(x, kernel, stride, padding, length):
    out = np.zeros((*x.shape[:-1], (x.shape[-1] - 1) * stride + kernel + length))
    for i in range(x.shape[-1]):
        out[..., i * stride : i * stride + kernel] += x[..., i, None]
    return out[..., padding : padding + length]


for setting, params, length in (
    ("", {}, 5),
    ("cut off", {"output_size": (4,)}, 4),
    ("longer", {"output_size": [1, 2, 6]}, 6),
    ("covering all", {"cover_all": True}, 4),
):
    case(
        "unpooling",
        arrays(((1, 2, 3), ANY)),
        lambda x, n=length: _spread_over(x, 3, 2, 1, n),
        lambda x, p=params: ops.unpooling(x, 3, 2, 1, **p),
        setting,
    )

PLACES = np.array([[[0, 3], [1, 2]]])


def _put(x, add=False):
    out = np.zeros((1, 2, 4))
    for c in range(2):
        for i, at in enumerate(PLACES[0, c]):
            out[0, c, at] = x[0, c, i] + add * out[0, c, at]
    return out


case(
    "max_unpool",
    arrays(((1, 2, 2), ANY)),
    _put,
    lambda x: ops.max_unpool(x, array_module(x).asarray(PLACES), 2),
)
case(
    "max_unpool",
    arrays(((1, 1, 2), ANY)),
    lambda x: x.sum(-1, keepdims=True) * np.array([0.0, 1.0, 0.0]),
    lambda x: ops.max_unpool(
        x, array_module(x).asarray([[[1, 1]]]), 2, 1, cover_all=True, accumulate=True
    ),
    "overlapping",
)

# --- interpolation ------------------------------------------------------------------


def _linear(x, places):
    """Values between the elements of the last axis, and at its ends beyond."""
    places = np.clip(places, 0, x.shape[-1] - 1)
    low = np.minimum(np.floor(places).astype(int), x.shape[-1] - 1)
    high = np.minimum(low + 1, x.shape[-1] - 1)
    return x[..., low] * (1 - (places - low)) + x[..., high] * (places - low)


case(
    "interpolate",
    arrays(((1, 1, 3), ANY)),
    lambda x: np.repeat(x, 2, -1),
    lambda x: ops.interpolate(x, scale_factor=2),
)
case(
    "interpolate",
    arrays(((1, 1, 3), ANY)),
    lambda x: x[..., [0, 0, 1, 2]],
    lambda x: ops.interpolate(x, 4),
    "in no whole steps",
)
case(
    "interpolate",
    arrays(((1, 2, 3), ANY)),
    lambda x: _linear(_linear(x, np.arange(5) * 0.5).swapaxes(1, 2), np.arange(4) / 3).swapaxes(
        1, 2
    ),
    lambda x: ops.interpolate(x, (4, 5), mode="bilinear", align_corners=True),
    "linear between corners",
)
case(
    "interpolate",
    arrays(((2, 1, 3), ANY)),
    lambda x: _linear(x, (np.arange(5) + 0.5) * 0.6 - 0.5),
    lambda x: ops.interpolate(x, 5, mode="linear"),
    "linear",
)
case(
    "interpolate",
    arrays(((1, 1, 6), ANY)),
    lambda x: np.stack([x[..., :3].mean(-1), x[..., 3:].mean(-1)], -1),
    lambda x: ops.interpolate(x, 2, mode="area"),
    "areas",
)


def _cubic_weights(t, a=-0.75):
    d = np.abs(np.stack([t + 1, t, 1 - t, 2 - t], -1))
    return np.where(d <= 1, ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a)


def _cubic(x, places):
    low = np.floor(places).astype(int)
    at = np.clip(low[:, None] + np.arange(-1, 3), 0, x.shape[-1] - 1)
    return (x[..., at] * _cubic_weights(places - low)).sum(-1)


case(
    "interpolate",
    arrays(((1, 1, 4), ANY)),
    lambda x: _cubic(x, (np.arange(3) + 0.5) * 4 / 3 - 0.5),
    lambda x: ops.interpolate(x, 3, mode="cubic"),
    "cubic",
)


def _smooth(x):
    weights = np.maximum(1 - np.abs(np.arange(6) + 0.5 - np.array([[1.5], [4.5]])) / 3, 0)
    return x @ (weights / weights.sum(1, keepdims=True)).T


case(
    "interpolate",
    arrays(((1, 1, 6), ANY)),
    _smooth,
    lambda x: ops.interpolate(x, 2, mode="linear", antialias=True),
    "without aliases",
)

# --- elements that change places ----------------------------------------------------

case(
    "pixel_shuffle",
    arrays(((4, 1, 2), ANY)),
    lambda x: np.stack([x[0::2, 0], x[1::2, 0]], -1).reshape(1, 2, 4),
    lambda x: ops.pixel_shuffle(x, 2),
)
case(
    "pixel_shuffle",
    arrays(((4, 2), ANY)),
    lambda x: np.stack([x[:2], x[2:]], -1).reshape(2, 4),
    lambda x: ops.pixel_shuffle(x, (2,), mode="DCR"),
    "Chainer's order",
)
case(
    "pixel_unshuffle",
    arrays(((1, 2, 4), ANY)),
    lambda x: np.stack([x[0, 0, ::2], x[0, 0, 1::2], x[0, 1, ::2], x[0, 1, 1::2]])[:, None],
    lambda x: ops.pixel_unshuffle(x, 2),
)
case(
    "pixel_unshuffle",
    arrays(((2, 4), ANY)),
    lambda x: np.concatenate([x[:, ::2], x[:, 1::2]]),
    lambda x: ops.pixel_unshuffle(x, (2,), mode="DCR"),
    "Chainer's order",
)
case(
    "channel_shuffle",
    arrays(((1, 4, 2), ANY)),
    lambda x: x[:, [0, 2, 1, 3]],
    lambda x: ops.channel_shuffle(x, 2),
)

# --- sampling -----------------------------------------------------------------------

BETWEEN = grid(-1, 1, 1 / 32)  # no place of it is that of an element


def _beside(x, numbers):
    return array_module(x).asarray(numbers, dtype=x.dtype)


def _sampled(x, g):
    """Bilinear samples of an image with zeros around it."""
    (h, w), out = x.shape[2:], np.zeros((*x.shape[:2], *g.shape[1:-1]))
    for n, i in np.ndindex(*g.shape[:2]):
        u, v = ((g[n, i, k] + 1) * m / 2 - 0.5 for k, m in ((0, w), (1, h)))
        for r, c in np.ndindex(h, w):
            out[n, :, i] += x[n, :, r, c] * max(1 - abs(v - r), 0) * max(1 - abs(u - c), 0)
    return out


case("grid_sample", arrays(((1, 1, 3, 2), ANY), ((1, 2, 2), BETWEEN)), _sampled)
case(
    "grid_sample",
    arrays(((1, 2, 3), ANY), ((1, 1, 3), BETWEEN)),
    lambda x, g: _linear(x[0], (g[0, 0] + 1))[None],
    lambda x, g: ops.grid_sample(x, g, padding_mode="border", align_corners=True, axis=1),
    "Chainer's corners",
)
case(
    "grid_sample",
    arrays(((1, 1, 4), ANY), ((1, 2, 1), BETWEEN)),
    lambda x, g: _cubic(x[0], (g[0, :, 0] + 1) * 2 - 0.5)[None],
    lambda x, g: ops.grid_sample(x, g, mode="bicubic", padding_mode="border"),
    "cubic",
)
case(
    "grid_sample",
    arrays(((1, 1, 4), ANY), ((1, 2, 1), grid(-2, 2, 1 / 32))),
    lambda x, g: _linear(x[0], np.abs((np.abs(g[0, :, 0] + 1) * 1.5 + 3) % 6 - 3))[None],
    lambda x, g: ops.grid_sample(x, g, padding_mode="reflection", align_corners=True),
    "reflected",
)
case(
    "grid_sample",
    arrays(((1, 1, 4), ANY)),
    lambda x: x[..., [1, 3, 3]] * np.array([1.0, 1.0, 0.0]),
    lambda x: ops.grid_sample(
        x, array_module(x).asarray([[[-0.3], [0.9], [1.3]]], dtype=x.dtype), mode="nearest"
    ),
    "nearest",
)
case(
    "affine_grid",
    arrays(((2, 1, 2), ANY)),
    lambda t: t[:, :, :1] * np.array([-0.75, -0.25, 0.25, 0.75])[:, None] + t[:, :, 1:],
    lambda t: ops.affine_grid(t, (2, 3, 4)),
)
case(
    "affine_grid",
    arrays(((1, 2, 3), ANY)),
    lambda t: (
        t[:, :, 0, None, None] * np.array([-1.0, 0.0, 1.0])
        + t[:, :, 1, None, None] * np.array([[-1.0], [1.0]])
        + t[:, :, 2, None, None]
    ),
    lambda t: ops.affine_grid(t, (2, 3), align_corners=True, axis=1),
    "Chainer's corners",
)

# --- regions ------------------------------------------------------------------------

BOXES = np.array([[0, 0.4, 1, 2.6, 2], [1, -1, 0, 1.5, 1], [0, 5, 5, 6, 6]])


def _pooled_regions(x, reduce, inclusive, empty):
    """Each window by itself, of two rows and one column for a region."""
    out = np.full((3, x.shape[1], 2, 1), empty)
    for k, (n, *corners) in enumerate(BOXES):
        left, top, right, bottom = (int(np.floor(c + 0.5)) for c in corners)
        height, width = max(bottom - top + inclusive, 1), max(right - left + inclusive, 1)
        for i in range(2):
            rows = slice(
                max(top + int(np.floor(i * height / 2)), 0),
                max(top + int(np.ceil((i + 1) * height / 2)), 0),
            )
            part = x[int(n), :, rows, max(left, 0) : max(left + width, 0)]
            if part.size:
                out[k, :, i, 0] = reduce(part, axis=(1, 2))
    return out


case(
    "roi_max_pool",
    _distinct((2, 1, 3, 2)),
    lambda x: _pooled_regions(x, np.max, True, 0.0),
    lambda x: ops.roi_max_pool(x, array_module(x).asarray(BOXES), (2, 1)),
)
case(
    "roi_average_pool",
    arrays(((2, 1, 3, 2), ANY)),
    lambda x: _pooled_regions(x, np.mean, False, 0.0),
    lambda x: ops.roi_average_pool(x, array_module(x).asarray(BOXES), (2, 1)),
)


def _hats(start, end, windows, samples, n):
    """The elements' weights in the samples of each window of an axis."""
    places = start + (np.arange(windows * samples) + 0.5) * (end - start) / (windows * samples)
    places = np.clip(places, 0, n - 1)
    return np.maximum(1 - np.abs(places[:, None] - np.arange(n)), 0)


def _aligned_region(x, low, high, samples):
    rows = _hats(low[0, 1], high[0, 1], 2, samples, 2).reshape(2, samples, 2).mean(1)
    columns = _hats(low[0, 0], high[0, 0], 1, samples, 2).mean(0, keepdims=True)
    return (rows @ x[0, 0] @ columns.T)[None, None]


CORNERS = ((1, 2), grid(0, 0.125, 0.013)), ((1, 2), grid(1.25, 1.75, 0.013))
case(
    "roi_average_align",
    arrays(((1, 1, 2, 2), ANY), *CORNERS),
    lambda x, low, high: _aligned_region(x, low, high, 2),
    lambda x, low, high: ops.roi_average_align(
        x, ops.concat([low, high], axis=1), (2, 1), sampling_ratio=2
    ),
)
case(
    "roi_max_align",
    arrays(((1, 1, 2, 2), ANY), *CORNERS),
    lambda x, low, high: _aligned_region(x, low, high, 1),
    lambda x, low, high: ops.roi_max_align(
        x, ops.concat([low, high], axis=1), (2, 1), sampling_ratio=1
    ),
)


def _pooled_groups(x, reduce):
    found = [reduce(x[0, k, 2 * k : 2 * k + 2, :2]) for k in range(2)]
    return np.array(found).reshape(1, 1, 2, 1)


SQUARE = np.array([[0.0, 0, 0, 2, 4]])
case(
    "ps_roi_max_pool",
    _distinct((1, 2, 5, 3)),
    lambda x: _pooled_groups(x, np.max),
    lambda x: ops.ps_roi_max_pool(x, array_module(x).asarray(SQUARE), (2, 1)),
)
case(
    "ps_roi_average_pool",
    arrays(((1, 2, 5, 3), ANY)),
    lambda x: _pooled_groups(x, np.mean),
    lambda x: ops.ps_roi_average_pool(x, array_module(x).asarray(SQUARE), (2, 1)),
)


def _aligned_group(x, low, high):
    """Sample in the middle of each of two windows, which read a channel each."""
    rows = _hats(low[0, 1], high[0, 1], 2, 1, 2)
    columns = _hats(low[0, 0], high[0, 0], 1, 1, 2)
    found = [rows[k] @ x[0, k] @ columns[0] for k in range(2)]
    return np.array(found).reshape(1, 1, 2, 1)


for _name, _pool in (
    ("ps_roi_average_align", ops.ps_roi_average_align),
    ("ps_roi_max_align", ops.ps_roi_max_align),
):
    case(
        _name,
        arrays(((1, 2, 2, 2), ANY), *CORNERS),
        _aligned_group,
        lambda x, low, high, pool=_pool: pool(
            x, ops.concat([low, high], axis=1), (2, 1), sampling_ratio=1, chainer=True
        ),
    )
