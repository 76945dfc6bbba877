"""The values of special functions, from SciPy, for whatever module an array has."""

import functools
import inspect
import sys
from typing import Any

import numpy as np

from fdbr.core.array_modules import to_numpy
from fdbr.core.devices import scipy_of
from fdbr.core.routine import Routine
from fdbr.errors.checks import describe, number_types
from fdbr.ops.declare import Unknown, elementwise, several
from fdbr.ops.dtypes import float_dtype, is_complex, is_number
from fdbr.ops.elementwise.comparison import where

__all__ = [
    "is_small_integer",
    "one_less",
    "refuse_complex",
    "scipy_function",
    "scipy_functions",
    "scipy_special",
    "unknown",
]


# Of these, SciPy's loops for float32 give NaN, never end, or are deprecated.
IN_FLOAT64 = ("mathieu_", "pro_", "obl_", "bdtr", "nbdtr")


@Routine
def scipy_special(xp: Any, name: str, *operands: Any) -> Any:
    """A function of `scipy.special` on arrays of a module, in their floating dtype.

    NumPy arrays are SciPy's own; CuPy has most of the functions in ``cupyx``.  What a module
    lacks is computed in host memory.  A function whose values are complex gives them in the
    complex dtype of that precision, and one of several outputs gives a tuple.
    """
    if getattr(xp, "of_nodes", False):  # those that kernels have
        return getattr(xp, name)(*operands)
    dtype = float_dtype(*operands)
    if name.startswith(IN_FLOAT64):
        operands = tuple(
            o.astype(float) if getattr(getattr(o, "dtype", None), "kind", "") == "f" else o
            for o in operands
        )
    if dtype.itemsize == 8 and dtype.kind == "f":  # SciPy computes small integers in float32
        operands = tuple(o.astype(np.int64) if is_small_integer(o) else o for o in operands)
    function = function_of(xp, name)
    if function is not None:
        out = scipy_applied.on(xp)(function, *operands)
        return tuple(_cast(o, dtype) for o in out) if type(out) is tuple else _cast(out, dtype)
    on_host = [operand if is_number(operand) else to_numpy(operand) for operand in operands]
    out = function_of(np, name)(*on_host)
    if type(out) is tuple:
        return tuple(_cast(xp.asarray(o), dtype) for o in out)
    return _cast(xp.asarray(out), dtype)


def is_small_integer(value: Any) -> bool:
    """Return whether a value is an array of integers of at most 16 bits, or of truth values."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and dtype.kind in "biu" and dtype.itemsize <= 2


def _cast(out: Any, dtype: Any) -> Any:
    if out.dtype == dtype:
        return out
    if out.dtype.kind == "c" and dtype.kind != "c":
        dtype = np.result_type(dtype, np.complex64)
    return out.astype(dtype)


@Routine
def scipy_applied(function: Any, *operands: Any) -> Any:
    """Call a function of SciPy."""
    return function(*operands)


@functools.cache
def function_of(xp: Any, name: str) -> Any:
    """Return a function of `scipy.special` for arrays of a module; `None` if it has none."""
    return getattr(scipy_of(xp, "special"), name, None)


def unknown(function: str, operand: str) -> Unknown:
    """Make the rule of a derivative that is not known: an error that says so."""
    return Unknown(
        f"scipy.special.{function}: no derivative in {operand} is known, which is {{}}; give "
        f"fdbr.stop_gradient({operand}) to hold it constant"
    )


def scipy_function(name: str, operands: str, doc: str, **partials: Any) -> Any:
    """An elementwise operation whose values are those of a function of `scipy.special`.

    Parameters
    ----------
    name
        SciPy's name, which is the operation's too.
    operands
        The names of the operands, with spaces between them.
    doc
        What the function is.
    partials
        The partial derivatives, as `elementwise` takes them.  By an operand that has none
        here, no derivative is known.
    """
    declared = elementwise(double=True, **_stated(name, operands, partials))
    return declared(_value(name, operands, doc, partials))


def scipy_functions(name: str, operands: str, doc: str, **partials: Any) -> Any:
    """As `scipy_function`, for several outputs: a statement is a tuple of their derivatives."""
    return several(**_stated(name, operands, partials))(_value(name, operands, doc, partials))


def _stated(name: str, operands: str, partials: dict[str, Any]) -> dict[str, Any]:
    public = name.strip("_")
    return {n: partials[n] if n in partials else unknown(public, n) for n in operands.split()}


def _value(name: str, operands: str, doc: str, partials: dict[str, Any]) -> Any:
    """The value function, with the signature and the place of one that was written out."""
    public = name.strip("_")

    def value(xp: Any, *values: Any) -> Any:
        return scipy_special.on(xp)(xp, public, *values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ["xp", *operands.split()]
    value.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    value.__name__ = value.__qualname__ = name
    value.__module__ = sys._getframe(2).f_globals["__name__"]
    without = [n for n in operands.split() if n not in partials]
    value.__doc__ = doc + (f"  No derivative in {', '.join(without)} is known." if without else "")
    return value


def one_less(n: Any) -> tuple[Any, Any]:
    """Whether a degree or order is 0, and that below it, or 0; Python numbers stay such."""
    if type(n) in number_types:
        return n == 0, n - 1 if n else 0
    zero = n == 0
    return zero, where(zero, 1, n) - 1


def refuse_complex(function: str, x: Any) -> None:
    """Refuse complex numbers where the function or its derivatives are for real ones alone."""
    if is_complex(x):
        raise TypeError(
            f"fdbr.ops.{function}: x must be real, not {describe(x)}; the function or its "
            "derivatives are defined here on the real line alone"
        )
