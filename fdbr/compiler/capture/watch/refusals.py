"""Objects and functions that no guard can watch: a function that can reach one runs at every call.

Functions of installed libraries are taken to depend on their arguments, except those in impure
modules of the standard library and some of NumPy.
"""

import collections
import ctypes
import functools
import inspect
import mmap
import random
import sys
import sysconfig
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fdbr.compiler.capture.signature import is_special
from fdbr.core.array_modules import has_method, is_a

__all__ = ["hidden_state", "impure_function", "impure_method", "is_immutable", "is_library"]
__all__ += ["is_ours", "is_standard", "unwatched_array"]

_LIBRARIES = sys.stdlib_module_names | {"fdbr", "pybind11_builtins"}
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))

# Modules of the standard library with functions that depend on their arguments, and their C parts.
_PURE = frozenset(
    """
    abc argparse ast base64 binascii bisect builtins calendar cmath codecs collections contextlib
    copy copyreg dataclasses datetime decimal difflib enum fractions functools genericpath graphlib
    hashlib heapq html ipaddress itertools json keyword logging math ntpath numbers operator pathlib
    pickle posixpath pprint random re reprlib statistics string struct textwrap token traceback
    types typing unittest uuid warnings zlib zoneinfo
    """.split()
)
# Functions in other modules that pure ones call, or that only have a side effect.
_HARMLESS = frozenset(
    """
    _empty _exit _getframe abort exc_info fsdecode fsencode fspath get_ident getsizeof intern local
    sleep
    """.split()
)
_READING = frozenset("__import__ open input getcontext localcontext uuid1 getnode".split())
_READING_OF_NUMPY = frozenset(
    """
    load loadtxt genfromtxt fromfile fromregex memmap open_memmap DataSource geterr geterrcall
    getbufsize get_printoptions get_state
    """.split()
)  # they read a file, a setting, or the state of a generator

# Attributes of classes that read the world outside, by the module of the class.
_METHODS = {
    "argparse": frozenset({"parse_args", "parse_known_args"}),
    "datetime": frozenset({"now", "today", "utcnow"}),
    "logging": frozenset(
        "disabled getEffectiveLevel handlers hasHandlers isEnabledFor level".split()
    ),
    "pathlib": frozenset(
        """
        absolute cwd exists expanduser glob group home is_dir is_file is_mount is_symlink iterdir
        lstat open owner read_bytes read_text readlink resolve rglob samefile stat walk
        """.split()
    ),
    "random": frozenset({"getstate"}),
}
_NOT_REPEATED = "which no replay would call again"

# Modules, and single classes, with instances that never change or only have effects.
_IMMUTABLE = frozenset(
    """
    abc._abc_data builtins.bool builtins.bytes builtins.classmethod_descriptor builtins.code
    builtins.complex builtins.ellipsis builtins.float builtins.getset_descriptor builtins.int
    builtins.member_descriptor builtins.method_descriptor builtins.NoneType builtins.range
    builtins.NotImplementedType builtins.str builtins.wrapper_descriptor collections._tuplegetter
    datetime decimal.Decimal inspect.Parameter inspect.Signature ipaddress logging operator optree
    pathlib re struct types.GenericAlias types.UnionType typing uuid zoneinfo
    """.split()
)

# C classes with attributes and items that guards compare.
_WATCHED = {object, int, float, complex, str, bytes, tuple, frozenset, dict, list, set, np.generic}
_WATCHED |= {collections.deque, collections.OrderedDict, collections.defaultdict}
_WATCHED |= {types.SimpleNamespace, types.ModuleType, functools.partial, inspect.BoundArguments}
_C_PARTS = {types.MethodDescriptorType, types.WrapperDescriptorType}
_C_PARTS |= {types.ClassMethodDescriptorType, types.GetSetDescriptorType}
_OF_PYTHON = frozenset({"__dict__", "__weakref__"})  # descriptors that `class` statements make
_HEAP = 1 << 9  # CPython's flag of classes that are made at run time


