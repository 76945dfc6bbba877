"""Factorizations, solutions and determinants of stacks of matrices.

`numpy.linalg` raises an error if one matrix of a stack is singular, and computes everything in
double precision.  Its private ufuncs do neither: they compute in the precision of their arrays, a
third faster or twice as fast, and give NaN for such a matrix alone.  They are used where this
NumPy has them, on several threads if there are many matrices; stacks of small matrices are
computed by kernels.
"""

import cmath
import functools
import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.backends.cpu.library.small_linalg import matrices as kernels
from fdbr.backends.cpu.runtime.blas import alone
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.core.util.threads import available, divide, parts
from fdbr.ops.linalg.factorizations import _qr
from fdbr.ops.linalg.lapack import library_function, nan_where
from fdbr.ops.linalg.least_squares import _least_squares
from fdbr.ops.linalg.right_sides import same_leading
from fdbr.ops.linalg.triangular import _substitute, singular

_OTHER_FAILURE = "the iteration does not converge; does the matrix contain NaN?"
_FAILURES = {
    "cholesky": "a matrix is not positive definite",
    "inv": "a matrix is singular",
    "solve": "a matrix is singular",
}

_module = getattr(np.linalg, "_umath_linalg", None)
_UFUNCS = {
    "cholesky": "cholesky_lo",
    "det": "det",
    "eigh": "eigh_lo",
    "eigh_upper": "eigh_up",
    "eigvalsh": "eigvalsh_lo",
    "inv": "inv",
    "slogdet": "slogdet",
    "solve": "solve",
    "svd": "svd_s",
    "svd_full": "svd_f",
    "svdvals": "svd",
}
_ufuncs = {name: getattr(_module, ufunc, None) for name, ufunc in _UFUNCS.items()}
_KERNELS: dict[str, Any] = {
    name: getattr(kernels, name) for name in ("cholesky", "det", "inv", "slogdet", "solve")
}
_PIECES = 8  # pieces of a divided stack
# LAPACK libraries use one thread for matrices with sides up to 32, and several from 160 on.
_SMALL, _LARGE = 32, 160
_ITERATIVE = {
    "eigh",
    "eigh_upper",
    "eigvalsh",
    "svd",
    "svd_full",
    "svdvals",
}  # iterative functions, which may not end for infinite matrices


@implement(library_function, np)
def lapack(xp: Any, name: str, *operands: Any, strict: bool) -> Any:
    """Call a function of stacks of matrices, whose axes before the last two are equal."""
    ufunc = _ufuncs[name]
    if ufunc is None or any(x.dtype.char not in "fdFD" for x in operands):
        return library_function.definition(xp, name, *operands, strict=strict)
    found = name in _KERNELS and _KERNELS[name](*operands)
    if found:
        out, succeeded = found
        if strict and not succeeded:
            raise LinAlgError(_FAILURES[name])
        return out
    invalid: Any = "raise" if strict else "ignore"
    try:
        with np.errstate(invalid=invalid, over="ignore", divide="ignore", under="ignore"):
            if name not in _ITERATIVE or _is_finite(operands[0]):
                return _divide_stack(ufunc, *operands)
            x = operands[0]
            is_invalid = np.isinf(x) if strict else ~np.isfinite(x)
            function = functools.partial(_divide_stack, ufunc)
            return nan_where(xp, is_invalid.any(axis=(-2, -1)), function, x)
    except FloatingPointError as error:
        raise LinAlgError(_FAILURES.get(name, _OTHER_FAILURE)) from error


def _divide_stack(function: Any, *operands: Any) -> Any:
    """Call a function of stacks of matrices, divided among threads if the stack is large."""
    x = operands[0]
    lead = x.shape[:-2]
    count, side = math.prod(lead), max(x.shape[-2:], default=0)
    if count < 2 or count * side**3 < TUNING.stack_divided or side > _LARGE or available() < 2:
        return function(*operands)
    pieces = parts(count, _PIECES)
    flat = [y.reshape(-1, *y.shape[-2:]) for y in operands]
    found: list[Any] = [None] * len(pieces)

    def work(number: int) -> None:
        found[number] = function(*(y[pieces[number]] for y in flat))

    with alone() as is_alone:
        if not is_alone and side > _SMALL:
            return function(*operands)
        divide(work, range(len(pieces)))

    def concatenated(results: Any) -> Any:
        out = np.concatenate(results)
        return out.reshape(*lead, *out.shape[1:])

    is_tuple = type(found[0]) is tuple
    return tuple(map(concatenated, zip(*found, strict=True))) if is_tuple else concatenated(found)


