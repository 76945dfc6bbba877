"""Determinants and their logarithms."""

from typing import Any, NamedTuple

from fdbr.core.array_modules import Array
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, leading, opaque
from fdbr.ops.dtypes import finfo
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import square_matrices
from fdbr.ops.linalg.right_sides import same_leading
from fdbr.ops.linalg.solving import inverse
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import _matrix_transpose, diagonal

__all__ = ["SlogdetResult", "det", "slogdet"]


class SlogdetResult(NamedTuple):
    """A determinant as its sign and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


# --- the determinant and its derivatives --------------------------------------------


def _inner(x: Any, y: Any) -> Any:
    return (x * y).sum(axis=(-2, -1))


def _scale(factor: Any, x: Any) -> Any:
    return factor[..., None, None] * x


@opaque(
    x=(lambda ct, x: _scale(ct, _cofactors(x)), lambda t, x: _inner(_cofactors(x), t)),
    batch=aligned,
)
def _det(xp: Any, x: Array) -> Array:
    return lapack(xp, "det", x, strict=False)


# The second derivative is symmetric in its two directions, so that it is its own transpose.
@opaque(
    x=(lambda ct, x: _cofactor_derivative(x, ct), lambda t, x: _cofactor_derivative(x, t)),
    batch=aligned,
)
def _cofactors(xp: Any, x: Array) -> Array:
    """The derivative of the determinant, ``det(x) inv(x)^T``; it exists for singular matrices."""

    def regular(det_x: Any, inverse: Any) -> Any:
        return det_x * inverse.swapaxes(-1, -2)

    def singular(x: Any) -> Any:
        sign, u, s, vh = _scaled_svd(xp, x)
        return sign * ((u * _without_one(xp, s)) @ vh)

    return _dispatch_by_condition(xp, regular, singular, x)


# Likewise the third derivative is symmetric in any two of its three directions.
@opaque(
    x=(
        lambda ct, x, t, like: fit(_cofactor_second_derivative(x, t, ct), like),
        lambda e, x, t: _cofactor_second_derivative(x, t, e),
    ),
    t=(
        lambda ct, x, like: fit(_cofactor_derivative(x, ct), like),
        lambda e, x: _cofactor_derivative(x, e),
    ),
    batch=leading(2),
)
def _cofactor_derivative(xp: Any, x: Array, t: Array) -> Array:
    """The derivative of the cofactors along ``t``.

    For diagonal matrices it is the sum over ``k`` of ``p[i, k] t[k, k]`` on the diagonal, and
    ``-p[i, j] t[j, i]`` elsewhere, where ``p[i, j]`` is the product of all singular values but
    ``s[i]`` and ``s[j]``.
    """

    def regular(det_x: Any, inverse: Any, t: Any) -> Any:
        transposed, product = inverse.swapaxes(-1, -2), inverse @ t
        trace_term = xp.trace(product, 0, -2, -1)[..., None, None] * transposed
        return det_x * (trace_term - (product @ inverse).swapaxes(-1, -2))

    def singular(x: Any, t: Any) -> Any:
        sign, u, s, vh = _scaled_svd(xp, x)
        pairs = _without_two(xp, s)
        product = u.swapaxes(-1, -2) @ t @ vh.swapaxes(-1, -2)
        trace_term = pairs @ xp.diagonal(product, 0, -2, -1)[..., None]
        inner = xp.eye(x.shape[-1], dtype=x.dtype) * trace_term - pairs * product.swapaxes(-1, -2)
        return sign * (u @ inner @ vh)

    return _dispatch_by_condition(xp, regular, singular, *same_leading(xp, "det", x, t))


def _cofactor_second_derivative(x: Any, t: Any, e: Any) -> Any:
    """The derivative of `_cofactor_derivative` along a second tangent; NaN if ``x`` is singular."""
    inverted = inverse(x)
    by_t, by_e = inverted @ t, inverted @ e
    both = by_t @ by_e
    a, b, c = (diagonal(y).sum(axis=-1) for y in (by_t, by_e, both))
    terms = both + by_e @ by_t - _scale(a, by_e) - _scale(b, by_t)
    return _scale(_det(x), _matrix_transpose(_scale(a * b - c, inverted) + terms @ inverted))


def _dispatch_by_condition(xp: Any, regular: Any, singular: Any, *operands: Any) -> Any:
    """Call ``regular(det(x), inv(x), ...)`` where these are accurate, else ``singular(x, ...)``.

    Inverses are much faster than singular values.  The choice is made for each matrix of a stack,
    so that its result does not depend on the others.
    """
    shape = operands[0].shape
    if not operands[0].size:
        return operands[0]
    x, *others = (y.reshape(-1, *shape[-2:]) for y in operands)
    inverse = lapack(xp, "inv", x, strict=False)
    det_x = lapack(xp, "det", x, strict=False)
    x = x.astype(inverse.dtype, copy=False)  # LAPACK may compute in a wider dtype
    is_accurate = _is_accurate(xp, x, inverse, det_x)
    det_x = det_x[:, None, None]
    if bool(is_accurate.all()):
        return regular(det_x, inverse, *others).reshape(shape)
    out = xp.empty_like(x)
    for mask, function, given in (
        (is_accurate, regular, (det_x, inverse, *others)),
        (~is_accurate, singular, (x, *others)),
    ):
        out[mask] = function(*(y[mask] for y in given))
    return out.reshape(shape)


def _is_accurate(xp: Any, x: Any, inverse: Any, det_x: Any) -> Any:
    """Whether products with the inverse are accurate, and the determinant is not subnormal."""
    sizes = [xp.einsum("ijk,ijk->i", y, y.conj()).real for y in (x, inverse)]
    limits = finfo(x.dtype)
    return (sizes[0] * sizes[1] < limits.eps**-0.8) & (abs(det_x) > limits.tiny)


def _scaled_svd(xp: Any, x: Any) -> tuple[Any, Any, Any, Any]:
    """Return ``sign``, ``u``, ``s``, ``vh``, from which cofactors of each order are computed.

    The cofactors of a product are the product of the factors' cofactors; those of a unitary
    matrix are its conjugate times its determinant.  ``sign`` is the product of the determinants
    of the two unitary factors.
    """
    u, s, vh = lapack(xp, "svd", x, strict=False)
    sign = lapack(xp, "det", u, strict=False) * lapack(xp, "det", vh, strict=False)
    return sign[..., None, None], u.conj(), s[..., None, :], vh.conj()


def _without_one(xp: Any, s: Any) -> Any:
    """Compute for each element the product of all others in its row, without division."""
    first = xp.ones_like(s[..., :1])
    before = xp.cumprod(xp.concatenate([first, s[..., :-1]], axis=-1), axis=-1)
    after = xp.cumprod(xp.concatenate([first, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * after


def _without_two(xp: Any, s: Any) -> Any:
    """Compute the products of all elements of a descending row but two; 0 on the diagonal."""
    first = _without_one(xp, s)
    column = s.swapaxes(-1, -2)
    rest = s[..., :-2].prod(axis=-1, keepdims=True)  # the product if both elements are 0
    by_row = first / xp.where(column != 0, column, 1)
    by_column = first.swapaxes(-1, -2) / xp.where(s != 0, s, 1)
    out = xp.where(s != 0, by_column, xp.where(column != 0, by_row, rest))
    return out * (1 - xp.eye(s.shape[-1], dtype=s.dtype))


@public("fdbr.ops.linalg")
def det(x: Array, /) -> Array:
    """The determinants of matrices.

    The derivative is ``sum(C * t)`` for the matrix ``C`` of cofactors.  The first and second
    derivatives exist for singular matrices too, where they are computed from singular values
    instead of the inverse.  Third derivatives are NaN there.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    array
        Shape ``(...)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> fdbr.grad(ops.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]])).round(12)
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return _det(square_matrices("det", x))


