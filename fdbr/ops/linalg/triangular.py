"""Equations with triangular matrices."""

from typing import Any

import scipy.linalg

from fdbr.backend import array_module
from fdbr.core import describe
from fdbr.ops.complex_parts import conj
from fdbr.ops.kinds import fit, leading, opaque
from fdbr.ops.linalg.matrices import failure, matrices, sample, square_matrices, triangle
from fdbr.ops.shape import _matrix_transpose, expand_dims

__all__ = ["by_columns", "columns_of", "same_leading", "solve_triangular", "substitute"]

_BLOCK = 32  # rows of a triangle that LAPACK's general solver takes at once


def _pull_matrix(ct: Any, a: Any, out: Any, like: Any, lower: bool, unit: bool) -> Any:
    back = substitute(_matrix_transpose(a), ct, lower=not lower, unit=unit)
    return fit(_named(-back @ _matrix_transpose(out), lower, unit), like)


def _push_matrix(t: Any, a: Any, out: Any, lower: bool, unit: bool) -> Any:
    return -substitute(a, _named(t, lower, unit) @ out, lower=lower, unit=unit)


def _named(x: Any, lower: bool, unit: bool) -> Any:
    """The elements of a matrix that a triangular solver reads, and zeros elsewhere."""
    return triangle(x, lower=lower, k=(-1 if lower else 1) if unit else 0)


def _pull_right(ct: Any, a: Any, like: Any, lower: bool, unit: bool) -> Any:
    return fit(substitute(_matrix_transpose(a), ct, lower=not lower, unit=unit), like)


def _push_right(t: Any, a: Any, lower: bool, unit: bool) -> Any:
    return substitute(a, t, lower=lower, unit=unit)


@opaque(a=(_pull_matrix, _push_matrix), b=(_pull_right, _push_right), batch=leading(2))
def substitute(xp: Any, a: Any, b: Any, *, lower: bool, unit: bool) -> Any:
    """The solution ``x`` of ``a @ x = b`` for triangular ``a``; both are matrices."""
    if a.ndim == 2:
        return by_columns(xp, lambda a, b: _of_one(xp, a, b, lower, unit), a, b)
    a, b = same_leading(xp, a, b)
    a = xp.tril(a, -1 if unit else 0) if lower else xp.triu(a, 1 if unit else 0)
    return _halving(xp, a + xp.eye(a.shape[-1], dtype=a.dtype) if unit else a, b, lower)


