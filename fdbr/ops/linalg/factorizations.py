"""Factorizations into triangular and orthogonal matrices."""

from typing import Any, NamedTuple

from numpy.linalg import LinAlgError

from fdbr.errors.public import public
from fdbr.ops.declare import aligned, opaque
from fdbr.ops.elementwise.complex_parts import conj
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import (
    adjoint,
    fold_triangle,
    half_triangle,
    linalg_error,
    matrices,
    mirror_triangle,
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


# Derivatives of complex factorizations hold for real and imaginary parts.  Textbooks state them
# for gradients, the conjugates of cotangents.  The vjp rules here conjugate the matrices instead,
# which is the same as conjugating cotangents on entry and exit.

# --- Cholesky -----------------------------------------------------------------------


def _cholesky_vjp(ct: Any, out: Any) -> Any:
    upper = adjoint(conj(out))
    half = substitute(upper, half_triangle(upper @ ct), lower=False)
    return fold_triangle(substitute(upper, adjoint(half), lower=False))


def _cholesky_jvp(t: Any, out: Any) -> Any:
    half = substitute(out, mirror_triangle(t), lower=True)
    return out @ half_triangle(substitute(out, adjoint(half), lower=True))


@opaque(x=(_cholesky_vjp, _cholesky_jvp), batch=aligned)
def _cholesky(xp: Any, x: Any) -> Any:
    try:
        return lapack(xp, "cholesky", x, strict=True)
    except LinAlgError as error:
        raise linalg_error(
            "cholesky",
            f"{sample(x)} is not positive definite; for a covariance that rounding has made "
            "indefinite, add a small multiple of the identity",
        ) from error


@public("fdbr.ops.linalg")
def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Array:
    """The triangular matrix ``L`` with ``L @ L^H = x``, for positive definite matrices.

    The function reads the lower triangle of ``x`` (with ``upper``, the upper one) and the real part
    of the diagonal, as in NumPy.  The gradient is that of this function: it is 0 in the other
    triangle, and an off-diagonal element has the sum of the derivatives of both symmetric
    elements.  (For a symmetric gradient, differentiate a function of ``(x + x.T) / 2``.)  The
    formula is ``L Φ(L^-1 t L^-H)``, where ``Φ`` takes the lower triangle and halves the diagonal,
    and ``t`` is Hermitian, as ``x`` is assumed to be (Giles, 2008; Murray, "Differentiation of the
    Cholesky decomposition", 2016).

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
    """Compute ``x @ upper^-1`` by substitution."""
    lower = _matrix_transpose(upper)
    return _matrix_transpose(substitute(lower, _matrix_transpose(x), lower=True))


def _qr_vjp(ct: Any, out: Any, complete: bool) -> Any:
    q, r = map(conj, out)
    n = r.shape[-1]
    ct_q, ct_r = (
        zeros_like(whole) if part is None else part for part, whole in zip(ct, out, strict=True)
    )
    first, ct_first = q[..., :n], ct_q[..., :n]
    if complete:
        ct_first = ct_first - q[..., n:] @ (adjoint(ct_q[..., n:]) @ first)
        r, ct_r = r[..., :n, :], ct_r[..., :n, :]
    half = half_triangle(r @ adjoint(ct_r) - adjoint(ct_first) @ first)
    left = ct_first + first @ (half + adjoint(half))
    return adjoint(substitute(r, adjoint(left), lower=False))


def _qr_jvp(t: Any, out: Any, complete: bool) -> Any:
    q, r = out
    n = r.shape[-1]
    first, square = q[..., :n], r[..., :n, :]
    ratio = _divide_right(t, square)
    rotated = adjoint(first) @ ratio
    half = half_triangle(rotated)
    upper = rotated - half + adjoint(half)
    ct_q, ct_r = ratio - first @ upper, upper @ square
    if complete:
        ct_q = concat([ct_q, -first @ (adjoint(ct_q) @ q[..., n:])], axis=-1)
        ct_r = concat([ct_r, zeros_like(r[..., n:, :])], axis=-2)
    return ct_q, ct_r


@opaque(x=(_qr_vjp, _qr_jvp), batch=aligned)
def _qr(xp: Any, x: ArrayLike, *, complete: bool) -> Any:
    return tuple(xp.linalg.qr(x, mode="complete" if complete else "reduced"))


@public("fdbr.ops.linalg")
def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """The factorization ``Q @ R = x`` into orthonormal columns and an upper triangle.

    It is differentiable where ``x`` has full column rank or, if ``x`` is wide, where its first
    square block is regular; elsewhere its derivative raises `numpy.linalg.LinAlgError`.  For the
    columns that ``mode="complete"`` adds to ``Q``, ``x`` determines only the space that they
    span: a function has a gradient if it does not depend on their choice.

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
        If the mode is neither of these.

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
