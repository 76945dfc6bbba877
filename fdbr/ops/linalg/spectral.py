"""Eigenvalues and eigenvectors."""

from typing import Any, NamedTuple

from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, opaque
from fdbr.ops.elementwise.complex_parts import conj, real
from fdbr.ops.linalg.coincidences import (
    eigenvalue_errors,
    gaps,
    nan_if_defective,
    nan_if_mixed,
    nan_if_unknown,
    negligible,
)
from fdbr.ops.linalg.lapack import lapack, nan_where_failing
from fdbr.ops.linalg.matrices import adjoint, fold_triangle, mirror_triangle, square_matrices
from fdbr.ops.linalg.solving import inverse
from fdbr.ops.shape.manipulation import _diagonal, _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["EighResult", "EigResult", "eig", "eigh", "eigh_upper", "eigvals", "eigvalsh"]


class EighResult(NamedTuple):
    """Ascending eigenvalues, and the eigenvectors as columns of a matrix."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues, and the eigenvectors as columns of a matrix."""

    eigenvalues: Any
    eigenvectors: Any


# --- Hermitian matrices ---------------------------------------------------------------


def _lower(x: Any, upper: bool) -> Any:
    """A matrix whose lower triangle is that of ``x``, or the adjoint of its upper triangle."""
    return adjoint(x) if upper else x


def _eigh_vjp(ct: Any, out: Any, upper: bool, strict: bool) -> Any:
    ct_values, ct_vectors = ct
    values, vectors = out[0], conj(out[1])
    if ct_vectors is None:
        return _lower(fold_triangle((vectors * ct_values[..., None, :]) @ adjoint(vectors)), upper)
    rotated = adjoint(vectors) @ ct_vectors
    factor = nan_if_unknown(
        negligible(values)[..., None],
        values[..., None, :],
        rotated - adjoint(rotated),
        (values if ct_values is None else ct_values)[..., None, :],
        ct_vectors,
        vectors,
        adjoint(vectors),
        only_vectors=ct_values is None and strict,
    )
    left = vectors @ (gaps(values) * rotated)
    if ct_values is not None:
        left = left + vectors * ct_values[..., None, :]
    return _lower(fold_triangle((left @ adjoint(vectors)) * factor), upper)


def _eigh_jvp(t: Any, out: Any, upper: bool) -> Any:
    values, vectors = out
    rotated = adjoint(vectors) @ mirror_triangle(_lower(t, upper)) @ vectors
    factor = nan_if_mixed(negligible(values)[..., None], values[..., None, :], rotated, vectors)
    return real(_diagonal(rotated, offset=0)), (vectors @ (gaps(values) * rotated)) * factor


@opaque(x=(_eigh_vjp, _eigh_jvp), batch=aligned)
def _eigh(xp: Any, x: ArrayLike, *, strict: bool, upper: bool = False) -> Array:
    return lapack(xp, "eigh_upper" if upper else "eigh", x, strict=strict)


