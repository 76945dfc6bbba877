"""Calls of kernels: from array objects to addresses, on one or several threads."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.language import HEAD
from fdbr.backends.cpu.runtime import pool
from fdbr.backends.cpu.runtime.pool import thread_count

__all__ = ["function_at", "launch", "launch_alone", "launch_on", "method", "thread_count"]

_kernel_type = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_interruptible_type = ctypes.PYFUNCTYPE(None, *[ctypes.c_int64] * 4)

_descriptions: list[Any] = []  # keeps them alive, because Python functions point to them


class _Method(ctypes.Structure):
    """The C structure `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
_new_function.restype = ctypes.py_object


@functools.cache
def method(code: int) -> Callable[..., Any]:
    """Return a Python function for machine code with CPython's `METH_FASTCALL` signature.

    The code gets `None`, a pointer to the addresses of the argument objects, and their number.
    """
    fastcall = 0x0080  # `METH_FASTCALL`
    description = _Method(b"kernel", code, fastcall, None)
    _descriptions.append(description)
    made: Callable[..., Any] = _new_function(ctypes.byref(description), None, None)
    return made


def function_at(kernel: int, interruptible: bool = False) -> Callable[[int, int, int, int], None]:
    """Return a kernel as a function of its table, its first row, the row after the last, and 0.

    An ``interruptible`` one is called with CPython's lock, and raises the error that it leaves.
    """
    found: Any = (_interruptible_type if interruptible else _kernel_type)(kernel)
    found.kernel = kernel  # keeps the machine code in memory
    function: Callable[[int, int, int, int], None] = found
    return function


def launch_alone(kernel: int, table: int, rows: int) -> None:
    """Run a kernel on this thread."""
    function_at(kernel)(table, 0, rows, 0)


def launch(kernel: int, table: int, rows: int, threads: int) -> None:
    """Run a kernel on several threads, each on a share of the rows."""
    pool.launch(kernel, table, rows, 1, threads)


def launch_on(threads: int, kernel: int, table: int, rows: int) -> None:
    """Run a kernel on a number of threads; one means this thread."""
    if threads == 1:
        launch_alone(kernel, table, rows)
    else:
        launch(kernel, table, rows, threads)


def _check() -> None:
    """Raise if the C layout of NumPy's arrays is not the one that kernels read from."""
    array = np.zeros((2, 3))
    word = ctypes.c_ssize_t
    first = word.from_address(id(array) + HEAD).value
    strides = (word * 2).from_address(word.from_address(id(array) + HEAD + 24).value)
    if first != array.ctypes.data or tuple(strides) != array.strides:
        raise ImportError("fdbr.jit: NumPy's arrays are not laid out as its C interface says")


_check()
