"""Equations with triangular matrices."""

from typing import Any

from numpy.linalg import LinAlgError

from fdbr.libraries import scipy_of
from fdbr.ops.arranging import tril, triu
from fdbr.ops.complex_parts import conj
from fdbr.ops.kinds import fit, opaque
from fdbr.ops.linalg.matrices import failure, sample, square_matrices
from fdbr.ops.linalg.right_sides import batch_equation, equation, same_leading
from fdbr.ops.shape import _matrix_transpose

__all__ = ["solve_triangular", "substitute"]

# Rows of a triangle that LAPACK's general solver takes at once.  For one larger matrix BLAS's own
# is the fastest; for small ones its threads cost more than they bring.
_BLOCK = 32


def _read(x: Any, lower: bool, unit: bool) -> Any:
    """The elements of a matrix that a triangular solver reads, and zeros elsewhere."""
    return tril(x, k=-1 if unit else 0) if lower else triu(x, k=1 if unit else 0)


def _pull_matrix(ct: Any, a: Any, out: Any, like: Any, lower: bool, unit: bool) -> Any:
    back = substitute(_matrix_transpose(a), ct, lower=not lower, unit=unit)
    return fit(_read(-back @ _matrix_transpose(out), lower, unit), like)


def _push_matrix(t: Any, a: Any, out: Any, lower: bool, unit: bool) -> Any:
    return -substitute(a, _read(t, lower, unit) @ out, lower=lower, unit=unit)


def _pull_right(ct: Any, a: Any, like: Any, lower: bool, unit: bool) -> Any:
    return fit(substitute(_matrix_transpose(a), ct, lower=not lower, unit=unit), like)


def _push_right(t: Any, a: Any, lower: bool, unit: bool) -> Any:
    return substitute(a, t, lower=lower, unit=unit)


@opaque(a=(_pull_matrix, _push_matrix), b=(_pull_right, _push_right), batch=batch_equation)
def substitute(xp: Any, a: Any, b: Any, *, lower: bool, unit: bool) -> Any:
    """The solution ``x`` of ``a @ x = b`` for triangular ``a``; both are matrices."""
    try:
        return _substituted(xp, a, b, lower, unit)
    except LinAlgError as error:
        raise failure(
            "solve_triangular",
            f"the triangle of {sample(a)} is singular: there is a zero on its diagonal",
        ) from error


def _substituted(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    library = scipy_of(xp, "linalg")
    if a.ndim == b.ndim == 2 and a.shape[-1] > _BLOCK and library is not None:
        return library.solve_triangular(a, b, lower=lower, unit_diagonal=unit, check_finite=False)
    a, b = same_leading(xp, "solve_triangular", a, b)
    a = _read(a, lower, unit)
    return _by_halves(xp, a + xp.eye(a.shape[-1], dtype=a.dtype) if unit else a, b, lower)


def _by_halves(xp: Any, a: Any, b: Any, lower: bool) -> Any:
    """Substitution for many matrices at once: one half of the unknowns, then the other."""
    n = a.shape[-1]
    if n <= _BLOCK:
        return _small(xp, a, b, lower)
    h = n // 2
    if lower:
        head = _by_halves(xp, a[..., :h, :h], b[..., :h, :], lower)
        tail = _by_halves(xp, a[..., h:, h:], b[..., h:, :] - a[..., h:, :h] @ head, lower)
    else:
        tail = _by_halves(xp, a[..., h:, h:], b[..., h:, :], lower)
        head = _by_halves(xp, a[..., :h, :h], b[..., :h, :] - a[..., :h, h:] @ tail, lower)
    return xp.concatenate([head, tail], axis=-2)


def _small(xp: Any, a: Any, b: Any, lower: bool) -> Any:
    """The general solver, which in an upper triangle finds nothing to eliminate or exchange.

    So it substitutes as a triangular solver does; a lower triangle is an upper one read from
    the other end.
    """
    if lower:
        return xp.linalg.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    return xp.linalg.solve(a, b)


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

    The derivative by ``a`` is that by the elements which are read; by the others it is 0.  It
    is ``-a^-T ct x^T`` in reverse and ``-a^-1 t x`` in forward mode (Giles, "An extended
    collection of matrix derivative results for forward and reverse mode algorithmic
    differentiation", 2008).

    Parameters
    ----------
    a
        Shape ``(..., n, n)``.
    b
        Shape ``(n,)``, or ``(..., n, k)``; leading axes broadcast.
    trans
        0 or ``"N"`` for ``a @ x = b``, 1 or ``"T"`` for ``a.T @ x = b``, 2 or ``"C"`` for
        ``conj(a).T @ x = b``.
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
        If the shapes do not fit, or there is a zero on the diagonal.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([4.0, 8.0]))
    array([1., 2.])
    """
    a = square_matrices("solve_triangular", a, "a")
    if trans not in _TRANSPOSED:
        raise ValueError(
            "fdbr.ops.linalg.solve_triangular: trans must be 0, 1, 2, 'N', 'T' or 'C', not "
            f"{trans!r}"
        )
    if _TRANSPOSED[trans] != "N":
        a, lower = _matrix_transpose(a), not lower
        a = conj(a) if _TRANSPOSED[trans] == "C" else a
    return equation(
        "solve_triangular",
        a,
        b,
        lambda a, b: substitute(a, b, lower=bool(lower), unit=bool(unit_diagonal)),
    )
