"""Which frequencies the elements of a Fourier transform stand for, and in which order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math import arithmetic
from fdbr.core.array_modules import Array, module_for
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axes
from fdbr.ops.devices import to_device
from fdbr.ops.dtypes import astype
from fdbr.ops.elementwise.arithmetic import divide
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.iota import apply_to_iota
from fdbr.ops.shape.manipulation import roll

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


@public("fdbr.ops.fft")
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies that the elements of `fft` stand for, at sample spacing ``d``.

    Those from 0 up come first, then the negative ones: ``[0, 1, …, -2, -1] / (n * d)``.

    >>> from fdbr import ops
    >>> ops.fft.fftfreq(4, d=0.25)
    array([ 0.,  1., -2., -1.])
    """
    n = integer("fdbr.ops.fft.fftfreq", "n", n, least=1)
    first = (n + 1) // 2
    if device in (None, "cpu") and type(d) in (float, int) and n * d:
        found = apply_to_iota(_two_sided, n, first, n, n * d)
        if found is not None:
            return astype(found, float if dtype is None else dtype, copy=False)
    places = np.empty(n)
    places[:first] = np.arange(first)
    places[first:] = np.arange(first - n, 0)
    return _frequencies(to_device(places, device or "cpu"), n, d, dtype)


@public("fdbr.ops.fft")
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies that the elements of `rfft` stand for: ``[0, 1, …, n // 2] / (n * d)``.

    >>> from fdbr import ops
    >>> ops.fft.rfftfreq(4, d=0.25)
    array([0., 1., 2.])
    """
    n = integer("fdbr.ops.fft.rfftfreq", "n", n, least=1)
    if module_for(device) is np and type(d) in (float, int) and n * d:
        found = apply_to_iota(_one_sided, n // 2 + 1, n * d)
        if found is not None:
            return astype(found, float if dtype is None else dtype, copy=False)
    return _frequencies(module_for(device).arange(n // 2 + 1, dtype=float), n, d, dtype)


def _two_sided(i: Any, first: Any, n: Any, length: Any) -> Any:
    return arithmetic.where(i >= first, i - n, i) / length


def _one_sided(i: Any, length: Any) -> Any:
    return i / length


def _frequencies(whole: Any, n: int, d: float, dtype: Any) -> Any:
    """Whole numbers, in an array of their own, as frequencies."""
    if type(whole) is np.ndarray and type(d) in (float, int):
        whole /= n * d
    else:
        whole = divide(whole, n * d)
    return astype(whole, float if dtype is None else dtype, copy=False)


@public("fdbr.ops.fft")
def fftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Any:
    """The array with frequency 0 in the middle of some axes, or of all.

    >>> from fdbr import ops
    >>> ops.fft.fftshift(ops.fft.fftfreq(4))
    array([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _rolled(x, axes, 1, "fftshift")


@public("fdbr.ops.fft")
def ifftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Any:
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
