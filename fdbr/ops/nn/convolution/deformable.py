"""Deformable convolutions: windows are read at learned offsets."""

import functools
import itertools
import math
import operator
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.dtypes import astype, in_single
from fdbr.ops.elementwise.arithmetic import floor
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.indexing.table_rows import rows_at
from fdbr.ops.nn.windows import Geometry, Sizes, check_spatial, check_windows, geometry_of
from fdbr.ops.products import matmul
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, Padding

__all__ = ["deform_conv"]


@public("fdbr.ops")
@where_it_lies
@in_single
def deform_conv(
    x: ArrayLike,
    offset: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    mask: ArrayLike | None = None,
    planar: bool = False,
) -> Array:
    """The deformable convolution: each element of a window is read at an offset.

    ``out[n, o, p] = bias[o] + sum(weight[o, c, k] * mask[n, k, p] * x[n, c, p * stride - padding +
    k * dilation + offset[n, k, p]])``, where `x` is interpolated linearly between its elements and
    is 0 outside: Dai et al., *Deformable convolutional networks*, ICCV 2017; with a mask, Zhu et
    al., *Deformable ConvNets v2*, CVPR 2019.  There may be any number of spatial axes.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example; ``offset`` and
        ``mask`` then have no ``N`` either.
    offset
        Shape ``(N, groups * prod(kernel) * d, *counts)`` for ``d`` spatial axes, as in
        torchvision: for each of ``groups`` parts of the channels and each position of the kernel,
        an offset along each axis, the first axis first.
    weight
        Shape ``(O, C // g, *kernel)``, where ``g`` are the groups of the convolution.
    bias
        Shape ``(O,)``; no bias by default.
    stride, padding, dilation
        As for `conv`.
    mask
        Shape ``(N, groups * prod(kernel), *counts)``; ones by default.
    planar
        Whether ``offset`` is laid out as in Chainer: the offsets of all positions along the last
        axis, then those along the axis before.

    Returns
    -------
    array
        Shape ``(N, O, *counts)``, without ``N`` for a single example.

    Raises
    ------
    ValueError
        If shapes or an argument do not fit; the message names them.
    TypeError
        If ``offset`` or ``mask`` is not floating.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, half = np.array([[1.0, 3.0, 7.0]]), np.array([[0.5, 0.5, 0.5]])
    >>> ops.deform_conv(x, half, np.array([[[1.0]]]))
    array([[2. , 5. , 3.5]])
    """
    x, offset, weight = asarray(x), asarray(offset), asarray(weight)
    mask = mask if mask is None else asarray(mask)
    rank = weight.ndim - 2
    if 0 in x.shape[1 - weight.ndim :]:
        raise ValueError(f"fdbr.ops.deform_conv: x {describe(x)} has an empty axis")
    if rank < 1 or 0 in weight.shape:
        raise ValueError(
            "fdbr.ops.deform_conv: weight must have two axes of channels and then those of the "
            f"kernel, one at least; it is {describe(weight)}"
        )
    if not check_spatial("deform_conv", x, rank):
        x, offset = reshape(x, (1, *x.shape)), reshape(offset, (1, *offset.shape))
        mask = mask if mask is None else reshape(mask, (1, *mask.shape))
        out = _deform_conv_of_batch(
            x, offset, mask, weight, bias, stride, padding, dilation, planar
        )
        return reshape(out, out.shape[1:])
    return _deform_conv_of_batch(x, offset, mask, weight, bias, stride, padding, dilation, planar)