def _is_finite(x: Any) -> bool:
    with np.errstate(all="ignore"):
        return cmath.isfinite(x.sum()) or bool(np.isfinite(x).all())


# --- QR, triangles, least squares -----------------------------------------------------


@implement(_qr.primitive, np)
def _factors(xp: Any, x: Any, *, complete: bool) -> Any:
    found = kernels.qr(x, complete)
    return found[0] if found else _qr.primitive.value(xp, x, complete=complete)


@implement(_substitute.primitive, np)
def _substituted(xp: Any, a: Any, b: Any, *, lower: bool, unit: bool, strict: bool) -> Any:
    dtype = np.result_type(a, b)
    a, b = same_leading(xp, "solve_triangular", a.astype(dtype, copy=False), b)
    b = b.astype(dtype, copy=False)
    found = kernels.substituted(a, b, lower, unit)
    if not found:
        return _substitute.primitive.value(xp, a, b, lower=lower, unit=unit, strict=strict)
    out, succeeded = found
    if strict and not succeeded:
        raise singular(a)
    return out


_SAFE = 0.5  # rtol * condition number, below which the rank is certainly full
_lstsq = getattr(_module, "lstsq", None)


@implement(_least_squares.primitive, np)
def _solved(xp: Any, a: Any, b: Any, rtol: Any, *, strict: bool = False) -> Any:
    dtype = np.result_type(a, b)
    a, b = same_leading(xp, "lstsq", a.astype(dtype, copy=False), b.astype(dtype, copy=False))
    found = None
    if a.size and b.size and dtype.char in "fdFD":
        found = (
            _by_lapack(a, b, rtol) if min(a.shape[-2:]) <= TUNING.svd_side else _by_qr(a, b, rtol)
        )
    return _least_squares.primitive.value(xp, a, b, rtol, strict=strict) if found is None else found


def _by_lapack(a: Any, b: Any, rtol: Any) -> Any:
    """Solve by LAPACK's function for any rank; return `None` if the iteration might not end."""
    if _lstsq is None or not cmath.isfinite(a.sum()):
        return None
    share = rtol[..., 0, 0] if getattr(rtol, "ndim", 0) else rtol
    with np.errstate(all="ignore"):
        found, *_ = _lstsq(a, b, share)
    return found if cmath.isfinite(found.sum()) else None


def _by_qr(a: Any, b: Any, rtol: Any) -> Any:
    """Solve by QR; return `None` if a matrix may not have full rank.

    The condition number, from the norms of the triangle and of its inverse, decides.
    """
    wide = a.shape[-2] < a.shape[-1]
    if wide:
        q, r = kernels.factors(a.swapaxes(-1, -2).conj(), False)
        triangle, side = r.swapaxes(-1, -2).conj(), b
    else:
        triangle, side = kernels.reduced(a, b)
    n = triangle.shape[-1]
    unit = np.broadcast_to(np.eye(n, dtype=b.dtype), triangle.shape)
    with np.errstate(all="ignore"):
        sides = np.concatenate([side, unit], axis=-1)
        found = kernels.substituted(triangle, sides, lower=wide, unit=False)
        if found is None or not found[1]:
            return None
        solved = found[0]
        condition = _norm(triangle) * _norm(solved[..., -n:])
        if not (rtol * condition < _SAFE).all():
            return None
    solution_part = solved[..., :-n]
    return q @ solution_part if wide else solution_part


def _norm(x: Any) -> Any:
    return np.linalg.norm(x, axis=(-2, -1), keepdims=True)