# --- the logarithm of the determinant -------------------------------------------------


def _slogdet_vjp(ct: Any, x: Any, out: Any) -> Any:
    ct_sign, ct_log = ct
    total = zeros_like(out[1]) if ct_log is None else ct_log
    if ct_sign is not None and ct_sign.dtype.kind == "c":
        total = total + 1j * (ct_sign * out[0]).imag
    return _scale(total, _matrix_transpose(inverse(x)))


def _slogdet_jvp(t: Any, x: Any, out: Any) -> Any:
    change = _inner(_matrix_transpose(inverse(x)), t)
    if x.dtype.kind != "c":
        return None, change  # the sign is constant
    return 1j * change.imag * out[0], change.real


@opaque(x=(_slogdet_vjp, _slogdet_jvp), batch=aligned)
def _slogdet(xp: Any, x: Array) -> Array:
    return lapack(xp, "slogdet", x, strict=False)


@public("fdbr.ops.linalg")
def slogdet(x: Array, /) -> SlogdetResult:
    """The sign and the logarithm of the absolute value of determinants, without overflow.

    The derivative of the logarithm is ``tr(x^-1 t)`` (Giles, 2008), its real part for complex
    matrices; the imaginary part rotates the sign of a complex determinant.  A singular matrix has
    sign 0, logarithm -inf, and derivative NaN.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    sign
        Shape ``(...)``: 1, -1 or 0, or a complex number of absolute value 1.
    logabsdet
        Shape ``(...)``, real.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.slogdet(np.array([[0.0, 1.0], [1.0, 0.0]]))
    SlogdetResult(sign=np.float64(-1.0), logabsdet=np.float64(0.0))
    """
    return SlogdetResult(*_slogdet(square_matrices("slogdet", x)))