def _of_one(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    """The solution for one matrix, by BLAS where SciPy can reach it."""
    if xp.__name__ == "cupy":
        from cupyx.scipy.linalg import solve_triangular

        return solve_triangular(a, b, lower=lower, unit_diagonal=unit)
    if xp.__name__ != "numpy":
        a = xp.tril(a, -1 if unit else 0) if lower else xp.triu(a, 1 if unit else 0)
        return _halving(xp, a + xp.eye(a.shape[-1], dtype=a.dtype) if unit else a, b, lower)
    if not a.size or not b.size:
        return b.astype(xp.result_type(a, b))
    if not unit and not a.diagonal().all():
        raise _singular(xp, a)
    return scipy.linalg.solve_triangular(
        a, b, lower=lower, unit_diagonal=unit, check_finite=False
    )


def _halving(xp: Any, a: Any, b: Any, lower: bool) -> Any:
    """Substitution for many matrices at once: one half of the unknowns after the other."""
    n = a.shape[-1]
    if n <= _BLOCK:
        return _small(xp, a, b, lower)
    h = n // 2
    if lower:
        first = _halving(xp, a[..., :h, :h], b[..., :h, :], lower)
        rest = b[..., h:, :] - a[..., h:, :h] @ first
        return xp.concatenate([first, _halving(xp, a[..., h:, h:], rest, lower)], axis=-2)
    last = _halving(xp, a[..., h:, h:], b[..., h:, :], lower)
    rest = b[..., :h, :] - a[..., :h, h:] @ last
    return xp.concatenate([_halving(xp, a[..., :h, :h], rest, lower), last], axis=-2)


def _small(xp: Any, a: Any, b: Any, lower: bool) -> Any:
    """The general solver, which on an upper triangle finds nothing to eliminate or exchange.

    So it substitutes, exactly as a triangular solver does; a lower triangle is an upper one
    read from the other end.
    """
    try:
        if lower:
            return xp.linalg.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
        return xp.linalg.solve(a, b)
    except xp.linalg.LinAlgError as error:
        raise _singular(xp, a) from error


def _singular(xp: Any, a: Any) -> Exception:
    return failure(
        "solve_triangular", f"the triangle {sample(xp, a)} is singular: its diagonal has a zero"
    )


# --- many right sides ---------------------------------------------------------------


def by_columns(xp: Any, solver: Any, a: Any, b: Any) -> Any:
    """The solutions for one matrix and stacks of right sides, which become columns."""
    if b.ndim == 2:
        return solver(a, b)
    columns = xp.moveaxis(b, -2, 0)
    out = solver(a, columns.reshape((b.shape[-2], b.size // b.shape[-2] if b.size else 0)))
    return xp.moveaxis(out.reshape(columns.shape), 0, -2)


def same_leading(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Stacks of matrices with their leading axes broadcast, which not every module does itself."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    stack = xp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (
        xp.broadcast_to(a, (*stack, *a.shape[-2:])),
        xp.broadcast_to(b, (*stack, *b.shape[-2:])),
    )


def columns_of(name: str, a: Any, b: Any, rows: int) -> tuple[Any, bool]:
    """A right side as matrices, and whether it is one vector; or an error if it does not fit.

    One-dimensional right sides are vectors, all others are matrices: the Array API's rule.
    """
    vector = b.ndim == 1
    b = expand_dims(b, axis=-1) if vector else matrices(name, b, "b")
    if b.shape[-2] != rows:
        raise failure(
            name,
            f"the {'length' if vector else 'rows'} of b must be as many as those of a: a "
            f"{describe(a)}, b {describe(b[..., 0] if vector else b)}",
        )
    return b, vector


# --- the public function ------------------------------------------------------------

_TRANSPOSED = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}


def solve_triangular(
    a: Any,
    b: Any,
    /,
    *,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """The solution of ``a @ x = b`` for a triangular matrix, of which one triangle is read.

    The derivative by ``a`` is that by the elements which are read; it is 0 elsewhere.

    Parameters
    ----------
    a
        Shape ``(..., n, n)``.
    b
        Shape ``(n,)``, or ``(..., n, k)``; leading axes broadcast.
    trans
        0 or ``"N"`` for ``a @ x = b``, 1 or ``"T"`` for ``a.T @ x = b``, 2 or ``"C"`` for
        ``a^H @ x = b``.
    lower
        Whether the lower triangle of ``a`` is read, rather than the upper one.
    unit_diagonal
        Whether the diagonal is taken as ones and not read.

    Returns
    -------
    array
        The shape of ``b``, broadcast.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the shapes do not fit, or the diagonal has a zero.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    array([1., 2.])
    """
    a = square_matrices("solve_triangular", a, "a")
    if trans not in _TRANSPOSED:
        raise ValueError(
            f"fdbr.ops.linalg.solve_triangular: trans must be 0, 1, 2, 'N', 'T' or 'C', not "
            f"{trans!r}"
        )
    if _TRANSPOSED[trans] != "N":
        a, lower = _matrix_transpose(a), not lower
        a = conj(a) if _TRANSPOSED[trans] == "C" else a
    b, vector = columns_of("solve_triangular", a, _floating_like(a, b), a.shape[-1])
    x = substitute(a, b, lower=bool(lower), unit=bool(unit_diagonal))
    return x[..., 0] if vector else x


def _floating_like(a: Any, b: Any) -> Any:
    from fdbr.ops.activation import floating

    return floating(b) if hasattr(b, "dtype") else floating(array_module(a).asarray(b))
