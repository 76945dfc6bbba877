"""Elementwise kernels in CUDA C, compiled for the host by the C++ compiler, where there is one."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from shadow.arrays import Array, begin

COMPILER = shutil.which("g++") or shutil.which("c++")

_C_TYPES = {
    "bool": "bool",
    "int32": "int",
    "int64": "long long",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}

_BEFORE = """
#include <cmath>
using namespace std;
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
"""


class ElementwiseKernel:
    """What CuPy's class of this name does, of contiguous raw arrays, arrays and numbers."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str,
        *,
        options: tuple[str, ...] = (),
    ) -> None:
        assert set(options) <= {"--fmad=false"}  # which `_compiled` has anyway
        self._ins, self._outs = _parsed(in_params), _parsed(out_params)
        self._operation = operation
        self.name = name

    def __call__(self, *args: Any, size: int | None = None) -> Any:
        begin(args)
        params = self._ins + self._outs
        dtypes = {
            kind: arg.dtype
            for (kind, _, _), arg in zip(params, args, strict=False)
            if kind not in _C_TYPES and isinstance(arg, Array)
        }
        shape = np.broadcast_shapes(
            *(
                arg.shape
                for (_, _, raw), arg in zip(params, args, strict=False)
                if not raw and isinstance(arg, Array)
            )
        )
        given = list(args)
        for kind, _, _ in params[len(args) :]:
            given.append(Array(np.empty(shape, dtypes.get(kind, kind))))
        values = []
        for (kind, _, raw), arg in zip(params, given, strict=True):
            dtype = np.dtype(dtypes.get(kind, kind))
            value = arg._data if isinstance(arg, Array) else np.asarray(arg, dtype)
            assert value.dtype == dtype, (self.name, value.dtype, dtype)
            if not raw and isinstance(arg, Array):
                value = np.broadcast_to(value, shape)
            values.append(np.ascontiguousarray(value, _wide(dtype)))
        count = size if size is not None else int(np.prod(shape))
        scalars = tuple(not isinstance(arg, Array) for arg in given)
        wide = tuple((kind, _C_TYPES[_wide(np.dtype(d)).name]) for kind, d in dtypes.items())
        pointers = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
        _compiled(self._source(scalars, wide))(ctypes.c_long(count), pointers)
        outs = given[len(self._ins) :]
        for out, value in zip(outs, values[len(self._ins) :], strict=True):
            out._data[...] = value
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _source(self, scalars: tuple[bool, ...], dtypes: tuple[tuple[str, str], ...]) -> str:
        lines = [_BEFORE, *(f"typedef {c} {kind};" for kind, c in dtypes)]
        lines.append('extern "C" void run(long n_, void** a_) {')
        inner = []
        for k, (kind, name, raw) in enumerate(self._ins + self._outs):
            c = _C_TYPES.get(kind, kind)
            target = name if raw else f"p{k}_"
            lines.append(f"  {c}* {target} = ({c}*)a_[{k}];")
            if not raw:
                place = 0 if scalars[k] else "i"
                mark = "const " if k < len(self._ins) else ""
                inner.append(f"    {mark}{c}& {name} = p{k}_[{place}];")
        lines += ["  for (long i = 0; i < n_; ++i) {", *inner, self._operation, ";", "  }", "}"]
        return "\n".join(lines)


def _wide(dtype: Any) -> Any:
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _parsed(params: str) -> list[tuple[str, str, bool]]:
    found = []
    for param in params.split(","):
        *marks, kind, name = param.split()
        found.append((kind, name, marks == ["raw"]))
    return found


@functools.cache
def _compiled(source: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cpp")
        path.write_text(source)
        options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-w"]
        subprocess.run([COMPILER, *options, "-o", f"{path}.so", str(path)], check=True)
        return ctypes.CDLL(f"{path}.so").run
