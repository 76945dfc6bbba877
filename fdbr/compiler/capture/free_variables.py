"""Which variables and attributes functions can see, found from their code.

The search follows functions, methods and classes of the user's own modules.  What installed
libraries do inside is theirs.
"""

import dis
import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import optree

from fdbr.classes import NAMESPACE
from fdbr.core import Tracer

__all__ = ["Reach"]

_LIBRARIES = sys.stdlib_module_names | {"fdbr"}
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))
_VARIABLES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_ENDS = (bool, int, float, complex, str, bytes, type(None), Tracer)


class _Slots:
    """The attributes of an object that has no dictionary of them."""

    def __init__(self, value: Any) -> None:
        self._value = value
        declared = [vars(cls).get("__slots__", ()) for cls in type(value).__mro__]
        self.names = [n for names in declared for n in ((names,) if type(names) is str else names)]

    def get(self, name: str) -> Any:
        """The value of an attribute; `None` if it has none."""
        return getattr(self._value, name, None)


Space = Mapping[str, Any] | _Slots


class Reach:
    """What some functions and objects can see.

    Attributes
    ----------
    spaces
        Where variables and attributes live, by identity: what messages call it, the mapping, and
        the names that code mentions.
    cells
        The cells of closures, by identity, with their variables' names.
    values
        The objects that were found.
    arrays
        Those that are NumPy's arrays.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.spaces: dict[int, tuple[str, Space, list[str]]] = {}
        self.cells: dict[int, tuple[str, CellType]] = {}
        self.values: list[Any] = []
        self.arrays: dict[int, np.ndarray] = {}
        self._names: set[str] = set()  # the attributes that code mentions, of whatever it is
        self._open: list[tuple[str, Space, Iterable[str]]] = []  # where they are looked for
        self._seen: set[int] = set()
        self._waiting = list(roots)
        self._home = _home(self._waiting)
        while self._waiting:
            while self._waiting:
                self._visit(self._waiting.pop())
            for label, space, names in self._open:
                for name in self._names.intersection(names):
                    self._watch(label, space, name)

    def _watch(self, label: str, space: Space, name: str) -> None:
        names = self.spaces.setdefault(id(space), (label, space, []))[2]
        if name not in names:
            names.append(name)
            self._waiting.append(space.get(name))

    def _visit(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self.values.append(value)
        if isinstance(value, _ENDS):
            return
        if isinstance(value, np.ndarray):
            self.arrays[id(value)] = value
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, MethodType):
            self._waiting += (value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            self._waiting += (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, property):
            self._waiting.append(value.fget)
        elif isinstance(value, ModuleType):
            if not _is_library(vars(value)):
                self._open.append((f"{value.__name__}.", vars(value), vars(value)))
        else:
            self._visit_object(value)

    def _visit_function(self, function: FunctionType) -> None:
        self._waiting += function.__defaults__ or ()
        self._waiting += (function.__kwdefaults__ or {}).values()
        space = function.__globals__
        foreign = space is not self._home and _is_library(space)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            try:
                self._waiting.append(cell.cell_contents)
            except ValueError:  # nothing is bound to it
                continue
            if not foreign:
                self.cells[id(cell)] = name, cell
        if foreign:
            return
        variables, attributes, set_attributes = _mentioned(function.__code__)
        self._names |= attributes
        self._open.append((f"{function.__name__}.", vars(function), vars(function)))
        if function.__name__ != "__init__":  # that of a new object is of no interest
            self._names |= set_attributes
        for name in variables:
            if name in space:
                self._watch("", space, name)

    def _visit_class(self, cls: type) -> None:
        """Its attributes, and the methods that Python calls by itself."""
        for base in cls.__mro__:
            if not _is_library_class(base):
                self._open.append((f"{base.__name__}.", vars(base), vars(base)))
                self._waiting += [part for name, part in vars(base).items() if name[:2] == "__"]

    def _visit_object(self, value: Any) -> None:
        cls = type(value)
        self._waiting.append(cls)
        if not optree.tree_is_leaf(value, namespace=NAMESPACE):
            self._waiting += optree.tree_flatten_one_level(value, namespace=NAMESPACE)[0]
        elif hasattr(value, "__dict__"):
            if not _is_ours({"__name__": cls.__module__}):
                # An attribute may hide that of the class.
                self._open.append((f"{cls.__name__}.", vars(value), {*vars(value), *dir(cls)}))
            # What wraps a function, as `jit` does, shows it here.
            self._waiting += filter(inspect.isroutine, vars(value).values())
        elif not _is_library_class(cls):
            slots = _Slots(value)
            self._open.append((f"{cls.__name__}.", slots, slots.names))


def _home(roots: Iterable[Any]) -> dict[str, Any] | None:
    """The variables of the module that the function itself is in, be it a library or not."""
    for root in roots:
        while isinstance(root, MethodType | functools.partial):
            root = root.__func__ if isinstance(root, MethodType) else root.func
        if isinstance(root, FunctionType) and not _is_ours(root.__globals__):
            return root.__globals__
    return None


def _is_ours(space: Mapping[str, Any]) -> bool:
    return str(space.get("__name__")).partition(".")[0] == "fdbr"


def _is_library(space: Mapping[str, Any]) -> bool:
    if str(space.get("__name__")).partition(".")[0] in _LIBRARIES:
        return True
    return str(space.get("__file__", "")).startswith(_INSTALLED)


def _is_library_class(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return _is_library(vars(module) if module else {"__name__": cls.__module__})


@functools.lru_cache(maxsize=1024)
def _mentioned(code: CodeType) -> tuple[frozenset[str], ...]:
    """The variables, the attributes and the attributes to be set that code mentions.

    Functions within it are included.
    """
    found: tuple[set[str], ...] = set(), set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _VARIABLES:
            found[0].add(instruction.argval)
        elif instruction.opname in _ATTRIBUTES:
            found[1].add(instruction.argval)
        elif instruction.opname == "STORE_ATTR":
            found[2].add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for names, more in zip(found, _mentioned(constant), strict=True):
                names |= more
    return tuple(map(frozenset, found))
