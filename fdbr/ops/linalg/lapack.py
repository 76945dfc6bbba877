"""LAPACK on stacks of matrices, with NaN for single matrices that have no result.

`numpy.linalg` raises an error if one matrix of a stack is singular, and computes everything in
double precision.  Its private ufuncs do neither: they compute in the precision of their arrays, a
third faster or twice as fast, and give NaN for such a matrix alone.  They are used where this
NumPy has them, on several threads if there are many matrices; stacks of small matrices are
computed by kernels, in a tenth of the time.  Otherwise, and on other array modules, a function of
the module's ``linalg`` is used, matrix by matrix if it raises an error.
"""

import cmath
import functools
import itertools
import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.backends.cpu.library.small_linalg import matrices as kernels
from fdbr.backends.cpu.runtime.blas import alone
from fdbr.core.devices import strict as raising
from fdbr.core.util.threads import available, divide, parts

__all__ = ["lapack", "nan_where_failing"]

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
_MODULE_FUNCTIONS: dict[str, Any] = {
    "svd": lambda xp, x: tuple(xp.linalg.svd(x, full_matrices=False)),
    "svd_full": lambda xp, x: tuple(xp.linalg.svd(x)),
    "svdvals": lambda xp, x: xp.linalg.svd(x, compute_uv=False),
    "eigh": lambda xp, x: tuple(xp.linalg.eigh(x)),
    "eigh_upper": lambda xp, x: tuple(xp.linalg.eigh(x, UPLO="U")),
    "slogdet": lambda xp, x: tuple(xp.linalg.slogdet(x)),
}
_KERNELS: dict[str, Any] = {
    name: getattr(kernels, name) for name in ("cholesky", "det", "inv", "slogdet", "solve")
}
_WORTH = 1 << 21  # number of matrices times side**3, from which on threads divide a stack
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


def lapack(xp: Any, name: str, *operands: Any, strict: bool) -> Any:
    """Call a function of stacks of matrices, whose axes before the last two are equal.

    Parameters
    ----------
    xp
        The array module of the operands.
    name
        The name of the function: ``"inv"``, ``"eigh"`` …
    operands
        Floating matrices; the first is the one that may be singular.
    strict
        Whether a matrix without a result raises an error; on a GPU the host waits for it.
        Otherwise its result is NaN or, on a GPU, whatever the library returns.

    Raises
    ------
    numpy.linalg.LinAlgError
        With ``strict``, if a matrix has no result.
    """
    ufunc = _ufuncs[name] if xp is np else None
    if ufunc is None or any(x.dtype.char not in "fdFD" for x in operands):
        module_function = _MODULE_FUNCTIONS.get(name)
        function = (
            functools.partial(module_function, xp) if module_function else getattr(xp.linalg, name)
        )
        if not strict:
            return nan_where_failing(xp, function, *operands)
        with raising(xp):
            return function(*operands)
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
            return _nan_where(xp, is_invalid.any(axis=(-2, -1)), function, x)
    except FloatingPointError as error:
        raise LinAlgError(_FAILURES.get(name, _OTHER_FAILURE)) from error


def _divide_stack(function: Any, *operands: Any) -> Any:
    """Call a function of stacks of matrices, divided among threads if the stack is large."""
    x = operands[0]
    lead = x.shape[:-2]
    count, side = math.prod(lead), max(x.shape[-2:], default=0)
    if count < 2 or count * side**3 < _WORTH or side > _LARGE or available() < 2:
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


def nan_where_failing(xp: Any, function: Any, x: Any, *others: Any) -> Any:
    """Call a function of stacks of matrices; matrices that raise `LinAlgError` give NaN."""
    try:
        return function(x, *others)
    except LinAlgError:
        lead = x.shape[:-2]
    operands = (x, *others)
    positions = itertools.product(*map(range, lead))
    flags = [_fails(function, [y[number] for y in operands]) for number in positions]
    return _nan_where(xp, xp.asarray(np.reshape(flags, lead)), function, x, *others)


def _fails(function: Any, operands: Any) -> bool:
    try:
        function(*operands)
    except LinAlgError:
        return True
    return False


def _nan_where(xp: Any, mask: Any, function: Any, x: Any, *others: Any) -> Any:
    """Call a function with the identity in place of masked matrices, and give NaN for them."""
    lead = mask.shape
    unit = xp.eye(*x.shape[-2:], dtype=x.dtype)
    out = function(xp.where(mask[..., None, None], unit, x), *others)

    def masked(part: Any) -> Any:
        return xp.where(xp.reshape(mask, (*lead, *(1,) * (part.ndim - len(lead)))), xp.nan, part)

    return tuple(map(masked, out)) if isinstance(out, tuple) else masked(out)