@public("fdbr.ops.linalg")
def eigh(x: ArrayLike, /) -> EighResult:
    """The eigenvalues and eigenvectors of Hermitian matrices.

    The function reads the lower triangle of ``x`` and the real part of the diagonal, as in NumPy.
    The gradient is that of this function: it is 0 above the diagonal, and an element below it has
    the sum of the derivatives of both symmetric elements.  (For a symmetric gradient,
    differentiate a function of ``(x + x.T) / 2``.)

    An eigenvector may be multiplied by any number of absolute value 1, and eigenvectors of equal
    eigenvalues may be mixed: a function has a gradient if it does not depend on this choice.

    Eigenvalues that differ by at most 100 eps times the largest are treated as equal, because
    rounding may have separated them.  The derivatives that mix their eigenvectors are 0/0 there:

    - Functions of the eigenvalues only have their gradient, and second derivatives that are right
      or NaN.  The gradient of one of several equal eigenvalues is a subgradient.
    - Functions of the eigenvectors only that depend on the whole eigenspace have their gradient:
      projectors, such as ``v[:, :2] @ v[:, :2].T`` for two equal eigenvalues.
    - Functions of other eigenvalues and eigenvectors have their gradient, unless an element of the
      eigenvectors of equal eigenvalues is 0.
    - Other functions have the gradient NaN in elements that depend on such pairs, such as
      ``(v * f(w)) @ v.T``.  Use `expm`, `logm`, `sqrtm`, `matrix_power`, `inv` or `pinv`, whose
      derivatives do not need eigenvectors.

    Tangents (`jvp`) that mix eigenvectors of equal eigenvalues give NaN for these vectors.

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
    """Compute `eigh` from the upper triangle, with the signs of LAPACK for that triangle."""
    return EighResult(*_eigh(square_matrices("eigh", x), strict=True, upper=True))


@opaque(
    x=(
        lambda ct, x: _eigh_vjp((ct, None), _eigh(x, strict=False), False, False),
        lambda t, x: _eigh_jvp(t, _eigh(x, strict=False), False)[0],
    ),
    batch=aligned,
)
def _eigvalsh(xp: Any, x: ArrayLike) -> Array:
    return lapack(xp, "eigvalsh", x, strict=True)


@public("fdbr.ops.linalg")
def eigvalsh(x: ArrayLike, /) -> Array:
    """The eigenvalues of Hermitian matrices, real and ascending; see `eigh`.

    The eigenvectors, which the derivative needs, are computed with the derivative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eigvalsh(np.array([[2.0, 1.0], [1.0, 2.0]]))
    array([1., 3.])
    """
    return _eigvalsh(square_matrices("eigvalsh", x))


# --- general matrices -----------------------------------------------------------------


def _eig_vjp(ct: Any, x: Any, out: Any, strict: bool) -> Any:
    ct_values, ct_vectors = ct
    values, vectors = out
    left, right = _matrix_transpose(inverse(vectors)), _matrix_transpose(vectors)
    floor = eigenvalue_errors(x, _matrix_transpose(left))
    factor = nan_if_defective(x, floor, values[..., None, :])
    terms: Any = 0
    if ct_vectors is not None:
        rotated = right @ ct_vectors
        own_part = real(_diagonal(rotated, offset=0))[..., None, :]
        numerators = rotated - (right @ conj(vectors)) * own_part
        terms = gaps(values, floor) * numerators @ right
        factor = factor * nan_if_unknown(
            floor,
            values[..., None, :],
            numerators,
            (values if ct_values is None else ct_values)[..., None, :],
            ct_vectors,
            left,
            right,
            only_vectors=ct_values is None and strict,
        )
    if ct_values is not None:
        terms = terms + ct_values[..., :, None] * right
    return fit(left @ terms * factor, (x.shape, x.dtype))


def _eig_jvp(t: Any, x: Any, out: Any) -> Any:
    values, vectors = out
    left = inverse(vectors)
    floor = eigenvalue_errors(x, left)
    rotated = left @ (t @ vectors)
    directions = vectors @ (gaps(values, floor) * rotated)
    own_part = real((conj(vectors) * directions).sum(axis=-2, keepdims=True))
    defect = nan_if_defective(x, floor, values[..., None, :])
    factor = nan_if_mixed(floor, values[..., None, :], rotated, vectors) * defect
    return _diagonal(rotated * defect, offset=0), (directions - vectors * own_part) * factor


def _complex(xp: Any, x: Any, dtype: Any) -> Any:
    return x.astype(xp.result_type(dtype, xp.complex64), copy=False)


@opaque(x=(_eig_vjp, _eig_jvp), batch=aligned)
def _eig(xp: Any, x: ArrayLike, *, strict: bool) -> Any:
    out = xp.linalg.eig(x) if strict else nan_where_failing(xp, xp.linalg.eig, x)
    return tuple(_complex(xp, part, x.dtype) for part in out)


@public("fdbr.ops.linalg")
def eig(x: ArrayLike, /) -> EigResult:
    """The eigenvalues and eigenvectors of square matrices; they are always complex.

    Eigenvectors have length 1, and their derivative preserves it.  They may be multiplied by any
    number of absolute value 1: a function has a gradient if it does not depend on this choice.
    Equal eigenvalues are treated as in `eigh`: eigenvalues that differ by at most 100 eps times
    the norm of the matrix and the condition number of the eigenvalues.  The derivative is NaN for
    a matrix without a basis of eigenvectors.

    With ``P = V^-1 t V`` the derivatives are ``diag(P)`` and ``V (F * P)``, minus its part along
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
        lambda ct, x: _eig_vjp((ct, None), x, _eig(x, strict=False), False),
        lambda t, x: _eig_jvp(t, x, _eig(x, strict=False))[0],
    ),
    batch=aligned,
)
def _eigvals(xp: Any, x: ArrayLike) -> Array:
    return _complex(xp, xp.linalg.eigvals(x), x.dtype)


@public("fdbr.ops.linalg")
def eigvals(x: ArrayLike, /) -> Array:
    """The eigenvalues of square matrices, which are always complex; see `eig`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    array([0.+1.j, 0.-1.j])
    """
    return _eigvals(square_matrices("eigvals", x))
