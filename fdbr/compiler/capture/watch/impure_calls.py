"""Objects whose state C code hides, and functions that read the world: they cannot be watched.

Of the standard library, what `_PURE` lists is taken to depend on its arguments alone; a function
that can call anything else in it runs at every call.  Functions of other installed libraries are
taken to depend on their arguments, but for those of NumPy in `_READING`.
"""

import sys
from collections.abc import Iterable
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

__all__ = ["hidden_state", "impure_function", "impure_method"]

# Modules of the standard library, with the C modules behind them.
_PURE = frozenset(
    """
    abc ast base64 binascii bisect builtins calendar cmath codecs collections contextlib contextvars
    copy copyreg dataclasses datetime difflib enum fractions functools genericpath graphlib hashlib
    heapq html itertools json keyword logging math ntpath numbers operator os pathlib pickle
    posixpath pprint random re reprlib statistics string struct textwrap token traceback types
    typing unittest warnings weakref weakrefset zlib
    """.split()
)
# Functions in other modules that pure ones call, or that have a side effect alone.
_HARMLESS = frozenset(
    """
    _empty _exit _getframe _local abort exc_info fspath get_ident getsizeof intern local sleep
    """.split()
)
_IMPORTING = frozenset({"__import__", "open", "input"})

# Functions of NumPy that read a file or a setting, or the state of a generator.
_READING = frozenset(
    """
    load loadtxt genfromtxt fromfile fromregex geterr geterrcall getbufsize get_printoptions
    get_state
    """.split()
)

# Impure methods of classes, by their module.
_METHODS = {
    "datetime": frozenset({"now", "today", "utcnow"}),
    "pathlib": frozenset(
        "read_text read_bytes open exists stat iterdir glob is_file is_dir cwd home".split()
    ),
    "random": frozenset({"getstate"}),
}
_NOT_REPEATED = "which no replay would call again"

# C classes whose objects never change, or whose state other modules here watch.
_KNOWN = {
    *(object, type, int, float, complex, str, bytes, tuple, frozenset, range, slice),
    *(dict, list, set, bytearray, memoryview, property, staticmethod, classmethod, super),
    *(type(None), type(...), type(NotImplemented), CodeType, GenericAlias, UnionType),
    MappingProxyType,
    *(
        CellType,
        MemberDescriptorType,
        MethodDescriptorType,
        WrapperDescriptorType,
        GetSetDescriptorType,
    ),
    *(ClassMethodDescriptorType, BuiltinFunctionType, np.ndarray, np.generic, np.dtype, np.ufunc),
    *(type({}.keys()), type({}.values()), type({}.items())),
}
_KNOWN_NAMES = frozenset(
    """
    array collections _collections datetime decimal.Decimal functools _functools io _io operator
    _operator optree re struct types typing weakref zoneinfo
    """.split()
)  # modules, and single classes
_DESCRIPTORS = frozenset(
    {MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, GetSetDescriptorType}
)
_BY_PYTHON = frozenset({"__dict__", "__weakref__"})  # descriptors that `class` statements make


def hidden_state(value: Any) -> str:
    """Return why the state of an object is out of sight; empty if it can be watched.

    >>> hidden_state([1.0]), hidden_state(np.sum)
    ('', '')
    >>> import ctypes
    >>> hidden_state(ctypes.c_int(1))
    'it can see a _SimpleCData, whose state C code hides'
    """
    for cls in type(value).__mro__:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if cls in _KNOWN or not _KNOWN_NAMES.isdisjoint((cls.__module__, name)):
            return ""
        own = vars(cls)
        kinds = _DESCRIPTORS if "__slots__" in own else {*_DESCRIPTORS, MemberDescriptorType}
        parts = [part for name, part in own.items() if name not in _BY_PYTHON]
        if any(type(part) in kinds and part.__objclass__ is cls for part in parts):
            if callable(value) and type(getattr(value, "__qualname__", None)) is str:
                return impure_function(str(value.__module__), value.__qualname__)  # as Cython's are
            return f"it can see a {cls.__name__}, whose state C code hides"
    return ""


def impure_function(module: str, name: str) -> str:
    """Return why a function of a library's module cannot be replayed; empty if it can.

    >>> impure_function("time", "perf_counter")
    'it can call perf_counter of time, which no replay would call again'
    >>> impure_function("math", "sqrt")
    ''
    """
    root = module.partition(".")[0]
    standard = root in sys.stdlib_module_names and root.lstrip("_") not in _PURE
    if (standard and name not in _HARMLESS) or name in _IMPORTING:
        return f"it can call {name} of {module}, {_NOT_REPEATED}"
    if root == "numpy" and name.rpartition(".")[2] in _READING:
        return f"it can call numpy.{name}, {_NOT_REPEATED}"
    return ""


def impure_method(cls: type, names: Iterable[str]) -> str:
    """Return why methods with these names of a class cannot be replayed; empty if they can."""
    root = cls.__module__.partition(".")[0]
    found = _METHODS.get(root, frozenset()).intersection(names)
    return f"it can call {cls.__qualname__}.{min(found)}, {_NOT_REPEATED}" if found else ""
