"""Inverses, and solutions of linear equations with square matrices."""

import functools
from typing import Any

from numpy.linalg import LinAlgError

from fdbr.core.array_modules import Array
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, opaque
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import linalg_error, sample, square_matrices
from fdbr.ops.linalg.right_sides import batch_equation, equation, same_leading
from fdbr.ops.shape.manipulation import _matrix_transpose

__all__ = ["inv", "inverse", "solve", "solve_matrices"]


def _inv_vjp(ct: Any, out: Any) -> Any:
    transposed = _matrix_transpose(out)
    return -(transposed @ ct @ transposed)


@opaque(x=(_inv_vjp, lambda t, out: -(out @ t @ out)), batch=aligned)
def _inv(xp: Any, x: Array, *, strict: bool) -> Array:
    try:
        return lapack(xp, "inv", x, strict=strict)
    except LinAlgError as error:
        raise linalg_error("inv", f"{sample(x)} is singular; use linalg.pinv") from error


def inverse(x: Array) -> Any:
    """The inverses of matrices, for derivative rules: NaN for singular matrices."""
    return _inv(x, strict=False)


@public("fdbr.ops.linalg")
def inv(x: Array, /) -> Any:
    """The inverses of matrices.

    Its derivative is ``-y t y`` for the inverse ``y`` (Giles, 2008).  To apply an inverse,
    `solve` is faster and more precise.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or singular.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return _inv(square_matrices("inv", x), strict=True)


@opaque(
    first=lambda ct, a: solve_matrices(_matrix_transpose(a), ct),
    a=(
        lambda solved, out, like: fit(-solved @ _matrix_transpose(out), like),
        lambda t, a, out: -solve_matrices(a, t @ out),
    ),
    b=(lambda solved, like: fit(solved, like), lambda t, a: solve_matrices(a, t)),
    batch=batch_equation,
)
def _solve(xp: Any, a: Array, b: Array, *, strict: bool) -> Array:
    a, b = same_leading(xp, "solve", a, b)
    try:
        return lapack(xp, "solve", a, b, strict=strict)
    except LinAlgError as error:
        raise linalg_error("solve", f"{sample(a)} is singular; use linalg.lstsq") from error


def solve_matrices(a: Array, b: Array) -> Any:
    """The solution of ``a @ x = b``, for derivative rules: NaN where ``a`` is singular."""
    return _solve(a, b, strict=False)


@public("fdbr.ops.linalg")
def solve(x1: Array, x2: Array, /) -> Array:
    """The solution ``x`` of the linear equations ``x1 @ x = x2``.

    Its derivatives are ``-x1^-1 t x`` in ``x1`` and ``x1^-1 t`` in ``x2`` (Giles, 2008).

    Parameters
    ----------
    x1
        Regular matrices, shape ``(..., n, n)``.
    x2
        Shape ``(n,)``: one vector; or ``(..., n, k)``: matrices.  Leading axes broadcast.

    Returns
    -------
    array
        The shape of ``x2``, broadcast.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or singular, or the right side does not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.solve(np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([9.0, 8.0]))
    array([2., 3.])
    """
    return equation(
        "solve", square_matrices("solve", x1, "x1"), x2, functools.partial(_solve, strict=True)
    )
