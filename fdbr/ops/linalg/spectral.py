"""Eigenvalues and eigenvectors."""

from typing import Any, NamedTuple

from fdbr.ops.declare import aligned, fit, opaque
from fdbr.ops.elementwise.complex_parts import conj, real
from fdbr.ops.linalg.lapack import lapack, nan_where_impossible
from fdbr.ops.linalg.matrices import adjoint, folded, gaps, mirrored, square_matrices
from fdbr.ops.linalg.solving import solve_matrices
from fdbr.ops.shape.manipulation import _diagonal, _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["EighResult", "EigResult", "eig", "eigh", "eigh_upper", "eigvals", "eigvalsh"]


class EighResult(NamedTuple):
    """Eigenvalues, ascending, and in the columns of a matrix the eigenvectors."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues, and in the columns of a matrix the eigenvectors."""

    eigenvalues: Any
    eigenvectors: Any


# --- of Hermitian matrices ----------------------------------------------------------


def _lower(x: Any, upper: bool) -> Any:
    """A matrix whose lower triangle is that of ``x``, or the adjoint of its upper one."""
    return adjoint(x) if upper else x


def _eigh_pull(ct: Any, out: Any, upper: bool) -> Any:
    of_values, of_vectors = ct
    values, vectors = out[0], conj(out[1])
    if of_vectors is None:
        return _lower(folded((vectors * of_values[..., None, :]) @ adjoint(vectors)), upper)
    left = vectors @ (gaps(values) * (adjoint(vectors) @ of_vectors))
    if of_values is not None:
        left = left + vectors * of_values[..., None, :]
    return _lower(folded(left @ adjoint(vectors)), upper)


def _eigh_push(t: Any, out: Any, upper: bool) -> Any:
    values, vectors = out
    turned = adjoint(vectors) @ mirrored(_lower(t, upper)) @ vectors
    return real(_diagonal(turned, offset=0)), vectors @ (gaps(values) * turned)


@opaque(x=(_eigh_pull, _eigh_push), batch=aligned)
def _eigh(xp: Any, x: ArrayLike, *, strict: bool, upper: bool = False) -> Array:
    return lapack(xp, "eigh_upper" if upper else "eigh", x, strict=strict)


def eigh(x: ArrayLike, /) -> EighResult:
    """The eigenvalues and eigenvectors of Hermitian matrices.

    The lower triangle of ``x`` is read, and of the diagonal the real part, as in NumPy.  Value and
    derivative are of that function: the gradient lies on the lower triangle and is 0 above it, so
    that for a symmetric matrix an element beside the diagonal has what both have together.  (The
    gradient of a function of ``(x + x.T) / 2`` is symmetric.)

    An eigenvector may be multiplied by any number of size 1, and those of equal eigenvalues
    may be mixed: a function has a gradient if it does not depend on this choice.  Eigenvalues
    that differ by no more than rounding (``n * eps`` times the largest) are treated as equal,
    and the derivative by which their eigenvectors turn into each other as 0, not infinite.

    The derivatives are ``diag(V^H t V)`` and ``V (F * (V^H t V))`` with ``F[i, j] = 1 / (λ[j] -
    λ[i])`` (Giles, 2008; Seeger et al., "Auto-differentiating linear algebra", 2017).

    Parameters
    ----------
    x
        Hermitian matrices, shape ``(..., n, n)``.

    Returns
    -------
    eigenvalues
        Shape ``(..., n)``, real and ascending.
    eigenvectors
        Shape ``(..., n, n)``; ``eigenvectors[..., i]`` belongs to ``eigenvalues[..., i]``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or the iteration does not converge.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eigh(np.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    array([1., 3.])
    """
    return EighResult(*_eigh(square_matrices("eigh", x), strict=True))


def eigh_upper(x: Array, /) -> EighResult:
    """`eigh` of the upper triangle, with the signs that LAPACK gives the eigenvectors then."""
    return EighResult(*_eigh(square_matrices("eigh", x), strict=True, upper=True))


