"""The geometry of sliding windows over the spatial axes of an array, for convolution and pooling.

Arrays have a batch axis, a channel axis and then the spatial axes: ``(N, C, *spatial)``.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from fdbr.errors.checks import describe, index

__all__ = [
    "Geometry",
    "Pairs",
    "Sizes",
    "check_spatial",
    "check_windows",
    "geometry_of",
    "padding_pairs",
    "per_axis",
]

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_cached = functools.lru_cache(maxsize=1 << 10)  # more geometries than a network has


class Geometry(NamedTuple):
    """The geometry of windows; each field has an entry for each spatial axis."""

    kernel: Sizes
    stride: Sizes
    padding: Pairs
    dilation: Sizes

    @_cached
    def extents(self) -> Sizes:
        """Return the length of a window, from its first element to its last."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def is_disjoint(self) -> bool:
        """Whether windows do not overlap, so that nothing needs to be summed."""
        return all(step >= n for step, n in zip(self.stride, self.extents(), strict=True))

    @_cached
    def counts(self, size: Sizes) -> Sizes:
        """Return the number of windows along axes of these lengths."""
        axes = zip(size, self.padding, self.extents(), self.stride, strict=True)
        return tuple((n + sum(pad) - extent) // step + 1 for n, pad, extent, step in axes)

    @_cached
    def padded(self, size: Sizes) -> Sizes:
        """Return the lengths including padding."""
        return tuple(n + sum(pad) for n, pad in zip(size, self.padding, strict=True))

    @functools.lru_cache(maxsize=1 << 6)  # noqa: B019 (a value; results may be long)
    def kernel_slices(self, counts: Sizes) -> tuple[tuple[slice, ...], ...]:
        """Return for each kernel position the slices that select its elements in all windows.

        The slices index the padded axes.
        """
        axes = zip(self.kernel, counts, self.stride, self.dilation, strict=True)
        slices = [
            [slice(i * d, i * d + s * (m - 1) + 1, s) for i in range(k)] for k, m, s, d in axes
        ]
        return tuple(itertools.product(*slices))

    def same(self, size: Sizes) -> "Geometry":
        """Replace the padding so that there are ``ceil(n / stride)`` windows.

        An odd amount of padding has one more element at the end.
        """
        pairs = []
        for n, extent, step in zip(size, self.extents(), self.stride, strict=True):
            total = max((-(-n // step) - 1) * step + extent - n, 0)
            pairs.append((total // 2, total - total // 2))
        return self._replace(padding=tuple(pairs))

    def covering(self, size: Sizes) -> "Geometry":
        """Increase the padding at the end so that every element is in a window."""
        pairs = []
        axes = zip(self.padded(size), self.padding, self.extents(), self.stride, strict=True)
        for n, (low, high), extent, step in axes:
            pairs.append((low, high + -(n - extent) % step if n >= extent else 0))
        return self._replace(padding=tuple(pairs))

    @_cached
    def transposed(self, counts: Sizes, size: Sizes) -> "Geometry | None":
        """Return the geometry of the transposed convolution, from ``counts`` windows to ``size``.

        Return `None` if the transpose is not a convolution: if windows have a stride, or padding
        is larger than a window.
        """
        pairs = []
        axes = zip(counts, size, self.padding, self.extents(), self.stride, strict=True)
        for m, n, (low, _), extent, step in axes:
            before = extent - 1 - low
            pairs.append((before, n - m + low))
            if step != 1 or before < 0 or n - m + low < 0:
                return None
        return self._replace(padding=tuple(pairs))

    @_cached
    def interior(self, size: Sizes) -> tuple[slice, ...]:
        """Return the slices of the padded axes that select the elements without padding."""
        axes = zip(size, self.padding, strict=True)
        return tuple(slice(low, low + n) for n, (low, _) in axes)


def per_axis(function: str, name: str, value: Any, rank: int, least: int = 1) -> Sizes:
    """Expand an integer for all spatial axes, or check one for each, and return a tuple."""
    if type(value) is int and value >= least:
        return (value,) * rank
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * rank
    try:
        sizes = tuple(index(n) for n in given)
    except TypeError:
        sizes = ()
    if len(sizes) != rank or any(n < least for n in sizes):
        raise ValueError(
            f"fdbr.ops.{function}: {name} must be an integer of at least {least}, or {rank} of "
            f"them, one for each spatial axis; it is {value!r}"
        )
    return sizes


def padding_pairs(function: str, padding: Any, rank: int) -> Pairs:
    """Convert a padding given as an integer, integers, or pairs to one pair for each axis."""
    if type(padding) is int and padding >= 0:
        return ((padding, padding),) * rank
    if isinstance(padding, Sequence) and any(isinstance(pad, Sequence) for pad in padding):
        pads = tuple(tuple(p) if isinstance(p, Sequence) else (p,) for p in padding)
        if len(pads) == rank and all(len(pad) == 2 for pad in pads):
            pairs = [per_axis(function, "padding", pad, 2, least=0) for pad in pads]
            return tuple((low, high) for low, high in pairs)
        raise ValueError(
            f"fdbr.ops.{function}: padding must have one pair (before, after) for each of {rank} "
            f"spatial axes; it is {padding!r}"
        )
    return tuple((n, n) for n in per_axis(function, "padding", padding, rank, least=0))


def geometry_of(
    function: str,
    kernel: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    size: Sequence[int],
    cover_all: bool = False,
) -> Geometry:
    """Make the geometry of windows over spatial axes of these lengths, from arguments."""
    settings = (tuple(kernel), stride, padding, dilation, tuple(size), cover_all)
    if _is_plain((stride, dilation, padding)):
        return _cached_geometry(function, *settings)
    return _make_geometry(function, *settings)


def _is_plain(value: Any) -> bool:
    """Whether a value can be a cache key: equal values of other types, as 1 and 1.0, cannot."""
    kind = type(value)
    return kind is int or kind is str or (kind is tuple and all(map(_is_plain, value)))


def _make_geometry(
    function: str,
    kernel: Sizes,
    stride: Any,
    padding: Any,
    dilation: Any,
    size: Sizes,
    cover_all: bool,
) -> Geometry:
    rank = len(size)
    geometry = Geometry(
        kernel,
        per_axis(function, "stride", stride, rank),
        ((0, 0),) * rank,
        per_axis(function, "dilation", dilation, rank),
    )
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(
                f"fdbr.ops.{function}: padding {padding!r} is neither 'same' nor 'valid'; give one "
                "of these, integers, or pairs of integers"
            )
        geometry = geometry if padding == "valid" else geometry.same(size)
    else:
        geometry = geometry._replace(padding=padding_pairs(function, padding, rank))
    return geometry.covering(size) if cover_all else geometry


_cached_geometry = functools.lru_cache(1 << 8)(_make_geometry)


def check_windows(function: str, x: Any, geometry: Geometry) -> None:
    """Raise if no window fits into an array."""
    size = tuple(x.shape[x.ndim - len(geometry.kernel) :])
    if any(n < e for n, e in zip(geometry.padded(size), geometry.extents(), strict=True)):
        raise ValueError(
            f"fdbr.ops.{function}: the windows, {geometry.extents()} long with dilation, do not "
            f"fit into x {describe(x)}, whose spatial axes are {geometry.padded(size)} long with "
            "padding; use a smaller kernel or dilation, or more padding"
        )


def check_spatial(function: str, x: Any, rank: int) -> bool:
    """Return whether ``x`` has a batch axis before its channels and ``rank`` spatial axes."""
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(
            f"fdbr.ops.{function}: x must have a channel axis and {rank} spatial axes, and may "
            f"have a batch axis before them; it is {describe(x)}"
        )
    return x.ndim == rank + 2
