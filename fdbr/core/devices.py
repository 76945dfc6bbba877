"""The devices of an array module, and SciPy's functions for its arrays.

SciPy belongs to NumPy, and `cupyx` to CuPy.  Every difference in how fdbr treats the two is decided
here, so a module that behaves like CuPy is treated like CuPy.
"""

import contextlib
import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np

from fdbr.core.loading import load

__all__ = [
    "accelerator",
    "beside",
    "cuda_of",
    "device_named",
    "devices_of",
    "family",
    "is_host",
    "kernel",
    "optional",
    "scipy_of",
    "strict",
    "there",
]

beside: dict[str, Any] = {"cupy": "cupyx"}
"""The module (or its name) that has SciPy's functions, by the name of the array module."""


def is_host(xp: Any) -> bool:
    """Whether the arrays of a module are NumPy's, which lie in host memory."""
    return xp is np


@functools.cache
def family(xp: Any) -> Any:
    """Return what back ends register for: ``"cuda"`` for a module that compiles CUDA C."""
    found = "cuda" if hasattr(xp, "ElementwiseKernel") else xp
    load(found)
    return found


def accelerator() -> ModuleType:
    """Return the array module for CUDA devices; raise an ImportError if it is not installed."""
    return importlib.import_module("cupy")


def optional(function: str, name: str, extra: str) -> Any:
    """Import an optional library, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"fdbr.{function}: it needs {name.partition('.')[0]}; install it with "
            f"pip install 'fdbr[{extra}]'"
        ) from error


@functools.cache
def scipy_of(xp: Any, name: str) -> Any:
    """Return SciPy's submodule ``name`` for arrays of a module; `None` if there is none."""
    if is_host(xp):
        return importlib.import_module(f"scipy.{name}")
    found = beside.get(xp.__name__)
    if isinstance(found, str):
        return importlib.import_module(f"{found}.scipy.{name}")
    return found and getattr(found.scipy, name, None)


def cuda_of(xp: Any) -> Any:
    """Return an array module's interface to CUDA, such as ``cupy.cuda``; `None` if it has none."""
    return None if is_host(xp) else getattr(xp, "cuda", None)


@functools.cache
def devices_of(xp: Any) -> int:
    """Return the number of devices for arrays of a module, not counting host memory."""
    cuda = cuda_of(xp)
    if cuda is None:
        return 0
    try:
        return int(cuda.runtime.getDeviceCount())
    except RuntimeError:  # no CUDA driver is installed
        return 0


def device_named(device: Any, where: str) -> tuple[Any, int | None]:
    """Return the array module and the number of a device; the number is `None` for "cpu".

    Errors begin with ``where``, the function and the argument.
    """
    if isinstance(device, str) and device == "cpu":
        return np, None
    if device is not None and not hasattr(device, "id") and type(device) is not int:
        raise TypeError(
            f"{where} must be 'cpu', the number of a GPU, or None for the current GPU, not "
            f"{device if isinstance(device, str) else type(device).__name__!r}"
        )
    try:
        xp = accelerator()
    except ImportError as error:
        raise ImportError(
            f"{where} {device!r} is a GPU, which needs CuPy; install it with "
            "pip install 'fdbr[gpu]', or use 'cpu'"
        ) from error
    count = devices_of(xp)
    number = xp.cuda.runtime.getDevice() if device is None else getattr(device, "id", device)
    if not 0 <= number < count:
        raise ValueError(
            f"{where} is {number}, but this machine has {count} GPU{'' if count == 1 else 's'}"
        )
    return xp, number


class Elsewhere:
    """An array module whose functions run on another device than the current one."""

    def __init__(self, module: Any, device: Any) -> None:
        self._module = module
        self._device = device
        self.__name__ = module.__name__

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._module, name)
        if isinstance(member, type) or not callable(member):
            namespace = hasattr(member, "__name__") and not isinstance(member, type)
            return Elsewhere(member, self._device) if namespace else member

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._device:
                return member(*args, **kwargs)

        return call


def there(xp: Any, number: int) -> Any:
    """Return an array module for a device: the module itself if that device is current."""
    return xp if xp.cuda.runtime.getDevice() == number else _elsewhere(xp, number)


@functools.cache
def _elsewhere(xp: Any, number: int) -> Elsewhere:
    return Elsewhere(xp, xp.cuda.Device(number))


@functools.cache
def kernel(
    xp: Any, ins: str, outs: str, body: str, name: str, options: tuple[str, ...] = ()
) -> Any:
    """Return an elementwise kernel in CUDA C; `None` for a module that cannot compile it.

    ``options`` are the compiler's.
    """
    make = getattr(xp, "ElementwiseKernel", None)
    return None if make is None else make(ins, outs, body, name, options=options)


def strict(xp: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which linear algebra raises an error if it fails, as NumPy's does.

    By default CuPy does not check, because the check has to wait for the GPU.
    """
    found = beside.get(xp.__name__)
    if found is None:
        return contextlib.nullcontext()
    errors = importlib.import_module(found) if isinstance(found, str) else found
    return errors.errstate(linalg="raise")
