"""Products of regions of images with a row and a column matrix each, and maxima of regions.

The multilinear form is the sum of ``rows[k, i, h] * columns[k, j, w] * x[index[k], c, h, w] * y[k,
c, i, j]``; the operations here are its derivatives in each of the four.  Each iterates over regions
and reads only elements whose weights are not zero, so that images are not copied for each region,
unless images are small.
"""

import functools
import itertools
import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.ops.declare import constant, multilinear
from fdbr.ops.declare.batches import spread
from fdbr.ops.elementwise.arithmetic import maximum, minimum
from fdbr.ops.nn.window_products import is_finite, matmul_within_windows
from fdbr.ops.shape.manipulation import reshape

__all__ = ["linear_weights", "region_peaks", "region_products", "region_sums"]

_SMALL, _ELEMENTS = 4096, 1 << 17
"""Up to how many elements of an image whole images are multiplied, and how many elements at a
time: 20 ms instead of 124 ms for 7,840 regions of 3x3 windows in images of 8x6x6; with 42x20x20
elements the iteration takes less time.
"""

_CHANNELS, _WINDOWS, _REGIONS = 16, 14, 16
"""From how many channels, up to how many windows along an axis, and from how many regions on the
channels are moved to the last axis; measured with 7, 14 and 28 windows and 1 to 256 channels.
"""


