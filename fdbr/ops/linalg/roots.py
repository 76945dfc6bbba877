"""Principal square roots and logarithms of matrices."""

import functools
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.core.array_modules import array_module, to_numpy
from fdbr.core.devices import scipy_of
from fdbr.core.tracer import whole
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, opaque
from fdbr.ops.dtypes import astype, result_type
from fdbr.ops.elementwise.comparison import isfinite, where
from fdbr.ops.linalg.functions import expm
from fdbr.ops.linalg.matrices import linalg_error, sample, square_matrices
from fdbr.ops.linalg.solving import inverse
from fdbr.ops.linalg.sylvester import sylvester
from fdbr.ops.shape.manipulation import _matrix_transpose
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["logm", "sqrtm"]


class _NotRealError(LinAlgError):
    """Raised where the function of a real matrix is complex."""


# --- values, on the host ------------------------------------------------------------


def _square_root(x: Any) -> Any:
    """Compute SciPy's square root, complex where necessary.

    A complex matrix with zero imaginary part is computed as a real one: rounding could otherwise
    move its negative eigenvalues across the branch cut.
    """
    if x.dtype.kind != "c":
        return _scipy_sqrtm(x)
    real = ~x.imag.any(axis=(-2, -1), keepdims=True)
    if not real.any():
        return _scipy_sqrtm(x)
    roots = _scipy_sqrtm(np.where(real, x.real, np.eye(x.shape[-1]))).astype(x.dtype, copy=False)
    return roots if real.all() else np.where(real, roots, _scipy_sqrtm(x))


def _scipy_sqrtm(x: Any) -> Any:
    function = scipy_of(np, "linalg").sqrtm
    if x.ndim == 2 or _scipy_accepts_stacks():
        return function(x)
    return np.stack([function(matrix) for matrix in x.reshape(-1, *x.shape[-2:])]).reshape(x.shape)


@functools.cache
def _scipy_accepts_stacks() -> bool:
    """Whether this version of SciPy accepts stacks of matrices."""
    try:
        scipy_of(np, "linalg").sqrtm(np.ones((1, 1, 1)))
    except ValueError:
        return False
    return True


def _log(x: Any) -> Any:
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    if (np.linalg.slogdet(x)[0] == 0).any():
        raise _singular("logm", x)
    root, times = x, np.ones((*x.shape[:-2], 1, 1), dtype=unit.real.dtype)
    for _ in range(_MOST):
        is_far = _norms(root - unit) > _NEAR
        if not is_far.any():
            break
        root = np.where(is_far, _square_root(root), root)
        times = np.where(is_far, 2 * times, times)
    else:  # an eigenvalue is 0 up to rounding, so roots do not approach 1
        raise _singular("logm", x)
    return times * sum(
        weight * np.linalg.solve(unit + node * (root - unit), root - unit)
        for node, weight in zip(*_quadrature(), strict=True)
    )


_MOST = 64  # square roots, after which every number but 0 is near 1
_DEGREE, _NEAR = 12, 0.58  # the Padé degree, and the distance from the identity where it is exact