def is_ours(space: Mapping[str, Any]) -> bool:
    """Return whether globals belong to one of fdbr's modules."""
    return str(space.get("__name__")).partition(".")[0] == "fdbr"


def is_standard(space: Mapping[str, Any]) -> bool:
    """Return whether globals belong to a module of fdbr or of the standard library."""
    return str(space.get("__name__")).partition(".")[0] in _LIBRARIES


def is_library(owner: Any) -> bool:
    """Return whether globals, or a class, belong to a module of a library."""
    if is_a(owner, type):
        name = str(owner.__module__)
        if name == "builtins":  # the most frequent one
            return True
        owner = vars(sys.modules[name]) if name in sys.modules else {"__name__": name}
    return is_standard(owner) or str(owner.get("__file__", "")).startswith(_INSTALLED)


def is_immutable(value: Any) -> bool:
    """Return whether an object can never change, and contains nothing that can."""
    cls = type(value)
    if issubclass(cls, np.generic | np.dtype):
        return not issubclass(cls, np.void)
    root = _root(cls.__module__)
    return root in _IMMUTABLE or f"{root}.{cls.__name__}" in _IMMUTABLE


def _root(module: Any) -> str:
    return str(module).partition(".")[0].lstrip("_")


def hidden_state(value: Any) -> str:
    """Return why guards cannot watch an object; empty if they can.

    >>> hidden_state([1.0]), hidden_state(collections.Counter("ab"))
    ('', '')
    >>> hidden_state(bytearray())
    'which hides its state in C code'
    """
    kind = type(value)
    if has_method(kind, "__next__"):
        return "which is used up as it is read"
    if is_a(value, random.SystemRandom):
        return "which has no seed"
    for cls in type.mro(kind):
        root = _root(cls.__module__)
        if cls in _WATCHED or root in _IMMUTABLE:
            continue
        if root in sys.stdlib_module_names and root not in _PURE:
            return f"which reads state outside of Python objects, as {cls.__module__} does"
        kinds = _C_PARTS if "__slots__" in vars(cls) else _C_PARTS | {types.MemberDescriptorType}
        parts = [part for name, part in vars(cls).items() if name not in _OF_PYTHON]
        if not cls.__flags__ & _HEAP or any(
            type(part) in kinds and part.__objclass__ is cls for part in parts
        ):
            return "which hides its state in C code"
    if type(kind) is not type and not is_library(type(kind)):
        return f"which has the metaclass {type(kind).__name__}"
    if has_method(kind, "__get__") and not is_library(kind) and getattr(value, "__dict__", None):
        return "which is a descriptor with a state"
    return ""


def unwatched_array(array: np.ndarray) -> str:
    """Return why guards cannot watch the elements of an array; empty if they can."""
    if is_special(array):
        return "which has operators of its own"
    if array.dtype.hasobject:
        return "which holds objects"
    base: Any = array
    while is_a(base, np.ndarray | memoryview):
        base = base.obj if is_a(base, memoryview) else base.base
    if is_a(base, mmap.mmap | ctypes.Array):
        return "which other processes can change"
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
    if (standard and name not in _HARMLESS) or (name in _READING and root != "fdbr"):
        return f"it can call {name} of {module}, {_NOT_REPEATED}"
    if root == "numpy" and name.rpartition(".")[2] in _READING_OF_NUMPY:
        return f"it can call numpy.{name}, {_NOT_REPEATED}"
    return ""


def impure_method(owner: Any, names: Iterable[str]) -> str:
    """Return why attributes of a class or module cannot be replayed; empty if they can."""
    root = _root(owner.__module__ if is_a(owner, type) else owner.__name__)
    found = _METHODS.get(root, frozenset()).intersection(names)
    return f"it can read {min(found)} of {owner.__name__}, {_NOT_REPEATED}" if found else ""
