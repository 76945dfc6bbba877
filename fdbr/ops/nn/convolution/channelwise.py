"""Operations on each channel separately: depthwise convolution and shift."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.nn.convolution.products import conv
from fdbr.ops.nn.windows import check_spatial, per_axis
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import concat
from fdbr.ops.shape.padding import pad

__all__ = ["depthwise_conv", "shift"]


@public("fdbr.ops")
def depthwise_conv(
    x: Array,
    weight: Array,
    bias: Array = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    cover_all: bool = False,
) -> Any:
    """The depthwise convolution: each channel is convolved with one or several kernels of its own.

    It is `conv` with as many groups as ``x`` has channels.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(C * multiplier, 1, *kernel)``, as in PyTorch: output ``c * multiplier + m`` is
        the ``m``-th of channel ``c``.  Chainer's weights ``w`` of shape ``(multiplier, C,
        *kernel)`` are ``ops.reshape(ops.swapaxes(w, 0, 1), (-1, 1, *kernel))``; its biases and
        outputs are in this order.
    bias
        Shape ``(C * multiplier,)``; no bias by default.
    stride, padding, dilation, cover_all
        As for `conv`.

    Returns
    -------
    array
        Shape ``(N, C * multiplier, *counts)``, without ``N`` for a single example.

    Raises
    ------
    ValueError
        If shapes or an argument do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, weight = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[[1.0, 1.0]], [[-1.0, 1.0]]])
    >>> ops.depthwise_conv(x, weight)
    array([[3.],
           [2.]])
    """
    x, weight = asarray(x), asarray(weight)
    if weight.ndim < 3 or weight.shape[1] != 1:
        raise ValueError(
            "fdbr.ops.depthwise_conv: weight must have shape (C * multiplier, 1, *kernel), with "
            f"one spatial axis at least; it is {describe(weight)}"
        )
    check_spatial("depthwise_conv", x, weight.ndim - 2)
    channels = x.shape[1 - weight.ndim]
    if not channels or weight.shape[0] % channels:
        raise ValueError(
            f"fdbr.ops.depthwise_conv: weight {describe(weight)} must have the same number of "
            f"kernels for each of {channels} channels of x {describe(x)}"
        )
    settings = {"stride": stride, "padding": padding, "dilation": dilation}
    return conv(x, weight, bias, groups=channels, cover_all=cover_all, **settings)


@public("fdbr.ops")
def shift(
    x: Array,
    kernel_size: int | Sequence[int] = 3,
    *,
    dilation: int | Sequence[int] = 1,
) -> Any:
    """Shift groups of channels, each by the offset of one position of a kernel.

    It is a depthwise convolution whose kernels are 1 at one position and 0 elsewhere: Wu et al.,
    *Shift: a zero FLOP, zero parameter alternative to spatial convolutions*, CVPR 2018.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``; with a tuple as kernel also ``(C, *spatial)``.
    kernel_size
        The odd lengths of the kernel: one for each spatial axis, or an integer for all axes after
        the first two.  Each position has a group of ``C // prod(kernel_size)`` channels, in order;
        the last group, which includes remaining channels, is not shifted, and the last position
        has the group of the centre.
    dilation
        The distance between positions of the kernel.

    Returns
    -------
    array
        The shape of ``x``; elements from outside ``x`` are zeros.

    Raises
    ------
    ValueError
        If a length is even, or there are fewer channels than positions.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.shift(np.array([[[1.0, 2.0, 3.0]] * 3]), 3)
    array([[[2., 3., 0.],
            [0., 1., 2.],
            [1., 2., 3.]]])
    """
    x = asarray(x)
    rank = len(kernel_size) if isinstance(kernel_size, Sequence) else x.ndim - 2
    if rank < 1 or x.ndim not in (rank + 1, rank + 2):
        raise ValueError(
            f"fdbr.ops.shift: x {describe(x)} must have channels and a spatial axis for each entry "
            f"of kernel_size {kernel_size!r}, and may have a batch axis before them; an integer "
            "counts for all axes after the first two"
        )
    kernel = per_axis("shift", "kernel_size", kernel_size, rank)
    steps = per_axis("shift", "dilation", dilation, rank)
    count, channels = math.prod(kernel), x.shape[-rank - 1]
    if not count % 2 or channels < count:
        raise ValueError(
            f"fdbr.ops.shift: kernel_size {kernel} must be odd, and x {describe(x)} have a channel "
            f"for each of its {count} positions at least"
        )
    positions = list(itertools.product(*map(range, kernel)))
    positions[count // 2], positions[-1] = positions[-1], positions[count // 2]
    margins = [length // 2 * step for length, step in zip(kernel, steps, strict=True)]
    lead, size = x.ndim - rank, x.shape[x.ndim - rank :]
    padded = pad(x, ((0, 0),) * lead + tuple((n, n) for n in margins))
    parts = []
    for number, position in enumerate(positions):
        first = number * (channels // count)
        last = channels if number == count - 1 else first + channels // count
        axes = zip(size, margins, position, steps, strict=True)
        window = [slice(2 * m - k * d, 2 * m - k * d + n) for n, m, k, d in axes]
        parts.append(padded[(..., slice(first, last), *window)])
    return concat(parts, axis=-rank - 1)
