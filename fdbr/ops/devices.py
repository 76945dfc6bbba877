"""Move arrays between devices, traced arrays included."""

from typing import Any

from fdbr.core.array_modules import array_module, device_put, to_numpy
from fdbr.core.devices import is_host
from fdbr.core.tracer import Tracer
from fdbr.ops.declare import aligned, linear
from fdbr.pytrees.typing import Array

__all__ = ["beside", "device_of", "to_device"]


@linear(x=lambda ct, to, back: _to_device(ct, to=back, back=to), batch=aligned)
def _to_device(xp: Any, x: Any, *, to: Any, back: Any) -> Any:
    if device_of(x) == to:
        return x
    return to_numpy(x) if to == "cpu" else device_put(x, to)


def device_of(x: Array) -> Any:
    """The device of an array: ``"cpu"``, or the number of a CUDA device."""
    while isinstance(x, Tracer):
        x = x.value
    return _device_name(getattr(x, "device", "cpu"))


def to_device(x: Any, device: Any, /) -> Any:
    """Move an array to a device: ``"cpu"``, the number of a CUDA device, or an array's ``device``.

    The operation is linear: its vjp moves the cotangent back.  Traced values have it as a method,
    as arrays of the Array API standard do.
    """
    to, back = _device_name(device), device_of(x)
    return x if to == back else _to_device(x, to=to, back=back)


def beside(indices: Any, x: Any) -> Any:
    """Move indices or labels from host memory to the device of the array they index.

    They are small, come from where data is read, and have no derivative.  Other arrays are never
    moved implicitly.
    """
    xp = array_module(x)
    if is_host(xp) or not is_host(array_module(indices)):
        return indices
    return to_device(indices, device_of(x)) if isinstance(indices, Tracer) else xp.asarray(indices)


def _device_name(device: Any) -> Any:
    """Convert CuPy's device object to its number; other names are returned unchanged."""
    return getattr(device, "id", device)
