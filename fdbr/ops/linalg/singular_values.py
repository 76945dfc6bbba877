"""Singular value decomposition, rank and pseudoinverse."""

import math
from typing import Any, NamedTuple

from fdbr.core.tracer import stop_gradient
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, leading, opaque
from fdbr.ops.dtypes import astype, finfo
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.elementwise.complex_parts import conj, real
from fdbr.ops.linalg.coincidences import (
    gaps,
    inverse_or_zero,
    inverse_sums,
    nan_if_chosen,
    nan_if_singular_mixed,
    nan_if_singular_unknown,
    negligible,
)
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import adjoint, matrices
from fdbr.ops.linalg.products import chain
from fdbr.ops.reductions.reduce import count_nonzero
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import _diagonal, concat
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "SVDResult",
    "matrix_rank",
    "pinv",
    "rank_of",
    "svd",
    "svdvals",
    "tolerance",
]


class SVDResult(NamedTuple):
    """The singular value decomposition ``U @ diag(S) @ Vh``."""

    U: Any
    S: Any
    Vh: Any


# --- the decomposition --------------------------------------------------------------

# With P = U^H t V = Ω_U S + dS - S Ω_V and dU = U Ω_U, dV = V Ω_V, where both Ω are
# anti-Hermitian, their sum and difference decouple:
#     (Ω_U + Ω_V)[i, j] = (P + P^H)[i, j] / (s[j] - s[i]),
#     (Ω_U - Ω_V)[i, j] = (P - P^H)[i, j] / (s[j] + s[i]).
# The second is regular where singular values are equal; its diagonal is the additional term of
# complex matrices.


def _inverse_sums(s: Any, u: Any) -> Any:
    """``1 / (s[j] + s[i])``, and 0 where both are 0 up to rounding.

    The numerators on the diagonal are imaginary, so it is not needed for real matrices.
    """
    return inverse_sums(s, pairs=u.dtype.kind != "c")


def _kink_derivative(t: Any, x: Any, s: Any) -> Any:
    is_used = (x != 0) | (s == 0).all(axis=-1, keepdims=True)
    return t * where((s <= negligible(s)) & is_used, math.nan, 0)


@opaque(
    x=(lambda ct, like: fit(ct, like), lambda t: t),
    s=(lambda ct, x, s, like: fit(_kink_derivative(ct, x, s), like), _kink_derivative),
    batch=leading(1),
)
def _kinked(xp: Any, x: Any, s: Any) -> Any:
    """The cotangent or tangent of singular values, with NaN as its derivative at 0.

    A singular value has a kink at 0, as an absolute value has.
    """
    return x * xp.ones_like(s)


def _svd_vjp(ct: Any, out: Any, full: bool, strict: bool) -> Any:
    u, s, v = conj(out[0]), out[1], adjoint(conj(out[2]))
    of_u, of_s, of_vh = ct
    k = s.shape[-1]
    left, right = u[..., :k], v[..., :k]
    of_s = None if of_s is None else _kinked(of_s, s)
    if of_u is None and of_vh is None:
        return (left * of_s[..., None, :]) @ adjoint(right)
    of_u = zeros_like(u) if of_u is None else of_u
    of_v = zeros_like(v) if of_vh is None else adjoint(of_vh)
    by_u, by_v = adjoint(left) @ of_u[..., :k], adjoint(right) @ of_v[..., :k]
    even, odd = gaps(s) * (by_u + by_v) / 2, _inverse_sums(s, u) * (by_u - by_v) / 2
    outer = left @ (even + adjoint(even) + odd - adjoint(odd))
    if of_s is not None:
        outer = outer + left * of_s[..., None, :]
    inverse = inverse_or_zero(s)
    beside = by_u
    if left.shape[-2] > k:
        beside = _orthogonal_part(u, of_u, by_u, k, full)
        outer = outer + beside * inverse
    out = outer @ adjoint(right)
    if right.shape[-2] > k:
        beside = _orthogonal_part(v, of_v, by_v, k, full)
        out = out + left @ adjoint(beside * inverse)
    factor = nan_if_singular_unknown(
        s[..., None, :],
        by_u,
        by_v,
        beside,
        (s if of_s is None else of_s)[..., None, :],
        of_u[..., :k],
        of_v[..., :k],
        left,
        right,
        only_vectors=of_s is None and strict,
    )
    for vectors, ct_vectors in ((u, of_u), (v, of_v)) if full else ():
        if vectors.shape[-2] > k + 1:  # one vector has no other to mix with
            factor = factor * nan_if_chosen(vectors[..., k:], ct_vectors[..., k:])
    return out * factor


