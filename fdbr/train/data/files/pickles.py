"""Plain data in pickled files, read without running what they say.

A pickle names functions and has them called.  Here, every name stands for something inert, the
few that arrays need are known, and any other is refused.
"""

import io
import pickle
from typing import Any

import numpy as np

__all__ = ["plain_data"]


class _Dtype:
    """A dtype's name."""

    def __init__(self, name: Any = "", *rest: Any) -> None:
        self.name = name.decode() if isinstance(name, bytes) else str(name)

    def __setstate__(self, state: Any) -> None:
        if self.name[:1] not in "buif" or not self.name[1:].isdigit():
            raise pickle.UnpicklingError(f"it has elements of dtype {self.name!r}")


class _Array:
    """The parts of an array."""

    parts: Any = None

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.parts = state

    def array(self) -> Any:
        _, shape, dtype, fortran, content = self.parts
        content = content.encode("latin1") if isinstance(content, str) else content
        array = np.frombuffer(content, np.dtype(dtype.name))
        return array.reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("_codecs", "encode"): _encode,
}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _KNOWN[_module, "_reconstruct"] = _Array


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which plain data does not")
        return _KNOWN[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside of it")


def plain_data(content: bytes) -> dict[str, Any]:
    """The dict in a pickle of one, with strings as keys; a ValueError if there is anything else."""
    try:
        found = _Reader(io.BytesIO(content), encoding="latin1").load()
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, and no dict")
        return {
            key.decode() if isinstance(key, bytes) else str(key): (
                value.array() if isinstance(value, _Array) else value
            )
            for key, value in found.items()
        }
    except ValueError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{type(error).__name__}: {error}") from error
