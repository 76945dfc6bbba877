"""Move elements between channels and spatial positions, or between channels."""

import math
from collections.abc import Sequence
from typing import Any

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.nn.windows import Sizes, per_axis
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import permute_dims, reshape

__all__ = ["channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


@public("fdbr.ops")
def pixel_shuffle(x: Array, upscale_factor: int | Sequence[int], *, mode: str = "CRD") -> Any:
    """Rearrange channels to pixels: each pixel becomes a block of pixels.

    Shi et al., "Real-time single image and video super-resolution using an efficient sub-pixel
    convolutional neural network" (2016).  `pixel_unshuffle` is its inverse.

    Parameters
    ----------
    x
        Shape ``(..., C * block, *spatial)``, where ``block`` is the product of the factors.
    upscale_factor
        The lengths of a block: an integer for the last two axes, or one for each spatial axis.
    mode
        The order of channels: ``"CRD"``, where the pixels of a block are adjacent, as in PyTorch;
        or ``"DCR"``, where the channels of a pixel are adjacent, as in Chainer's ``depth2space``
        and TensorFlow.

    Returns
    -------
    array
        Shape ``(..., C, *spatial)``, with longer spatial axes.

    Raises
    ------
    ValueError
        If the number of channels is not a multiple of ``block``, or axes are missing.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.pixel_shuffle(np.arange(4.0).reshape(1, 4, 1, 1), 2)
    array([[[[0., 1.],
             [2., 3.]]]])
    """
    x = asarray(x)
    factors, first = _block("pixel_shuffle", "upscale_factor", x, upscale_factor, mode)
    *lead, channels = x.shape[:first]
    count, size = math.prod(factors), tuple(x.shape[first:])
    if channels % count:
        raise ValueError(
            f"fdbr.ops.pixel_shuffle: axis {first - 1} of x {describe(x)} must be divisible by the "
            f"{count} pixels of a block"
        )
    rank, n = len(factors), len(lead)
    if mode == "CRD":
        parts = reshape(x, (*lead, channels // count, *factors, *size))
        channel, block = n, range(n + 1, n + 1 + rank)
    else:
        parts = reshape(x, (*lead, *factors, channels // count, *size))
        channel, block = n + rank, range(n, n + rank)
    spatial = range(n + 1 + rank, n + 1 + 2 * rank)
    interleaved = [axis for pair in zip(spatial, block, strict=True) for axis in pair]
    ordered = permute_dims(parts, (*range(n), channel, *interleaved))
    longer = (m * k for m, k in zip(size, factors, strict=True))
    return reshape(ordered, (*lead, channels // count, *longer))


@public("fdbr.ops")
def pixel_unshuffle(x: Array, downscale_factor: int | Sequence[int], *, mode: str = "CRD") -> Any:
    """Rearrange pixels to channels: each block of pixels becomes one pixel with more channels.

    It is the inverse of `pixel_shuffle`.

    Parameters
    ----------
    x
        Shape ``(..., C, *spatial)``.
    downscale_factor
        The lengths of a block: an integer for the last two axes, or one for each spatial axis.
    mode
        The order of channels, as for `pixel_shuffle`; ``"DCR"`` is Chainer's ``space2depth``.

    Returns
    -------
    array
        Shape ``(..., C * block, *spatial)``, with shorter spatial axes.

    Raises
    ------
    ValueError
        If the length of a spatial axis is not a multiple of its factor, or axes are missing.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.pixel_unshuffle(np.arange(4.0).reshape(1, 1, 2, 2), 2).shape
    (1, 4, 1, 1)
    """
    x = asarray(x)
    factors, first = _block("pixel_unshuffle", "downscale_factor", x, downscale_factor, mode)
    *lead, channels = x.shape[:first]
    size, rank, n = tuple(x.shape[first:]), len(factors), first - 1
    if any(m % k for m, k in zip(size, factors, strict=True)):
        raise ValueError(
            f"fdbr.ops.pixel_unshuffle: spatial axes {size} of x {describe(x)} must be divisible "
            f"by {factors}"
        )
    counts = tuple(m // k for m, k in zip(size, factors, strict=True))
    separated = (m for pair in zip(counts, factors, strict=True) for m in pair)
    parts = reshape(x, (*lead, channels, *separated))
    spatial, block = range(n + 1, n + 1 + 2 * rank, 2), range(n + 2, n + 2 + 2 * rank, 2)
    order = (n, *block) if mode == "CRD" else (*block, n)
    ordered = permute_dims(parts, (*range(n), *order, *spatial))
    return reshape(ordered, (*lead, channels * math.prod(factors), *counts))


def _block(function: str, name: str, x: Any, factor: Any, mode: str) -> tuple[Sizes, int]:
    """Return the lengths of a block, and the first spatial axis."""
    rank = len(factor) if isinstance(factor, Sequence) and not isinstance(factor, str) else 2
    factors = per_axis(function, name, factor, rank)
    if mode not in ("CRD", "DCR"):
        raise ValueError(f"fdbr.ops.{function}: mode must be 'CRD' or 'DCR', not {mode!r}")
    if not 0 < rank < x.ndim:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} must have a channel axis before its {rank} "
            "spatial axes"
        )
    return factors, x.ndim - rank


@public("fdbr.ops")
def channel_shuffle(x: Array, groups: int) -> Any:
    """Interleave the channels of groups: the first of each, the second of each, and so on.

    Zhang et al., "ShuffleNet" (2017).

    Parameters
    ----------
    x
        Shape ``(N, C, ...)``.
    groups
        The number of groups of adjacent channels.

    Raises
    ------
    ValueError
        If the number of channels is not a multiple of ``groups``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.channel_shuffle(np.arange(6.0).reshape(1, 6), 2)
    array([[0., 3., 1., 4., 2., 5.]])
    """
    x = asarray(x)
    groups = integer("fdbr.ops.channel_shuffle", "groups", groups, least=1)
    if x.ndim < 2 or x.shape[1] % groups:
        raise ValueError(
            f"fdbr.ops.channel_shuffle: axis 1 of x {describe(x)} must exist and be divisible by "
            f"{groups} groups"
        )
    count, channels, *rest = x.shape
    parts = reshape(x, (count, groups, channels // groups, *rest))
    swapped = permute_dims(parts, (0, 2, 1, *range(3, parts.ndim)))
    return reshape(swapped, (count, channels, *rest))
