"""NumPy's Fourier transforms on traced values: which function of `fdbr.ops.fft` each of them is.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.interop.signatures import implements
from fdbr.ops import fft


def _along_one(transform: Callable[..., Any]) -> Callable[..., Any]:
    def adapted(a: Any, n: int | None = None, axis: int = -1, norm: Any = None) -> Any:
        if isinstance(n, bool):
            raise TypeError(f"np.fft: n is {n}, no number of points")
        return transform(ops.asarray(a), n=n, axis=axis, norm=norm or "backward")

    return adapted


def _along_several(transform: Callable[..., Any], default: Any = None) -> Callable[..., Any]:
    complex_only = transform in (fft.fftn, fft.ifftn)

    def adapted(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        a = ops.asarray(a)
        if (not a.ndim if axes is None else not len(axes)) and s is None and complex_only:
            return a  # there is nothing to transform
        if s is not None and axes is not None and len(s) != len(axes):
            raise ValueError(f"np.fft: lengths {s} for axes {axes}; give one for each")
        if s is not None:
            places = range(-len(s), 0) if axes is None else axes
            s = tuple(a.shape[i] if n == -1 else n for n, i in zip(s, places, strict=False))
            axes = tuple(places)
        return transform(a, s=s, axes=axes, norm=norm or "backward")

    return adapted


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    implements(_name, module=np.fft)(_along_one(getattr(fft, _name)))
for _name in ("fft", "ifft", "rfft", "irfft"):
    _transform = getattr(fft, f"{_name}n")
    implements(f"{_name}n", module=np.fft)(_along_several(_transform))
    implements(f"{_name}2", module=np.fft)(_along_several(_transform, (-2, -1)))
implements("fftshift", module=np.fft)(lambda x, axes=None: fft.fftshift(x, axes=axes))
implements("ifftshift", module=np.fft)(lambda x, axes=None: fft.ifftshift(x, axes=axes))