@functools.cache
def _quadrature() -> tuple[list[float], list[float]]:
    """Return the partial fractions of the Padé approximant: Gauss-Legendre nodes and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(_DEGREE)
    return ((1 + nodes) / 2).tolist(), (weights / 2).tolist()


def _norms(x: Any) -> Any:
    return np.abs(x).sum(axis=-2).max(axis=-1)[..., None, None]


def _singular(name: str, x: Any) -> LinAlgError:
    return linalg_error(name, f"{sample(x)} is singular and has no {_KINDS[name]}")


_KINDS = {"sqrtm": "square root", "logm": "logarithm"}


def _on_host(xp: Any, name: str, function: Any, x: Any) -> Any:
    """Call a function of NumPy matrices in host memory, as other array modules lack it.

    The result has the dtype of the argument: that of a real matrix must be real too.
    """
    if not x.size:
        return x.copy()
    host_x = to_numpy(x)
    finite = np.isfinite(host_x).all(axis=(-2, -1), keepdims=True)
    double = np.result_type(host_x.dtype, np.float64)
    out = function(np.where(finite, host_x, np.eye(x.shape[-1])).astype(double))
    if not np.isfinite(out).all():
        raise _singular(name, x)
    if host_x.dtype.kind != "c" and out.dtype.kind == "c":
        # The imaginary part of a principal logarithm has the eigenvalues pi and 0.  For a square
        # root, an eigenvalue that is 0 up to rounding may be negative.
        rounding = np.sqrt(x.shape[-1] * np.finfo(host_x.dtype).eps)
        if (_norms(out.imag) > (1 if name == "logm" else rounding * _norms(out))).any():
            raise _NotRealError(f"fdbr.ops.linalg.{name}: {sample(x)} has a negative eigenvalue")
        out = out.real
    out = np.where(finite, out, np.nan).astype(host_x.dtype, copy=False)
    return xp.asarray(out)


# --- with their derivatives ---------------------------------------------------------

# Rules use the value instead of calling the function again, which may take another branch where
# eigenvalues are negative.


@opaque(
    x=(
        lambda ct, out: sylvester(_matrix_transpose(out), _matrix_transpose(out), ct),
        lambda t, out: sylvester(out, out, t),
    ),
    batch=aligned,
)
def _sqrtm(xp: Any, x: ArrayLike) -> Array:
    return _on_host(xp, "sqrtm", _square_root, x)


def _log_jvp(t: Any, out: Any) -> Any:
    """Compute the derivative of the logarithm ``out`` of a matrix along ``t``, in float64.

    It is the derivative of the successive square roots, which are exponentials of fractions of
    ``out``, followed by that of the partial fractions of the logarithm near the identity.
    """
    if not out.size:
        return t
    dtype = result_type(out, t)
    double = result_type(dtype, np.float64)
    out, t = astype(out, double), astype(t, double)
    steps = _steps(out)
    roots = [expm(out * 0.5**steps)]
    for _ in range(steps - 1):
        roots.append(roots[-1] @ roots[-1])
    for root in reversed(roots):
        t = sylvester(root, root, t)
    unit = array_module(out).eye(out.shape[-1], dtype=out.dtype)
    total: Any = 0
    for node, weight in zip(*_quadrature(), strict=True):
        inverse_term = inverse(unit + node * (roots[0] - unit))
        total = total + weight * (inverse_term @ t @ inverse_term)
    return astype(total * 2.0**steps, dtype)


def _steps(out: Any) -> int:
    """Return a sufficient number of square roots of ``exp(out)``; more change nothing."""
    norms = abs(whole(out)).sum(axis=-2)
    norm = where(isfinite(norms), norms, 0).max() if norms.size else 0
    for steps in (4, 8, 16, 32):
        if norm <= 0.45 * 2**steps:
            return steps
    return _MOST


@opaque(
    x=(
        lambda ct, out: _log_jvp(ct, _matrix_transpose(out)),
        lambda t, out: _log_jvp(t, out),
    ),
    batch=aligned,
)
def _logm(xp: Any, x: ArrayLike) -> Array:
    return _on_host(xp, "logm", _log, x)


def _principal(function: Any, x: Any) -> Any:
    """Call a function of matrices, in complex arithmetic if a real matrix requires it."""
    try:
        return function(x)
    except _NotRealError:
        return function(astype(x, result_type(x, np.complex64)))


@public("fdbr.ops.linalg")
def sqrtm(x: ArrayLike, /) -> Array:
    """The principal square roots of matrices: ``y @ y = x``, with eigenvalues of real part >= 0.

    The derivative ``d`` along ``t`` solves Sylvester's equation ``y @ d + d @ y = t`` (Higham,
    "Functions of Matrices", 2008, section 6.1), and so do derivatives of all orders.  For a
    singular matrix that has a square root, SciPy warns and the derivative is NaN.  The function
    jumps where an eigenvalue of a complex matrix crosses the negative real axis; on the axis,
    value and derivative are those of the side with positive imaginary parts.

    Values are computed by SciPy (a blocked Schur method: Deadman, Higham and Ralha, 2013); those
    of GPU arrays are computed in host memory.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    array
        The shape and dtype of ``x``; complex, as in SciPy, if a real matrix has a negative
        eigenvalue (beyond rounding).

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or is singular without a square root.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.sqrtm(np.array([[4.0, 5.0], [0.0, 9.0]]))
    array([[2., 1.],
           [0., 3.]])
    """
    return _principal(_sqrtm, square_matrices("sqrtm", x))


@public("fdbr.ops.linalg")
def logm(x: ArrayLike, /) -> Array:
    """The principal logarithms of matrices: ``expm(y) = x``, with eigenvalues within ``±pi i``.

    It is computed by inverse scaling and squaring, for all matrices of a stack at once: square
    roots are taken until they are near the identity, where the logarithm is a Padé approximant
    in partial fractions (Higham, "Functions of Matrices", 2008, section 11.5).  GPU arrays are
    computed in host memory.

    The derivative along ``t`` is that of these square roots, followed by that of the logarithm
    near the identity, ``∫ (s (x - 1) + 1)^-1 t (s (x - 1) + 1)^-1 ds`` from 0 to 1 (sections 6.1
    and 11.2); so are derivatives of all orders.  The function jumps where an eigenvalue of a
    complex matrix crosses the negative real axis; on the axis, value and derivative are those of
    the side with positive imaginary parts.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.

    Returns
    -------
    array
        The shape and dtype of ``x``; complex, as in SciPy, if a real matrix has a negative
        eigenvalue.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, or singular.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.logm(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[0., 2.],
           [0., 0.]])
    """
    return _principal(_logm, square_matrices("logm", x))
