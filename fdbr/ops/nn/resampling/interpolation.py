"""Arrays on other grids: nearest neighbours, linear and cubic interpolation, and areas.

Interpolation goes axis by axis, each a product with a matrix that has a few entries a row; of long
axes some outputs at a time, with the inputs that they need.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.ops.dtypes import in_single
from fdbr.ops.indexing.reading import getitem, pick
from fdbr.ops.nn.pooling.adaptive import adaptive_avg_pool
from fdbr.ops.products import matmul
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.layout import concat
from fdbr.ops.shape.manipulation import broadcast_to, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["interpolate"]

_RANKS = {"bilinear": 2, "trilinear": 3, "bicubic": 2}
_LINEAR = {"linear", "bilinear", "trilinear"}
_CUBIC = {"bicubic", "cubic"}
_MODES = ("nearest", "nearest-exact", "area", *sorted(_LINEAR), *sorted(_CUBIC))
_BLOCK = 64  # outputs that are computed by one product
_WHOLE = 1 << 15  # entries up to which a matrix is not divided


class _Axis(NamedTuple):
    """An axis of ``n`` elements that gets ``m``."""

    n: int
    m: int
    scale: float  # how far the places of neighbouring outputs are from each other
    mode: str
    align_corners: bool
    antialias: bool


@where_it_lies
@in_single
def interpolate(
    x: ArrayLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """An array on a finer or a coarser grid.

    Chainer's ``resize_images`` is the mode ``"bilinear"`` with ``align_corners=True``, or
    ``"nearest"``.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as size or factor any axes before the spatial
        ones.
    size
        The lengths of the spatial axes of the result: an integer for all, or one for each.
    scale_factor
        In its place, by how much they are longer; they are rounded down.
    mode
        ``"nearest"``, which rounds places down, or ``"nearest-exact"``; ``"linear"``, in any
        number of dimensions, or ``"bilinear"`` and ``"trilinear"`` in two and three;
        ``"bicubic"``, or ``"cubic"`` in any number; ``"area"``, which is `adaptive_avg_pool`.
    align_corners
        Whether the centres of the first and the last elements stay where they are, and not their
        outer edges; for linear and cubic interpolation.
    recompute_scale_factor
        Whether places are computed by the lengths of the axes, even where ``scale_factor`` is
        given.
    antialias
        Whether each element of a smaller result is a mean of all elements that it stands for,
        with triangular or cubic weights; for linear and cubic interpolation.

    Returns
    -------
    array
        Of the dtype of ``x``; integers become floating numbers where they are interpolated.

    Raises
    ------
    ValueError
        If not one of ``size`` and ``scale_factor`` is given, they have another number of axes, the
        result or ``x`` is empty, or a setting does not go with the mode.

    Notes
    -----
    As ``torch.nn.functional.interpolate``.  The cubic kernel is Keys's, "Cubic convolution
    interpolation for digital image processing" (1981), with a = -0.75, or -0.5 with ``antialias``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.interpolate(np.array([[[0.0, 4.0]]]), scale_factor=2, mode="linear")
    array([[[0., 1., 3., 4.]]])
    >>> ops.interpolate(np.array([[[0.0, 4.0]]]), size=3, mode="linear", align_corners=True)
    array([[[0., 2., 4.]]])
    """
    if mode not in _MODES:
        raise ValueError(f"fdbr.ops.interpolate: mode must be one of {_MODES}, not {mode!r}")
    smooth = mode in _LINEAR or mode in _CUBIC
    if not smooth and (align_corners is not None or antialias):
        raise ValueError(
            f"fdbr.ops.interpolate: align_corners and antialias do not go with mode {mode!r}; "
            "they are for linear and cubic interpolation"
        )
    x = floating(x) if smooth or mode == "area" else asarray(x)
    sizes, factors = _sizes(x, size, scale_factor, mode)
    if mode == "area":
        return adaptive_avg_pool(x, sizes)
    if recompute_scale_factor:
        factors = (None,) * len(sizes)
    first = x.ndim - len(sizes)
    axes = [
        _Axis(n, m, _scale(n, m, factor, bool(align_corners)), mode, bool(align_corners), antialias)
        for n, m, factor in zip(x.shape[first:], sizes, factors, strict=True)
    ]
    if not smooth:
        return _nearest(x, first, axes)
    for i in sorted(range(len(axes)), key=lambda i: axes[i].m / axes[i].n):
        x = _along(x, first + i, axes[i])
    return x


def _sizes(x: Any, size: Any, scale_factor: Any, mode: str) -> tuple[Any, Any]:
    """The lengths of the result's spatial axes, and the factors where these are given."""
    if (size is None) == (scale_factor is None):
        raise ValueError("fdbr.ops.interpolate: give one of size and scale_factor")
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    usual = _RANKS.get(mode, x.ndim - 2)
    given = tuple(given) if isinstance(given, Sequence) else (given,) * usual
    whole = name == "scale_factor" or all(hasattr(m, "__index__") for m in given)
    if not 0 < len(given) <= x.ndim or len(given) != _RANKS.get(mode, len(given)) or not whole:
        raise ValueError(
            f"fdbr.ops.interpolate: {name} must be a number, or one for each spatial axis of x "
            f"{describe(x)}, of which mode {mode!r} takes {_RANKS.get(mode, 'any number')}; it is "
            f"{size if scale_factor is None else scale_factor!r}"
        )
    lengths = x.shape[x.ndim - len(given) :]
    factors: tuple[Any, ...] = (None,) * len(given)
    if scale_factor is None:
        sizes = tuple(map(int, given))
    else:
        factors = tuple(map(float, given))
        sizes = tuple(int(n * factor) for n, factor in zip(lengths, factors, strict=True))
    if min(*sizes, *lengths) < 1:
        raise ValueError(
            f"fdbr.ops.interpolate: x {describe(x)} would get spatial axes {sizes}; they must be "
            "at least 1 before and after"
        )
    return sizes, factors


