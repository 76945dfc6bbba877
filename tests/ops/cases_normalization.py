"""Cases of normalisation, and of what leaves something out by chance."""

import numpy as np
import scipy.linalg
import scipy.special as sp

from fdbr import ops
from fdbr.core.array_modules import array_module
from ops.cases import case
from ops.cases_networks import KEY
from ops.seeds import several


def of_shape(op, shapes, function, reference, setting=""):
    """A case of arrays of one shape, or of several."""
    shapes = shapes if isinstance(shapes[0], tuple) else (shapes,)
    case(op, several(*shapes), reference, function, setting)


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


# --- noise --------------------------------------------------------------------------


def unit(shape):
    """Draws between 0 and 1."""
    words = np.random.Philox(key=KEY).random_raw(int(np.prod(shape))).reshape(shape)
    return ((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52


END = -1.7580993408473766
of_shape(
    "alpha_dropout",
    (2, 3),
    lambda x: ops.alpha_dropout(x, 0.25, key=key_of(x)),
    lambda x: (
        (np.where(stay((2, 3), 0.25), x, END) - 0.25 * END) / np.sqrt((END**2 / 4 + 1) * 0.75)
    ),
)
of_shape(
    "alpha_dropout",
    (2, 3, 2),
    lambda x: ops.alpha_dropout(x, 0.25, channels=True, key=key_of(x)),
    lambda x: (
        (np.where(stay((2, 3, 1), 0.25), x, END) - 0.25 * END) / np.sqrt((END**2 / 4 + 1) * 0.75)
    ),
    "channels",
)
of_shape(
    "gaussian_dropout",
    (2, 3),
    lambda x: ops.gaussian_dropout(x, 0.2, key=key_of(x)),
    lambda x: x * (1 + 0.5 * sp.ndtri(unit((2, 3)))),
)
of_shape(
    "zoneout",
    ((2, 3), (2, 3)),
    lambda h, x: ops.zoneout(h, x, 0.25, key=key_of(x)),
    lambda h, x: np.where(stay((2, 3), 0.25), x, h),
)
of_shape(
    "rrelu",
    (2, 3),
    lambda x: ops.rrelu(x + 1 / 16, 0.25, 0.5, key=key_of(x)),
    lambda x: np.where(x + 1 / 16 > 0, 1, 0.25 + unit((2, 3)) / 4) * (x + 1 / 16),
)
of_shape(
    "rrelu",
    (4,),
    lambda x: ops.rrelu(x + 1 / 16),
    lambda x: np.where(x + 1 / 16 > 0, 1, 11 / 48) * (x + 1 / 16),
    "in inference",
)
of_shape(
    "gaussian",
    ((2, 2), (2, 2)),
    lambda m, v: ops.gaussian(m, v, key=key_of(m)),
    lambda m, v: m + np.exp(v / 2) * sp.ndtri(unit((2, 2))),
)
of_shape(
    "gumbel_softmax",
    (2, 3),
    lambda x: ops.gumbel_softmax(x, 0.5, axis=0, key=key_of(x)),
    lambda x: sp.softmax((x - np.log(-np.log(unit((2, 3))))) / 0.5, axis=0),
)
DROPPED = [(2, 3), (2, 3), (2,)]
of_shape(
    "simplified_dropconnect",
    DROPPED,
    lambda x, w, b: ops.simplified_dropconnect(x, w, b, 0.25, key=key_of(x)),
    lambda x, w, b: np.einsum("ni,noi->no", x, w * stay((2, 2, 3), 0.25) / 0.75) + b,
)
of_shape(
    "simplified_dropconnect",
    DROPPED[:2],
    lambda x, w: ops.simplified_dropconnect(x, w, rate=0.25, batchwise=False, key=key_of(x)),
    lambda x, w: x @ (w * stay((2, 3), 0.25) / 0.75).T,
    "one mask",
)


# --- normalisation ------------------------------------------------------------------


def responses(x, size, alpha, beta, k, low, high):
    out = np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(c - low, 0) : c + high + 1]
        out[:, c] = x[:, c] / (k + alpha * (near**2).sum(1)) ** beta
    return out


of_shape(
    "local_response_norm",
    (2, 4, 2),
    lambda x: ops.local_response_norm(x, 2, alpha=0.5),
    lambda x: responses(x, 2, 0.25, 0.75, 1.0, 1, 0),
)
of_shape(
    "local_response_norm",
    (1, 4),
    lambda x: ops.local_response_norm(x, 3, alpha=0.5, beta=0.5, k=2.0, average=False),
    lambda x: responses(x, 3, 0.5, 0.5, 2.0, 1, 1),
    "Chainer's",
)
of_shape(
    "normalize",
    (2, 3),
    lambda x: ops.normalize(x + 3),
    lambda x: (x + 3) / np.sqrt(((x + 3) ** 2).sum(1, keepdims=True)),
)
of_shape(
    "normalize",
    (2, 3, 2),
    lambda x: ops.normalize(x + 3, p=3, axis=(0, 2), eps=0.5, add_eps=True),
    lambda x: (x + 3) / (((x + 3) ** 3).sum((0, 2), keepdims=True) ** (1 / 3) + 0.5),
    "Chainer's",
)
of_shape(
    "standardize",
    (2, 3),
    lambda x: ops.standardize(x, axis=0, eps=0.25),
    lambda x: (x - x.mean(0)) / np.sqrt(x.var(0) + 0.25),
)
of_shape(
    "standardize",
    ((2, 3), (3,), (2, 1)),
    lambda x, m, v: ops.standardize(x, mean=m, variance=v + 3),
    lambda x, m, v: (x - m) / np.sqrt(v + 3 + 1e-5),
    "known statistics",
)


def renormed(x, w, b):
    """By the statistics of the batch, with a correction that is at its limits."""
    mean, std = x.mean((0, 2)), np.sqrt(x.var((0, 2)) + 0.01)
    out = (x - mean[:, None]) / std[:, None] / 1.25 + np.array([[-0.125], [0.125]])
    return out * w[:, None] + b[:, None]


def renorm(x, w, b):
    xp = array_module(x)
    known = xp.asarray(np.array([50.0, -50.0])), xp.asarray(np.array([99.0, 400.0]))
    return ops.batch_renorm(
        *(x, w, b),
        running_mean=known[0],
        running_var=known[1],
        r_max=1.25,
        d_max=0.125,
        eps=0.01,
    )[0]


of_shape("batch_renorm", ((3, 2, 2), (2,), (2,)), renorm, renormed)


def whitened(x, groups, eps):
    parts = np.moveaxis(x, 1, 0).reshape(groups, x.shape[1] // groups, -1)
    out = np.empty_like(parts)
    for group, part in zip(out, parts, strict=True):
        away = part - part.mean(1, keepdims=True)
        group[:] = (
            scipy.linalg.sqrtm(
                np.linalg.inv(away @ away.T / away.shape[1] + eps * np.eye(len(away)))
            ).real
            @ away
        )
    return np.moveaxis(out.reshape(np.moveaxis(x, 1, 0).shape), 0, 1)


of_shape(
    "decorrelated_batch_norm",
    (3, 4, 2),
    lambda x: ops.decorrelated_batch_norm(x, 2, eps=0.1)[0],
    lambda x: whitened(x, 2, 0.1),
)
of_shape(
    "decorrelated_batch_norm",
    ((2, 2), (1, 2), (1, 2, 2)),
    lambda x, m, p: ops.decorrelated_batch_norm(x, 1, mean=m, projection=p)[0],
    lambda x, m, p: (x - m) @ p[0].T,
    "known statistics",
)


# --- parameters along axes ----------------------------------------------------------

of_shape("scale", ((2, 3, 2), (3,)), ops.scale, lambda x, y: x * y[:, None])
of_shape("scale", ((3, 2), ()), lambda x, y: ops.scale(x, y, axis=0), lambda x, y: x * y, "number")
of_shape("bias", ((2, 3, 2), (3, 2)), ops.bias, lambda x, y: x + y)
of_shape(
    "bilinear",
    ((4, 2), (4, 3), (2, 2, 3), (2,)),
    ops.bilinear,
    lambda x, y, w, b: np.einsum("ni,oij,nj->no", x, w, y) + b,
)
of_shape(
    "bilinear",
    ((2,), (3,), (2, 2, 3), (2, 2), (2, 3)),
    lambda x, y, w, v, u: ops.bilinear(x, y, w, weight1=v, weight2=u),
    lambda x, y, w, v, u: np.einsum("i,oij,j->o", x, w, y) + v @ x + u @ y,
    "with linear terms",
)

of_shape(
    "batch_norm",
    ((4, 2, 3), (2, 3), (2, 3)),
    lambda x, w, b: ops.batch_norm(x, w, b, axis=(1, 2), eps=0.25)[0],
    lambda x, w, b: (x - x.mean(0)) / np.sqrt(x.var(0) + 0.25) * w + b,
    "several axes",
)
of_shape(
    "batch_norm",
    ((2, 3, 2), (3,), (3,), (3,), (3,)),
    lambda x, w, b, m, v: ops.batch_norm(x, w, b, mean=m, variance=v + 3)[0],
    lambda x, w, b, m, v: (
        (x - m[:, None]) / np.sqrt(v[:, None] + 3 + 1e-5) * w[:, None] + b[:, None]
    ),
    "known statistics, weight and bias",
)
