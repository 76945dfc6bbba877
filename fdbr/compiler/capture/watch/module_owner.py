"""The owners of functions, classes and objects: the user, fdbr, or another library."""

import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from fdbr.compiler.capture.watch.containers import CONTAINERS, UNCHANGING, is_end

__all__ = ["home", "is_library", "is_library_class", "is_library_object", "is_ours", "is_standard"]

_LIBRARIES = sys.stdlib_module_names | {"fdbr"}
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))


def home(roots: Iterable[Any]) -> dict[str, Any] | None:
    """Return the globals of the jitted function's own module, even if it is a library's."""
    for root in roots:
        while isinstance(root, MethodType | partial):
            root = root.__func__ if isinstance(root, MethodType) else root.func
        if isinstance(root, FunctionType) and not is_ours(root.__globals__):
            return root.__globals__
    return None


def is_ours(space: Mapping[str, Any]) -> bool:
    """Return whether globals belong to one of fdbr's modules."""
    return str(space.get("__name__")).partition(".")[0] == "fdbr"


def is_standard(space: Mapping[str, Any]) -> bool:
    """Return whether globals belong to a module of fdbr or of the standard library."""
    return str(space.get("__name__")).partition(".")[0] in _LIBRARIES


def is_library(space: Mapping[str, Any]) -> bool:
    """Return whether globals belong to a module of a library."""
    return is_standard(space) or str(space.get("__file__", "")).startswith(_INSTALLED)


def is_library_class(cls: type) -> bool:
    """Return whether a class is defined in a library."""
    module = sys.modules.get(cls.__module__)
    return is_library(vars(module) if module else {"__name__": cls.__module__})


def is_library_object(value: Any) -> bool:
    """Return whether a value is a non-container object of a library's class."""
    known = (*CONTAINERS, *UNCHANGING, FunctionType, MethodType, type)
    if is_end(value) or isinstance(value, known):
        return False
    return not isinstance(value, np.ndarray) and is_library_class(type(value))
