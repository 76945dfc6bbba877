"""Scalar C functions that kernels call: SciPy's and the C library's.

Machine code refers to them by name; the names are resolved when it is loaded.
"""

import ctypes
import functools
import re
from typing import Any

__all__ = ["NAME", "arity", "is_cython", "provide"]

NAME = "fdbr_scalar_{}"
_NAMED = re.compile(rb"fdbr_scalar_(\w+)")
_SKIPPED = "int __pyx_skip_dispatch"  # the last parameter of Cython's cpdef functions
_WARN = frozenset(
    {
        *("bdtr", "bdtrc", "bdtri", "expn", "kn", "nbdtr", "nbdtrc", "nbdtri", "pdtri"),
        *("smirnov", "smirnovc", "smirnovci", "smirnovi", "smirnovp", "yn"),
    }
)
"""Functions that call Python, to warn of orders that are not integers."""

_C = {"pow": 2, "fmod": 2}
"""Functions of the C library, with their number of arguments."""


@functools.cache
def _found() -> dict[str, tuple[Any, int]]:
    """Return SciPy's functions in double precision, with their number of arguments, by name."""
    from scipy.special import cython_special  # here, because few kernels need SciPy

    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found = {}
    for name, capsule in cython_special.__pyx_capi__.items():
        kind, _, rest = name_of(capsule).decode().partition(" (")
        kinds = rest.removesuffix(")").split(", ")
        if kind == "double" and kinds[-1] == _SKIPPED and set(kinds[:-1]) == {"double"}:
            plain = re.sub(r"^__pyx_fuse(_\d)+", "", name)
            if plain not in _WARN:
                found[plain] = capsule, len(kinds) - 1
    return found


def arity(name: str) -> int | None:
    """Return the number of arguments of a function; `None` if there is no such function."""
    if name in _C:
        return _C[name]
    return _found()[name][1] if name in _found() else None


def is_cython(name: str) -> bool:
    """Return whether a function takes Cython's integer after its arguments."""
    return name not in _C


def provide(llvm: Any, code: bytes) -> None:
    """Register with LLVM the addresses of the functions that an object file names."""
    for name in {match.decode() for match in _NAMED.findall(code)}:
        llvm.add_symbol(NAME.format(name), _address(name))


@functools.cache
def _address(name: str) -> int:
    if name in _C:
        found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
        assert found is not None
        return found
    capsule, _ = _found()[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address: int = pointer_of(capsule, name_of(capsule))
    return address