def _scale(n: int, m: int, factor: float | None, align_corners: bool) -> float:
    if align_corners:
        return (n - 1) / (m - 1) if m > 1 else 0.0
    return 1 / factor if factor else n / m


# --- nearest neighbours -------------------------------------------------------------


def _nearest(x: Any, first: int, axes: list[_Axis]) -> Any:
    places = [_nearest_places(axis) for axis in axes]
    times = [axis.m // axis.n for axis in axes]
    repeated = (
        axis.m == axis.n * t and np.array_equal(at, np.arange(axis.m) // t)
        for axis, at, t in zip(axes, places, times, strict=True)
    )
    if all(repeated):
        lead, size = tuple(x.shape[:first]), tuple(x.shape[first:])
        apart = tuple(k for n in size for k in (n, 1))
        spread = tuple(k for n, t in zip(size, times, strict=True) for k in (n, t))
        whole = broadcast_to(reshape(x, (*lead, *apart)), (*lead, *spread))
        return reshape(whole, (*lead, *(axis.m for axis in axes)))
    xp = array_module(x)
    for i, at in enumerate(places):
        if not np.array_equal(at, np.arange(axes[i].n)):
            x = pick(x, (*(slice(None),) * (first + i), xp.asarray(at)))
    return x


@functools.lru_cache(1 << 8)
def _nearest_places(axis: _Axis) -> Any:
    """The place that each output is read from: computed in single precision, as in PyTorch."""
    if axis.mode == "nearest" and axis.m in (axis.n, 2 * axis.n):
        return np.arange(axis.m) // (axis.m // axis.n)
    offset = np.float32(0.5 if axis.mode == "nearest-exact" else 0)
    places = np.floor((np.arange(axis.m, dtype=np.float32) + offset) * np.float32(axis.scale))
    return np.minimum(places.astype(np.int64), axis.n - 1)


# --- interpolation ------------------------------------------------------------------


def _along(x: Any, axis: int, how: _Axis) -> Any:
    """One axis interpolated.

    As in PyTorch, an axis whose length stays is copied, whatever the factor: but by cubics alone.
    """
    if how.n == how.m and (how.scale == 1 or how.mode in _LINEAR or how.antialias):
        return x
    lead, rest = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (*x.shape[:axis], how.m, *x.shape[axis + 1 :])
    last = rest == 1
    rows = reshape(x, (lead, how.n) if last else (lead, how.n, rest))
    xp, parts = array_module(x), []
    for low, high, weights in _blocks(how, np.dtype(x.dtype).char):
        part = rows if high - low == how.n else getitem(rows, (slice(None), slice(low, high)))
        matrix = xp.asarray(weights)
        parts.append(matmul(part, matrix.T) if last else matmul(matrix, part))
    return reshape(parts[0] if len(parts) == 1 else concat(parts, axis=1), shape)


@functools.lru_cache(1 << 7)
def _blocks(how: _Axis, dtype: str) -> list[tuple[int, int, Any]]:
    """Matrices for some outputs each, with the range of inputs that they need."""
    first, weights = _taps(how, np.float32 if dtype == "f" else np.float64)
    count = how.m if how.n * how.m <= _WHOLE else _BLOCK
    found = []
    for start in range(0, how.m, count):
        rows = slice(start, min(start + count, how.m))
        places = np.clip(first[rows, None] + np.arange(weights.shape[1]), 0, how.n - 1)
        low, high = int(places.min()), int(places.max()) + 1
        matrix = np.zeros((len(places), high - low))
        np.add.at(matrix, (np.arange(len(places))[:, None], places - low), weights[rows])
        matrix = matrix.astype(dtype)
        matrix.flags.writeable = False
        found.append((low, high, matrix))
    return found


def _taps(how: _Axis, number: Any) -> tuple[Any, Any]:
    """The first place that each output is made of, and the weights of that and of those behind.

    Places before the first and behind the last element are these.  Places are computed in single
    precision where the elements are: as in PyTorch, which far from zero differs.
    """
    outputs, scale = np.arange(how.m, dtype=number), number(how.scale)
    half = number(0.5)
    cubic = how.mode in _CUBIC
    if how.antialias:
        return _smoothed(how, _keys(-0.5) if cubic else lambda x: np.maximum(1 - x, 0))
    places = outputs * scale if how.align_corners else (outputs + half) * scale - half
    if cubic:
        floor = np.floor(places)
        away = np.abs((places - floor)[:, None] - np.arange(-1, 3, dtype=number))
        return floor.astype(np.int64) - 1, _keys(-0.75)(away)
    places = np.clip(places, 0, how.n - 1)
    floor = np.minimum(np.floor(places), how.n - 1)
    share = places - floor
    return floor.astype(np.int64), np.stack([1 - share, share], axis=1)


def _smoothed(how: _Axis, kernel: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Weights by a kernel that is as wide as the outputs are apart, if that is more than 1."""
    width = max(how.scale, 1.0)
    reach = (2.0 if how.mode in _CUBIC else 1.0) * width
    centres = how.scale * (np.arange(how.m) + 0.5)
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    behind = np.minimum((centres + reach + 0.5).astype(np.int64), how.n)
    places = first[:, None] + np.arange(int(np.max(behind - first)))
    weights = kernel(np.abs(places - centres[:, None] + 0.5) / width)
    weights = np.where(places < behind[:, None], weights, 0.0)
    return first, weights / weights.sum(1, keepdims=True)


def _keys(a: float) -> Callable[[Any], Any]:
    """Keys's cubic convolution kernel, of distances."""

    def kernel(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel
