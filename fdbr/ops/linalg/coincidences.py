"""Quotients by differences of eigenvalues or singular values, and NaN where they are unknown.

The derivative of a function of eigenvectors has a term for each pair of eigenvalues, divided by
their difference.  If both are equal, the term is 0/0 for a function that does not depend on the
choice of eigenvectors, and infinite for any other function.  The limit of 0/0 is not in the
cotangent: ``V @ V^H`` and ``V @ diag(f(values)) @ V^H`` may have the same one, and the limits 0 and
``f'``.  So such a term is NaN, with two exceptions, where it is 0:

- No cotangent of the values arrives, and the mixed cotangents of the vectors cancel: the function
  depends only on the space that the vectors span.
- The cotangents of both values and of both vectors are exactly 0, those of some other value are
  not, and no element of the vectors is 0: the function does not use this pair.
"""

import math
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import stop_gradient
from fdbr.ops.declare import constant, leading, opaque
from fdbr.ops.dtypes import finfo
from fdbr.ops.elementwise.comparison import where
from fdbr.pytrees.typing import Array

__all__ = [
    "eigenvalue_errors",
    "gaps",
    "inverse_or_zero",
    "inverse_sums",
    "nan_if_chosen",
    "nan_if_defective",
    "nan_if_mixed",
    "nan_if_singular_mixed",
    "nan_if_singular_unknown",
    "nan_if_unknown",
    "negligible",
]

# Rounding separates equal eigenvalues of Hermitian matrices by up to 15 eps times the largest one,
# for up to 300 rows.  A quotient by a difference of 100 eps has an error of several percent.
_ROUNDING = 100


def negligible(values: Array) -> Any:
    """The bound of differences that rounding may have made: 100 eps times the largest value."""
    sizes = abs(stop_gradient(values))
    if not sizes.shape[-1]:
        return sizes.sum(axis=-1, keepdims=True)
    return sizes.max(axis=-1, keepdims=True) * (_ROUNDING * finfo(sizes.dtype).eps)


def _inverse_derivative(t: Any, x: Any, floor: Any, out: Any, pairs: bool) -> Any:
    unknown = (abs(x) <= floor) & (t != 0)
    if pairs:
        unknown = unknown & ~array_module(x).eye(x.shape[-1], dtype=bool)
    return t * (-out * out) * where(unknown, math.nan, 1)


@opaque(x=(_inverse_derivative, _inverse_derivative), batch=leading(2))
def _inverse_or_zero(xp: Any, x: Any, floor: Any, *, pairs: bool) -> Any:
    is_small = abs(x) <= floor
    if pairs:
        is_small = is_small | xp.eye(x.shape[-1], dtype=bool)
    return xp.where(is_small, 0, 1 / xp.where(is_small, 1, x))


def inverse_or_zero(x: Array) -> Any:
    """``1 / x`` for rows of values, and 0 for negligible values, with NaN as the derivative there.

    The result has the shape ``(..., 1, n)``.
    """
    return _inverse_or_zero(x[..., None, :], negligible(x)[..., None], pairs=False)


def inverse_sums(values: Array, pairs: bool) -> Any:
    """``1 / (values[j] + values[i])`` as `gaps`, without ``pairs`` also on the diagonal."""
    sums = values[..., None, :] + values[..., :, None]
    return _inverse_or_zero(sums, negligible(values)[..., None], pairs=pairs)


def gaps(values: Array, floor: Any = None) -> Any:
    """``1 / (values[j] - values[i])``, and 0 where they are equal up to rounding."""
    floor = negligible(values)[..., None] if floor is None else floor
    return _inverse_or_zero(values[..., None, :] - values[..., :, None], floor, pairs=True)


# --- which terms are unknown ----------------------------------------------------------

# These primitives have no derivative, but NaN times any tangent is NaN.


def _close(xp: Any, values: Any, floor: Any) -> Any:
    """The pairs of different vectors that have equal values up to rounding."""
    is_close = abs(values - values.swapaxes(-1, -2)) <= floor
    return is_close & ~xp.eye(values.shape[-1], dtype=bool)


def _idle(ct_values: Any, cts: Any, vectors: Any) -> Any:
    """The vectors that the function does not use, shape ``(..., 1, n)``.

    If no value has a cotangent, or the vector has zeros, cotangents may be 0 by chance: such as
    the derivative of one element of ``V @ diag(values) @ V^H`` at a diagonal matrix.
    """
    out = (ct_values == 0) & (ct_values != 0).any(axis=-1, keepdims=True)
    for ct, vector in zip(cts, vectors, strict=True):
        is_zero = abs(vector) <= _ROUNDING * finfo(vector.dtype).eps
        out = out & ~((ct != 0) | is_zero).any(axis=-2, keepdims=True)
    return out


def _cancel(sizes: Any, *cts: Any) -> Any:
    """Whether numerators are 0 compared with the cotangents of the vectors."""
    scale = sum(abs(ct).max(axis=(-2, -1), keepdims=True) for ct in cts)
    return sizes <= scale * finfo(sizes.dtype).eps ** 0.5


def _mixed(numerators: Any, scale: Any) -> Any:
    """Whether a tangent mixes vectors, beyond rounding errors of this scale."""
    scale = abs(scale).max(axis=(-2, -1), keepdims=True)
    return ~(abs(numerators) <= scale * (_ROUNDING * finfo(scale.dtype).eps))


def _ones(xp: Any, rows: int, columns: int, *operands: Any) -> Any:
    """The factor 1, of the operands' batch axes."""
    lead = xp.broadcast_shapes(*(x.shape[:-2] for x in operands))
    return xp.ones((*lead, rows, columns), dtype=finfo(operands[0].dtype).dtype)


def _nan_where(xp: Any, share: Any) -> Any:
    """The factor that is NaN where the share of unknown terms is not negligible, otherwise 1."""
    return xp.where(share > _ROUNDING * finfo(share.dtype).eps, xp.nan, 1).astype(share.dtype)


@constant(batch=leading(2))
def nan_if_unknown(
    xp: Any,
    floor: Any,
    values: Any,
    numerators: Any,
    ct_values: Any,
    ct_vectors: Any,
    left: Any,
    right: Any,
    *,
    only_vectors: bool,
) -> Any:
    """The factor of ``left @ terms @ right``: NaN where an unknown term contributes, otherwise 1.

    Parameters
    ----------
    floor
        The bounds of differences that rounding may have made, which broadcast to ``(..., n, n)``.
    values, ct_values
        The eigenvalues and their cotangents, shape ``(..., 1, n)``.
    numerators
        The numerators of the terms, shape ``(..., n, n)``.
    ct_vectors
        The cotangents of the eigenvectors, shape ``(..., m, n)``.
    left, right
        The factors of the product.
    only_vectors
        Whether no cotangent of the values arrived.  Then ``ct_values`` is ignored.
    """
    unknown = _close(xp, values, floor)
    if not unknown.any():
        rows, columns = left.shape[-2], right.shape[-1]
        return _ones(xp, rows, columns, values, ct_values, ct_vectors, left, right)
    if only_vectors:
        unknown = unknown & ~_cancel(abs(numerators), ct_vectors)
    else:
        idle = _idle(ct_values, (ct_vectors,), (right.swapaxes(-1, -2),))
        unknown = unknown & ~(idle & idle.swapaxes(-1, -2))
    return _nan_where(xp, abs(left) @ unknown.astype(finfo(values.dtype).dtype) @ abs(right))


@constant(batch=leading(2))
def nan_if_mixed(xp: Any, floor: Any, values: Any, numerators: Any, vectors: Any) -> Any:
    """The factor of ``vectors @ terms``: NaN where a term is infinite or unknown, otherwise 1.

    A tangent that does not mix the vectors of equal values has the numerators 0.
    """
    unknown = _close(xp, values, floor)
    if not unknown.any():
        return _ones(xp, *vectors.shape[-2:], values, numerators, vectors)
    unknown = unknown & _mixed(numerators, numerators)
    return _nan_where(xp, abs(vectors) @ unknown.astype(finfo(values.dtype).dtype))


# --- matrices that are not Hermitian ----------------------------------------------------


@constant(batch=leading(2))
def eigenvalue_errors(xp: Any, x: Any, inverse: Any) -> Any:
    """The bounds of differences between eigenvalues that rounding may have made.

    Rounding errors of a matrix move an eigenvalue by up to its condition number times as much:
    the length of the corresponding row of the inverse of the eigenvectors.
    """
    conditions = xp.sqrt((abs(inverse) ** 2).sum(axis=-1, keepdims=True))
    conditions = xp.where(xp.isfinite(conditions), conditions, 1 / finfo(conditions.dtype).eps)
    largest = xp.maximum(conditions, conditions.swapaxes(-1, -2))
    return _size(xp, x) * (_ROUNDING * finfo(x.dtype).eps) * largest


@constant(batch=leading(2))
def nan_if_defective(xp: Any, x: Any, floor: Any, values: Any) -> Any:
    """NaN for matrices that have no basis of eigenvectors up to rounding, otherwise 1.

    Then eigenvalues are equal, and their condition numbers infinite: above ``eps**-0.5``.
    """
    out = xp.ones((*floor.shape[:-2], 1, 1), dtype=floor.dtype)
    close = _close(xp, values, floor)
    if close.any():
        limit = _size(xp, x) * (_ROUNDING * finfo(x.dtype).eps ** 0.5)
        out[(close & (floor > limit)).any(axis=(-2, -1))] = xp.nan
    return out


def _size(xp: Any, x: Any) -> Any:
    return xp.sqrt((abs(x) ** 2).sum(axis=(-2, -1), keepdims=True))


# --- singular values --------------------------------------------------------------------

# Two singular values of 0 have the sum 0, too.  Also unknown are the phases of both vectors of a
# singular value of 0, and how these vectors mix with the rest of the longer space.


def _null(xp: Any, s: Any, floor: Any, left: Any) -> Any:
    """The pairs of singular values that are 0, on the diagonal only for complex matrices."""
    is_null = s + s.swapaxes(-1, -2) <= floor
    return is_null if left.dtype.kind == "c" else is_null & ~xp.eye(s.shape[-1], dtype=bool)


def _outside(xp: Any, vectors: Any) -> Any:
    """The distances of the unit vectors from the space of the vectors, shape ``(..., m, 1)``."""
    inside = (abs(vectors) ** 2).sum(axis=-1, keepdims=True)
    return xp.sqrt(xp.maximum(1 - inside, 0))


def _floor(s: Any) -> Any:
    return s.max(axis=-1, keepdims=True, initial=0) * (_ROUNDING * finfo(s.dtype).eps)


@constant(batch=leading(2))
def nan_if_singular_unknown(
    xp: Any,
    s: Any,
    by_u: Any,
    by_v: Any,
    beside: Any,
    ct_s: Any,
    ct_u: Any,
    ct_v: Any,
    left: Any,
    right: Any,
    *,
    only_vectors: bool,
) -> Any:
    """The factor of the cotangent of a matrix: NaN where an unknown term contributes, otherwise 1.

    Parameters
    ----------
    s, ct_s
        The singular values and their cotangents, shape ``(..., 1, k)``.
    by_u, by_v
        The mixed cotangents of the vectors, shape ``(..., k, k)``.
    beside
        The part of the cotangents outside the vectors of the longer side, shape ``(..., m, k)``.
        It is ignored for square matrices.
    ct_u, ct_v
        The cotangents of the vectors as columns, ``(..., m, k)`` and ``(..., n, k)``.
    left, right
        The vectors as columns.
    only_vectors
        Whether no cotangent of the singular values arrived.  Then ``ct_s`` is ignored.
    """
    floor = _floor(s)
    null = _null(xp, s, floor, left)
    unknown, lost = _close(xp, s, floor) | null, s <= floor
    if not (unknown.any() or lost.any()):
        rows, columns = left.shape[-2], right.shape[-2]
        return _ones(xp, rows, columns, s, ct_s, ct_u, ct_v, left, right)
    beside = abs(beside).max(axis=-2, keepdims=True)
    if only_vectors:
        even, odd = by_u + by_v, by_u - by_v
        sizes = abs(even - _adjoint(even)) + null * abs(odd - _adjoint(odd))
        unknown = unknown & ~_cancel(sizes, ct_u, ct_v)
        lost = lost & ~_cancel(beside, ct_u, ct_v)
    else:
        idle = _idle(ct_s, (ct_u, ct_v), (left, right))
        unknown = unknown & ~(idle & idle.swapaxes(-1, -2))
        lost = lost & ~(idle & (beside == 0))
    return _nan_where(xp, _share(xp, unknown, lost, left, right))


@constant(batch=leading(2))
def nan_if_chosen(xp: Any, vectors: Any, cts: Any) -> Any:
    """NaN for matrices whose cotangents depend on the choice of the vectors of a space, or 1.

    The phases of single vectors are not considered.
    """
    mixed = _adjoint(vectors) @ cts
    sizes = abs(mixed - _adjoint(mixed)) * ~xp.eye(mixed.shape[-1], dtype=bool)
    depends = ~_cancel(sizes, cts).all(axis=(-2, -1), keepdims=True)
    return xp.where(depends, xp.nan, 1).astype(sizes.dtype)


def _share(xp: Any, unknown: Any, lost: Any, left: Any, right: Any) -> Any:
    """The sums of the absolute shares of unknown terms in the elements of a matrix."""
    m, n, k = left.shape[-2], right.shape[-2], left.shape[-1]
    size_left, size_right = abs(left), abs(right).swapaxes(-1, -2)
    unknown, lost = unknown.astype(size_left.dtype), lost.astype(size_left.dtype)
    share = size_left @ unknown @ size_right
    if m > k:
        share = share + _outside(xp, left) * (lost @ size_right)
    if n > k:
        share = share + (size_left @ lost.swapaxes(-1, -2)) * _outside(xp, right).swapaxes(-1, -2)
    return share


@constant(batch=leading(2))
def nan_if_singular_mixed(xp: Any, s: Any, p: Any, beside: Any, scale: Any, vectors: Any) -> Any:
    """The factor of the tangent of ``vectors``: NaN where a term is infinite or unknown.

    ``p`` is the tangent of the matrix in the basis of singular vectors, ``beside`` its part
    outside ``vectors``, and ``scale`` the whole tangent.
    """
    floor = _floor(s)
    null, lost = _null(xp, s, floor, vectors), s <= floor
    close = _close(xp, s, floor)
    if not (close.any() or lost.any()):
        return _ones(xp, *vectors.shape[-2:], s, p, scale, vectors)
    even = _mixed(p + _adjoint(p), scale) & close
    unknown = even | (_mixed(p - _adjoint(p), scale) & null)
    share = abs(vectors) @ unknown.astype(s.dtype)
    if vectors.shape[-2] > vectors.shape[-1]:
        lost = lost & _mixed(beside, scale).any(axis=-2, keepdims=True)
        share = share + _outside(xp, vectors) * lost
    return _nan_where(xp, share)


def _adjoint(x: Any) -> Any:
    return x.swapaxes(-1, -2).conj()
