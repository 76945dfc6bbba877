"""Running kernels: from array objects to addresses, and on several threads."""

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

_descriptions: list[Any] = []  # which functions of Python refer to


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
    """A function in C as one of Python: of `None`, where its arguments are, and how many.

    There the addresses of the arguments' objects are, one after the other.
    """
    fastcall = 0x0080  # `METH_FASTCALL`
    description = _Method(b"kernel", code, fastcall, None)
    _descriptions.append(description)
    made: Callable[..., Any] = _new_function(ctypes.byref(description), None, None)
    return made


def function_at(kernel: int) -> Callable[[int, int, int, int], None]:
    """A kernel as a function of its table, its first row and the one after its last, and 0."""
    found: Any = _kernel_type(kernel)
    found.kernel = kernel  # which keeps it in memory
    function: Callable[[int, int, int, int], None] = found
    return function


def launch_alone(kernel: int, table: int, rows: int) -> None:
    """Run a kernel on this thread."""
    function_at(kernel)(table, 0, rows, 0)


def launch(kernel: int, table: int, rows: int, threads: int) -> None:
    """Run a kernel on several threads, each on its share of the rows."""
    pool.launch(kernel, table, rows, 1, threads)


def launch_on(threads: int, kernel: int, table: int, rows: int) -> None:
    """Run a kernel on so many threads; on this one, if it is one."""
    if threads == 1:
        launch_alone(kernel, table, rows)
    else:
        launch(kernel, table, rows, threads)


def _check() -> None:
    """Fail at once where arrays are laid out in another way."""
    array = np.zeros((2, 3))
    word = ctypes.c_ssize_t
    first = word.from_address(id(array) + HEAD).value
    strides = (word * 2).from_address(word.from_address(id(array) + HEAD + 24).value)
    if first != array.ctypes.data or tuple(strides) != array.strides:
        raise ImportError("fdbr.jit: NumPy's arrays are not laid out as its C interface says")


_check()
