"""LAPACK on stacks of matrices, where a matrix that has no result may do without.

`numpy.linalg` raises an error if one matrix of a stack is singular, and computes everything in
double precision.  The ufuncs from which it is made do neither: they compute in the precision of
their arrays, a third faster or twice as fast, and give NaN for such a matrix alone.  They are used
where NumPy has them, on several threads if there are many matrices; for stacks of small matrices
there are kernels, which take a tenth of the time.  Everywhere else, and on other array modules, a
function of the module's ``linalg`` is used, for the matrices one by one if it raises an error.
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

__all__ = ["lapack", "nan_where_impossible"]

_OTHER_FAILURE = "the iteration does not converge, as of a matrix with NaN in it"
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
_OTHERWISE: dict[str, Any] = {
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
_WORTH = 1 << 21  # of the cubes of all matrices' sides together, from which on threads divide them
_PIECES = 8
_SMALL, _LARGE = 32, 160  # sides up to which, and from which on, libraries use one thread, several
_ITERATIVE = {
    "eigh",
    "eigh_upper",
    "eigvalsh",
    "svd",
    "svd_full",
    "svdvals",
}  # perhaps for ever, of infinity


def lapack(xp: Any, name: str, *operands: Any, strict: bool) -> Any:
    """A function of (stacks of) matrices, whose axes before the last two are the same.

    Parameters
    ----------
    xp
        The array module of the operands.
    name
        That of the function: ``"inv"``, ``"eigh"`` …
    operands
        Floating matrices; the first is the one that may be singular.
    strict
        Whether a matrix without a result is an error, for which a program waits if the matrix is
        on a GPU; or has no result, which is NaN or, on a GPU, what its library leaves.

    Raises
    ------
    numpy.linalg.LinAlgError
        With ``strict``, if a matrix has no result.
    """
    ufunc = _ufuncs[name] if xp is np else None
    if ufunc is None or any(x.dtype.char not in "fdFD" for x in operands):
        otherwise = _OTHERWISE.get(name)
        function = functools.partial(otherwise, xp) if otherwise else getattr(xp.linalg, name)
        if not strict:
            return nan_where_impossible(xp, function, *operands)
        with raising(xp):
            return function(*operands)
    found = name in _KERNELS and _KERNELS[name](*operands)
    if found:
        out, right = found
        if strict and not right:
            raise LinAlgError(_FAILURES[name])
        return out
    invalid: Any = "raise" if strict else "ignore"
    try:
        with np.errstate(invalid=invalid, over="ignore", divide="ignore", under="ignore"):
            if name not in _ITERATIVE or _is_finite(operands[0]):
                return _by_threads(ufunc, *operands)
            x = operands[0]
            hopeless = np.isinf(x) if strict else ~np.isfinite(x)
            function = functools.partial(_by_threads, ufunc)
            return _nan_where(xp, hopeless.any(axis=(-2, -1)), function, x)
    except FloatingPointError as error:
        raise LinAlgError(_FAILURES.get(name, _OTHER_FAILURE)) from error


def _by_threads(function: Any, *operands: Any) -> Any:
    """A function of stacks of matrices, for pieces of large ones side by side."""
    x = operands[0]
    lead = x.shape[:-2]
    count, side = math.prod(lead), max(x.shape[-2:], default=0)
    if count < 2 or count * side**3 < _WORTH or side > _LARGE or available() < 2:
        return function(*operands)
    pieces = parts(count, _PIECES)
    flat = [y.reshape(-1, *y.shape[-2:]) for y in operands]
    found: list[Any] = [None] * len(pieces)

    def work(place: int) -> None:
        found[place] = function(*(y[pieces[place]] for y in flat))

    with alone() as possible:
        if not possible and side > _SMALL:
            return function(*operands)
        divide(work, range(len(pieces)))

    def joined(results: Any) -> Any:
        out = np.concatenate(results)
        return out.reshape(*lead, *out.shape[1:])

    several = type(found[0]) is tuple
    return tuple(map(joined, zip(*found, strict=True))) if several else joined(found)


def _is_finite(x: Any) -> bool:
    with np.errstate(all="ignore"):
        return cmath.isfinite(x.sum()) or bool(np.isfinite(x).all())


def nan_where_impossible(xp: Any, function: Any, x: Any, *others: Any) -> Any:
    """A function of (stacks of) matrices, and NaN for those of which it raises a `LinAlgError`."""
    try:
        return function(x, *others)
    except LinAlgError:
        lead = x.shape[:-2]
    operands = (x, *others)
    places = itertools.product(*map(range, lead))
    flags = [_is_impossible(function, [y[place] for y in operands]) for place in places]
    return _nan_where(xp, xp.asarray(np.reshape(flags, lead)), function, x, *others)


def _is_impossible(function: Any, operands: Any) -> bool:
    try:
        function(*operands)
    except LinAlgError:
        return True
    return False


def _nan_where(xp: Any, mask: Any, function: Any, x: Any, *others: Any) -> Any:
    """A function of matrices, and NaN for some, in whose place the identity is given to it."""
    lead = mask.shape
    unit = xp.eye(*x.shape[-2:], dtype=x.dtype)
    out = function(xp.where(mask[..., None, None], unit, x), *others)

    def hidden(part: Any) -> Any:
        return xp.where(xp.reshape(mask, (*lead, *(1,) * (part.ndim - len(lead)))), xp.nan, part)

    return tuple(map(hidden, out)) if isinstance(out, tuple) else hidden(out)
