"""Running kernels: from array objects to addresses, and on several threads."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.kernels import pool
from fdbr.kernels.machine import address_of
from fdbr.kernels.pool import thread_count

__all__ = ["HEAD", "direct", "function_at", "launch", "launch_alone", "launch_on", "thread_count"]

# A NumPy array is an object whose first field, after Python's own head, is the address of its
# data: that is the layout of NumPy's C interface, `PyArrayObject_fields`.
HEAD: int = object.__basicsize__

_kernel_type = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)

# Runs the kernel whose address and number of rows stand in the array ``own``; gives `None`.
_DIRECT = f"""
@_Py_NoneStruct = external global i8
declare void @Py_IncRef(ptr)

define ptr @kernel(ptr %own, i64 %table, i64 %count) {{
  %place = getelementptr i8, ptr %own, i64 {HEAD}
  %words = load ptr, ptr %place
  %kernel = load ptr, ptr %words
  %second = getelementptr i64, ptr %words, i64 1
  %rows = load i64, ptr %second
  call void %kernel(i64 %table, i64 0, i64 %rows, i64 0)
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}
"""


class _Method(ctypes.Structure):
    """The C structure `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def _method() -> Any:
    # `METH_FASTCALL`: the function is given the address of a table of its arguments' addresses,
    # which is what kernels take.
    return _Method(b"kernel", address_of(_DIRECT), 0x0080, None)


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
_new_function.restype = ctypes.py_object


def direct(kernel: int, rows: int) -> Callable[..., None]:
    """A function of arrays that runs a kernel on them, on this thread.

    Nothing of Python's runs meanwhile: it is for kernels that take no longer than a call does.
    """
    function: Callable[..., None] = _new_function(
        ctypes.byref(_method()), np.array([kernel, rows], np.int64), None
    )
    return function


def function_at(kernel: int) -> Callable[[int, int, int, int], None]:
    """A kernel as a function of its table, its first row and the one after its last, and 0."""
    found: Callable[[int, int, int, int], None] = _kernel_type(kernel)
    return found


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
