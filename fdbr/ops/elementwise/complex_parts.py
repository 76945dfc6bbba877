"""Real and imaginary parts and conjugates of complex numbers."""

import operator
from typing import Any

from fdbr.errors.public import public
from fdbr.ops.declare import aligned, fit, linear
from fdbr.ops.dtypes import is_complex, is_number
from fdbr.ops.shape.creation import asarray, zeros_like
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["conj", "imag", "real"]


@linear(
    x=lambda ct, shape, dtype: fit(ct, (shape, dtype)),
    batch=aligned,
    view="always",
    exact=operator.attrgetter("real"),
)
def _real(xp: Any, x: Any) -> Any:
    return x.real


@linear(
    x=lambda ct, shape, dtype: fit(_imaginary(ct), (shape, dtype)),
    batch=aligned,
    view="always",
    exact=operator.attrgetter("imag"),
)
def _imag(xp: Any, x: Any) -> Any:
    return x.imag


@linear(x=lambda ct: imag(ct), batch=aligned)
def _imaginary(xp: Any, x: ArrayLike) -> Array:
    """``-1j * x`` of real ``x``; the real part is 0, where a product would have ``0 * inf``."""
    out = xp.zeros(x.shape, dtype=xp.result_type(x.dtype, xp.complex64))
    out.imag = -x
    return out if out.ndim else out[()]


@linear(x=lambda ct: conj(ct), batch=aligned, exact=operator.methodcaller("conjugate"))
def _conj(xp: Any, x: ArrayLike) -> Array:
    return xp.conj(x)


@public("fdbr.ops")
def real(x: Any, /) -> Any:
    """The real part; real numbers are returned unchanged.

    >>> from fdbr import ops
    >>> float(ops.real(1 + 2j))
    1.0
    """
    return _real(x if is_number(x) else asarray(x)) if is_complex(x) else x


@public("fdbr.ops")
def imag(x: ArrayLike, /) -> Array:
    """The imaginary part; zeros for real numbers.

    >>> from fdbr import ops
    >>> float(ops.imag(1 + 2j))
    2.0
    """
    return _imag(x if is_number(x) else asarray(x)) if is_complex(x) else zeros_like(x)


@public("fdbr.ops")
def conj(x: Any, /) -> Any:
    """The complex conjugate; real numbers are returned unchanged.

    >>> from fdbr import ops
    >>> complex(ops.conj(1 + 2j))
    (1-2j)
    """
    return _conj(x) if is_complex(x) else x