def _deform_conv_of_batch(
    x: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    planar: bool,
) -> Any:
    """Compute `deform_conv` of a batch."""
    outputs, inputs, *kernel = weight.shape
    size = tuple(x.shape[2:])
    geometry = geometry_of("deform_conv", kernel, stride, padding, dilation, size)
    check_windows("deform_conv", x, geometry)
    counts = geometry.counts(size)
    groups = _check_groups(x, offset, mask, weight, counts)
    batch, channels, rank = x.shape[0], x.shape[1], len(kernel)
    elements, windows = math.prod(kernel), math.prod(counts)
    if planar:
        steps = reshape(offset, (batch, groups, rank, elements, windows))[:, :, ::-1]
    else:
        steps = moveaxis(reshape(offset, (batch, groups, elements, rank, windows)), 3, 2)
    steps = reshape(steps, (batch * groups, rank, elements, windows))
    positions = [
        steps[:, axis] + _regular_positions(x, offset.dtype, geometry, axis, counts)
        for axis in range(rank)
    ]
    mask_of_group = mask if mask is None else reshape(mask, (batch * groups, elements, windows))
    grouped = reshape(x, (batch * groups, channels // groups, *size))
    columns = _interpolate(
        grouped, positions, mask_of_group
    )  # (batch * groups, elements, windows, own)
    parts = channels // inputs
    columns = reshape(moveaxis(columns, -1, 1), (batch, parts, inputs * elements, windows))
    matrices = reshape(weight, (parts, outputs // parts, inputs * elements))
    out = reshape(matmul(matrices, columns), (batch, outputs, *counts))
    if bias is None:
        return out
    bias = asarray(bias)
    if bias.shape != (outputs,):
        raise ValueError(
            f"fdbr.ops.deform_conv: bias {describe(bias)} does not fit weight {describe(weight)}; "
            f"it must have shape {(outputs,)}"
        )
    return out + reshape(bias, (outputs, *(1,) * rank))


def _check_groups(x: Any, offset: Any, mask: Any, weight: Any, counts: Sizes) -> int:
    """Check all shapes and return the number of groups of offsets."""
    inputs, kernel = weight.shape[1], weight.shape[2:]
    if x.shape[1] % inputs or weight.shape[0] % max(x.shape[1] // inputs, 1) or not x.shape[1]:
        raise ValueError(
            f"fdbr.ops.deform_conv: x {describe(x)} has {x.shape[1]} channels, but weight "
            f"{describe(weight)} is for {inputs}, or for groups of as many that divide its outputs"
        )
    each = math.prod(kernel) * len(kernel)
    batch = x.shape[0]
    for name, value in (("offset", offset), ("mask", mask)):
        if value is not None and dtype_kind(value.dtype) != "f":
            raise TypeError(
                f"fdbr.ops.deform_conv: {name} must be floating-point numbers, not "
                f"{describe(value)}"
            )
    groups = offset.shape[1] // each if offset.ndim == x.ndim else 0
    if not groups or x.shape[1] % groups or offset.shape != (batch, groups * each, *counts):
        raise ValueError(
            f"fdbr.ops.deform_conv: offset must have shape ({batch}, groups * {each}, "
            f"{', '.join(map(str, counts))}) for x {describe(x)} and weight {describe(weight)}, "
            f"{len(kernel)} steps for each position and window, with groups that divide "
            f"{x.shape[1]} channels; it is {describe(offset)}"
        )
    shape = (batch, groups * math.prod(kernel), *counts)
    if mask is not None and mask.shape != shape:
        raise ValueError(
            f"fdbr.ops.deform_conv: mask must have shape {shape} for offset {describe(offset)} and "
            f"weight {describe(weight)}; it is {describe(mask)}"
        )
    return groups


def _regular_positions(x: Any, dtype: Any, geometry: Geometry, axis: int, counts: Sizes) -> Any:
    """Return the positions along an axis without offsets, for each window: ``(K, windows)``."""
    low, step, wide = geometry.padding[axis][0], geometry.stride[axis], geometry.dilation[axis]
    rank = len(counts)
    shape = [*(1,) * 2 * rank]
    shape[axis] = geometry.kernel[axis]
    of_kernel = np.reshape(np.arange(shape[axis]) * wide - low, shape)
    shape = [*(1,) * 2 * rank]
    shape[rank + axis] = counts[axis]
    of_window = np.reshape(np.arange(counts[axis]) * step, shape)
    positions = np.broadcast_to(of_kernel + of_window, (*geometry.kernel, *counts))
    positions = positions.reshape(math.prod(geometry.kernel), -1).astype(dtype)
    return array_module(x).asarray(positions)


def _interpolate(x: Any, positions: list[Any], mask_of_group: Any) -> Any:
    """Interpolate ``(B, C, *size)`` linearly at positions, times the mask: ``(B, ..., C)``.

    ``positions`` has an array of shape ``(B, ...)`` for each axis.  Outside there are zeros,
    to which values decrease linearly over one element.
    """
    batch, channels, *size = x.shape
    rows = reshape(moveaxis(x, 1, -1), (batch * math.prod(size), channels))
    lengths = (batch, *(1,) * (positions[0].ndim - 1))
    first = np.reshape(np.arange(batch) * math.prod(size), lengths)
    start = array_module(x).asarray(first)
    corners: list[list[Any]] = []
    for axis, (position, n) in enumerate(zip(positions, size, strict=True)):
        position = where((position <= -1) | (position >= n), -1.0, position)
        lower = floor(position)
        lower_index = astype(where(lower == lower, lower, -1.0), "int64")
        step = math.prod(size[axis + 1 :])
        weights = [
            (1 - (position - lower)) * (lower_index >= 0),
            (position - lower) * (lower_index < n - 1),
        ]
        offset_of_row = [
            where(lower_index < 0, 0, lower_index) * step,
            where(lower_index < n - 1, lower_index + 1, 0) * step,
        ]
        corners.append(list(zip(weights, offset_of_row, strict=True)))
    total: Any = None
    for corner in itertools.product(*corners):
        factors = [part for part, _ in corner]
        if mask_of_group is not None:
            factors.insert(0, mask_of_group)
        weight: Any = functools.reduce(operator.mul, factors)
        index: Any = start
        for _, offset_of_row in corner:
            index = index + offset_of_row
        value = rows_at(rows, reshape(index, (-1,))) * reshape(weight, (-1, 1))
        total = value if total is None else total + value
    return reshape(total, (*positions[0].shape, channels))
