"""Norms of vectors and matrices."""

from math import inf
from typing import Any

from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes
from fdbr.ops.declare import opaque, shifted
from fdbr.ops.dtypes import astype, finfo, in_single
from fdbr.ops.elementwise.arithmetic import abs, power, power_or_zero, root_or_zero
from fdbr.ops.elementwise.complex_parts import conj, real
from fdbr.ops.linalg.matrices import matrices
from fdbr.ops.linalg.singular_values import svdvals
from fdbr.ops.reductions.reduce import kept_shape, max, min, sum
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import expand_dims, moveaxis, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["matrix_norm", "norm", "vector_norm"]

Axis = int | tuple[int, ...] | None


# --- the Euclidean norm -------------------------------------------------------------


def _direction(x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    """The unit vector along ``x``; 0 where ``x`` is 0, with NaN as its derivative."""
    return x * reshape(power_or_zero(out, exponent=-1), kept_shape(x.shape, axes))


def _euclidean_vjp(ct: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return reshape(ct, kept_shape(x.shape, axes)) * conj(_direction(x, out, axes))


def _euclidean_jvp(t: Any, x: Any, out: Any, axes: tuple[int, ...]) -> Any:
    return real(conj(_direction(x, out, axes)) * t).sum(axis=axes)


@opaque(x=(_euclidean_vjp, _euclidean_jvp), batch=shifted("axes"), compound=True)
def _euclidean(xp: Any, x: ArrayLike, *, axes: tuple[int, ...]) -> Array:
    squares = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
    return xp.sqrt(squares.sum(axis=axes))


# --- vectors ------------------------------------------------------------------------


@public("fdbr.ops.linalg")
@in_single
def vector_norm(
    x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2
) -> Array:
    """The norm of vectors: of all elements, or along some axes.

    At 0 the first derivative of the Euclidean norm and of other ``p``-norms is taken as 0.  Second
    derivatives are NaN there, of functions of the norm too: use ``sum(x * x)`` instead of the
    squared norm.

    Parameters
    ----------
    x
        A real or complex array.
    axis
        The axis or axes of the vectors; all by default.
    keepdims
        Whether to keep these axes with length 1.
    ord
        ``p`` for ``sum(abs(x)**p)**(1/p)``; ``inf`` and ``-inf`` for the largest and smallest
        absolute value, where equal elements share the derivative; 0 for the number of nonzero
        elements.

    Returns
    -------
    array
        Real, in the precision of ``x``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.vector_norm(np.array([3.0, -4.0]))
    np.float64(5.0)
    >>> ops.linalg.vector_norm(np.array([3.0, -4.0]), ord=np.inf)
    np.float64(4.0)
    """
    x = floating(x)
    axes = normalize_axes(axis, x.ndim, "linalg.vector_norm")
    out = _vector_norm(x, axes, ord)
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out


def _vector_norm(x: Any, axes: tuple[int, ...], ord: float) -> Any:
    if ord == 2:
        return _euclidean(x, axes=axes)
    if ord == 0:
        return sum(astype(x != 0, finfo(x.dtype).dtype), axis=axes)
    magnitudes = abs(x)
    if ord == 1:
        return sum(magnitudes, axis=axes)
    if ord == inf and not magnitudes.size:
        return sum(magnitudes, axis=axes)  # the norm of no elements is 0
    if ord in (inf, -inf):
        return (max if ord > 0 else min)(magnitudes, axis=axes)
    return root_or_zero(sum(power(magnitudes, ord), axis=axes), exponent=1 / ord)


# --- matrices -----------------------------------------------------------------------

_SPECTRAL = {
    2: lambda s: max(s, axis=-1),
    -2: lambda s: min(s, axis=-1),
    "nuc": lambda s: sum(s, axis=-1),
}
_SUMS: dict[Any, tuple[Any, int]] = {1: (max, -2), -1: (min, -2), inf: (max, -1), -inf: (min, -1)}


@public("fdbr.ops.linalg")
@in_single
def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: float | str | None = "fro"
) -> Array:
    """The norm of the matrices in the last two axes.

    At 0 the first derivative of the Frobenius norm is taken as 0, and second derivatives are NaN.
    Use ``sum(x * x)`` instead of its square if those are needed.  Where several sums or singular
    values are the largest (or smallest), they share the derivative.

    Parameters
    ----------
    x
        Shape ``(..., m, n)``.
    keepdims
        Whether to keep the last two axes with length 1.
    ord
        ``"fro"`` (or `None`) for the root of the sum of squares; ``"nuc"`` for the sum of the
        singular values; 2 and -2 for the largest and the smallest singular value; 1 and -1 for
        the largest and smallest sum of absolute values of a column; ``inf`` and ``-inf``, of a row.

    Returns
    -------
    array
        Real, shape ``(...)``.

    Raises
    ------
    ValueError
        If the order is none of these, or ``x`` has fewer than two dimensions.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.matrix_norm(np.array([[1.0, -2.0], [0.0, 2.0]]))
    np.float64(3.0)
    >>> ops.linalg.matrix_norm(np.array([[1.0, -2.0], [0.0, 2.0]]), ord=1)
    np.float64(4.0)
    """
    x = matrices("matrix_norm", x)
    if 0 in x.shape[-2:] and ord in (1, 2, inf):  # these norms of empty matrices are 0
        out = sum(abs(x), axis=(-2, -1))
    elif ord is None or ord == "fro":
        out = _euclidean(x, axes=(x.ndim - 2, x.ndim - 1))
    elif ord in _SPECTRAL:
        out = _SPECTRAL[ord](svdvals(x))
    elif ord in _SUMS:
        extreme, axis = _SUMS[ord]
        out = extreme(sum(abs(x), axis=axis), axis=-1)
    else:
        raise ValueError(
            "fdbr.ops.linalg.matrix_norm: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not "
            f"{ord!r}"
        )
    return expand_dims(out, axis=(-2, -1)) if keepdims else out


# --- vectors or matrices --------------------------------------------------------------


@public("fdbr.ops.linalg")
@in_single
def norm(
    x: ArrayLike, /, ord: float | str | None = None, axis: Axis = None, keepdims: bool = False
) -> Array:
    """The norm of a vector or a matrix, as `numpy.linalg.norm`.

    Parameters
    ----------
    x
        An array; without ``axis`` and with an ``ord`` it has one or two dimensions.
    ord
        As in `vector_norm` or, for two axes, in `matrix_norm`; `None` is the root of the sum of
        squares.
    axis
        One axis of vectors, or two axes of matrices; all by default.
    keepdims
        Whether to keep these axes with length 1.

    Raises
    ------
    ValueError
        If ``ord`` is given for other than one or two axes.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.norm(np.array([[1.0, 2.0], [0.0, 2.0]]))
    np.float64(3.0)
    """
    x = floating(x)
    axes = normalize_axes(axis, x.ndim, "linalg.norm")
    if ord is None and (axis is None or len(axes) == 2):
        out = _euclidean(x, axes=axes)
    elif len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"fdbr.ops.linalg.norm: ord {ord!r} is a norm of matrices")
        out = _vector_norm(x, axes, 2 if ord is None else ord)
    elif len(axes) == 2:
        out = matrix_norm(moveaxis(x, axes, (-2, -1)), ord=ord)
    else:
        raise ValueError(
            f"fdbr.ops.linalg.norm: ord {ord!r} of {len(axes)} axes; give one axis for vectors, or "
            "two for matrices"
        )
    return reshape(out, kept_shape(x.shape, axes)) if keepdims else out