def _orthogonal_part(u: Any, of_u: Any, by_u: Any, k: int, full: bool) -> Any:
    """The part of the cotangent of singular vectors orthogonal to the space that they span."""
    out = of_u[..., :k] - u[..., :k] @ by_u
    if full:
        out = out - u[..., k:] @ (adjoint(of_u[..., k:]) @ u[..., :k])
    return out


def _svd_jvp(t: Any, out: Any, full: bool) -> Any:
    u, s, v = out[0], out[1], adjoint(out[2])
    k = s.shape[-1]
    left, right = u[..., :k], v[..., :k]
    p = adjoint(left) @ t @ right
    even, odd = gaps(s) * (p + adjoint(p)) / 2, _inverse_sums(s, u) * (p - adjoint(p)) / 2
    of_u, of_v = left @ (even + odd), right @ (even - odd)
    inverse = inverse_or_zero(s)
    beside_u, beside_v = t @ right - left @ p, adjoint(t) @ left - right @ adjoint(p)
    of_u = (of_u + beside_u * inverse) if left.shape[-2] > k else of_u
    of_v = (of_v + beside_v * inverse) if right.shape[-2] > k else of_v
    of_u = of_u * nan_if_singular_mixed(s[..., None, :], p, beside_u, t, left)
    of_v = of_v * nan_if_singular_mixed(s[..., None, :], p, beside_v, t, right)
    if full and left.shape[-2] > k:
        of_u = _complete_tangent(of_u, u, k)
    if full and right.shape[-2] > k:
        of_v = _complete_tangent(of_v, v, k)
    return of_u, _kinked(real(_diagonal(p, offset=0)), s), adjoint(of_v)


def _complete_tangent(of_u: Any, u: Any, k: int) -> Any:
    """The tangent of all columns: those after the first ``k`` stay orthogonal to these."""
    return concat([of_u, -u[..., :k] @ (adjoint(of_u) @ u[..., k:])], axis=-1)


@opaque(x=(_svd_vjp, _svd_jvp), batch=aligned)
def _svd(xp: Any, x: ArrayLike, *, full: bool, strict: bool) -> Array:
    return lapack(xp, "svd_full" if full else "svd", x, strict=strict)


