"""Products of matrices and tensors."""

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.lazy_cotangents import Deferred
from fdbr.errors.checks import describe, index
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import fit, multilinear, opaque
from fdbr.ops.declare.batches import align, spread
from fdbr.ops.dtypes import astype, in_bias_dtype, in_single, result_type
from fdbr.ops.einsums import _contract, einsum, inner_of_rows, wide_product
from fdbr.ops.elementwise.arithmetic import multiply
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import (
    _matrix_transpose,
    expand_dims,
    moveaxis,
    permute_dims,
    reshape,
)
from fdbr.pytrees.dtypes import dtype_kind, is_added
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["dot", "einsum", "inner", "linear", "matmul", "outer", "tensordot", "vecdot"]

# A matrix that is used several times (the weight of a recurrent layer) has one cotangent x.T @ ct
# for each use.  Products of few rows are deferred and computed as one product of all rows.
_THIN = 64  # rows up to which a product is deferred
_WEIGHTY = 1 << 12  # elements of the cotangent from which on deferring saves time
_TALL = 256  # rows collected before they are multiplied


def _batch_matmul(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, y = values
    if batched[0] and not batched[1] and x.ndim == 3 and y.ndim == 2:
        return _merge_rows(apply, x, y)  # one large product is faster than many small ones
    return apply(*align(values, batched, 2))


def _merge_rows(apply: Any, x: Any, *others: Any) -> Any:
    size, rows, columns = x.shape
    out = apply(reshape(x, (size * rows, columns)), *others)
    return reshape(out, (size, rows, out.shape[-1]))


def _right_vjp(ct: Any, x: Any, like: Any) -> Any:
    """Compute the cotangent of ``y`` in ``x @ y``."""
    dtype = ct.dtype if like is None else like[1]
    if x.ndim == 2 and x.shape[-1] * ct.shape[-1] >= _WEIGHTY and _is_thin(x, ct, dtype):
        return Deferred(_sum_of_products, (x, ct), len(x), _TALL)
    return fit(_matmul(_matrix_transpose(x), ct), like)


def _weight_vjp(ct: Any, x: Any, shape: Any, dtype: Any) -> Any:
    """Compute the cotangent of ``weight`` in ``x @ weight.T``."""
    if shape[0] * shape[1] >= _WEIGHTY and _is_thin(ct, x, dtype):
        return Deferred(_sum_of_products, (ct, x), len(x), _TALL)
    return fit(_product(ct.T, x), (shape, dtype))


def _is_thin(x: Any, y: Any, dtype: Any) -> bool:
    """Whether ``x.T @ y`` has so few rows that several products are faster as one."""
    return (
        x.shape[0] <= _THIN
        and type(x) is type(y) is np.ndarray
        and x.ndim == y.ndim == 2
        and x.dtype == y.dtype == dtype
    )


def _sum_of_products(terms: Sequence[tuple[Any, Any]]) -> Any:
    """Sum the products ``x.T @ y``, as one product of the concatenated matrices."""
    if len(terms) == 1:
        ((x, y),) = terms
        return x.T.dot(y)
    left, right = zip(*terms, strict=True)
    return np.concatenate(left).T.dot(np.concatenate(right))


@multilinear(
    x=lambda ct, y, like: fit(_matmul(ct, _matrix_transpose(y)), like),
    y=_right_vjp,
    batch=_batch_matmul,
)
def _matmul(xp: Any, x: Any, y: Any) -> Any:
    return xp.matmul(x, y)


def _product(x: Any, y: Any) -> Any:
    """Compute ``x @ y`` of matrices, without dispatch if none is traced."""
    return x.dot(y) if type(x) is type(y) is np.ndarray else x @ y


def _batch_affine(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    x, weight, *bias = values
    if not any(batched[1:]):
        return _merge_rows(apply, x, weight, *bias)
    if weight.ndim == 3 and x.ndim == 2 and not bias:
        # The examples have different weights and one input: the weights are stacked into one.
        out = apply(x, reshape(weight, (size * weight.shape[1], weight.shape[2])))
        return moveaxis(reshape(out, (x.shape[0], size, weight.shape[1])), 1, 0)
    out = _matmul(x, _matrix_transpose(weight))
    for part in bias:
        out = out + (reshape(part, (size, 1, part.shape[-1])) if batched[2] else part)
    return spread(out, out.ndim == 3, size)


@multilinear(
    x=lambda ct, weight, shape, dtype: fit(_product(ct, weight), (shape, dtype)),
    weight=_weight_vjp,
    batch=_batch_affine,
)
def _matmul_transposed(xp: Any, x: ArrayLike, weight: ArrayLike) -> Array:
    return _times_transposed(xp, x, weight)


def _times_transposed(xp: Any, x: Any, weight: Any) -> Any:
    """Compute ``x @ weight.T``; bfloat16 and integers have a common dtype only in ufuncs."""
    if (x.itemsize <= 2 or weight.itemsize <= 2) and x.dtype != weight.dtype:
        return xp.matmul(x, weight.T)
    return x.dot(weight.T)


@opaque(
    x=(
        lambda ct, weight, shape, dtype: fit(_product(ct, weight), (shape, dtype)),
        lambda t, weight: t @ weight.T,
    ),
    weight=(_weight_vjp, lambda t, x: x @ t.T),
    bias=(lambda ct, shape, dtype: fit(ct, (shape, dtype)), lambda t: t),
    batch=_batch_affine,
    fresh=True,
    total=True,
)
def _affine(xp: Any, x: ArrayLike, weight: ArrayLike, bias: ArrayLike) -> Array:
    out = _times_transposed(xp, x, weight)
    if bias.dtype != out.dtype:
        return out + bias
    out += bias
    return out


@public("fdbr.ops")
def matmul(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The matrix product ``x @ y``.

    Parameters
    ----------
    x, y
        Arrays of shapes ``(..., n, k)`` and ``(..., k, m)``, whose leading axes broadcast.  A
        one-dimensional operand is a row on the left and a column on the right, and its axis
        does not appear in the result.

    Returns
    -------
    array
        Shape ``(..., n, m)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or an operand has no axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.matmul(np.eye(2), np.array([1.0, 2.0]))
    array([1., 2.])
    """
    x, y = asarray(x), asarray(y)
    if x.ndim == 0 or y.ndim == 0 or x.shape[-1] != y.shape[-min(y.ndim, 2)]:
        raise ValueError(
            f"fdbr.ops.matmul: shapes do not fit: x {describe(x)}, y {describe(y)}; the last axis "
            "of x must be as long as the last but one of y"
        )
    if y.ndim == 1:
        if type(x) is type(y) is np.ndarray and x.itemsize > 2 and x.dtype == y.dtype:
            return x.dot(y)
        return _times_vector(x, y)
    if y.ndim == 2 and x.ndim > 2:  # one large product is faster than many small ones
        rows = _matmul(reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), y)
        return reshape(rows, (*x.shape[:-1], y.shape[-1]))
    if x.ndim == 1:
        out = _matmul(expand_dims(x, axis=0), y)
        return reshape(out, (*out.shape[:-2], out.shape[-1]))
    return _matmul(x, y)


def _times_vector(x: Any, y: Any) -> Any:
    out = _matmul(reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), reshape(y, (-1, 1)))
    return reshape(out, x.shape[:-1]) if x.ndim > 1 else out[0, 0]


@public("fdbr.ops")
def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, /) -> Array:
    """The affine map ``x @ weight.T + bias``, with weights of shape ``(outputs, inputs)``.

    Parameters
    ----------
    x
        Shape ``(..., inputs)``.
    weight
        Shape ``(outputs, inputs)``.
    bias
        Shape ``(outputs,)``; no bias by default.

    Returns
    -------
    array
        Shape ``(..., outputs)``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linear(np.array([1.0, 2.0]), np.array([[3.0, 4.0]]))
    array([11.])
    """
    try:
        shape, sizes = x.shape, weight.shape
    except AttributeError:
        x, weight = asarray(x), asarray(weight)
        shape, sizes = x.shape, weight.shape
    if len(sizes) != 2 or not shape or shape[-1] != sizes[1]:
        raise ValueError(
            f"fdbr.ops.linear: shapes do not fit: x {describe(x)}, weight {describe(weight)}; the "
            "last axis of x must be as long as the last of weight, which is a matrix"
        )
    if bias is not None and bias.shape != sizes[:1]:
        raise ValueError(
            f"fdbr.ops.linear: bias {describe(bias)} does not fit weight {describe(weight)}; it "
            f"must have shape {sizes[:1]}"
        )
    if bias is not None and bias.dtype is not x.dtype:
        x = in_bias_dtype(x, bias)
    flat = len(shape) == 2
    rows = x if flat else reshape(x, (math.prod(shape[:-1]), shape[-1]))
    out = _matmul_transposed(rows, weight) if bias is None else _affine(rows, weight, bias)
    return out if flat else reshape(out, (*shape[:-1], sizes[0]))


@public("fdbr.ops")
def tensordot(x: Any, y: Any, /, *, axes: int | tuple[Any, Any] = 2) -> Any:
    """The sum of products over pairs of axes, one axis of each array.

    Parameters
    ----------
    x, y
        Arrays.
    axes
        The number of last axes of ``x`` and first axes of ``y`` to contract; or two sequences
        of axes.

    Returns
    -------
    array
        The remaining axes of ``x``, then those of ``y``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    x, y = asarray(x), asarray(y)
    axes_x, axes_y = _paired_axes(axes, x, y)
    free_x = [i for i in range(x.ndim) if i not in axes_x]
    free_y = [i for i in range(y.ndim) if i not in axes_y]
    pairs = math.prod(x.shape[i] for i in axes_x)
    rows, columns = [x.shape[i] for i in free_x], [y.shape[i] for i in free_y]
    left = reshape(_in_order(x, (*free_x, *axes_x)), (math.prod(rows), pairs))
    right = reshape(_in_order(y, (*axes_y, *free_y)), (pairs, math.prod(columns)))
    out = _matmul(left, right)
    out = _in_promoted(out, x, y)
    return reshape(out, (*rows, *columns)) if rows or columns else out[0, 0]


def _in_promoted(out: Any, x: Any, y: Any) -> Any:
    """Cast a product to the promoted dtype of its factors: `matmul` of bfloat16 gives float32."""
    if not (is_added(x.dtype) or is_added(y.dtype)):
        return out
    try:
        return astype(out, result_type(x, y))
    except TypeError:  # only ufuncs promote dtypes such as int32 and bfloat16 together
        return out


def _in_order(x: Any, axes: tuple[int, ...]) -> Any:
    return x if axes == tuple(range(x.ndim)) else permute_dims(x, axes)


def _paired_axes(axes: Any, x: Any, y: Any) -> tuple[Sequence[int], Sequence[int]]:
    if isinstance(axes, bool) or getattr(axes, "ndim", 1) == 0:
        axes = index(axes)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ValueError(
                f"fdbr.ops.tensordot: axes={axes} for x {describe(x)}, y {describe(y)}"
            )
        axes_x, axes_y = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        axes_x = normalize_axes(_sequence(axes[0]), x.ndim, "tensordot")
        axes_y = normalize_axes(_sequence(axes[1]), y.ndim, "tensordot")
    if [x.shape[i] for i in axes_x] != [y.shape[i] for i in axes_y]:
        raise ValueError(
            f"fdbr.ops.tensordot: axes {axes_x} of x {describe(x)} and {axes_y} of y {describe(y)} "
            "are not equally long"
        )
    return axes_x, axes_y


def _sequence(axes: Any) -> tuple[int, ...]:
    return tuple(axes) if isinstance(axes, Sequence) else (axes,)


@public("fdbr.ops")
def vecdot(x: ArrayLike, y: ArrayLike, /, *, axis: int = -1) -> Array:
    """The inner product of the vectors along an axis, ``sum(conj(x) * y)``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.vecdot(np.ones((2, 3)), np.ones(3))
    array([3., 3.])
    """
    x, y = asarray(x), asarray(y)
    if is_added(x.dtype):  # NumPy multiplies bfloat16 in float32
        x = astype(x, np.float32)
    elif dtype_kind(y.dtype) in "iu":
        x = astype(x, result_type(x, y), copy=False)
    return _vecdot(x, y, axis)


@in_single
def _vecdot(x: Any, y: Any, axis: int) -> Any:
    position = normalize_axis(axis, min(x.ndim, y.ndim), "vecdot") - min(x.ndim, y.ndim)
    if x.shape[position] != y.shape[position]:
        raise ValueError(f"fdbr.ops.vecdot: x {describe(x)} and y {describe(y)} along axis {axis}")
    if position != -1:
        x, y = moveaxis(x, position, -1), moveaxis(y, position, -1)
    x = x.conj() if x.dtype.kind == "c" else x
    letters = string.ascii_letters[: max(x.ndim, y.ndim)]
    axes_x, axes_y = letters[len(letters) - x.ndim :], letters[len(letters) - y.ndim :]
    return _contract(x, y, of_x=axes_x, of_y=axes_y, to=letters[:-1])


@public("fdbr.ops")
def outer(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The outer product of ``x`` and ``y``, both flattened: all products of an element of each.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    x, y = asarray(x), asarray(y)
    if type(x) is type(y) is np.ndarray and x.itemsize > 2:  # without dispatch
        return wide_product.host(x.reshape(-1, 1), y.reshape(1, -1))
    return _matmul(reshape(x, (-1, 1)), reshape(y, (1, -1)))


@public("fdbr.ops")
def inner(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The sum of products over the last axes, as `numpy.inner`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.inner(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    np.float64(11.0)
    """
    x, y = asarray(x), asarray(y)
    return _contract_axes(x, y, -1)


@public("fdbr.ops")
def dot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The product over the last axis of ``x`` and the second-to-last of ``y``, as `numpy.dot`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.dot(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    np.float64(11.0)
    """
    x, y = asarray(x), asarray(y)
    return _contract_axes(x, y, -1 if y.ndim < 2 else -2)


def _contract_axes(x: Any, y: Any, axis: int) -> Any:
    """Contract the last axis of ``x`` with an axis of ``y``, or multiply by a scalar."""
    is_plain = type(x) is np.ndarray and x.ndim == y.ndim == 1
    if is_plain and (found := inner_of_rows.host(x, y)) is not None:
        return found
    if x.ndim == 0 or y.ndim == 0:
        return multiply(x, y)
    if x.ndim == y.ndim == 1 and x.shape == y.shape:
        return _in_promoted(_contract(x, y, of_x="i", of_y="i", to=""), x, y)
    return tensordot(x, y, axes=((-1,), (axis,)))
