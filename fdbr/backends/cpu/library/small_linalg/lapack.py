"""Calls of LAPACK's functions by address, for each matrix of a stack, without Python in between.

They are those of the library that NumPy's linear algebra uses, if it exports them, and otherwise
SciPy's: with two libraries, the threads of one would wait for those of the other.  Fortran
functions take the addresses of their arguments.
"""

import ctypes
import functools
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fdbr.backends.cpu.codegen.kernel_builder import Kernel
from fdbr.backends.cpu.runtime.blas import library
from fdbr.backends.cpu.runtime.machine import address_of
from fdbr.backends.cpu.runtime.pool import data_address, launch
from fdbr.core.devices import scipy_of

__all__ = ["PREFIXES", "factors", "substituted"]

PREFIXES = {
    np.dtype(np.float32): "s",
    np.dtype(np.float64): "d",
    np.dtype(np.complex64): "c",
    np.dtype(np.complex128): "z",
}
_PATTERNS = ("scipy_{}_64_", "{}_64_")  # names in libraries with 64-bit integers


class _Argument(NamedTuple):
    """An argument of a function: an array, and the bytes from one matrix to the next."""

    array: Any
    step: int = 0


@functools.cache
def _pattern() -> str:
    """Return the pattern of names in NumPy's library; empty if it exports no functions."""
    found = [p for p in _PATTERNS if library() and hasattr(library(), p.format("dgeqrf"))]
    return found[0] if found else ""


@functools.cache
def _function(name: str) -> int:
    """Return the address of a function such as ``dgeqrf``."""
    if _pattern():
        return ctypes.cast(library()[_pattern().format(name)], ctypes.c_void_p).value or 0
    capsule = scipy_of(np, "linalg.cython_lapack").__pyx_capi__[name]
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype = ctypes.c_char_p
    python.PyCapsule_GetName.argtypes = [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    found: int = python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
    return found


def _integer(value: int) -> _Argument:
    return _Argument(np.array(value, _integers()))


def _integers() -> Any:
    return np.int64 if _pattern() else np.int32


def _letter(value: str) -> _Argument:
    return _Argument(np.array(value.encode()))


@functools.cache
def _source(count: int) -> str:
    """Return a kernel that calls a function of ``count`` arguments for each matrix.

    Its table has the function, and for each argument both fields of `_Argument`.
    """
    names = [f"{field}{i}" for i in range(count) for field in ("base", "step")]
    bases = {f"base{i}": "u1" for i in range(count)}
    kernel = Kernel(["function", *names], {"function": "u1", **bases})
    word = kernel.word
    with kernel.each(kernel.start, kernel.stop) as unit:
        given = [word[f"base{i}"] + unit * word[f"step{i}"] for i in range(count)]
        kernel.call_address(word["function"], *given)
    return kernel.text()


def _call(name: str, arguments: Sequence[_Argument], count: int) -> None:
    """Call a function for each matrix of a stack, on one thread: the library has its own."""
    table = array("q", [_function(name)])
    for each in arguments:
        table.extend((data_address(each.array), each.step))
    launch(address_of(_source(len(arguments))), table.buffer_info()[0], count, 1, 1)


def factors(x: Any, complete: bool) -> tuple[Any, Any]:
    """Return the factors of matrices with no more columns than rows, shape ``(..., m, n)``."""
    m, n = x.shape[-2:]
    lead = x.shape[:-2]
    x = x.reshape(-1, m, n)
    count, columns, size = len(x), m if complete else n, x.itemsize
    q = np.empty((count, columns, m), x.dtype)  # transposed, because LAPACK is column-major
    q[:, :n] = x.swapaxes(-1, -2)
    q[:, n:] = 0
    scales = np.empty((count, n), x.dtype)
    rows, number, lwork = _integer(m), _integer(n), 64 * m
    shared = (
        _Argument(q, m * columns * size),
        rows,
        _Argument(scales, n * size),
        _Argument(np.empty(lwork, x.dtype)),
        _integer(lwork),
        _integer(0),
    )
    prefix = PREFIXES[x.dtype]
    _call(f"{prefix}geqrf", (rows, number, *shared), count)
    r = np.triu(q[:, :n, :columns].swapaxes(-1, -2))
    unfold = "ungqr" if x.dtype.kind == "c" else "orgqr"
    _call(f"{prefix}{unfold}", (rows, _integer(columns), number, *shared), count)
    return q.swapaxes(-1, -2).reshape(*lead, m, columns), r.reshape(*lead, columns, n)


def substituted(a: Any, b: Any, lower: bool, unit: bool) -> tuple[Any, bool]:
    """Return the solutions of ``a @ x = b`` for triangles, and whether no pivot is zero."""
    n, k = b.shape[-2:]
    lead = b.shape[:-2]
    # LAPACK is column-major and sees the transpose, whose triangle is the other one.
    a = np.ascontiguousarray(a).reshape(-1, n, n)
    out = np.ascontiguousarray(b.swapaxes(-1, -2)).reshape(-1, k, n)
    out = out.copy() if np.may_share_memory(out, b) else out
    side, columns = _integer(n), _integer(k)
    failed = np.zeros(len(a), _integers())
    arguments = (
        _letter("U" if lower else "L"),
        _letter("T"),
        _letter("U" if unit else "N"),
        side,
        columns,
        _Argument(a, n * n * a.itemsize),
        side,
        _Argument(out, n * k * a.itemsize),
        side,
        _Argument(failed, failed.itemsize),
    )
    _call(f"{PREFIXES[a.dtype]}trtrs", arguments, len(a))
    out[failed != 0] = np.nan
    return out.swapaxes(-1, -2).reshape(*lead, n, k), not failed.any()
