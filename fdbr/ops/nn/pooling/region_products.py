"""Regions of images, each multiplied from both sides by matrices of its own; and where they peak.

All of it is one form, the sum of ``rows[k, i, h] * columns[k, j, w] * x[index[k], c, h, w] * y[k,
c, i, j]``: the operations here are its derivatives by each of the four.  Each goes region by
region, by what its matrices are not zero for, so that no image is copied for each of its regions.
"""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.ops.declare import constant, multilinear
from fdbr.ops.declare.batches import spread
from fdbr.ops.shape.manipulation import reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["region_peaks", "region_products"]


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """The images, and the regions, of all examples one after the other; ``index`` comes last."""
    *others, index = [spread(v, flag, size) for v, flag in zip(values, batched, strict=True)]
    images, count = params.get("count", others[0].shape[1]), index.shape[1]
    starts = array_module(index).arange(size).reshape((size, 1)) * images
    folded = [reshape(v, (size * v.shape[1], *v.shape[2:])) for v in others]
    params = {**params, "count": size * images} if "count" in params else params
    out = apply(*folded, reshape(index + starts, size * count), **params)
    return reshape(out, (size, out.shape[0] // size, *out.shape[1:]))


def _regions(xp: Any, index: Any, count: int, *weights: Any) -> list[tuple[Any, ...]]:
    """For each region its image, and the parts of the last axes that have weights."""
    found = [index]
    for part in weights:
        used = xp.any(part != 0, axis=1)
        found += [xp.argmax(used, axis=1), part.shape[2] - xp.argmax(used[:, ::-1], axis=1)]
    columns = xp.stack(found).tolist()  # at once: elsewhere than in host memory that takes a while
    _check(columns[0], count)
    return [
        (n, *(slice(*ends[i : i + 2]) for i in range(0, len(ends), 2)))
        for n, *ends in zip(*columns, strict=True)
    ]


def _check(images: list[int], count: int) -> None:
    if not all(0 <= n < count for n in images):
        raise ValueError(
            f"fdbr.ops: the regions' images {min(images)} to {max(images)} must lie in 0 … "
            f"{count - 1}, the numbers of x's images"
        )


@multilinear(
    x=lambda ct, rows, columns, index, shape: _region_sums(
        ct, rows, columns, index, count=shape[0]
    ),
    rows=lambda ct, x, columns, index: _row_products(x, ct, columns, index),
    columns=lambda ct, x, rows, index: _column_products(x, ct, rows, index),
    batch=_batch,
    fresh=True,
)
def region_products(
    xp: Any, x: ArrayLike, rows: ArrayLike, columns: ArrayLike, index: Any
) -> Array:
    """``rows[k] @ x[index[k], c] @ columns[k].T`` for all regions ``k`` and channels ``c``."""
    shape = (len(rows), x.shape[1], rows.shape[1], columns.shape[1])
    out = xp.empty(shape, dtype=x.dtype)
    for k, (n, down, across) in enumerate(_regions(xp, index, len(x), rows, columns)):
        part = xp.matmul(x[n, :, down, across], columns[k][:, across].T)
        out[k] = xp.matmul(rows[k][:, down], part)
    return out


@multilinear(
    y=lambda ct, rows, columns, index: region_products(ct, rows, columns, index),
    rows=lambda ct, y, columns, index: _row_products(ct, y, columns, index),
    columns=lambda ct, y, rows, index: _column_products(ct, y, rows, index),
    batch=_batch,
    fresh=True,
)
def _region_sums(
    xp: Any, y: ArrayLike, rows: ArrayLike, columns: ArrayLike, index: Any, *, count: int
) -> Array:
    """The images to whose regions ``rows[k].T @ y[k, c] @ columns[k]`` are added."""
    out = xp.zeros((count, y.shape[1], rows.shape[2], columns.shape[2]), dtype=y.dtype)
    for k, (n, down, across) in enumerate(_regions(xp, index, count, rows, columns)):
        part = xp.matmul(y[k], columns[k][:, across])
        out[n, :, down, across] += xp.matmul(rows[k][:, down].T, part)
    return out


@multilinear(
    x=lambda ct, y, columns, index, shape: _region_sums(y, ct, columns, index, count=shape[0]),
    y=lambda ct, x, columns, index: region_products(x, ct, columns, index),
    columns=lambda ct, x, y, index: _column_products(x, y, ct, index),
    batch=_batch,
    fresh=True,
)
def _row_products(xp: Any, x: ArrayLike, y: ArrayLike, columns: ArrayLike, index: Any) -> Array:
    """The form's derivative by ``rows``."""
    out = xp.empty((len(y), y.shape[2], x.shape[2]), dtype=x.dtype)
    for k, (n, across) in enumerate(_regions(xp, index, len(x), columns)):
        part = xp.matmul(x[n, :, :, across], columns[k][:, across].T)
        out[k] = xp.tensordot(y[k], part, axes=((0, 2), (0, 2)))
    return out


@multilinear(
    x=lambda ct, y, rows, index, shape: _region_sums(y, rows, ct, index, count=shape[0]),
    y=lambda ct, x, rows, index: region_products(x, rows, ct, index),
    rows=lambda ct, x, y, index: _row_products(x, y, ct, index),
    batch=_batch,
    fresh=True,
)
def _column_products(xp: Any, x: ArrayLike, y: ArrayLike, rows: ArrayLike, index: Any) -> Array:
    """The form's derivative by ``columns``."""
    out = xp.empty((len(y), y.shape[3], x.shape[3]), dtype=x.dtype)
    for k, (n, down) in enumerate(_regions(xp, index, len(x), rows)):
        part = xp.matmul(rows[k][:, down], x[n, :, down])
        out[k] = xp.tensordot(y[k], part, axes=((0, 1), (0, 1)))
    return out


@constant(batch=_batch, fresh=True)
def region_peaks(xp: Any, x: ArrayLike, down: Any, across: Any, index: Any) -> Array:
    """The place in the flattened image of the largest element of each window; -1 in empty ones.

    Windows ``(i, j)`` of region ``k`` go from ``down[k, i, 0]`` to before ``down[k, i, 1]``, and
    from ``across[k, j, 0]`` to before ``across[k, j, 1]``.
    """
    width, channels = x.shape[3], x.shape[1]
    out = xp.empty((len(down), channels, down.shape[1], across.shape[1]), dtype=xp.int64)
    lengths = [(w[..., 1] - w[..., 0]).max(axis=1) for w in (down, across)]
    regions = xp.stack([index, *lengths]).tolist()
    _check(regions[0], len(x))
    for k, (n, *longest) in enumerate(zip(*regions, strict=True)):
        tables = []
        for windows, length, size in zip((down, across), longest, x.shape[2:], strict=True):
            places = windows[k, :, :1] + xp.arange(max(length, 1))
            last = xp.maximum(xp.minimum(windows[k, :, 1:], size) - 1, 0)
            tables.append(xp.minimum(places, last))
        rows, columns = tables[0][:, None, :, None], tables[1][None, :, None, :]
        found = x[n][:, rows, columns]
        found = found.reshape((*found.shape[:3], rows.shape[2] * columns.shape[3]))
        numbers = (rows * width + columns).reshape(found.shape[1:])
        best = found.argmax(axis=-1)
        chosen = xp.take_along_axis(xp.broadcast_to(numbers, found.shape), best[..., None], axis=-1)
        some = _filled(down[k])[:, None] & _filled(across[k])[None, :]
        out[k] = xp.where(some, chosen[..., 0], -1)
    return out


def _filled(windows: Any) -> Any:
    return windows[:, 1] > windows[:, 0]
