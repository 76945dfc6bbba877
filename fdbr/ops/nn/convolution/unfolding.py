"""Unfold windows to columns, fold them back, and convolve without shared weights."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import linear
from fdbr.ops.dtypes import in_bias_dtype
from fdbr.ops.nn.windows import Geometry, Sizes, check_spatial, check_windows, geometry_of, per_axis
from fdbr.ops.products import einsum
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.typing import Array, ArrayLike, Padding

__all__ = ["fold", "local_conv", "unfold"]


# --- the elements of windows --------------------------------------------------------


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*values, **params)  # axes before the spatial ones are treated alike


def _positions(geometry: Geometry, counts: Sizes) -> Any:
    """Iterate over kernel positions, with the slices that select their elements in all windows."""
    return zip(
        itertools.product(*map(range, geometry.kernel)), geometry.kernel_slices(counts), strict=True
    )


@linear(
    x=lambda ct, shape, geometry: _fold_windows(
        ct, geometry=geometry, size=tuple(shape[len(shape) - len(geometry.kernel) :])
    ),
    batch=_batch,
    fresh=True,
)
def _unfold_windows(xp: Any, x: Array, *, geometry: Geometry) -> Array:
    """Copy the elements of all windows: ``(..., *kernel, *counts)`` from ``(..., *spatial)``."""
    rank = len(geometry.kernel)
    lead, size = x.shape[: x.ndim - rank], tuple(x.shape[x.ndim - rank :])
    if any(map(any, geometry.padding)):
        padded = xp.zeros((*lead, *geometry.padded(size)), dtype=x.dtype)
        padded[(..., *geometry.interior(size))] = x
        x = padded
    counts = geometry.counts(size)
    out = xp.empty((*lead, *geometry.kernel, *counts), dtype=x.dtype)
    all_windows = (slice(None),) * rank
    for position, slices in _positions(geometry, counts):
        out[(..., *position, *all_windows)] = x[(..., *slices)]
    return out


@linear(x=lambda ct, geometry: _unfold_windows(ct, geometry=geometry), batch=_batch, fresh=True)
def _fold_windows(xp: Any, x: Array, *, geometry: Geometry, size: Sizes) -> Array:
    """The transpose of `_unfold_windows`: overlapping windows are summed."""
    rank = len(geometry.kernel)
    lead, counts = x.shape[: x.ndim - 2 * rank], tuple(x.shape[x.ndim - rank :])
    out = xp.zeros((*lead, *geometry.padded(size)), dtype=x.dtype)
    all_windows = (slice(None),) * rank
    for position, slices in _positions(geometry, counts):
        out[(..., *slices)] += x[(..., *position, *all_windows)]
    return out[(..., *geometry.interior(size))]


# --- public functions -----------------------------------------------------------------


@public("fdbr.ops")
def unfold(
    x: Any,
    kernel_size: int | Sequence[int],
    *,
    dilation: int | Sequence[int] = 1,
    padding: Padding = 0,
    stride: int | Sequence[int] = 1,
    cover_all: bool = False,
    flatten: bool = True,
) -> Any:
    """The elements of each window as a column, in any number of dimensions.

    A convolution is a matrix product with these columns; the function is also known as ``im2col``.

    Parameters
    ----------
    x
        Shape ``(..., C, *spatial)``.
    kernel_size
        The lengths of a window: one for each spatial axis, or an integer for all axes after the
        first two.
    dilation, padding, stride, cover_all
        As for `conv`.
    flatten
        Whether to merge the windows to one axis, as in PyTorch; otherwise they keep their spatial
        axes, as in Chainer's ``im2col``.

    Returns
    -------
    array
        Shape ``(..., C * prod(kernel_size), windows)``, or ``(..., C * prod(kernel_size),
        *counts)`` without ``flatten``.

    Raises
    ------
    ValueError
        If an argument does not fit the axes, or no window fits into ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.unfold(np.array([[[1.0, 2.0, 3.0, 4.0]]]), 3)
    array([[[1., 2.],
            [2., 3.],
            [3., 4.]]])
    """
    x = asarray(x)
    rank = len(kernel_size) if isinstance(kernel_size, Sequence) else x.ndim - 2
    if not 0 < rank < x.ndim:
        raise ValueError(
            f"fdbr.ops.unfold: x {describe(x)} must have channels and a spatial axis for each "
            f"entry of kernel_size {kernel_size!r}; where that is an integer, one at least after "
            "the first two axes"
        )
    kernel = per_axis("unfold", "kernel_size", kernel_size, rank)
    lead, size = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    geometry = geometry_of("unfold", kernel, stride, padding, dilation, size, cover_all)
    check_windows("unfold", x, geometry)
    columns = _unfold_windows(x, geometry=geometry)
    counts = geometry.counts(tuple(size))
    shape = (*lead[:-1], lead[-1] * math.prod(kernel))
    return reshape(columns, (*shape, math.prod(counts)) if flatten else (*shape, *counts))


@public("fdbr.ops")
def fold(
    x: ArrayLike,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    *,
    dilation: int | Sequence[int] = 1,
    padding: Padding = 0,
    stride: int | Sequence[int] = 1,
    cover_all: bool = False,
) -> Array:
    """The transpose of `unfold`: each column is added to its window (``col2im``).

    Parameters
    ----------
    x
        Shape ``(..., C * prod(kernel_size), windows)``, as `unfold` returns.
    output_size
        The lengths of the spatial axes of the result.
    kernel_size
        The lengths of a window.  A sequence for either size determines the number of spatial axes;
        for two integers it is 2, as in PyTorch.
    dilation, padding, stride, cover_all
        Those of `unfold`.

    Returns
    -------
    array
        Shape ``(..., C, *output_size)``.

    Raises
    ------
    ValueError
        If an argument does not fit the axes, or the number of windows or elements does not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fold(np.array([[[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]]), (4,), (3,))
    array([[[1., 4., 6., 4.]]])
    """
    x = asarray(x)
    given = [len(s) for s in (kernel_size, output_size) if isinstance(s, Sequence)]
    rank = given[0] if given else 2
    kernel = per_axis("fold", "kernel_size", kernel_size, rank)
    size = per_axis("fold", "output_size", output_size, rank)
    geometry = geometry_of("fold", kernel, stride, padding, dilation, size, cover_all)
    counts, elements = geometry.counts(size), math.prod(kernel)
    if min(counts) < 1:
        raise ValueError(
            f"fdbr.ops.fold: windows {geometry.extents()} long with dilation do not fit into "
            f"output_size {size} with padding {geometry.padding}"
        )
    if x.ndim < 2 or x.shape[-1] != math.prod(counts) or x.shape[-2] % elements:
        raise ValueError(
            f"fdbr.ops.fold: x must have shape (..., C * {elements}, {math.prod(counts)}), for "
            f"there are {' * '.join(map(str, counts))} windows of kernel_size {kernel} in "
            f"output_size {size}; it is {describe(x)}"
        )
    lead = (*x.shape[:-2], x.shape[-2] // elements)
    return _fold_windows(reshape(x, (*lead, *kernel, *counts)), geometry=geometry, size=size)


@public("fdbr.ops")
def local_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
) -> Any:
    """A convolution with different weights for each window (locally connected layer).

    ``out[n, o, p] = bias[o, p] + sum(weight[o, p, c, k] * x[n, c, p * stride - padding + k *
    dilation])``: LeCun, *Generalization and network design strategies*, 1989.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(O, *counts, C, *kernel)``, as in Chainer, where ``counts`` are the numbers of
        windows along the spatial axes.
    bias
        Shape ``(O, *counts)``; no bias by default.
    stride, padding, dilation
        As for `conv`.

    Returns
    -------
    array
        Shape ``(N, O, *counts)``, without ``N`` for a single example.

    Raises
    ------
    ValueError
        If shapes or an argument do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, weight = np.array([[1.0, 2.0, 4.0]]), np.array([[[[-1.0, 1.0]], [[1.0, 1.0]]]])
    >>> ops.local_conv(x, weight)
    array([[1., 6.]])
    """
    x, weight = asarray(x), asarray(weight)
    rank = weight.ndim // 2 - 1
    if rank < 1 or weight.ndim % 2 or 0 in weight.shape:
        raise ValueError(
            "fdbr.ops.local_conv: weight must have shape (O, *counts, C, *kernel), with as many "
            f"axes of counts as of the kernel, one at least; it is {describe(weight)}"
        )
    has_batch = check_spatial("local_conv", x, rank)
    x = x if has_batch else reshape(x, (1, *x.shape))
    outputs, *counts, inputs = weight.shape[: rank + 2]
    if x.shape[1] != inputs:
        raise ValueError(
            f"fdbr.ops.local_conv: x {describe(x)} has {x.shape[1]} channels, but weight "
            f"{describe(weight)} is for {inputs}"
        )
    kernel, size = weight.shape[rank + 2 :], x.shape[2:]
    geometry = geometry_of("local_conv", kernel, stride, padding, dilation, size)
    check_windows("local_conv", x, geometry)
    if geometry.counts(tuple(size)) != tuple(counts):
        raise ValueError(
            f"fdbr.ops.local_conv: x {describe(x)} has {geometry.counts(tuple(size))} windows, but "
            f"weight {describe(weight)} is for {tuple(counts)}; there is one weight for each"
        )
    windows, elements = math.prod(counts), inputs * math.prod(kernel)
    if bias is not None:
        bias = asarray(bias)
        if bias.shape != (outputs, *counts):
            raise ValueError(
                f"fdbr.ops.local_conv: bias {describe(bias)} does not fit weight "
                f"{describe(weight)}; it must have shape {(outputs, *counts)}"
            )
        x = in_bias_dtype(x, bias)
    columns = reshape(_unfold_windows(x, geometry=geometry), (x.shape[0], elements, windows))
    matrices = reshape(weight, (outputs, windows, elements))
    out = reshape(einsum("new,owe->now", columns, matrices), (x.shape[0], outputs, *counts))
    if bias is not None:
        out = out + bias
    return out if has_batch else reshape(out, out.shape[1:])
