"""Resize arrays by nearest neighbours, linear or cubic interpolation, or areas.

Interpolation proceeds axis by axis, each by a product with a matrix that has a few nonzero entries
in a row; for long axes, blocks of outputs are computed from the inputs that they need.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import in_single
from fdbr.ops.indexing.reading import pick
from fdbr.ops.nn.pooling.adaptive import adaptive_avg_pool
from fdbr.ops.nn.window_products import Block, along_axis
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import broadcast_to, reshape

__all__ = ["interpolate"]

_RANKS = {"bilinear": 2, "trilinear": 3, "bicubic": 2}
_LINEAR = {"linear", "bilinear", "trilinear"}
_CUBIC = {"bicubic", "cubic"}
_MODES = ("nearest", "nearest-exact", "area", *sorted(_LINEAR), *sorted(_CUBIC), "lanczos")
_BLOCK = 64  # outputs computed by one product, for long axes
_WHOLE = 1 << 15  # entries up to which one matrix computes all outputs


class _Axis(NamedTuple):
    """The plan for resizing an axis from ``n`` to ``m`` elements."""

    n: int
    m: int
    scale: float  # the distance between neighbouring outputs, in inputs
    mode: str
    align_corners: bool
    antialias: bool
    exact: bool = False  # whether positions are computed in float64 whatever the elements

    def blocks(self, dtype: str) -> list[Block]:
        """Return the weights of outputs; see `Windows`."""
        return _blocks(self, dtype)


@public("fdbr.ops")
@where_it_lies
@in_single
def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Resize the spatial axes of an array, as ``torch.nn.functional.interpolate``.

    Chainer's ``resize_images`` is the mode ``"bilinear"`` with ``align_corners=True``, or
    ``"nearest"``.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as size or factor, any axes before the spatial
        axes.
    size
        The lengths of the spatial axes of the result: an integer for all, or one for each.
    scale_factor
        The factors by which the axes are lengthened, instead of ``size``; lengths are rounded
        down.
    mode
        ``"nearest"``, which rounds positions down, or ``"nearest-exact"``; ``"linear"``, in any
        number of dimensions, or ``"bilinear"`` and ``"trilinear"`` in two and three;
        ``"bicubic"``, or ``"cubic"`` in any number; ``"lanczos"``, only with ``antialias``, whose
        kernel has three lobes, as Pillow's; ``"area"``, which is `adaptive_avg_pool`.
    align_corners
        Whether the centres of the first and the last elements are preserved, rather than their
        outer edges; for linear and cubic interpolation.
    recompute_scale_factor
        Whether to compute positions from the lengths of the axes even if ``scale_factor`` is
        given.
    antialias
        Whether each element of a smaller result is a weighted mean of all elements that it covers,
        with triangular, cubic or Lanczos weights; not for the other modes.

    Returns
    -------
    array
        The dtype of ``x``; interpolated integers become floating numbers.

    Raises
    ------
    ValueError
        If not exactly one of ``size`` and ``scale_factor`` is given, their length does not fit, the
        result or ``x`` is empty, or an argument does not apply to the mode.

    Notes
    -----
    The cubic kernel is Keys's, "Cubic convolution interpolation for digital image processing"
    (1981), with a = -0.75, or -0.5 with ``antialias``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.interpolate(np.array([[[0.0, 4.0]]]), scale_factor=2, mode="linear")
    array([[[0., 1., 3., 4.]]])
    >>> ops.interpolate(np.array([[[0.0, 4.0]]]), size=3, mode="linear", align_corners=True)
    array([[[0., 2., 4.]]])
    """
    if mode not in _MODES:
        raise ValueError(f"fdbr.ops.interpolate: mode must be one of {_MODES}, not {mode!r}")
    smooth = mode in _LINEAR or mode in _CUBIC or mode == "lanczos"
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError(
            "fdbr.ops.interpolate: mode 'lanczos' needs antialias=True, and no align_corners"
        )
    if not smooth and (align_corners is not None or antialias):
        raise ValueError(
            f"fdbr.ops.interpolate: align_corners and antialias do not apply to mode {mode!r}, "
            "only to linear and cubic interpolation"
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
    return _along_axes(x, axes)


@where_it_lies
@in_single
def resize_linearly(x: Any, size: Sequence[int]) -> Any:
    """Resize the last axes of an array of floating numbers by linear interpolation, as OpenCV.

    It is `interpolate` with positions in float64: those in float32 change float32 images by up to
    5e-5 of the differences between neighbours, and what a detector finds by hundredths of pixels.
    """
    lengths = zip(x.shape[-len(size) :], size, strict=True)
    axes = [_Axis(n, m, n / m, "linear", False, False, exact=True) for n, m in lengths]
    return _along_axes(x, axes)


def _sizes(x: Any, size: Any, scale_factor: Any, mode: str) -> tuple[Any, Any]:
    """Return the lengths of the result's spatial axes, and the factors if given."""
    if (size is None) == (scale_factor is None):
        raise ValueError("fdbr.ops.interpolate: give one of size and scale_factor")
    name, given = ("size", size) if scale_factor is None else ("scale_factor", scale_factor)
    default_rank = _RANKS.get(mode, x.ndim - 2)
    given = tuple(given) if isinstance(given, Sequence) else (given,) * default_rank
    is_valid = name == "scale_factor" or all(hasattr(m, "__index__") for m in given)
    if not 0 < len(given) <= x.ndim or len(given) != _RANKS.get(mode, len(given)) or not is_valid:
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
    positions = [_nearest_indices(axis) for axis in axes]
    times = [axis.m // axis.n for axis in axes]
    repeated = (
        axis.m == axis.n * t and np.array_equal(indices, np.arange(axis.m) // t)
        for axis, indices, t in zip(axes, positions, times, strict=True)
    )
    if all(repeated):
        lead, size = tuple(x.shape[:first]), tuple(x.shape[first:])
        separated = tuple(k for n in size for k in (n, 1))
        expanded = tuple(k for n, t in zip(size, times, strict=True) for k in (n, t))
        out = broadcast_to(reshape(x, (*lead, *separated)), (*lead, *expanded))
        return reshape(out, (*lead, *(axis.m for axis in axes)))
    xp = array_module(x)
    for i, indices in enumerate(positions):
        if not np.array_equal(indices, np.arange(axes[i].n)):
            x = pick(x, (*(slice(None),) * (first + i), xp.asarray(indices)))
    return x


@functools.lru_cache(1 << 8)
def _nearest_indices(axis: _Axis) -> Any:
    """Return the index that each output is read from, computed in float32 as in PyTorch."""
    if axis.mode == "nearest" and axis.m in (axis.n, 2 * axis.n):
        return np.arange(axis.m) // (axis.m // axis.n)
    offset = np.float32(0.5 if axis.mode == "nearest-exact" else 0)
    positions = np.floor((np.arange(axis.m, dtype=np.float32) + offset) * np.float32(axis.scale))
    return np.minimum(positions.astype(np.int64), axis.n - 1)


# --- interpolation ------------------------------------------------------------------


def _along_axes(x: Any, axes: list[_Axis]) -> Any:
    """Interpolate along the last axes, first along those that become the shortest."""
    for i in sorted(range(len(axes)), key=lambda i: axes[i].m / axes[i].n):
        x = _interpolate_axis(x, x.ndim - len(axes) + i, axes[i])
    return x


def _interpolate_axis(x: Any, axis: int, axis_plan: _Axis) -> Any:
    """Interpolate along one axis.

    As in PyTorch, an axis whose length does not change is copied, whatever the factor, except by
    cubic interpolation without antialiasing.
    """
    if axis_plan.n == axis_plan.m and (
        axis_plan.scale == 1 or axis_plan.mode in _LINEAR or axis_plan.antialias
    ):
        return x
    return along_axis(x, axis, axis_plan)


@functools.lru_cache(1 << 7)
def _blocks(axis_plan: _Axis, dtype: str) -> list[Block]:
    single = dtype == "f" and not axis_plan.exact
    first, weights = _taps(axis_plan, np.float32 if single else np.float64)
    count = axis_plan.m if axis_plan.n * axis_plan.m <= _WHOLE else _BLOCK
    found = []
    for start in range(0, axis_plan.m, count):
        rows = slice(start, min(start + count, axis_plan.m))
        positions = np.clip(first[rows, None] + np.arange(weights.shape[1]), 0, axis_plan.n - 1)
        low, high = int(positions.min()), int(positions.max()) + 1
        matrix = np.zeros((len(positions), high - low))
        np.add.at(matrix, (np.arange(len(positions))[:, None], positions - low), weights[rows])
        matrix = matrix.astype(dtype)
        matrix.flags.writeable = False
        found.append(Block(rows.start, rows.stop, low, high, matrix))
    return found


def _taps(axis_plan: _Axis, number: Any) -> tuple[Any, Any]:
    """Return the first input of each output, and the weights of it and the following inputs.

    Positions outside the array are clipped to it later.  Positions are computed with numbers of the
    type ``number``, in PyTorch that of the elements: in float32 they differ far from zero.
    """
    outputs, scale = np.arange(axis_plan.m, dtype=number), number(axis_plan.scale)
    half = number(0.5)
    cubic = axis_plan.mode in _CUBIC
    if axis_plan.antialias:
        return _antialiased_taps(axis_plan)
    positions = outputs * scale if axis_plan.align_corners else (outputs + half) * scale - half
    if cubic:
        floor = np.floor(positions)
        distances = np.abs((positions - floor)[:, None] - np.arange(-1, 3, dtype=number))
        return floor.astype(np.int64) - 1, _keys(-0.75)(distances)
    positions = np.clip(positions, 0, axis_plan.n - 1)
    floor = np.minimum(np.floor(positions), axis_plan.n - 1)
    fraction = positions - floor
    return floor.astype(np.int64), np.stack([1 - fraction, fraction], axis=1)


def _antialiased_taps(axis_plan: _Axis) -> tuple[Any, Any]:
    """Compute antialiasing weights, by a kernel as wide as the distance of outputs, if above 1."""
    width = max(axis_plan.scale, 1.0)
    reach, kernel = _KERNELS.get(axis_plan.mode, (1.0, lambda x: np.maximum(1 - x, 0)))
    support = reach * width
    centres = axis_plan.scale * (np.arange(axis_plan.m) + 0.5)
    first = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    stop = np.minimum((centres + support + 0.5).astype(np.int64), axis_plan.n)
    positions = first[:, None] + np.arange(int(np.max(stop - first)))
    weights = kernel(np.abs(positions - centres[:, None] + 0.5) / width)
    weights = np.where(positions < stop[:, None], weights, 0.0)
    return first, weights / weights.sum(1, keepdims=True)


def _keys(a: float) -> Callable[[Any], Any]:
    """Return Keys's cubic convolution kernel, a function of distances."""

    def kernel(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * x * a - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


def _lanczos(x: Any) -> Any:
    """Return Lanczos's kernel with three lobes, a function of distances."""
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


# The reach and the values of the kernels with which antialiasing smooths; others are linear.
_KERNELS = {mode: (2.0, _keys(-0.5)) for mode in _CUBIC} | {"lanczos": (3.0, _lanczos)}
