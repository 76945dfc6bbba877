"""Which frequencies the elements of a Fourier transform stand for, and in which order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes
from fdbr.ops.devices import to_device
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import divide
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.iota import apply_to_iota
from fdbr.ops.shape.manipulation import roll
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


@public("fdbr.ops.fft")
def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """The frequencies that the elements of `fft` stand for, at sample spacing ``d``.

    Those from 0 up come first, then the negative ones: ``[0, 1, …, -2, -1] / (n * d)``.

    >>> from fdbr import ops
    >>> ops.fft.fftfreq(4, d=0.25)
    array([ 0.,  1., -2., -1.])
    """
    n = integer("fdbr.ops.fft.fftfreq", "n", n, least=1)
    first = (n + 1) // 2
    return _frequencies(_two_sided, n, (first, n), n, d, dtype, device)


@public("fdbr.ops.fft")
def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """The frequencies that the elements of `rfft` stand for: ``[0, 1, …, n // 2] / (n * d)``.

    >>> from fdbr import ops
    >>> ops.fft.rfftfreq(4, d=0.25)
    array([0., 1., 2.])
    """
    n = integer("fdbr.ops.fft.rfftfreq", "n", n, least=1)
    return _frequencies(_one_sided, n // 2 + 1, (), n, d, dtype, device)


def _two_sided(xp: Any, i: Any, first: Any, n: Any, length: Any) -> Any:
    return xp.where(i >= first, i - n, i) / length


def _one_sided(xp: Any, i: Any, length: Any) -> Any:
    return i / length


def _frequencies(
    function: Any, count: int, numbers: tuple[int, ...], n: int, d: float, dtype: Any, device: Any
) -> Any:
    """Compute ``function(i, *numbers, n * d)`` for ``count`` whole numbers."""
    is_plain = type(d) in (float, int) and n * d
    found = apply_to_iota.on(np)(np, function, count, *numbers, n * d if is_plain else 1)
    if device not in (None, "cpu"):
        found = to_device(found, device)
    found = found if is_plain else divide(found, n * d)
    return astype(found, float if dtype is None else dtype, copy=False)


@public("fdbr.ops.fft")
def fftshift(x: ArrayLike, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The array with frequency 0 in the middle of some axes, or of all.

    >>> from fdbr import ops
    >>> ops.fft.fftshift(ops.fft.fftfreq(4))
    array([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _rolled(x, axes, 1, "fftshift")


@public("fdbr.ops.fft")
def ifftshift(x: ArrayLike, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.fft.ifftshift(np.array([-2, -1, 0, 1]))
    array([ 0,  1, -2, -1])
    """
    return _rolled(x, axes, -1, "ifftshift")


def _rolled(x: Any, axes: Any, sign: int, name: str) -> Any:
    x = asarray(x)
    axes = tuple(axes) if isinstance(axes, Sequence) else axes
    places = normalize_axes(axes, x.ndim, f"fft.{name}")
    shifts = tuple(sign * (x.shape[axis] // 2) for axis in places)
    return roll(x, shifts, axis=places) if places else x
