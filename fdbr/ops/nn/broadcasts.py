"""Scale and bias along axes, and bilinear forms."""

from typing import Any

from fdbr.core.array_modules import Array
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.products import linear, matmul
from fdbr.ops.shape.creation import asarray, floating
from fdbr.ops.shape.manipulation import expand_dims, moveaxis, reshape, squeeze

__all__ = ["bias", "bilinear", "scale"]


@public("fdbr.ops")
def scale(x: Array, y: Array, /, *, axis: int = 1) -> Any:
    """The product of ``x`` and an array whose axes are those of ``x`` from ``axis`` on.

    Parameters
    ----------
    x
        An array.
    y
        An array whose shape is that of consecutive axes of ``x``.
    axis
        The first of these axes.

    Raises
    ------
    ValueError
        If the shapes differ on these axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.scale(np.ones((1, 2, 2)), np.array([2.0, 3.0]))
    array([[[2., 2.],
            [3., 3.]]])
    """
    x = asarray(x)
    return x * _from_axis("scale", y, x, axis)


@public("fdbr.ops")
def bias(x: Array, y: Array, /, *, axis: int = 1) -> Any:
    """The sum of ``x`` and an array whose axes are those of ``x`` from ``axis`` on.

    Parameters
    ----------
    x, y, axis
        As for `scale`.

    Raises
    ------
    ValueError
        As for `scale`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.bias(np.zeros((1, 2, 2)), np.array([2.0, 3.0]))
    array([[[2., 2.],
            [3., 3.]]])
    """
    x = asarray(x)
    return x + _from_axis("bias", y, x, axis)


def _from_axis(function: str, y: Any, x: Any, axis: int) -> Any:
    y = asarray(y)
    first = normalize_axis(axis, x.ndim, function) if x.ndim or y.ndim else 0
    if x.shape[first : first + y.ndim] != y.shape:
        raise ValueError(
            f"fdbr.ops.{function}: y {describe(y)} must have the lengths of the axes of x "
            f"{describe(x)} from axis {axis} on"
        )
    return reshape(y, (*y.shape, *(1,) * (x.ndim - first - y.ndim)))


@public("fdbr.ops")
def bilinear(
    x1: Array,
    x2: Array,
    weight: Array,
    bias: Array = None,
    *,
    weight1: Array = None,
    weight2: Array = None,
) -> Any:
    """A bilinear form of two vectors for each output, ``x1 @ weight[o] @ x2 + bias[o]``.

    With ``weight1`` and ``weight2`` also ``x1 @ weight1.T + x2 @ weight2.T``: a neural tensor
    layer, Socher, Chen, Manning & Ng, *Reasoning with neural tensor networks for knowledge base
    completion*, NIPS 2013.

    Parameters
    ----------
    x1, x2
        Shapes ``(..., in1)`` and ``(..., in2)``, with the same leading axes.
    weight
        Shape ``(out, in1, in2)``, as in PyTorch.  (Chainer's is ``(in1, in2, out)``.)
    bias
        Shape ``(out,)``, or `None`.
    weight1, weight2
        Shapes ``(out, in1)`` and ``(out, in2)``, or `None`.  (Chainer's are transposed.)

    Returns
    -------
    array
        Shape ``(..., out)``.

    Raises
    ------
    ValueError
        If shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.bilinear(np.array([1.0, 2.0]), np.array([3.0]), np.ones((1, 2, 1)))
    array([9.])
    """
    x1, x2, weight = floating(x1), floating(x2), floating(weight)
    fits = weight.ndim == 3 and x1.ndim and x2.ndim and x1.shape[:-1] == x2.shape[:-1]
    if not fits or (x1.shape[-1], x2.shape[-1]) != weight.shape[1:]:
        raise ValueError(
            f"fdbr.ops.bilinear: x1 {describe(x1)} and x2 {describe(x2)} must have shapes "
            f"(..., in1) and (..., in2), and weight {describe(weight)} shape (out, in1, in2)"
        )
    outs, ones, twos = weight.shape
    by_one = reshape(moveaxis(weight, 1, 0), (ones, outs * twos))
    forms = reshape(matmul(x1, by_one), (*x1.shape[:-1], outs, twos))
    out = squeeze(matmul(forms, expand_dims(x2, axis=-1)), axis=-1)
    out = rounded_like(out, x1, x2, weight)
    if weight1 is not None:
        out = out + linear(x1, weight1)
    if weight2 is not None:
        out = out + linear(x2, weight2)
    return out if bias is None else out + bias
