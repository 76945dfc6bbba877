"""Square roots and logarithms of matrices: the principal ones."""

import functools
import importlib
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.backend import to_numpy
from fdbr.ops.kinds import aligned, opaque
from fdbr.ops.linalg.functions import frechet
from fdbr.ops.linalg.matrices import failure, sample, square_matrices
from fdbr.ops.shape import _matrix_transpose

__all__ = ["logm", "sqrtm"]


# --- values, on the host ------------------------------------------------------------


def _root(x: Any) -> Any:
    """SciPy's square root, complex where it must be."""
    function = importlib.import_module("scipy.linalg").sqrtm
    if x.ndim == 2 or _takes_stacks():
        return function(x)
    return np.stack([function(one) for one in x.reshape(-1, *x.shape[-2:])]).reshape(x.shape)


@functools.cache
def _takes_stacks() -> bool:
    """Whether SciPy takes the roots of stacks, as newer ones do."""
    try:
        importlib.import_module("scipy.linalg").sqrtm(np.ones((1, 1, 1)))
    except ValueError:
        return False
    return True


def _log(x: Any) -> Any:
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    if (np.linalg.slogdet(x)[0] == 0).any():
        raise _singular("logm", x)
    root, times = x, np.ones((*x.shape[:-2], 1, 1), dtype=unit.real.dtype)
    for _ in range(_MOST):
        far = _norms(root - unit) > _NEAR
        if not far.any():
            break
        root = np.where(far, _root(root), root)
        times = np.where(far, 2 * times, times)
    else:  # an eigenvalue is 0 but for rounding, and stays so
        raise _singular("logm", x)
    return times * sum(
        weight * np.linalg.solve(unit + node * (root - unit), root - unit)
        for node, weight in zip(*_quadrature(), strict=True)
    )


_MOST = 64  # square roots, after which every number but 0 is near 1
_DEGREE, _NEAR = 12, 0.58  # of the quotient, and how near to the identity it is exact


@functools.cache
def _quadrature() -> tuple[list[float], list[float]]:
    """The partial fractions of the Padé approximant, which are Gauss's nodes and weights."""
    nodes, weights = np.polynomial.legendre.leggauss(_DEGREE)
    return ((1 + nodes) / 2).tolist(), (weights / 2).tolist()


def _norms(x: Any) -> Any:
    return np.abs(x).sum(axis=-2).max(axis=-1)[..., None, None]


def _singular(name: str, x: Any) -> LinAlgError:
    return failure(name, f"{sample(x)} is singular and has no {_KINDS[name]}")


_KINDS = {"sqrtm": "square root", "logm": "logarithm"}


def _on_host(xp: Any, name: str, function: Any, x: Any) -> Any:
    """A function of NumPy's matrices: no other module has it.

    The result has the dtype of the argument: of a real matrix it must be real too.
    """
    if not x.size:
        return x.copy()
    held = x if xp is np else to_numpy(x)
    finite = np.isfinite(held).all(axis=(-2, -1), keepdims=True)
    out = function(np.where(finite, held, np.eye(x.shape[-1], dtype=x.dtype)))
    if not np.isfinite(out).all():
        raise _singular(name, x)
    if held.dtype.kind != "c" and out.dtype.kind == "c":
        # The imaginary part of a principal logarithm has the eigenvalues pi and 0.  As to roots,
        # an eigenvalue that is 0 but for rounding may be negative.
        rounding = np.sqrt(x.shape[-1] * np.finfo(x.dtype).eps)
        if (_norms(out.imag) > (1 if name == "logm" else rounding * _norms(out))).any():
            raise failure(
                name,
                f"{sample(x)} has a negative eigenvalue, so that its {_KINDS[name]} is complex; "
                f"give complex matrices, such as ops.astype(x, {np.result_type(x, 1j).name!r})",
            )
        out = out.real
    out = np.where(finite, out, np.nan).astype(x.dtype, copy=False)
    return out if xp is np else xp.asarray(out)


# --- with their derivatives ---------------------------------------------------------


def _rules(name: str) -> tuple[Any, Any]:
    """The reverse and the forward rule of one of the functions."""

    def push(t: Any, x: Any) -> Any:
        try:
            return frechet(_PRINCIPAL[name], x, t, alike=True)
        except LinAlgError as error:
            raise failure(name, f"{sample(x)} is singular, and has no derivative there") from error

    return (lambda ct, x: push(ct, _matrix_transpose(x))), push


@opaque(x=_rules("sqrtm"), batch=aligned)
def _sqrtm(xp: Any, x: Any) -> Any:
    return _on_host(xp, "sqrtm", _root, x)


@opaque(x=_rules("logm"), batch=aligned)
def _logm(xp: Any, x: Any) -> Any:
    return _on_host(xp, "logm", _log, x)


_PRINCIPAL = {"sqrtm": _sqrtm, "logm": _logm}


def sqrtm(x: Any, /) -> Any:
    """The principal square roots of matrices: ``y @ y = x``, with eigenvalues of real part >= 0.

    The derivative ``d`` along ``t`` solves ``y @ d + d @ y = t`` (Higham, "Functions of Matrices",
    2008, section 6.1); it is computed as the upper right block of the square root of
    ``[[x, t], [0, x]]`` (the same, equation 3.16), in which derivatives of all orders are alike.
    A singular matrix may have a square root, of which SciPy warns; where the derivative is
    infinite there, it comes out very large, or as an error.  Where a complex matrix has a
    negative real eigenvalue the function jumps.

    Values are SciPy's (a blocked Schur method: Deadman, Higham and Ralha, 2013), on the GPU too,
    by way of host memory.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.  The result has its dtype: real matrices must have no negative
        eigenvalue, other than by rounding; complex ones may.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, is real and has a negative eigenvalue, or is singular and has
        no square root.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.sqrtm(np.array([[4.0, 5.0], [0.0, 9.0]]))
    array([[2., 1.],
           [0., 3.]])
    """
    return _sqrtm(square_matrices("sqrtm", x))


def logm(x: Any, /) -> Any:
    """The principal logarithms of matrices: ``expm(y) = x``, with eigenvalues within ``±pi i``.

    The derivative along ``t`` is the integral of ``(s (x - 1) + 1)^-1 t (s (x - 1) + 1)^-1`` over
    ``s`` from 0 to 1 (Higham, "Functions of Matrices", 2008, equation 11.10); it is computed as
    the upper right block of the logarithm of ``[[x, t], [0, x]]`` (the same, equation 3.16), in
    which derivatives of all orders are alike.  Where a complex matrix has a negative real
    eigenvalue the function jumps.

    It is computed by inverse scaling and squaring, for all matrices of a stack at once: square
    roots are taken until they are near the identity, where the logarithm is a Padé approximant
    in partial fractions (Higham, the same, section 11.5).  On the GPU it goes by way of host
    memory.

    Parameters
    ----------
    x
        Shape ``(..., n, n)``.  The result has its dtype: real matrices must have no negative
        eigenvalue; complex ones may.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a matrix is not square, is singular, or is real and has a negative eigenvalue.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.linalg.logm(np.array([[1.0, 2.0], [0.0, 1.0]]))
    array([[0., 2.],
           [0., 0.]])
    """
    return _logm(square_matrices("logm", x))
