"""Solutions of linear equations with triangular matrices."""

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.core.devices import is_host, scipy_of
from fdbr.errors.public import public
from fdbr.ops.declare import fit, opaque
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.linalg.lapack import nan_where_failing
from fdbr.ops.linalg.matrices import linalg_error, sample, square_matrices
from fdbr.ops.linalg.right_sides import batch_equation, equation, same_leading
from fdbr.ops.shape.layout import tril, triu
from fdbr.ops.shape.manipulation import _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["solve_triangular", "substitute"]

_BLOCK = 16  # rows up to which unknowns are eliminated one by one, instead of by matrix products


def _read_triangle(x: Any, lower: bool, unit: bool) -> Any:
    """Keep the elements that a triangular solver reads, with zeros elsewhere."""
    return tril(x, k=-1 if unit else 0) if lower else triu(x, k=1 if unit else 0)


def _first_vjp(ct: Any, a: Any, lower: bool, unit: bool) -> Any:
    return substitute(_matrix_transpose(a), ct, lower=not lower, unit=unit)


def _matrix_vjp(solved: Any, out: Any, like: Any, lower: bool, unit: bool) -> Any:
    return fit(_read_triangle(-solved @ _matrix_transpose(out), lower, unit), like)


def _matrix_jvp(t: Any, a: Any, out: Any, lower: bool, unit: bool) -> Any:
    return -substitute(a, _read_triangle(t, lower, unit) @ out, lower=lower, unit=unit)


def _right_jvp(t: Any, a: Any, lower: bool, unit: bool) -> Any:
    return substitute(a, t, lower=lower, unit=unit)


@opaque(
    first=_first_vjp,
    a=(_matrix_vjp, _matrix_jvp),
    b=(lambda solved, like: fit(solved, like), _right_jvp),
    batch=batch_equation,
)
def _substitute(
    xp: Any, a: ArrayLike, b: ArrayLike, *, lower: bool, unit: bool, strict: bool
) -> Array:
    dtype = xp.result_type(a, b)
    a, b = same_leading(xp, "solve_triangular", a.astype(dtype, copy=False), b)
    b = b.astype(dtype, copy=False)

    def solution(a: Any, b: Any) -> Any:
        # On a GPU this check waits for the device, so it is skipped in derivative rules.
        if (strict or is_host(xp)) and not (unit or bool(xp.diagonal(a, 0, -2, -1).all())):
            raise LinAlgError("there is a zero on the diagonal")
        return _solve_triangle(xp, a, b, lower, unit)

    if not strict:
        return nan_where_failing(xp, solution, a, b)
    try:
        return solution(a, b)
    except LinAlgError as error:
        raise singular(a) from error


def singular(a: Any) -> LinAlgError:
    """Return the error for a triangle with a zero on its diagonal."""
    return linalg_error(
        "solve_triangular",
        f"the triangle of {sample(a)} is singular: there is a zero on its diagonal",
    )


def substitute(a: Array, b: Array, *, lower: bool, unit: bool = False) -> Any:
    """The solution of ``a @ x = b`` for triangular ``a`` and a matrix ``b``, for derivative rules.

    It is NaN where the diagonal contains a zero.
    """
    return _substitute(a, b, lower=lower, unit=unit, strict=False)


def _solve_triangle(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    library = scipy_of(xp, "linalg")
    has_function = library is not None and a.dtype.char in "fdFD"
    if a.ndim == 2 and a.shape[-1] > _BLOCK and has_function:
        return library.solve_triangular(a, b, lower=lower, unit_diagonal=unit, check_finite=False)
    with np.errstate(all="ignore"):
        return _by_halves(xp, a, b, lower, unit)


def _by_halves(xp: Any, a: Any, b: Any, lower: bool, unit: bool) -> Any:
    """Substitute recursively: solve for half of the unknowns, then for the other half."""
    n = a.shape[-1]
    if n <= _BLOCK:
        return _by_rows(a, b, lower, unit)
    h = n // 2
    first, last = slice(None, h), slice(h, None)
    if not lower:
        first, last = last, first
    solved = _by_halves(xp, a[..., first, first], b[..., first, :], lower, unit)
    rest = b[..., last, :] - a[..., last, first] @ solved
    found = _by_halves(xp, a[..., last, last], rest, lower, unit)
    return xp.concatenate([solved, found] if lower else [found, solved], axis=-2)


def _by_rows(a: Any, b: Any, lower: bool, unit: bool) -> Any:
    """Substitute one unknown after the other, for all matrices of a stack at once."""
    out = b.copy()
    n = a.shape[-1]
    for i in range(n) if lower else range(n - 1, -1, -1):
        if not unit:
            out[..., i, :] /= a[..., i, i, None]
        rest = slice(i + 1, None) if lower else slice(i)
        out[..., rest, :] -= a[..., rest, i, None] * out[..., i, None, :]
    return out


_TRANSPOSED = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}


@public("fdbr.ops.linalg")
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The solution of ``a @ x = b``, where one triangle of ``a`` is read.

    The derivative in ``a`` is 0 for elements that are not read; for the others it is
    ``-a^-T ct x^T`` in reverse and ``-a^-1 t x`` in forward mode (Giles, "An extended
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
        If the shapes do not fit, or the diagonal contains a zero.
    ValueError
        If ``trans`` is none of these.

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
        lambda a, b: _substitute(a, b, lower=bool(lower), unit=bool(unit_diagonal), strict=True),
    )
