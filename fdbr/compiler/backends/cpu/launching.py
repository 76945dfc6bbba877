"""Running kernels: from array objects to addresses, and on several threads."""

import ctypes
from collections.abc import Callable

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fdbr.kernels import pool
from fdbr.kernels.pool import thread_count

__all__ = [
    "data",
    "direct",
    "launch",
    "launch_alone",
    "launch_on",
    "pointer",
    "stride",
    "thread_count",
]


# A NumPy array is an object whose first field, after Python's own head, is the address of its
# data: that is the layout of NumPy's C interface, `PyArrayObject_fields`.
_HEAD = object.__basicsize__
_STRIDES = _HEAD + 24  # behind the number of dimensions and the address of the shape


@intrinsic
def _load_address(typingctx, address):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.intp(types.intp), generate


@intrinsic
def pointer(typingctx, address, like):  # type: ignore[no-untyped-def]
    """A pointer to numbers of a type."""
    to = types.CPointer(like)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(to))

    return to(types.intp, like), generate


@numba.extending.register_jitable
def data(table, index, like):  # type: ignore[no-untyped-def]
    """A pointer to the elements of the array whose object's address stands in the table."""
    return pointer(_load_address(_load_address(table + 8 * index) + _HEAD), like)


@numba.extending.register_jitable
def stride(table, index, axis):  # type: ignore[no-untyped-def]
    """The bytes from one element to the next along an axis of an array of the table."""
    strides = _load_address(_load_address(table + 8 * index) + _STRIDES)
    return _load_address(strides + 8 * axis)


@intrinsic
def _call(typingctx, kernel, table, start, stop, thread):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * 4)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), generate


@numba.njit("void(intp, intp, intp)", nogil=True, cache=True)
def launch_alone(kernel, table, rows):  # type: ignore[no-untyped-def]
    """Run a kernel on this thread."""
    _call(kernel, table, 0, rows, 0)


@intrinsic
def _none(typingctx):  # type: ignore[no-untyped-def]
    """The address of `None`, to which there is one more reference now."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ptrtoint(context.get_python_api(builder).make_none(), ir.IntType(64))

    return types.intp(), generate


@numba.cfunc("intp(intp, intp, intp)", cache=True)
def _direct(own, table, count):  # type: ignore[no-untyped-def]
    """Run the kernel whose address and number of rows stand in the array ``own``."""
    words = _load_address(own + _HEAD)
    _call(_load_address(words), table, 0, _load_address(words + 8), 0)
    return _none()


class _Method(ctypes.Structure):
    """What Python knows of a function in C: `PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# `METH_FASTCALL`: the function is given the address of a table of its arguments' addresses, which
# is what kernels take.
_method = _Method(b"kernel", _direct.address, 0x0080, None)
_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.argtypes = ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
_new_function.restype = ctypes.py_object


def direct(kernel: int, rows: int) -> Callable[..., None]:
    """A function of arrays that runs a kernel on them, on this thread.

    Nothing of Python's runs meanwhile: it is for kernels that take no longer than a call does.
    """
    function: Callable[..., None] = _new_function(
        ctypes.byref(_method), np.array([kernel, rows], np.int64), None
    )
    return function


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
    first = word.from_address(id(array) + _HEAD).value
    strides = (word * 2).from_address(word.from_address(id(array) + _STRIDES).value)
    if first != array.ctypes.data or tuple(strides) != array.strides:
        raise ImportError("fdbr.jit: NumPy's arrays are not laid out as its C interface says")


_check()
