"""Which array module an array belongs to, and who may write to an array.

fdbr has no array class.  Arrays are NumPy's on the CPU and CuPy's on the GPU, and every op
asks here for the module of its arguments.  Any other array type that answers
``__array_namespace__`` is taken as it is.
"""

import contextlib
import functools
from types import ModuleType
from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library.copy import copied_into
from fdbr.core import devices
from fdbr.pytrees import structure
from fdbr.pytrees.locking import is_locked, kept_copies, lock
from fdbr.pytrees.locking import owner as owner

__all__ = ["array_module", "device_get", "device_put", "lock", "protect", "to_numpy"]
__dir__ = __all__.copy  # `dir` shows the public names alone

# Types whose module is known; others are added as they are met.  `None` marks types that
# go with any module: Python's numbers, which are weak in type promotion.
_modules: dict[type, Any] = {
    np.ndarray: np,
    bool: None,
    int: None,
    float: None,
    complex: None,
    type(None): None,
}

_BELOW = object()  # the mark of types that hold their array in ``value``
_wrappers: list[type] = []


def see_through(kind: type) -> None:
    """Have values of a type belong to the module of their attribute ``value``."""
    _wrappers.append(kind)


def array_module(*values: Any) -> ModuleType:
    """The array module of the given values: NumPy, CuPy, or what they say themselves.

    Python numbers, and anything else that is no array, go with any module; NumPy is the
    answer when there is nothing else.  NumPy scalars and 0-d arrays go with CuPy as well,
    as CuPy itself has it.

    >>> import numpy as np
    >>> array_module(np.ones(3), 2.0).__name__
    'numpy'
    """
    for value in values:
        module = module_of(type(value), value)
        if module is _BELOW:
            module = array_module(value.value)
        if module is not None and module is not np:
            return _where(module, value) if several else module
    return np


several: list[Any] = []
"""The array modules met so far whose arrays can lie on several devices."""


def _where(module: Any, value: Any) -> Any:
    """The module of an array, for the device where it lies."""
    return module_at(module, number_of(value))


def module_at(module: Any, number: int | None) -> Any:
    """An array module for the device of a number, where it has several."""
    return module if number is None or module not in several else devices.there(module, number)


def number_of(value: Any) -> int | None:
    """The number of the device where an array lies; `None` of what lies in host memory."""
    return getattr(getattr(value, "device", None), "id", None)


def on_device(*values: Any, mixed: bool = False) -> contextlib.AbstractContextManager[Any]:
    """The context of the device where arrays lie, for what is computed from them.

    It is the current one where they lie in host memory, or where there is but one device.  Of
    arrays that may be ``mixed``, the first one counts.
    """
    found: dict[int, Any] = {}
    for value in values:
        number = number_of(value)
        if number is not None:
            found.setdefault(number, value)
    if not found:
        return contextlib.nullcontext()
    if len(found) > 1 and not mixed:
        raise ValueError(
            f"the operands lie on the devices {sorted(found)}; bring them together with "
            "fdbr.device_put(x, device), or with ops.to_device under a transformation"
        )
    number, value = next(iter(found.items()))
    while module_of(type(value), value) is _BELOW:
        value = value.value
    module = module_of(type(value), value)
    if module not in several or module.cuda.runtime.getDevice() == number:
        return contextlib.nullcontext()
    device: contextlib.AbstractContextManager[Any] = module.cuda.Device(number)
    return device


def where_it_lies(function: Any) -> Any:
    """A function of several steps that runs on the device where the first of its arrays lies.

    An array may stand in a list of them.
    """

    @functools.wraps(function)
    def there(*args: Any, **kwargs: Any) -> Any:
        if not several:
            return function(*args, **kwargs)
        arrays = (arg[0] if isinstance(arg, list | tuple) and arg else arg for arg in args)
        with on_device(*arrays, mixed=True):
            return function(*args, **kwargs)

    return there


def module_of(kind: type, value: Any) -> Any:
    """The module of one value of type ``kind``, `None` if it goes with any."""
    try:
        return _modules[kind]
    except KeyError:
        module = _modules[kind] = _ask(kind, value)
        if devices.devices_of(module) > 1 and module not in several:
            several.append(module)
        return module


