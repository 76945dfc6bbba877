"""Vectorized versions of functions that NumPy and SciPy compute one element at a time.

Each function takes NumPy arrays of real floating numbers (see `is_supported`), and agrees with
NumPy or SciPy to a few units in the last place.  Where its formula does not hold, at infinities
and the ends of the range, those elements alone are computed by NumPy.
"""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.normal import ERF, ERF_END
from fdbr.ops.declare.select import choose

__all__ = [
    *("copysign", "erf", "expit", "floor_divide", "hypot", "logaddexp", "logit", "remainder"),
    "is_supported",
]

_FEW = 64  # elements, below which one call of NumPy is as fast as several passes
_BITS: dict[Any, Any] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}


def is_supported(xp: Any, *operands: Any) -> bool:
    """Whether operands are float32 or float64 arrays of one dtype, or Python numbers."""
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


def _corrected(out: Any, is_wrong: Any, function: Any, *operands: Any) -> Any:
    """Recompute elements of ``out`` with ``function`` where ``is_wrong`` is true."""
    if is_wrong.any():
        shape = out.shape
        out[is_wrong] = function(*(np.broadcast_to(value, shape)[is_wrong] for value in operands))
    return out


def logaddexp(x: Any, y: Any) -> Any:
    """``log(exp(x) + exp(y))``."""
    out = x - y
    np.abs(out, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    out += np.maximum(x, y)
    return _corrected(out, ~np.isfinite(out), np.logaddexp, x, y)


def hypot(x: Any, y: Any) -> Any:
    """``sqrt(x*x + y*y)``."""
    out = x * x + y * y
    limits = np.finfo(out.dtype)
    is_wrong = ~((out > limits.tiny / limits.eps) & (out < limits.max))
    np.sqrt(out, out=out)
    return _corrected(out, is_wrong, np.hypot, x, y)


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of ``x`` with the sign of ``y``."""
    dtype = x.dtype if type(x) is np.ndarray else y.dtype
    bits = _BITS[dtype]
    sign = bits.type(np.iinfo(bits).min)
    magnitude = np.asarray(x, dtype).view(bits) & ~sign
    return (magnitude | (np.asarray(y, dtype).view(bits) & sign)).view(dtype)


def remainder(x: Any, y: Any) -> Any:
    """``x`` modulo ``y``, with the sign of ``y``, in single precision."""
    quotient, is_wrong = _quotient(x, y, 1 << 28)
    with np.errstate(invalid="ignore"):
        quotient *= y
        np.subtract(x, quotient, out=quotient)  # exact in double precision
    is_wrong |= quotient == 0  # a zero has the sign of y
    return _corrected(quotient.astype(np.float32), is_wrong, np.remainder, x, y)


def floor_divide(x: Any, y: Any) -> Any:
    """``x / y`` rounded down, in single precision."""
    quotient, is_wrong = _quotient(x, y, 1 << 23)
    return _corrected(quotient.astype(np.float32), is_wrong, np.floor_divide, x, y)


def _quotient(x: Any, y: Any, most: int) -> Any:
    """Return the quotient rounded down, and where it is too large to be exact in float64."""
    with np.errstate(all="ignore"):  # such elements are recomputed
        quotient = np.divide(x, y, dtype=np.float64)
        np.floor(quotient, out=quotient)
        return quotient, ~(np.abs(quotient) < most) | np.isinf(y)


def expit(x: Any) -> Any:
    """The logistic function in single precision, accurate where it is small."""
    small = np.abs(x)
    np.negative(small, out=small)
    np.exp(small, out=small)
    out = choose(x < 0, small, 1)
    small += 1
    out /= small
    return out


def logit(x: Any) -> Any:
    """``log(x / (1 - x))`` of float32; float64 inside avoids cancellation near 1/2."""
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        x /= 1 - x
        return np.log(x, out=x).astype(np.float32)


def erf(x: Any) -> Any:
    """The error function in single precision."""
    x = np.clip(x, -ERF_END, ERF_END)
    square = x * x
    out = square * ERF[-1]
    for term in ERF[-2:0:-1]:
        out += term
        out *= square
    out += ERF[0]
    out *= x
    return np.tanh(out, out=out)
