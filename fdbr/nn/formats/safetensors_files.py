"""Arrays in safetensors files, read lazily."""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from safetensors import SafetensorError, safe_open

__all__ = ["read_safetensors"]

_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "F32": "float32",
    "F64": "float64", "C64": "complex64", "BF16": "float32",
}  # fmt: skip
_LONGEST = 100_000_000  # bytes of a header; the limit of safetensors itself


@attrs.frozen
class _Stored:
    """A tensor in a file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: Any
    start: int
    stored: str

    def read(self) -> Any:
        """Return the elements; bfloat16 as float32."""
        count = int(np.prod(self.shape, dtype=object))
        kind = "<u2" if self.stored == "BF16" else np.dtype(self.dtype).newbyteorder("<")
        array = np.fromfile(self.path, kind, count, offset=self.start).reshape(self.shape)
        if self.stored == "BF16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(self.dtype, copy=False)


def read_safetensors(function: str, path: Path) -> Mapping[str, Any]:
    """Return the tensors in a file by name."""
    where = f"fdbr.nn.{function}: {path}"
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LONGEST):
            raise ValueError(
                f"{where} is no safetensors file, or is truncated: it has {size} bytes"
            )
        header = file.read(length)
    try:
        with safe_open(os.fspath(path), framework="np"):  # this checks the header
            found = json.loads(header)
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{where} is damaged, truncated or no safetensors file: {error}"
        ) from error
    found.pop("__metadata__", None)
    make = functools.partial(_stored, where, path, 8 + length)
    return {name: make(name, entry) for name, entry in found.items()}


def _stored(where: str, path: Path, start: int, name: str, entry: Any) -> _Stored:
    stored = entry["dtype"]
    if stored not in _DTYPES:
        raise ValueError(f"{where}: {name} is of dtype {stored}, which NumPy has not; convert it")
    dtype = np.dtype(_DTYPES[stored])
    return _Stored(
        path, name, tuple(entry["shape"]), dtype, start + entry["data_offsets"][0], stored
    )
