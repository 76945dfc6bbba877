"""LAPACK on stacks of matrices, with NaN for single matrices that have no result.

The functions are those of the array module's ``linalg``, called matrix by matrix if one raises an
error.
"""

import functools
import itertools
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.core.devices import strict as raising
from fdbr.core.routine import Routine

__all__ = ["lapack", "library_function", "nan_where", "nan_where_failing"]

_MODULE_FUNCTIONS: dict[str, Any] = {
    "svd": lambda xp, x: tuple(xp.linalg.svd(x, full_matrices=False)),
    "svd_full": lambda xp, x: tuple(xp.linalg.svd(x)),
    "svdvals": lambda xp, x: xp.linalg.svd(x, compute_uv=False),
    "eigh": lambda xp, x: tuple(xp.linalg.eigh(x)),
    "eigh_upper": lambda xp, x: tuple(xp.linalg.eigh(x, UPLO="U")),
    "slogdet": lambda xp, x: tuple(xp.linalg.slogdet(x)),
}


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
    return library_function.on(xp)(xp, name, *operands, strict=strict)


@Routine
def library_function(xp: Any, name: str, *operands: Any, strict: bool) -> Any:
    """Call a function of the array module's ``linalg``; see `lapack`."""
    module_function = _MODULE_FUNCTIONS.get(name)
    function = (
        functools.partial(module_function, xp) if module_function else getattr(xp.linalg, name)
    )
    if not strict:
        return nan_where_failing(xp, function, *operands)
    with raising(xp):
        return function(*operands)


def nan_where_failing(xp: Any, function: Any, x: Any, *others: Any) -> Any:
    """Call a function of stacks of matrices; matrices that raise `LinAlgError` give NaN."""
    try:
        return function(x, *others)
    except LinAlgError:
        lead = x.shape[:-2]
    operands = (x, *others)
    positions = itertools.product(*map(range, lead))
    flags = [_fails(function, [y[number] for y in operands]) for number in positions]
    return nan_where(xp, xp.asarray(np.reshape(flags, lead)), function, x, *others)


def _fails(function: Any, operands: Any) -> bool:
    try:
        function(*operands)
    except LinAlgError:
        return True
    return False


def nan_where(xp: Any, mask: Any, function: Any, x: Any, *others: Any) -> Any:
    """Call a function with the identity in place of masked matrices, and give NaN for them."""
    lead = mask.shape
    unit = xp.eye(*x.shape[-2:], dtype=x.dtype)
    out = function(xp.where(mask[..., None, None], unit, x), *others)

    def masked(part: Any) -> Any:
        return xp.where(xp.reshape(mask, (*lead, *(1,) * (part.ndim - len(lead)))), xp.nan, part)

    return tuple(map(masked, out)) if isinstance(out, tuple) else masked(out)
