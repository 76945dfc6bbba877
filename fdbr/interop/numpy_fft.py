"""NumPy's Fourier transforms on traced values: which function of `fdbr.ops.fft` each of them is.

Every entry takes NumPy's arguments; see `fdbr.interop.numpy_protocol`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.array import functions
from fdbr.ops import fft


def _along_one(transform: Callable[..., Any]) -> Callable[..., Any]:
    def adapted(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
        return transform(a, n=n, axis=axis, norm=norm or "backward")

    return adapted


def _along_several(transform: Callable[..., Any], default: Any = None) -> Callable[..., Any]:
    def adapted(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        return transform(a, s=s, axes=axes, norm=norm or "backward")

    return adapted


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    functions[getattr(np.fft, _name)] = _along_one(getattr(fft, _name))
for _name in ("fft", "ifft", "rfft", "irfft"):
    _transform = getattr(fft, f"{_name}n")
    functions[getattr(np.fft, f"{_name}n")] = _along_several(_transform)
    functions[getattr(np.fft, f"{_name}2")] = _along_several(_transform, (-2, -1))
functions[np.fft.fftshift] = lambda x, axes=None: fft.fftshift(x, axes=axes)
functions[np.fft.ifftshift] = lambda x, axes=None: fft.ifftshift(x, axes=axes)
