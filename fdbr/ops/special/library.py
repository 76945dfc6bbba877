"""Where the values of special functions come from: SciPy, for whatever module an array has."""

import functools
from typing import Any

import numpy as np

from fdbr.backend import to_numpy
from fdbr.core import describe, stop_gradient
from fdbr.libraries import scipy_of
from fdbr.ops.dtypes import float_dtype, is_complex, is_number
from fdbr.ops.kinds.large import evaluated

__all__ = ["not_differentiated", "refuse_complex", "scipy_special"]


def scipy_special(xp: Any, name: str, *operands: Any) -> Any:
    """A function of `scipy.special` on arrays of a module, in their floating dtype.

    NumPy arrays are SciPy's own; CuPy has most of the functions in ``cupyx``.  What a module
    lacks is computed in host memory.
    """
    dtype = float_dtype(*operands)
    function = _function(xp, name)
    if function is not None:
        out = _applied(xp, *operands, function=function)
    else:
        on_host = [operand if is_number(operand) else to_numpy(operand) for operand in operands]
        out = xp.asarray(_function(np, name)(*on_host))
    return out if out.dtype == dtype else out.astype(dtype)


@evaluated
def _applied(xp: Any, *operands: Any, function: Any) -> Any:
    return function(*operands)


@functools.cache
def _function(xp: Any, name: str) -> Any:
    return getattr(scipy_of(xp, "special"), name, None)


def refuse_complex(function: str, x: Any) -> None:
    """Refuse complex numbers where the function or its derivatives are for real ones alone."""
    if is_complex(x):
        raise TypeError(
            f"fdbr.ops.{function}: x must be real, not {describe(x)}; the function or its "
            "derivatives are defined here on the real line alone"
        )


def not_differentiated(function: str, name: str, value: Any) -> None:
    """Refuse a traced value in the place of an argument by which there is no derivative."""
    if stop_gradient(value) is not value:
        raise TypeError(
            f"fdbr.ops.{function}: there is no derivative by {name}, which is {describe(value)}; "
            f"give fdbr.stop_gradient({name}) to hold it constant"
        )
