"""The Array API's inspection functions and dtypes, and the exchange of arrays by DLPack."""

from typing import Any

import numpy as np

from fdbr.core import devices
from fdbr.core.array_modules import Array, device_put, module_for
from fdbr.core.tracer import Tracer
from fdbr.errors.public import public

__all__ = [
    "bool",
    "complex64",
    "complex128",
    "float32",
    "float64",
    "from_dlpack",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

# NumPy's dtypes, which CuPy uses too.
bool = np.bool
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float32, float64, complex64, complex128 = np.float32, np.float64, np.complex64, np.complex128

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the Array API standard that the namespace implements; the last is the default."""

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_UNIONS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": tuple(kind for kind in _KINDS if kind != "bool"),
    None: tuple(_KINDS),
}


class NamespaceInfo:
    """The capabilities, devices and dtypes of `fdbr.ops`."""

    def capabilities(self) -> dict[str, Any]:
        """Return the optional capabilities of the standard.

        Boolean indices, and results whose shape depends on the elements, are supported, also under
        `vmap`; an array has up to 64 dimensions.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device of new arrays by default."""
        return "cpu"

    def devices(self) -> list[Any]:
        """Return ``"cpu"``, and the numbers of the CUDA devices if CuPy is installed."""
        try:
            runtime = devices.accelerator().cuda.runtime
            return ["cpu", *range(runtime.getDeviceCount())]
        except (ImportError, RuntimeError):  # no CuPy, or no driver for it
            return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes of new arrays by default, on a device."""
        integer = module_for(device).asarray(0).dtype
        return {
            "real floating": np.dtype(float64),
            "complex floating": np.dtype(complex128),
            "integral": integer,
            "indexing": np.dtype(int64) if np.intp(0).itemsize == 8 else np.dtype(int32),
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> Any:
        """Return the dtypes of one or several kinds, by name; they are the same on every device.

        Raises
        ------
        ValueError
            If a kind does not exist.
        """
        names: dict[str, Any] = {}
        for name in kind if isinstance(kind, tuple) else (kind,):
            parts = _UNIONS.get(name) or ((name,) if name in _KINDS else None)
            if parts is None:
                known = [*_KINDS, *(name for name in _UNIONS if name)]
                raise ValueError(f"fdbr.ops: {name!r} is not a kind of dtype; there are {known}")
            names |= {name: np.dtype(name) for part in parts for name in _KINDS[part]}
        return names


def __array_namespace_info__() -> NamespaceInfo:
    """Return the inspection object of the namespace: see the Array API standard.

    >>> from fdbr import ops
    >>> ops.__array_namespace_info__().dtypes(kind="bool")
    {'bool': dtype('bool')}
    """
    return NamespaceInfo()


def check_version(version: str | None) -> None:
    """Raise for a version of the standard that the namespace does not implement."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"fdbr.ops implements the Array API standard {VERSIONS[-1]}, and the earlier versions "
            f"{VERSIONS[:-1]}, but not {version!r}"
        )


@public("fdbr.ops")
def from_dlpack(x: Array, /, *, device: Any = None, copy: Any = None) -> Any:
    """Convert an array of another library to NumPy or CuPy, without a copy where possible.

    Parameters
    ----------
    x
        An object that supports DLPack: a tensor of PyTorch, an array of JAX ….
    device
        The device of the result: ``"cpu"`` or the number of a CUDA device; by default that of
        ``x``.
    copy
        Whether to copy; by default only if necessary.

    Raises
    ------
    TypeError
        If ``x`` is a traced value, or does not support DLPack.
    BufferError, ValueError
        If ``copy`` is false and a copy is needed.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.from_dlpack(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    if isinstance(x, Tracer) or not hasattr(x, "__dlpack_device__"):
        raise TypeError(
            f"fdbr.ops.from_dlpack: {x!r} does not support DLPack"
            + ("; traced values are passed as they are" if isinstance(x, Tracer) else "")
        )
    kind, number = x.__dlpack_device__()
    source = "cpu" if kind in (1, 3) else number  # ordinary memory, and pinned memory
    device = source if device is None else device
    if source == device:
        return _import_array(x, source, copy)
    if copy is False:
        raise ValueError(
            f"fdbr.ops.from_dlpack: copy=False, but moving {type(x).__name__} from device "
            f"{source!r} to {device!r} needs a copy"
        )
    return device_put(_import_array(x, source, None), device)


def _import_array(x: Any, device: Any, copy: Any) -> Any:
    """Import an array on its own device."""
    if device == "cpu":
        return np.from_dlpack(x, copy=copy)
    xp = module_for(device)
    with xp.cuda.Device(device):
        return xp.from_dlpack(x, copy=copy)