@public("fdbr.ops.linalg")
def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition ``U @ diag(S) @ Vh = x``.

    The decomposition is not unique: a pair of singular vectors may be multiplied by any number of
    absolute value 1, vectors of equal singular values may be mixed, and the columns that
    ``full_matrices`` adds may be any that complete a basis.  A function has a gradient if it does
    not depend on these choices.

    Singular values that differ by at most 100 eps times the largest are treated as equal, and such
    small ones as 0.  Derivatives that mix the vectors of equal singular values, or that divide by
    0, are treated as in `eigh`: ``(U * f(S)) @ Vh`` has the gradient NaN there.  The polar factor
    ``U @ Vh`` of a matrix of full rank has its gradient where singular values are equal, too.  For
    its tangent (`jvp`), use ``x @ inv(sqrtm(x^H @ x))``.  A function that depends on the choice of
    the added columns has the gradient NaN.

    The formulas are those of Townsend ("Differentiating the singular value decomposition",
    2016) and, for complex matrices, Wan and Zhang ("Automatic differentiation for complex
    valued SVD", 2019).

    Parameters
    ----------
    x
        Shape ``(..., m, n)``.
    full_matrices
        Whether ``U`` and ``Vh`` are square, the default of the Array API; otherwise they have
        ``k = min(m, n)`` columns and rows.

    Returns
    -------
    U, S, Vh
        Shapes ``(..., m, m or k)``, ``(..., k)`` (real, descending) and ``(..., n or k, n)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``x`` has fewer than two dimensions, or the iteration does not converge.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.svd(np.array([[0.0, 2.0], [1.0, 0.0]])).S
    array([2., 1.])
    """
    x = matrices("svd", x)
    full = bool(full_matrices) and x.shape[-1] != x.shape[-2]
    return SVDResult(*_svd(x, full=full, strict=True))


@opaque(
    x=(
        lambda ct, x: _svd_vjp((None, ct, None), _svd(x, full=False, strict=False), False, False),
        lambda t, x: _svd_jvp(t, _svd(x, full=False, strict=False), False)[1],
    ),
    batch=aligned,
)
def _svdvals(xp: Any, x: ArrayLike) -> Array:
    return lapack(xp, "svdvals", x, strict=True)


@public("fdbr.ops.linalg")
def svdvals(x: ArrayLike, /) -> Array:
    """The singular values, descending; see `svd`.

    The singular vectors, which the derivative needs, are computed with the derivative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.svdvals(np.array([[0.0, 2.0], [1.0, 0.0]]))
    array([2., 1.])
    """
    return _svdvals(matrices("svdvals", x))


def tolerance(x: Any, rtol: Any) -> Any:
    """The tolerance relative to the largest singular value, with two axes appended."""
    if rtol is None:
        return float(max(x.shape[-2:]) * finfo(x.dtype).eps)
    rtol = stop_gradient(rtol)
    if not hasattr(rtol, "dtype"):
        return float(rtol)
    return astype(rtol[..., None, None], finfo(x.dtype).dtype)


@public("fdbr.ops.linalg")
def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Array:
    """The rank: the number of singular values above ``rtol`` times the largest.

    Parameters
    ----------
    x
        Shape ``(..., m, n)``.
    rtol
        A number, or an array that broadcasts with the leading axes; ``max(m, n) * eps`` by
        default.

    Returns
    -------
    array
        Integers, shape ``(...)``.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> int(ops.linalg.matrix_rank(np.array([[1.0, 2.0], [2.0, 4.0]])))
    1
    """
    x = matrices("matrix_rank", stop_gradient(x))
    return rank_of(_svdvals(x), tolerance(x, rtol))


def rank_of(values: Array, rtol: Any) -> Any:
    """Count the singular values above a fraction of the largest."""
    values = values[..., None, :]
    return count_nonzero(values > rtol * values[..., :1], axis=(-2, -1))


# --- pseudoinverses -----------------------------------------------------------------


def _pinv_vjp(ct: Any, x: Any, out: Any, like: Any) -> Any:
    a, p = conj(x), conj(out)
    ct_adjoint, p_adjoint = adjoint(ct), adjoint(p)
    row_term = chain(ct_adjoint, p, p_adjoint)
    column_term = chain(p_adjoint, p, ct_adjoint)
    return fit(
        (row_term - chain(a, p, row_term))
        + (column_term - chain(column_term, p, a))
        - chain(p_adjoint, ct, p_adjoint),
        like,
    )


def _pinv_jvp(t: Any, x: Any, out: Any) -> Any:
    ct_adjoint, p_adjoint = adjoint(t), adjoint(out)
    row_term = chain(out, p_adjoint, ct_adjoint)
    column_term = chain(ct_adjoint, p_adjoint, out)
    return (
        (row_term - chain(row_term, x, out))
        + (column_term - chain(out, x, column_term))
        - chain(out, t, out)
    )


@opaque(x=(_pinv_vjp, _pinv_jvp), batch=leading(2))
def _pinv(xp: Any, x: ArrayLike, rtol: Any) -> Array:
    u, s, vh = lapack(xp, "svd", x, strict=True)
    s = s[..., None, :]
    is_kept = s > rtol * s[..., :1]
    inverse = xp.where(is_kept, 1 / xp.where(is_kept, s, 1), 0)
    return (vh.swapaxes(-1, -2).conj() * inverse) @ u.swapaxes(-1, -2).conj()


@public("fdbr.ops.linalg")
def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Array:
    """The Moore-Penrose pseudoinverses of matrices.

    Its derivative is that of Golub and Pereyra ("The differentiation of pseudo-inverses and
    nonlinear least squares problems whose variables separate", 1973), which holds as long as the
    rank does not change: where it changes, the pseudoinverse jumps.

    Parameters
    ----------
    x
        Shape ``(..., m, n)``, of any rank.
    rtol
        Singular values up to this fraction of the largest count as 0: a number, or an array that
        broadcasts with the leading axes; ``max(m, n) * eps`` by default.  It is not
        differentiated.

    Returns
    -------
    array
        Shape ``(..., n, m)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``x`` has fewer than two dimensions.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.pinv(np.array([[2.0, 0.0], [0.0, 0.0]]))
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    x = matrices("pinv", x)
    return _pinv(x, tolerance(x, rtol))
