"""Cases of pooling, region pooling and resampling."""

import numpy as np

from fdbr import ops
from ops.cases import array, case, grid


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
