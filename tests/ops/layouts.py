"""Arrays with the same elements in other memory layouts."""

from typing import Any

import numpy as np

__all__ = ["LAYOUTS", "REPEATED"]


def fortran(x: Any) -> Any:
    return np.asfortranarray(x)


def channels_last(x: Any) -> Any:
    """The second axis is the last one in memory."""
    order = (0, *range(2, x.ndim), 1) if x.ndim > 1 else (0,)
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))


def swapped(x: Any) -> Any:
    """Two axes in the middle have changed places; of vectors and matrices, a column is taken."""
    if x.ndim < 3:
        return _within((*x.shape, 3), x, (..., 1))
    return np.ascontiguousarray(x.swapaxes(-2, -3)).swapaxes(-2, -3)


def strided(x: Any) -> Any:
    return _within([2 * n for n in x.shape], x, (slice(None, None, 2),) * x.ndim)


def sliced(x: Any) -> Any:
    """Within an array that is larger along each axis."""
    return _within([n + 3 for n in x.shape], x, tuple(slice(1, n + 1) for n in x.shape))


def rows_apart(x: Any) -> Any:
    """Rows lie side by side, with something between them."""
    return _within((*x.shape[:-1], x.shape[-1] + 5), x, (..., slice(0, x.shape[-1])))


def negative(x: Any) -> Any:
    backwards = (slice(None, None, -1),) * x.ndim
    return x[backwards].copy()[backwards]


def unaligned(x: Any) -> Any:
    out = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def _within(shape: Any, x: Any, key: Any) -> Any:
    """A part of a larger array, beside which there are other numbers."""
    whole = np.full(tuple(shape), 7, x.dtype)
    whole[key] = x
    return whole[key]


LAYOUTS = {
    layout.__name__: layout
    for layout in (
        *(fortran, channels_last, swapped, strided, sliced, rows_apart, negative, unaligned),
    )
}
"""Functions of an array of one axis at least that give an equal one."""


def first_repeated(x: Any) -> Any:
    return np.broadcast_to(x[:1].copy(), x.shape) if x.dtype.kind in "fc" else x


def last_repeated(x: Any) -> Any:
    return np.broadcast_to(x[..., :1].copy(), x.shape) if x.dtype.kind in "fc" else x


REPEATED = {layout.__name__: layout for layout in (first_repeated, last_repeated)}
"""Functions that give an array of which one axis shows its first element; integers stay."""
