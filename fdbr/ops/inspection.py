"""The Array API's inspection functions, its dtypes, and the exchange of arrays."""

from typing import Any

import numpy as np

from fdbr.core import devices
from fdbr.core.array_modules import device_put, module_for
from fdbr.core.tracer import Tracer
from fdbr.pytrees.typing import Array

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

# NumPy's own, which CuPy has too.
bool = np.bool
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float32, float64, complex64, complex128 = np.float32, np.float64, np.complex64, np.complex128

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the Array API standard that the namespace fulfils; the last is its own."""

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
        """The capabilities that the standard leaves open.

        Boolean indices and results whose shape depends on the elements are there, under `vmap`
        too; an array has up to 64 dimensions.
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of arrays that are made without saying where."""
        return "cpu"

    def devices(self) -> list[Any]:
        """``"cpu"``, and the numbers of the CUDA devices if CuPy is installed."""
        try:
            runtime = devices.accelerator().cuda.runtime
            return ["cpu", *range(runtime.getDeviceCount())]
        except (ImportError, RuntimeError):  # no CuPy, or no driver for it
            return ["cpu"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays that are made without saying which, on a device."""
        integer = module_for(device).asarray(0).dtype
        return {
            "real floating": np.dtype(float64),
            "complex floating": np.dtype(complex128),
            "integral": integer,
            "indexing": np.dtype(int64) if np.intp(0).itemsize == 8 else np.dtype(int32),
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> Any:
        """The dtypes of a kind, or of several, by their names; the same on every device.

        Raises
        ------
        ValueError
            If there is no such kind.
        """
        names: dict[str, Any] = {}
        for one in kind if isinstance(kind, tuple) else (kind,):
            parts = _UNIONS.get(one) or ((one,) if one in _KINDS else None)
            if parts is None:
                known = [*_KINDS, *(name for name in _UNIONS if name)]
                raise ValueError(f"fdbr.ops: {one!r} is no kind of dtype; there are {known}")
            names |= {name: np.dtype(name) for part in parts for name in _KINDS[part]}
        return names


def __array_namespace_info__() -> NamespaceInfo:
    """The inspection object of the namespace: see the Array API standard.

    >>> from fdbr import ops
    >>> ops.__array_namespace_info__().dtypes(kind="bool")
    {'bool': dtype('bool')}
    """
    return NamespaceInfo()


def check_version(version: str | None) -> None:
    """The error for a version of the standard that the namespace does not fulfil."""
    if version is not None and version not in VERSIONS:
        raise ValueError(
            f"fdbr.ops fulfils the Array API standard {VERSIONS[-1]} and, of those before it, "
            f"{VERSIONS[:-1]}; it does not know {version!r}"
        )


def from_dlpack(x: Array, /, *, device: Any = None, copy: Any = None) -> Any:
    """An array of another library as one of NumPy or CuPy, without a copy where that can be.

    Parameters
    ----------
    x
        An object that speaks DLPack: a tensor of PyTorch, an array of JAX ….
    device
        Where the array shall lie: ``"cpu"`` or the number of a CUDA device; by default where it
        lies.
    copy
        Whether to copy: by default only where it must be.

    Raises
    ------
    TypeError
        If ``x`` is a traced value, or does not speak DLPack.
    BufferError, ValueError
        If ``copy`` is false and a copy is needed.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.from_dlpack(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    if isinstance(x, Tracer) or not hasattr(x, "__dlpack_device__"):
        raise TypeError(
            f"fdbr.ops.from_dlpack: {x!r} does not hand out its memory by DLPack"
            + ("; traced values are passed as they are" if isinstance(x, Tracer) else "")
        )
    kind, number = x.__dlpack_device__()
    here = "cpu" if kind in (1, 3) else number  # ordinary memory, and pinned memory
    device = here if device is None else device
    if here == device:
        return _taken_over(x, here, copy)
    if copy is False:
        raise ValueError(
            f"fdbr.ops.from_dlpack: copy=False, but to bring {type(x).__name__} from device "
            f"{here!r} to {device!r} it must be copied"
        )
    return device_put(_taken_over(x, here, None), device)


def _taken_over(x: Any, device: Any, copy: Any) -> Any:
    """An array on the device where it lies."""
    if device == "cpu":
        return np.from_dlpack(x, copy=copy)
    xp = module_for(device)
    with xp.cuda.Device(device):
        return xp.from_dlpack(x, copy=copy)
