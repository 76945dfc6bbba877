"""Products with constant matrices.  Each row has the weights of a window.

Interpolation and adaptive pooling are such products along one axis.  Most entries of the matrices
are 0.  NaN or infinity times 0 is NaN, so an element that is not finite would spread to outputs
with other windows.  The products here leave out elements with the weight 0.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from fdbr.ops.declare import linear
from fdbr.ops.declare.batches import leading
from fdbr.ops.shape.manipulation import reshape

__all__ = [
    "Block",
    "Windows",
    "along_axis",
    "is_finite",
    "matmul_within_windows",
    "products_by",
    "spreads_by",
    "window_products",
    "window_spreads",
]


class Block(NamedTuple):
    """The weights of some of the windows: those from ``start`` to before ``stop``."""

    start: int
    stop: int
    low: int  # the first element that these windows have
    high: int  # the end of their elements
    weights: Any  # a matrix of shape (stop - start, high - low)


class Windows(Protocol):
    """The weights of ``m`` windows of an axis of ``n`` elements, a hashable value."""

    @property
    def n(self) -> int: ...
    @property
    def m(self) -> int: ...

    def blocks(self, dtype: str) -> list[Block]:
        """Return the weights of all windows, in a dtype with this character."""
        ...


def along_axis(x: Any, axis: int, windows: Windows) -> Any:
    """Replace an axis of ``windows.n`` elements by the weighted sums of windows."""
    before, after = tuple(x.shape[:axis]), tuple(x.shape[axis + 1 :])
    rows = reshape(x, (math.prod(before), windows.n, math.prod(after)))
    return reshape(window_products(rows, windows=windows), (*before, windows.m, *after))


@linear(
    x=lambda ct, windows: window_spreads(ct, windows=windows),
    batch=leading(2),
    fresh=True,
)
def window_products(xp: Any, x: Any, *, windows: Any) -> Any:
    """Compute the weighted sums of windows along the last axis but one."""
    return products_by(xp.matmul, xp, x, windows)


@linear(
    ct=lambda x, windows: window_products(x, windows=windows),
    batch=leading(2),
    fresh=True,
)
def window_spreads(xp: Any, ct: Any, *, windows: Any) -> Any:
    """The transpose of `window_products`."""
    return spreads_by(xp.matmul, xp, ct, windows)


def products_by(matmul: Any, xp: Any, x: Any, windows: Any) -> Any:
    """Compute `window_products` by a function for products of finite matrices."""
    product = _product_by(matmul, xp, x)
    blocks = windows.blocks(x.dtype.char)
    if len(blocks) == 1:
        _, _, low, high, weights = blocks[0]
        return product(xp.asarray(weights), x[..., low:high, :])
    out = xp.empty((*x.shape[:-2], windows.m, x.shape[-1]), dtype=x.dtype)
    for start, stop, low, high, weights in blocks:
        out[..., start:stop, :] = product(xp.asarray(weights), x[..., low:high, :])
    return out


def spreads_by(matmul: Any, xp: Any, ct: Any, windows: Any) -> Any:
    """Compute `window_spreads` by a function for products of finite matrices."""
    product = _product_by(matmul, xp, ct)
    blocks = windows.blocks(ct.dtype.char)
    if len(blocks) == 1 and len(blocks[0].weights.T) == windows.n:
        return product(xp.asarray(blocks[0].weights.T), ct)
    out = xp.zeros((*ct.shape[:-2], windows.n, ct.shape[-1]), dtype=ct.dtype)
    for start, stop, low, high, weights in blocks:
        out[..., low:high, :] += product(xp.asarray(weights.T), ct[..., start:stop, :])
    return out


def _product_by(matmul: Any, xp: Any, x: Any) -> Callable[[Any, Any], Any]:
    """Return the function that multiplies matrices of weights with parts of ``x``."""
    # On a GPU the host would wait to know whether all elements are finite.
    if xp is not np or not is_finite(np, x):
        return functools.partial(matmul_within_windows, xp)
    if x.shape[-1] == 1:  # one product for all rows, not one for each
        return lambda weights, part: matmul(part[..., 0], weights.T)[..., None]
    return cast(Callable[[Any, Any], Any], matmul)


def is_finite(xp: Any, x: Any) -> bool:
    """Whether an array has neither NaN nor infinities; it may be False for huge numbers as well."""
    if xp is np and x.dtype.char in "fdFD":
        # One pass without an array of truth values, and twice as fast as `sum`.  A dot product of
        # the BLAS would be as fast, but its threads would delay the kernels' threads.
        return bool(np.isfinite(np.einsum("i->", x.reshape(-1))))
    return bool(xp.isfinite(x).all())


def matmul_within_windows(xp: Any, weights: Any, x: Any) -> Any:
    """Compute ``weights @ x`` for any ``x``, without the elements that have the weight 0."""
    if x.dtype.kind == "c":
        out = xp.empty((*x.shape[:-2], weights.shape[-2], x.shape[-1]), dtype=x.dtype)
        out.real = matmul_within_windows(xp, weights.real, x.real)
        out.imag = matmul_within_windows(xp, weights.real, x.imag)
        return out
    out = xp.matmul(weights, xp.where(xp.isfinite(x), x, 0))
    signs = xp.sign(weights).astype(xp.float32)
    infinite, signs_of_x = xp.isinf(x), xp.sign(xp.where(xp.isinf(x), x, 0))
    count = xp.matmul(abs(signs), infinite.astype(xp.float32))
    net = xp.matmul(signs, signs_of_x.astype(xp.float32))
    undefined = xp.matmul(abs(signs), xp.isnan(x).astype(xp.float32)) > 0
    out = xp.where(count > 0, xp.copysign(out.dtype.type(math.inf), net).astype(out.dtype), out)
    return xp.where(undefined | (abs(net) != count), out.dtype.type(math.nan), out)
