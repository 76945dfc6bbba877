"""Real and imaginary parts and conjugates of complex numbers."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.complex_numbers import as_imaginary
from fdbr.core.array_modules import Array
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, linear
from fdbr.ops.dtypes import is_complex
from fdbr.ops.shape.creation import asarray, zeros_like

__all__ = ["conj", "imag", "real"]


@linear(x=lambda ct, shape, dtype: fit(ct, (shape, dtype)), batch=aligned, view="always")
def _real(xp: Any, x: Array) -> Array:
    return x.real


@linear(
    x=lambda ct, shape, dtype: fit(_imaginary(ct), (shape, dtype)), batch=aligned, view="always"
)
def _imag(xp: Any, x: Array) -> Array:
    return x.imag


@linear(x=lambda ct: imag(ct), batch=aligned)
def _imaginary(xp: Any, x: Array) -> Array:
    """``-1j * x`` of real ``x``; the real part is 0, where a product would have ``0 * inf``."""
    if type(x) is np.ndarray and x.ndim:
        found = as_imaginary(x)
        if found is None:
            found = np.zeros(x.shape, np.result_type(x.dtype, np.complex64))
            np.negative(x, out=found.imag)
        return found
    out = xp.zeros(x.shape, dtype=xp.result_type(x.dtype, xp.complex64))
    out.imag = -x
    return out if out.ndim else out[()]


@linear(x=lambda ct: conj(ct), batch=aligned)
def _conj(xp: Any, x: Array) -> Array:
    return xp.conj(x)


@public("fdbr.ops")
def real(x: Array, /) -> Any:
    """The real part; real numbers are returned unchanged.

    >>> from fdbr import ops
    >>> float(ops.real(1 + 2j))
    1.0
    """
    return _real(asarray(x)) if is_complex(x) else x


@public("fdbr.ops")
def imag(x: Array, /) -> Any:
    """The imaginary part; zeros for real numbers.

    >>> from fdbr import ops
    >>> float(ops.imag(1 + 2j))
    2.0
    """
    return _imag(asarray(x)) if is_complex(x) else zeros_like(x)


@public("fdbr.ops")
def conj(x: Array, /) -> Any:
    """The complex conjugate; real numbers are returned unchanged.

    >>> from fdbr import ops
    >>> complex(ops.conj(1 + 2j))
    (1-2j)
    """
    return _conj(x) if is_complex(x) else x
