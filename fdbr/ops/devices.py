"""Arrays moved between devices, traced ones too."""

from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, device_put, to_numpy
from fdbr.core.tracer import Tracer
from fdbr.ops.declare import aligned, linear
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["beside", "device_of", "to_device"]


@linear(x=lambda ct, to, back: _to_device(ct, to=back, back=to), batch=aligned)
def _to_device(xp: Any, x: ArrayLike, *, to: Any, back: Any) -> Array:
    if device_of(x) == to:
        return x
    return to_numpy(x) if to == "cpu" else device_put(x, to)


def device_of(x: Array) -> Any:
    """The device on which an array lies: ``"cpu"``, or the number of a CUDA device."""
    while isinstance(x, Tracer):
        x = x.value
    return _known(getattr(x, "device", "cpu"))


def to_device(x: Any, device: Any, /) -> Any:
    """The array on a device: ``"cpu"``, the number of a CUDA device, or an array's ``device``.

    It is linear: a cotangent travels back.  Traced values have it as a method, as the Array API
    standard has it of arrays.
    """
    to, back = _known(device), device_of(x)
    return x if to == back else _to_device(x, to=to, back=back)


def beside(places: Any, x: Any) -> Any:
    """Integers that say where, of host memory, on the device of the array that they belong to.

    Indices and labels come from where data is read; they carry no derivative.  Other arrays are
    never moved without a word.
    """
    xp = array_module(x)
    if xp is np or array_module(places) is not np:
        return places
    return to_device(places, device_of(x)) if isinstance(places, Tracer) else xp.asarray(places)


def _known(device: Any) -> Any:
    """A device as fdbr names it, of what CuPy names so."""
    return getattr(device, "id", device)
