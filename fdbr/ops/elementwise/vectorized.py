"""Functions that NumPy and SciPy compute one element at a time, in passes over whole arrays.

Each function takes NumPy arrays of real floating numbers (`suits` says which), and gives what
NumPy's or SciPy's gives to within some units in the last place.  Where its formula does not hold,
at infinities and the ends of the range, those elements alone are left to NumPy.
"""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.normal import ERF, ERF_END
from fdbr.ops.declare.select import choose

__all__ = [
    *("copysign", "erf", "expit", "floor_divide", "hypot", "logaddexp", "logit", "remainder"),
    "suits",
]

_FEW = 64  # elements, below which NumPy's function is as fast as several passes
_BITS: dict[Any, Any] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}


def suits(xp: Any, *operands: Any) -> bool:
    """Whether the operands are such arrays, all of one dtype; numbers may be among them."""
    if xp is not np:
        return False
    dtype, size = None, 0
    for operand in operands:
        if type(operand) is np.ndarray and operand.dtype in _BITS:
            if dtype is not None and operand.dtype != dtype:
                return False
            dtype, size = operand.dtype, max(size, operand.size)
        elif type(operand) is not float and type(operand) is not int:
            return False
    return size >= _FEW


def _mended(out: Any, wrong: Any, function: Any, *operands: Any) -> Any:
    """``out`` with the function's own values where it is wrong."""
    if wrong.any():
        shape = out.shape
        out[wrong] = function(*(np.broadcast_to(value, shape)[wrong] for value in operands))
    return out


def logaddexp(x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))``."""
    out = x - y
    np.abs(out, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    out += np.maximum(x, y)
    return _mended(out, ~np.isfinite(out), np.logaddexp, x, y)


def hypot(x: Any, y: Any) -> Any:
    """``sqrt(x*x + y*y)``."""
    out = x * x + y * y
    limits = np.finfo(out.dtype)
    wrong = ~((out > limits.tiny / limits.eps) & (out < limits.max))
    np.sqrt(out, out=out)
    return _mended(out, wrong, np.hypot, x, y)


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of ``x`` with the sign of ``y``."""
    dtype = x.dtype if type(x) is np.ndarray else y.dtype
    bits = _BITS[dtype]
    sign = bits.type(np.iinfo(bits).min)
    magnitude = np.asarray(x, dtype).view(bits) & ~sign
    return (magnitude | (np.asarray(y, dtype).view(bits) & sign)).view(dtype)


def remainder(x: Any, y: Any) -> Any:
    """``x`` modulo ``y``, with the sign of ``y``, of single numbers."""
    quotient, wrong = _quotient(x, y, 1 << 28)
    with np.errstate(invalid="ignore"):
        quotient *= y
        np.subtract(x, quotient, out=quotient)  # exact in double precision
    wrong |= quotient == 0  # whose sign is that of y
    return _mended(quotient.astype(np.float32), wrong, np.remainder, x, y)


def floor_divide(x: Any, y: Any) -> Any:
    """``x / y`` rounded down, of single numbers."""
    quotient, wrong = _quotient(x, y, 1 << 23)
    return _mended(quotient.astype(np.float32), wrong, np.floor_divide, x, y)


def _quotient(x: Any, y: Any, most: int) -> Any:
    """The quotient rounded down, and where it is too large to be right in double precision."""
    with np.errstate(all="ignore"):  # those are computed again
        quotient = np.divide(x, y, dtype=np.float64)
        np.floor(quotient, out=quotient)
        return quotient, ~(np.abs(quotient) < most) | np.isinf(y)


def expit(x: Any) -> Any:
    """The logistic function of single numbers, accurate where it is small."""
    small = np.abs(x)
    np.negative(small, out=small)
    np.exp(small, out=small)
    out = choose(x < 0, small, 1)
    small += 1
    out /= small
    return out


def logit(x: Any) -> Any:
    """``log(x / (1 - x))`` of single numbers: in double precision nothing is lost near 1/2."""
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        x /= 1 - x
        return np.log(x, out=x).astype(np.float32)


def erf(x: Any) -> Any:
    """The error function of single numbers."""
    x = np.clip(x, -ERF_END, ERF_END)
    square = x * x
    out = square * ERF[-1]
    for term in ERF[-2:0:-1]:
        out += term
        out *= square
    out += ERF[0]
    out *= x
    return np.tanh(out, out=out)
