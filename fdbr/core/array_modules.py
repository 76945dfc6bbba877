"""Which array module an array belongs to, read-only arrays, and moves between devices.

fdbr has no array class of its own.  Arrays are NumPy's on the CPU and CuPy's on the GPU, and every
operation looks up the module of its operands here.  Other array types are accepted if they have
``__array_namespace__``.
"""

import contextlib
import functools
from types import ModuleType
from typing import Any

import numpy as np

from fdbr.core import devices
from fdbr.core.routine import Routine
from fdbr.errors.public import public
from fdbr.pytrees import structure
from fdbr.pytrees.locking import is_locked, kept_copies, lock
from fdbr.pytrees.locking import owner as owner

__all__ = ["array_module", "device_get", "device_put", "lock", "protect", "to_numpy"]
__dir__ = __all__.copy  # `dir` shows the public names alone

# The module of each type; types are added when their first value comes.  `None` marks types that
# any module accepts: Python's numbers, which are weak in type promotion.
_modules: dict[type, Any] = {
    np.ndarray: np,
    bool: None,
    int: None,
    float: None,
    complex: None,
    type(None): None,
}

_BELOW = object()  # marks types that hold their array in ``value``
_wrappers: list[type] = []


def see_through(kind: type) -> None:
    """Declare that values of a type belong to the module of their attribute ``value``."""
    _wrappers.append(kind)


@public("fdbr.backend", explained=False)
def array_module(*values: Any) -> ModuleType:
    """Return the array module of the given values: NumPy, CuPy, or their own namespace.

    Any module accepts Python numbers and other values that are not arrays; if there are no others,
    the module is NumPy.  CuPy also accepts NumPy scalars and 0-d arrays, as in CuPy itself.

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
"""The array modules in use whose arrays can lie on several devices."""


def _where(module: Any, value: Any) -> Any:
    """Return the module of an array, bound to the array's device."""
    return module_at(module, number_of(value))


def module_at(module: Any, number: int | None) -> Any:
    """Return an array module bound to a device, if it has several devices."""
    return module if number is None or module not in several else devices.there(module, number)


def number_of(value: Any) -> int | None:
    """Return the number of an array's device; `None` for arrays in host memory."""
    return getattr(getattr(value, "device", None), "id", None)


def on_device(*values: Any, mixed: bool = False) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which the device of the given arrays is the current one.

    It changes nothing if the arrays lie in host memory, or if there is only one device.  If the
    arrays may be ``mixed``, the first array decides; else arrays on two devices are an error.
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
    """Wrap a function so that it runs on the device of its first array.

    The array may be the first one of a list.
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
    """Return the module of a value of type ``kind``; `None` if any module accepts it."""
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
    root = str(kind.__module__).partition(".")[0]  # need not be a string for a class written in C
    if issubclass(kind, np.ndarray | np.generic):
        return np
    if root == "cupy":
        return devices.accelerator()
    if has_method(kind, "__array_namespace__"):
        return value.__array_namespace__()
    return None


def is_a(value: Any, kinds: Any) -> bool:
    """Whether a value's type is a subclass of ``kinds``, whatever its ``__class__`` claims."""
    return issubclass(type(value), kinds)


def has_method(kind: type, name: str) -> bool:
    """Whether a class defines a method, without a call of any ``__getattr__``."""
    return any(name in vars(base) for base in type.mro(kind))


def is_array(value: Any) -> bool:
    """Whether a value is an array or an array scalar of a known array module."""
    return module_of(type(value), value) is not None


def module_for(device: Any) -> Any:
    """Return the array module that makes arrays on a device: NumPy for ``None`` and ``"cpu"``."""
    if device is None or device == "cpu":
        return np
    return devices.there(devices.accelerator(), getattr(device, "id", device))


# --- reading and writing ------------------------------------------------------------


@public("fdbr.backend")
def protect(array: Any) -> Any:
    """Return a read-only array with the same elements: the array itself if locked, else a copy."""
    if not hasattr(array, "dtype") or is_locked(array):
        return array
    return lock(copy_of(array))


def keep(array: Any) -> Any:
    """Apply `protect` for internal use: a copy that it made before is not copied again."""
    safe = protect(array)
    if safe is not array and not isinstance(safe, np.ndarray):
        with contextlib.suppress(TypeError):  # the type allows no weak references
            kept_copies[id(safe)] = safe
    return safe


def copy_of(array: Any) -> Any:
    """Copy an array on its own device; CuPy's method copies to the current device."""
    if type(array) is np.ndarray or not several:
        return copied(array)
    with on_device(array):
        return copied(array)


@Routine
def copied(array: Any) -> Any:
    return array.copy()


@Routine
def locked_copy(array: Any) -> Any:
    """Copy an array, read-only."""
    return lock(copy_of(array))


# --- devices ------------------------------------------------------------------------


@public("fdbr.backend")
def to_numpy(array: Any) -> Any:
    """Return the elements of an array as a NumPy array in host memory."""
    if hasattr(array, "get") and not isinstance(array, np.ndarray | np.generic):
        return array.get()
    return np.asarray(array)


@public("fdbr")
def device_get(values: Any) -> Any:
    """Return a tree with every array moved to host memory, as read-only NumPy arrays.

    The move is linear and differentiable: the cotangent of a traced value moves back to the
    device of that value.

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


@public("fdbr")
def device_put(values: Any, device: int | str | None = None) -> Any:
    """Return a tree with every array moved to a device.

    The move is linear and differentiable: the cotangent of a traced value moves back to the
    device of that value.

    Parameters
    ----------
    values
        A tree; leaves that are not arrays are returned unchanged.
    device
        ``"cpu"``, or the number of a CUDA device; `None` is the current CUDA device.

    Raises
    ------
    ImportError
        If a CUDA device is asked for and CuPy is not installed.
    TypeError, ValueError
        If ``device`` is no device, or one that this machine does not have.

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