def _ask(kind: type, value: Any) -> Any:
    if issubclass(kind, tuple(_wrappers)):
        return _BELOW
    root = str(kind.__module__).partition(".")[0]  # of a class in C it need not be a text
    if issubclass(kind, np.ndarray | np.generic):
        return np
    if root == "cupy":
        return devices.accelerator()
    if has_method(kind, "__array_namespace__"):
        return value.__array_namespace__()
    return None


def is_a(value: Any, kinds: Any) -> bool:
    """Whether a value is of a class, by its type: objects of users may lie of their class."""
    return issubclass(type(value), kinds)


def has_method(kind: type, name: str) -> bool:
    """Whether a class defines a method: no ``__getattr__`` of it, or of its class, is asked."""
    return any(name in vars(base) for base in type.mro(kind))


def is_array(value: Any) -> bool:
    """Whether a value is an array or an array scalar of a known array module."""
    return module_of(type(value), value) is not None


def module_for(device: Any) -> Any:
    """The array module that makes arrays on a device: NumPy on ``None`` and ``"cpu"``."""
    if device is None or device == "cpu":
        return np
    return devices.there(devices.accelerator(), getattr(device, "id", device))


# --- reading and writing ------------------------------------------------------------


def protect(array: Any) -> Any:
    """An array with the same elements that nobody can write to: itself, or a copy."""
    if not hasattr(array, "dtype") or is_locked(array):
        return array
    return lock(copy_of(array))


def keep(array: Any) -> Any:
    """`protect` for the library's own use: a copy that was made so is not copied again."""
    safe = protect(array)
    if safe is not array and not isinstance(safe, np.ndarray):
        with contextlib.suppress(TypeError):  # of arrays to which there are no weak references
            kept_copies[id(safe)] = safe
    return safe


def copy_of(array: Any) -> Any:
    """A copy of an array where it lies; CuPy's own method copies to the current device."""
    if type(array) is np.ndarray:
        if array.nbytes >= kernels.LEAST:
            out = np.empty_like(array)
            copied_into(out, array)
            return out
        return array.copy(order="K")  # as it lies in memory, which takes a tenth of the time
    if not several:
        return array.copy()
    with on_device(array):
        return array.copy()


# --- devices ------------------------------------------------------------------------


def to_numpy(array: Any) -> Any:
    """The elements of an array in host memory, as a NumPy array."""
    if hasattr(array, "get") and not isinstance(array, np.ndarray | np.generic):
        return array.get()
    return np.asarray(array)


def device_get(values: Any) -> Any:
    """A tree with every array moved to host memory, as read-only NumPy arrays.

    It is linear, and differentiable: the cotangent of a traced value moves back to where that
    lies.

    >>> import numpy as np
    >>> device_get({"w": np.ones(2)})
    {'w': array([1., 1.])}
    """

    def moved(leaf: Any) -> Any:
        if _is_traced(leaf):
            return leaf.to_device("cpu")
        return protect(to_numpy(leaf)) if _is_there(leaf) else leaf

    return structure.map(moved, values)


def _is_there(leaf: Any) -> bool:
    """Whether a leaf is an array of an array module."""
    return module_of(type(leaf), leaf) not in (None, _BELOW)


def _is_traced(leaf: Any) -> bool:
    """Whether a leaf is a traced array; numbers stay where they are."""
    return module_of(type(leaf), leaf) is _BELOW and leaf.__class__ not in (float, int, complex)


def device_put(values: Any, device: int | str | None = None) -> Any:
    """A tree with every array moved to a device.

    It is linear, and differentiable: the cotangent of a traced value moves back to where that
    lies.

    Parameters
    ----------
    values
        A tree; leaves that are no arrays stay as they are.
    device
        ``"cpu"``, or the number of a CUDA device; `None` is the current CUDA device.

    Raises
    ------
    ImportError
        If a CUDA device is asked for and CuPy is not installed.
    TypeError, ValueError
        If ``device`` names none, or none that there is.

    >>> import numpy as np
    >>> device_put(np.ones(2), "cpu")
    array([1., 1.])
    """
    xp, number = devices.device_named(device, "fdbr.device_put: device")
    if number is None:
        return device_get(values)

    def moved(leaf: Any) -> Any:
        if _is_traced(leaf):
            return leaf.to_device(number)
        return xp.asarray(leaf) if _is_there(leaf) else leaf

    with xp.cuda.Device(number):
        return structure.map(moved, values)
