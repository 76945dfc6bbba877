"""Cases of normalisation, and of what leaves something out by chance."""

import numpy as np

from fdbr import ops
from fdbr.backend import array_module
from ops.cases_networks import KEY, of_shape


def stay(shape, rate):
    """Which elements of a shape stay, by Philox's words."""
    count = int(np.prod(shape))
    words = np.random.Philox(key=KEY).random_raw((count + 1) // 2)
    halves = np.stack([words & 0xFFFFFFFF, words >> 32], axis=-1).reshape(-1)[:count]
    return halves.reshape(shape) < (1 - rate) * 2**32


def key_of(x):
    return array_module(x).asarray(KEY)


of_shape(
    "spatial_dropout",
    (2, 3, 2),
    lambda x: ops.spatial_dropout(x, 0.25, key=key_of(x)),
    lambda x: x * stay((2, 3, 1), 0.25) / 0.75,
)
of_shape(
    "drop_path",
    (3, 2),
    lambda x: ops.drop_path(x, 0.5, key=key_of(x)),
    lambda x: x * stay((3, 1), 0.5) * 2,
)
of_shape(
    "drop_path",
    (3, 2),
    lambda x: ops.drop_path(x, 0.5, mode="batch", key=key_of(x)),
    lambda x: x * stay((1, 1), 0.5) * 2,
    "of a batch",
)