@opaque(
    x=(
        lambda ct, x: _eigh_pull((ct, None), _eigh(x, strict=False), False),
        lambda t, x: _eigh_push(t, _eigh(x, strict=False), False)[0],
    ),
    batch=aligned,
)
def _eigvalsh(xp: Any, x: ArrayLike) -> Array:
    return lapack(xp, "eigvalsh", x, strict=True)


def eigvalsh(x: ArrayLike, /) -> Array:
    """The eigenvalues of Hermitian matrices, real and ascending; see `eigh`.

    The eigenvectors, which the derivative needs, are computed with the derivative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eigvalsh(np.array([[2.0, 1.0], [1.0, 2.0]]))
    array([1., 3.])
    """
    return _eigvalsh(square_matrices("eigvalsh", x))


# --- of any matrices ----------------------------------------------------------------


def _eig_pull(ct: Any, out: Any, shape: Any, dtype: Any) -> Any:
    of_values, of_vectors = ct
    values, vectors = out
    across = _matrix_transpose(vectors)
    right: Any = 0
    if of_vectors is not None:
        turned = across @ of_vectors
        along = real(_diagonal(turned, offset=0))[..., None, :]
        right = gaps(values) * (turned - (across @ conj(vectors)) * along) @ across
    if of_values is not None:
        right = right + of_values[..., :, None] * across
    return fit(solve_matrices(across, right), (shape, dtype))


def _eig_push(t: Any, out: Any) -> Any:
    values, vectors = out
    turned = solve_matrices(vectors, t @ vectors)
    turns = vectors @ (gaps(values) * turned)
    along = real((conj(vectors) * turns).sum(axis=-2, keepdims=True))
    return _diagonal(turned, offset=0), turns - vectors * along


def _complex(xp: Any, x: Any, dtype: Any) -> Any:
    return x.astype(xp.result_type(dtype, xp.complex64), copy=False)


@opaque(x=(_eig_pull, _eig_push), batch=aligned)
def _eig(xp: Any, x: ArrayLike, *, strict: bool) -> Any:
    out = xp.linalg.eig(x) if strict else nan_where_impossible(xp, xp.linalg.eig, x)
    return tuple(_complex(xp, part, x.dtype) for part in out)


def eig(x: ArrayLike, /) -> EigResult:
    """The eigenvalues and eigenvectors of any square matrices, complex even where they are real.

    Eigenvectors have length 1, and their derivative keeps it.  They may be multiplied by any
    number of size 1: a function has a gradient if it does not depend on this choice.
    Eigenvalues that differ by no more than rounding are treated as in `eigh`; where a matrix
    has no basis of eigenvectors there is no derivative.

    With ``P = V^-1 t V`` the derivatives are ``diag(P)`` and ``V (F * P)``, less its part along
    ``V``, with ``F[i, j] = 1 / (λ[j] - λ[i])`` (Giles, 2008; Boeddeker et al., "On the
    computation of complex-valued gradients with application to statistically optimum
    beamforming", 2017).

    Parameters
    ----------
    x
        Real or complex matrices, shape ``(..., n, n)``.

    Returns
    -------
    eigenvalues
        Shape ``(..., n)``, complex, in no particular order.
    eigenvectors
        Shape ``(..., n, n)``; ``eigenvectors[..., i]`` belongs to ``eigenvalues[..., i]``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or the iteration does not converge.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    array([0.+1.j, 0.-1.j])
    """
    return EigResult(*_eig(square_matrices("eig", x), strict=True))


@opaque(
    x=(
        lambda ct, x, shape, dtype: _eig_pull((ct, None), _eig(x, strict=False), shape, dtype),
        lambda t, x: _eig_push(t, _eig(x, strict=False))[0],
    ),
    batch=aligned,
)
def _eigvals(xp: Any, x: ArrayLike) -> Array:
    return _complex(xp, xp.linalg.eigvals(x), x.dtype)


def eigvals(x: ArrayLike, /) -> Array:
    """The eigenvalues of any square matrices, complex even where they are real; see `eig`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    array([0.+1.j, 0.-1.j])
    """
    return _eigvals(square_matrices("eigvals", x))
