"""Factorizations into triangular and orthogonal matrices."""

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.backends.cpu.library.small_linalg import matrices as kernels
from fdbr.ops.declare import aligned, opaque
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import (
    adjoint,
    failure,
    folded,
    half_triangle,
    matrices,
    mirrored,
    sample,
    square_matrices,
)
from fdbr.ops.linalg.triangular import substitute
from fdbr.ops.shape.creation import zeros_like
from fdbr.ops.shape.manipulation import _matrix_transpose, concat
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["QRResult", "cholesky", "qr"]


class QRResult(NamedTuple):
    """The factors ``Q`` with orthonormal columns and ``R``, an upper triangle."""

    Q: Any
    R: Any


# Derivatives of complex factorizations hold for their real and imaginary parts.  Textbooks
# write them with gradients, the conjugates of cotangents.  A pull conjugates its matrices
# instead, which comes to the same as conjugating what goes in and what comes out.

# --- Cholesky -----------------------------------------------------------------------


def _cholesky_pull(ct: Any, out: Any) -> Any:
    upper = adjoint(conj(out))
    half = substitute(upper, half_triangle(upper @ ct), lower=False)
    return folded(substitute(upper, adjoint(half), lower=False))


def _cholesky_push(t: Any, out: Any) -> Any:
    half = substitute(out, mirrored(t), lower=True)
    return out @ half_triangle(substitute(out, adjoint(half), lower=True))


@opaque(x=(_cholesky_pull, _cholesky_push), batch=aligned)
def _cholesky(xp: Any, x: ArrayLike) -> Array:
    try:
        return lapack(xp, "cholesky", x, strict=True)
    except LinAlgError as error:
        raise failure(
            "cholesky",
            f"{sample(x)} is not positive definite; a covariance that rounding has made so "
            "becomes positive definite by adding a small multiple of the identity",
        ) from error


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Array:
    """The triangular matrix ``L`` with ``L @ L^H = x``, for positive definite matrices.

    One triangle of ``x`` is read, the lower one (or, with ``upper``, the upper one), and of the
    diagonal the real part, as in NumPy.  Value and derivative are of that function: the gradient
    lies on that triangle and is 0 beside it, so that for a symmetric matrix an element beside the
    diagonal has what both have together.  (The gradient of a function of ``(x + x.T) / 2`` is
    symmetric.)  The formula is ``L Φ(L^-1 t L^-H)``, where ``Φ`` takes the lower triangle and
    halves the diagonal, and ``t`` is Hermitian as ``x`` is taken to be (Giles, 2008; Murray,
    "Differentiation of the Cholesky decomposition", 2016).

    Parameters
    ----------
    x
        Positive definite Hermitian matrices, shape ``(..., n, n)``.
    upper
        Whether the upper factor ``U = L^H`` with ``U^H @ U = x`` is returned.

    Returns
    -------
    array
        The shape of ``x``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or not positive definite.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    x = square_matrices("cholesky", x)
    return adjoint(_cholesky(adjoint(x))) if upper else _cholesky(x)


# --- QR -----------------------------------------------------------------------------


def _divide_right(x: Any, upper: Any) -> Any:
    """``x @ upper^-1``."""
    lower = _matrix_transpose(upper)
    return _matrix_transpose(substitute(lower, _matrix_transpose(x), lower=True))


def _qr_pull(ct: Any, out: Any, complete: bool) -> Any:
    q, r = map(conj, out)
    n = r.shape[-1]
    of_q, of_r = (
        zeros_like(whole) if part is None else part for part, whole in zip(ct, out, strict=True)
    )
    first, given = q[..., :n], of_q[..., :n]
    if complete:
        given = given - q[..., n:] @ (adjoint(of_q[..., n:]) @ first)
        r, of_r = r[..., :n, :], of_r[..., :n, :]
    half = half_triangle(r @ adjoint(of_r) - adjoint(given) @ first)
    left = given + first @ (half + adjoint(half))
    return adjoint(substitute(r, adjoint(left), lower=False))


def _qr_push(t: Any, out: Any, complete: bool) -> Any:
    q, r = out
    n = r.shape[-1]
    first, square = q[..., :n], r[..., :n, :]
    ratio = _divide_right(t, square)
    turned = adjoint(first) @ ratio
    half = half_triangle(turned)
    upper = turned - half + adjoint(half)
    of_q, of_r = ratio - first @ upper, upper @ square
    if complete:
        of_q = concat([of_q, -first @ (adjoint(of_q) @ q[..., n:])], axis=-1)
        of_r = concat([of_r, zeros_like(r[..., n:, :])], axis=-2)
    return of_q, of_r


@opaque(x=(_qr_pull, _qr_push), batch=aligned)
def _qr(xp: Any, x: ArrayLike, *, complete: bool) -> Any:
    found = kernels.qr(x, complete) if xp is np else None
    if found:
        return found[0]
    return tuple(xp.linalg.qr(x, mode="complete" if complete else "reduced"))


def qr(x: ArrayLike, /, *, mode: str = "reduced") -> QRResult:
    """The factorization ``Q @ R = x`` into orthonormal columns and an upper triangle.

    It is differentiable where ``x`` has full column rank or, if ``x`` is wide, where its first
    square block is regular; elsewhere its derivative raises `numpy.linalg.LinAlgError`.  The
    columns that ``mode="complete"`` adds to ``Q`` are not determined by ``x``, only the space
    that they span: a function has a gradient if it does not depend on their choice.

    The formulas are those of Walter and Lehmann ("Algorithmic differentiation of linear
    algebra functions with application in optimum experimental design", 2010), for complex and
    wide matrices as Roberts and Roberts ("QR and LQ decomposition matrix backpropagation
    algorithms for square, wide, and deep matrices", 2020) give them.

    Parameters
    ----------
    x
        Shape ``(..., m, n)``.
    mode
        ``"reduced"``, or ``"complete"`` for a square ``Q``.

    Returns
    -------
    Q, R
        Shapes ``(..., m, k)`` and ``(..., k, n)``, where ``k`` is ``min(m, n)`` or, in mode
        ``"complete"``, ``m``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``x`` has fewer than two dimensions.
    ValueError
        If there is no such mode.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> q, r = ops.linalg.qr(np.array([[3.0, 1.0], [4.0, 2.0], [0.0, 1.0]]))
    >>> np.allclose(q @ r, [[3.0, 1.0], [4.0, 2.0], [0.0, 1.0]])
    True
    """
    x = matrices("qr", x)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"fdbr.ops.linalg.qr: mode must be 'reduced' or 'complete', not {mode!r}")
    m, n = x.shape[-2:]
    if m >= n:
        return QRResult(*_qr(x, complete=mode == "complete" and m > n))
    q, r = _qr(x[..., :m], complete=False)
    return QRResult(q, concat([r, adjoint(q) @ x[..., m:]], axis=-1))