def linear_weights(distances: Any) -> Any:
    """Return the weights of linear interpolation: ``max(1 - abs(distances), 0)``.

    The second derivative of `abs` is NaN at 0, where samples at the centre of an element are.
    """
    return maximum(minimum(1 - distances, 1 + distances), 0)


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Concatenate the images and regions of all examples; ``index`` is the last operand."""
    *others, index = [spread(v, flag, size) for v, flag in zip(values, batched, strict=True)]
    images, count = params.get("count", others[0].shape[1]), index.shape[1]
    starts = array_module(index).arange(size).reshape((size, 1)) * images
    folded = [reshape(v, (size * v.shape[1], *v.shape[2:])) for v in others]
    params = {**params, "count": size * images} if "count" in params else params
    out = apply(*folded, reshape(index + starts, size * count), **params)
    return reshape(out, (size, out.shape[0] // size, *out.shape[1:]))


def _is_small(xp: Any, shape: tuple[int, ...], index: Any, values: Any) -> bool:
    """Whether whole images may be multiplied, and that takes less time than to iterate.

    Elements with the weight 0 have no effect then, unless they are not finite.
    """
    if math.prod(shape[1:]) > _SMALL or len(index) < _REGIONS or not is_finite(xp, values):
        return False
    _check(xp.stack([index.min(), index.max()]).tolist(), shape[0])
    return True


def _parts(shape: tuple[int, ...], start: int, end: int) -> list[slice]:
    """Divide a range of regions, so that their images fit in the cache together."""
    size = max(_ELEMENTS // max(math.prod(shape[1:]), 1), 1)
    return [slice(i, min(i + size, end)) for i in range(start, end, size)]


def _regions(xp: Any, values: Any, index: Any, count: int, *weights: Any) -> tuple[Any, Any]:
    """Return for each region its image, and the slices of the last axes with nonzero weights.

    The first result is the function that multiplies weights with parts of ``values``.
    """
    # A wait for the GPU to know whether all values are finite is joined with the transfer below.
    finite = is_finite(np, values) if xp is np else xp.isfinite(values).all()
    found = [index, xp.full_like(index, finite)]
    for part in weights:
        if not part.shape[2]:
            found += [xp.zeros_like(index)] * 2
            continue
        used = xp.any(part != 0, axis=1)
        found += [xp.argmax(used, axis=1), part.shape[2] - xp.argmax(used[:, ::-1], axis=1)]
    columns = xp.stack(found).tolist()  # one transfer from the GPU for all regions
    _check(columns[0], count)
    all_finite = all(columns[1])
    return xp.matmul if all_finite else functools.partial(matmul_within_windows, xp), [
        (n, *(slice(*ends[i : i + 2]) for i in range(0, len(ends), 2)))
        for n, _, *ends in zip(*columns, strict=True)
    ]


def _check(images: list[int], count: int) -> None:
    if not all(0 <= n < count for n in images):
        raise ValueError(
            f"fdbr.ops: the regions' images {min(images)} to {max(images)} must lie in 0 … "
            f"{count - 1}, the numbers of x's images"
        )


@multilinear(
    x=lambda ct, rows, columns, index, shape: region_sums(ct, rows, columns, index, count=shape[0]),
    rows=lambda ct, x, columns, index: _row_products(x, ct, columns, index),
    columns=lambda ct, x, rows, index: _column_products(x, ct, rows, index),
    batch=_batch,
    fresh=True,
)
def region_products(xp: Any, x: Any, rows: Any, columns: Any, index: Any) -> Any:
    """Compute ``rows[k] @ x[index[k], c] @ columns[k].T`` for all regions and channels."""
    shape = (len(rows), x.shape[1], rows.shape[1], columns.shape[1])
    out = xp.empty(shape, dtype=x.dtype)
    if _is_small(xp, x.shape, index, x):
        for part in _parts(x.shape, 0, len(rows)):
            images = x[index[part]]
            flat = images.reshape((len(images), x.shape[1] * x.shape[2], x.shape[3]))
            across = xp.matmul(flat, columns[part].swapaxes(1, 2))
            out[part] = xp.matmul(
                rows[part][:, None], across.reshape((*images.shape[:3], shape[3]))
            )
        return out
    # With channels last, a region's products are 1 + n matrix products instead of 2 C smaller ones:
    # 98 us instead of 254 us for 7x7 windows of 14x14 elements in 256 channels.
    last = xp.moveaxis(x, 1, 3)
    is_last = x.shape[1] >= _CHANNELS and max(shape[2:]) <= _WINDOWS
    is_last = is_last and (len(rows) >= _REGIONS or last.flags.c_contiguous)
    if is_last:
        x = xp.ascontiguousarray(last)
    matmul, regions = _regions(xp, x, index, len(x), rows, columns)
    for k, (n, row_range, column_range) in enumerate(regions):
        across, down = columns[k][:, column_range], rows[k][:, row_range]
        if is_last:
            part = x[n, row_range, column_range]
            part = matmul(down, part.reshape((part.shape[0], -1))).reshape(-1, *part.shape[1:])
            out[k] = xp.moveaxis(matmul(across, part), 2, 0)
        else:
            part = matmul(across, x[n, :, row_range, column_range].swapaxes(1, 2))
            out[k] = matmul(down, part.swapaxes(1, 2))
    return out


@multilinear(
    y=lambda ct, rows, columns, index: region_products(ct, rows, columns, index),
    rows=lambda ct, y, columns, index: _row_products(ct, y, columns, index),
    columns=lambda ct, y, rows, index: _column_products(ct, y, rows, index),
    batch=_batch,
    fresh=True,
)
def region_sums(xp: Any, y: Any, rows: Any, columns: Any, index: Any, *, count: int) -> Any:
    """Add ``rows[k].T @ y[k, c] @ columns[k]`` to zero images at their regions."""
    out = xp.zeros((count, y.shape[1], rows.shape[2], columns.shape[2]), dtype=y.dtype)
    if not out.size:
        return out
    if _is_small(xp, out.shape, index, y):
        order = xp.argsort(index)
        ends = xp.searchsorted(index[order], xp.arange(count + 1)).tolist()
        for n, (start, end) in enumerate(itertools.pairwise(ends)):
            for part in _parts(out.shape, start, end):
                own = order[part]
                flat = y[own].reshape((len(own), y.shape[1] * y.shape[2], y.shape[3]))
                across = xp.matmul(flat, columns[own])
                across = across.reshape((len(own), *y.shape[1:3], out.shape[3]))
                # The axes are the channel, the column and the row.
                out[n] += xp.tensordot(across, rows[own], axes=((0, 2), (0, 1))).swapaxes(1, 2)
        return out
    matmul, regions = _regions(xp, y, index, count, rows, columns)
    for k, (n, row_range, column_range) in enumerate(regions):
        part = matmul(columns[k][:, column_range].T, y[k].swapaxes(1, 2)).swapaxes(1, 2)
        out[n, :, row_range, column_range] += matmul(rows[k][:, row_range].T, part)
    return out


@multilinear(
    x=lambda ct, y, columns, index, shape: region_sums(y, ct, columns, index, count=shape[0]),
    y=lambda ct, x, columns, index: region_products(x, ct, columns, index),
    columns=lambda ct, x, y, index: _column_products(x, y, ct, index),
    batch=_batch,
    fresh=True,
)
def _row_products(xp: Any, x: Any, y: Any, columns: Any, index: Any) -> Any:
    """The derivative of the form in ``rows``."""
    out = xp.empty((len(y), y.shape[2], x.shape[2]), dtype=x.dtype)
    matmul, regions = _regions(xp, x, index, len(x), columns)
    for k, (n, column_range) in enumerate(regions):
        across = columns[k][:, column_range]
        part = matmul(across, x[n, :, :, column_range].swapaxes(1, 2)).swapaxes(1, 2)
        out[k] = xp.tensordot(y[k], part, axes=((0, 2), (0, 2)))
    return out


@multilinear(
    x=lambda ct, y, rows, index, shape: region_sums(y, rows, ct, index, count=shape[0]),
    y=lambda ct, x, rows, index: region_products(x, rows, ct, index),
    rows=lambda ct, x, y, index: _row_products(x, y, ct, index),
    batch=_batch,
    fresh=True,
)
def _column_products(xp: Any, x: Any, y: Any, rows: Any, index: Any) -> Any:
    """The derivative of the form in ``columns``."""
    out = xp.empty((len(y), y.shape[3], x.shape[3]), dtype=x.dtype)
    matmul, regions = _regions(xp, x, index, len(x), rows)
    for k, (n, row_range) in enumerate(regions):
        part = matmul(rows[k][:, row_range], x[n, :, row_range])
        out[k] = xp.tensordot(y[k], part, axes=((0, 1), (0, 1)))
    return out


@constant(batch=_batch, fresh=True)
def region_peaks(xp: Any, x: Any, row_range: Any, column_range: Any, index: Any) -> Any:
    """Find the index in the flattened image of the maximum of each window; -1 if it is empty.

    Window ``(i, j)`` of region ``k`` has the rows from ``row_range[k, i, 0]`` to before
    ``row_range[k, i, 1]``, and the columns from ``column_range[k, j, 0]`` to before
    ``column_range[k, j, 1]``.
    """
    width, channels = x.shape[3], x.shape[1]
    out = xp.empty(
        (len(row_range), channels, row_range.shape[1], column_range.shape[1]), dtype=xp.int64
    )
    lengths = [(w[..., 1] - w[..., 0]).max(axis=1) for w in (row_range, column_range)]
    regions = xp.stack([index, *lengths]).tolist()
    _check(regions[0], len(x))
    if 0 in x.shape[2:]:
        out[...] = -1
        return out
    for k, (n, *longest) in enumerate(zip(*regions, strict=True)):
        tables = []
        for windows, length, size in zip(
            (row_range, column_range), longest, x.shape[2:], strict=True
        ):
            positions = windows[k, :, :1] + xp.arange(max(length, 1))
            last = xp.maximum(xp.minimum(windows[k, :, 1:], size) - 1, 0)
            tables.append(xp.minimum(positions, last))
        rows, columns = tables[0][:, None, :, None], tables[1][None, :, None, :]
        found = x[n][:, rows, columns]
        found = found.reshape((*found.shape[:3], rows.shape[2] * columns.shape[3]))
        flat_indices = (rows * width + columns).reshape(found.shape[1:])
        best = found.argmax(axis=-1)
        best_index = xp.take_along_axis(
            xp.broadcast_to(flat_indices, found.shape), best[..., None], axis=-1
        )
        is_filled = _is_nonempty(row_range[k])[:, None] & _is_nonempty(column_range[k])[None, :]
        out[k] = xp.where(is_filled, best_index[..., 0], -1)
    return out


def _is_nonempty(windows: Any) -> Any:
    return windows[:, 1] > windows[:, 0]
