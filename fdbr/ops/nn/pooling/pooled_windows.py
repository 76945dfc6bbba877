"""The geometry of pooling windows, made from checked arguments."""

from collections.abc import Sequence
from typing import Any

from fdbr.errors.checks import describe
from fdbr.ops.nn.windows import Geometry, Sizes, padding_pairs, per_axis

__all__ = ["pooling_geometry", "window_starts"]


def pooling_geometry(
    function: str,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    *,
    ceil_mode: bool = False,
    cover_all: bool = False,
) -> tuple[Geometry, Any]:
    """Return the geometry, with padding for partial windows, and the padding given."""
    rank = len(kernel_size) if isinstance(kernel_size, Sequence) else x.ndim - 2
    if not 0 < rank <= x.ndim:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} needs a spatial axis for each entry of "
            f"kernel_size {kernel_size!r}, or, where that is an integer, one at least after the "
            "first two axes"
        )
    lengths = per_axis(function, "kernel_size", kernel_size, rank)
    geometry = Geometry(
        lengths,
        lengths if stride is None else per_axis(function, "stride", stride, rank),
        padding_pairs(function, padding, rank),
        per_axis(function, "dilation", dilation, rank),
    )
    if ceil_mode and cover_all:
        raise ValueError(
            f"fdbr.ops.{function}: ceil_mode and cover_all are alternatives for the windows at the "
            "end; choose one"
        )
    size = tuple(x.shape[x.ndim - rank :])
    _check_padding(function, geometry)
    pads = geometry.padding
    if ceil_mode or cover_all:
        geometry = _pad_partial_windows(geometry, size, cover_all)
    _check_windows(function, x, geometry, size)
    return geometry, pads


def window_starts(geometry: Geometry, axis: int, n: int) -> range:
    """Return the positions where windows begin on an axis of length ``n``."""
    low, high = geometry.padding[axis]
    step = geometry.stride[axis]
    return range(-low, n + high - geometry.extents()[axis] + 1, step)


def _check_padding(function: str, geometry: Geometry) -> None:
    extents = geometry.extents()
    if any(max(pad) >= e for pad, e in zip(geometry.padding, extents, strict=True) if any(pad)):
        raise ValueError(
            f"fdbr.ops.{function}: padding {geometry.padding} would fill whole windows, which are "
            f"{extents} long; it must be less"
        )


def _check_windows(function: str, x: Any, geometry: Geometry, size: Sizes) -> None:
    extents = geometry.extents()
    if any(n < e for n, e in zip(geometry.padded(size), extents, strict=True)):
        raise ValueError(
            f"fdbr.ops.{function}: windows {extents} long do not fit into x {describe(x)}, whose "
            f"spatial axes are {geometry.padded(size)} long with padding; use a smaller kernel, or "
            "more padding"
        )


def _pad_partial_windows(geometry: Geometry, size: Sizes, cover_all: bool) -> Geometry:
    """Increase the padding at the end for windows that are only partly within the array.

    With ``cover_all`` there are windows until every element, padding included, is covered.
    """
    pairs = []
    for n, (low, high), extent, step in zip(
        size, geometry.padding, geometry.extents(), geometry.stride, strict=True
    ):
        last = -(-(n + low + high - extent) // step)
        if last * step >= n + low and not cover_all:  # it would begin in the padding at the end
            last -= 1
        pairs.append((low, max(high, last * step + extent - n - low)))
    return geometry._replace(padding=tuple(pairs))
