"""Special functions by SciPy, with less overhead for small arrays and by threads for large ones."""

import functools
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.elementwise import with_threads
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.special.incomplete import gammainc, gammaincc
from fdbr.ops.special.library import IN_FLOAT64, function_of, scipy_applied, scipy_special


@implement(scipy_special, np)
def _value(xp: Any, name: str, *operands: Any) -> Any:
    last = operands[-1]
    if type(last) is np.ndarray and last.nbytes < TUNING.kernel_bytes and last.dtype.char in "fd":
        dtype = last.dtype
        if len(operands) == 1 or _are_plain(operands[:-1], dtype):
            function = _function_of_plain(name)
            out = function and function(*operands)
            if getattr(out, "dtype", None) is dtype:
                return out
    return scipy_special.definition(xp, name, *operands)


def _are_plain(operands: tuple[Any, ...], dtype: Any) -> bool:
    """Whether operands are small arrays of a dtype, or Python's floats, which are weak."""
    for x in operands:
        if type(x) is not np.ndarray:
            if type(x) is not float:
                return False
        elif x.dtype is not dtype or x.nbytes >= TUNING.kernel_bytes:
            return False
    return True


@functools.cache
def _function_of_plain(name: str) -> Any:
    return None if name.startswith(IN_FLOAT64) else function_of(np, name)


@implement(scipy_applied, np)
def _applied(function: Any, *operands: Any) -> Any:
    if getattr(function, "nout", 1) > 1:
        return function(*operands)
    return _by_threads(np, *operands, function=function)


@with_threads
def _by_threads(xp: Any, *operands: Any, function: Any) -> Any:
    return function(*operands)


# --- the incomplete gamma function ----------------------------------------------------


def _everyday(xp: Any, name: str, a: Any, x: Any) -> Any:
    """SciPy's values; of large arrays by a kernel, but for the elements that it leaves NaN."""
    if max(getattr(v, "nbytes", 0) for v in (a, x)) >= TUNING.kernel_bytes:
        found = kernels.elementwise(name, getattr(kernels.incomplete, name), (a, x))
        if found is not None:
            missing = np.isnan(found)
            count = np.count_nonzero(missing)
            if count <= found.size // 2:
                if count:
                    rest = (np.broadcast_to(v, found.shape)[missing] for v in (a, x))
                    found[missing] = scipy_special.on(np)(np, name, *rest)
                return found
    return scipy_special.on(xp)(xp, name, a, x)


@implement(gammainc.primitive, np)
def _gammainc(xp: Any, a: Any, x: Any) -> Any:
    return _everyday(xp, "gammainc", a, x)


@implement(gammaincc.primitive, np)
def _gammaincc(xp: Any, a: Any, x: Any) -> Any:
    return _everyday(xp, "gammaincc", a, x)
