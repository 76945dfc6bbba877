"""Fourier transforms: of few elements by NumPy, of others by SciPy, which has threads."""

import importlib
from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.core.util.threads import available
from fdbr.ops import fft


def _of_scipy(name: str, x: Any, *args: Any, **how: Any) -> Any:
    module = importlib.import_module("scipy.fft")
    return getattr(module, name)(
        x, *args, **how, workers=available() if x.size >= TUNING.fft_thread else 1
    )


def _along_axes(name: str, x: Any, axes: tuple[int, ...], norm: Any) -> Any:
    if x.size >= TUNING.extra_pass:
        if len(axes) == 1:
            return _of_scipy(name, x, axis=axes[0], norm=norm)
        return _of_scipy(f"{name}n", x, axes=axes, norm=norm)
    # One axis after the other, as `numpy.fft.fftn` does it after more checks of its arguments.
    function = getattr(np.fft, name)
    for axis in reversed(axes):
        x = function(x, axis=axis, norm=norm)
    return x


@implement(fft._fft.primitive, np)
def _fft(xp: Any, x: Any, *, axes: tuple[int, ...], norm: Any) -> Any:
    return _along_axes("fft", x, axes, norm)


@implement(fft._ifft.primitive, np)
def _ifft(xp: Any, x: Any, *, axes: tuple[int, ...], norm: Any) -> Any:
    return _along_axes("ifft", x, axes, norm)


@implement(fft._rfft.primitive, np)
def _rfft(xp: Any, x: Any, *, axis: int, norm: Any) -> Any:
    if x.size >= TUNING.extra_pass:
        return _of_scipy("rfft", x, axis=axis, norm=norm)
    return np.fft.rfft(x, axis=axis, norm=norm)


@implement(fft._irfft.primitive, np)
def _irfft(xp: Any, x: Any, *, n: int, axis: int, norm: Any) -> Any:
    if x.size >= TUNING.extra_pass:
        return _of_scipy("irfft", x, n, axis=axis, norm=norm)
    return np.fft.irfft(x, n, axis=axis, norm=norm)
