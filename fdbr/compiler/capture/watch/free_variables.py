"""Find the variables and objects that functions can read, from their code.

The search follows functions, descriptors, methods and classes of the user's modules, and the values
they hold.  It does not follow code inside installed libraries.
"""

import abc
import array
import collections.abc
import contextlib
import functools
import gc
import importlib.util
import inspect
import io
import operator
import os
import random
import sys
import weakref
from collections.abc import Collection, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import attrs
import numpy as np
import optree

from fdbr.compiler.capture.signature import is_special
from fdbr.compiler.capture.watch.captured_inputs import Key, key_of
from fdbr.compiler.capture.watch.code_names import LOOKUPS, Mentions, mentions
from fdbr.compiler.capture.watch.containers import CONTAINERS, UNCHANGING, is_end, parts_of
from fdbr.compiler.capture.watch.impure_calls import (
    hidden_state,
    impure_function,
    impure_method,
)
from fdbr.compiler.capture.watch.module_owner import (
    home,
    is_library,
    is_library_class,
    is_library_object,
    is_ours,
    is_standard,
)
from fdbr.compiler.capture.watch.namespaces import (
    MISSING,
    REGISTRATIONS,
    Space,
    computed_namespace,
    dict_of,
    named,
    slots_of,
)
from fdbr.core.array_modules import has_method, is_a, is_array
from fdbr.pytrees.classes import NAMESPACE

__all__ = ["GENERATORS", "FreeVariables"]

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_BUFFERS = (bytearray, array.array, memoryview)

# Methods that initialise new objects: attributes they set have not been read by older code.
_INITIALISERS = frozenset(
    {"__init__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"}
)
_NAMED = ("__name__", "__qualname__", "__doc__", "__module__")
_KEPT = 64  # newest results of a memoised function that are watched


def _is_called(part: Any) -> bool:
    """Return whether an entry of a class is a method that the user wrote, not attrs."""
    if is_a(part, FunctionType):
        made = part.__code__.co_filename.startswith("<attrs generated")
        return not made and not is_library(part.__globals__)
    return is_a(part, staticmethod | classmethod | property)


@attrs.define
class _OpenNamespace:
    """A namespace whose attributes code may read, by the names that the code mentions."""

    label: str
    space: Space
    candidates: Iterable[str]
    watched: bool = True
    whole: bool = False  # whether reads with computed names are watched here, too
    asked: set[str] = attrs.field(factory=set)


class FreeVariables:
    """The variables and objects that some functions can read.

    Attributes
    ----------
    spaces
        Namespaces of variables and attributes, by identity: label in messages, mapping, and the
        names that code mentions.
    cells
        The cells of closures, by identity, with the names of their variables.
    values
        All objects that were found.
    arrays
        The NumPy arrays among them, by identity.
    functions, classes
        The user's functions and classes.
    objects
        Dictionaries of objects and classes to which attributes may be added.
    instances
        The objects of the user's classes.
    names, any_name
        The attributes that code mentions, and whether it may read others, too.
    containers, buffers
        Mutable containers, and mutable objects that hold bytes.
    owners
        The classes whose attributes namespaces hold, by the identity of the namespace.
    identity
        Whether code compares objects by identity.
    plain_only
        Whether captured variables must not be traced: code tests types, or memoises results.
    obstacle
        Why something cannot be watched; empty if everything can.
    """

    def __init__(self, roots: Iterable[Any], inputs: Collection[Key] = ()) -> None:
        self._inputs = inputs
        self.spaces: dict[int, tuple[str, Space, list[str]]] = {}
        self.owners: dict[int, type] = {}
        self.cells: dict[int, tuple[str, CellType]] = {}
        self.values: list[Any] = []
        self.arrays: dict[int, np.ndarray] = {}
        self.functions: list[FunctionType] = []
        self.classes: list[type] = []
        self.objects: list[Any] = []
        self.instances: list[Any] = []
        self.containers: list[Any] = []
        self.buffers: list[Any] = []
        self.identity = False
        self.plain_only = False
        self.obstacle = ""
        self.names: set[str] = set()  # attributes that code mentions, of any object
        self.any_name = False  # whether it may read attributes by computed names
        self._open: list[_OpenNamespace] = []
        self._of_instances: set[type] = set()
        self._unwatched = ""  # why functions of a module that was found cannot be replayed
        self._seen: set[int] = set()
        self._waiting = list(roots)
        self._home = home(self._waiting)
        while self._waiting:
            while self._waiting:
                self._visit(self._waiting.pop())
            for namespace in self._open:
                self._visit_namespace(namespace)
        if self.any_name:  # for example `getattr(time, name)`
            self._refuse(self._unwatched)

    def _visit_namespace(self, namespace: _OpenNamespace) -> None:
        names = self.names.intersection(namespace.candidates)
        if self.any_name and namespace.whole:
            names.update(name for name in namespace.candidates if name[:2] != "__")
        for name in names - namespace.asked:
            namespace.asked.add(name)
            if namespace.watched:
                self._watch(namespace.label, namespace.space, name)
            else:
                self._waiting.append(namespace.space.get(name))

    def _watch(self, label: str, space: Space, name: str) -> None:
        if self._inputs and key_of(space, self.owners.get(id(space)), name) in self._inputs:
            return
        names = self.spaces.setdefault(id(space), (label, space, []))[2]
        if name not in names:
            names.append(name)
            self._waiting.append(space.get(name))

    def _refuse(self, why: str) -> None:
        """Record the first thing that cannot be watched."""
        self.obstacle = self.obstacle or why

    def _visit(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        self.values.append(value)
        if value is MISSING or is_end(value):
            return
        if is_a(value, np.ndarray):
            self._visit_array(value)
        elif is_a(value, np.ufunc):
            if set("".join(value.types)) <= set("O->"):
                self._refuse(f"it can call {value.__name__}, a ufunc of a Python function")
        elif is_array(value) and type(value) is not np.void:
            pass  # another array module's arrays are compared with copies
        elif is_a(value, FunctionType):
            self._visit_function(value)
        elif is_a(value, type):
            self._visit_class(value)
        elif is_a(value, MethodType):
            self._waiting += (value.__func__, value.__self__)
        elif is_a(value, BuiltinFunctionType | MethodWrapperType):
            self._visit_builtin(value)
        elif is_a(value, functools.partial):
            self._waiting += (value.func, value.args, value.keywords, vars(value))
        elif is_a(value, property | staticmethod | classmethod | functools.cached_property):
            made_of = (getattr(value, name, None) for name in ("fget", "__func__", "func"))
            self._waiting += filter(None, made_of)
        elif is_a(value, ModuleType):
            self._visit_module(value)
        elif is_a(value, random.SystemRandom):
            self._refuse("it can draw from a SystemRandom, which has no seed")
        elif is_a(value, GENERATORS):
            pass  # `RandomStates` compares their states
        elif is_a(value, CellType):
            self._visit_cell("a cell", value, watched=True)
        elif (found := computed_namespace(value)) is not None:
            space, names = found
            self._open.append(
                _OpenNamespace(f"{type(value).__name__}.", space, names or self.names)
            )
            self.names.update(names)
            self._waiting.append(value() if is_a(value, weakref.ref) else type(value))
        else:
            self._visit_object(value)

    def _visit_array(self, value: np.ndarray) -> None:
        if is_special(value):
            self._refuse(f"it can see a {type(value).__name__}, which has operators of its own")
        elif value.dtype.hasobject:
            self.containers.append(value)
            self._waiting += parts_of(value)
        else:
            self.arrays[id(value)] = value

    def _visit_builtin(self, value: Any) -> None:
        """Visit a C function or method; functions such as `time.time` cannot be watched."""
        held = value.__self__
        self._refuse(impure_function(getattr(value, "__module__", None) or "", value.__name__))
        if is_a(held, type):
            self._refuse(impure_method(held, (value.__name__,)))
        if not is_a(held, ModuleType):
            self._waiting.append(held)

    def _visit_module(self, value: ModuleType) -> None:
        space = vars(value)
        user = not is_library(space)
        self._unwatched = self._unwatched or impure_function(value.__name__, "a function")
        self._open.append(_OpenNamespace(f"{value.__name__}.", space, space, whole=user))
        if user and "__getattr__" in space:
            self._waiting.append(space["__getattr__"])
            self.objects.append(space)  # an attribute added later hides `__getattr__`

    def _visit_function(self, function: FunctionType) -> None:
        space = function.__globals__
        foreign = space is not self._home and is_library(space)
        if foreign:
            self._waiting += (*(function.__defaults__ or ()),)
        else:
            self._waiting += (function.__defaults__, function.__kwdefaults__)
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            self._visit_cell(name, cell, not foreign, is_ours(space))
        if foreign:
            self._visit_foreign(function)
            return
        self.functions.append(function)
        found = mentions(function.__code__)
        self._mention(found, function.__name__ not in _INITIALISERS)
        self._refuse(found.world)
        own = vars(function)
        self._open.append(_OpenNamespace(f"{function.__name__}.", named(function), _NAMED))
        self._open.append(_OpenNamespace(f"{function.__name__}.", own, own))
        if not found.variables.isdisjoint(LOOKUPS):
            self.objects.append(own)
        builtin = space.get("__builtins__", {})
        builtin = vars(builtin) if is_a(builtin, ModuleType) else builtin
        for name in found.variables:
            self._watch("", space, name)
            if name not in space:
                self._watch("", builtin, name)
        for name, level in found.modules:
            self._import(name, level, space)

    def _visit_cell(self, name: str, cell: CellType, watched: bool, ours: bool = False) -> None:
        if (id(cell), None) in self._inputs:
            return
        with contextlib.suppress(ValueError):  # the cell is empty
            held = cell.cell_contents
            # A dict that fdbr made is not watched itself; its values may be the user's.
            self._waiting += held.values() if ours and type(held) is dict else (held,)
        if watched:
            self.cells[id(cell)] = name, cell

    def _mention(self, found: Mentions, sets: bool = True) -> None:
        self.names |= found.attributes
        self.identity |= found.identity
        self.plain_only |= "type" in found.variables
        if sets:
            self.any_name |= found.any_attribute
            self.names |= found.set_attributes

    def _import(self, name: str, level: int, space: Mapping[str, Any]) -> None:
        """Watch a module that code imports."""
        if level:
            try:
                name = importlib.util.resolve_name("." * level + name, space.get("__package__"))
            except (ImportError, TypeError, ValueError):  # the import itself will fail, too
                return
        self._watch("module ", sys.modules, name)

    def _visit_foreign(self, function: FunctionType) -> None:
        """Visit a library's function for what it wraps, and for the C functions that it calls."""
        space = function.__globals__
        self._waiting.append(getattr(function, "__wrapped__", None))
        if is_ours(space):
            self._waiting.append(getattr(function, "primitive", None))  # an operation's definition
            return
        module = str(space.get("__name__"))
        self._refuse(impure_function(module, function.__name__))
        if not is_standard(space):
            return
        found = mentions(function.__code__)
        for name in found.variables:
            value = space.get(name)
            if is_a(value, BuiltinFunctionType) or type(value) is type(os.environ):
                self._waiting.append(value)
            elif is_a(value, ModuleType):  # for example os.path calls functions of os
                parts = vars(value)
                called = (parts.get(name) for name in found.attributes)
                self._waiting += [f for f in called if is_a(f, BuiltinFunctionType)]

    def _visit_class(self, cls: type) -> None:
        """Visit the attributes of a class, and the methods that Python calls implicitly."""
        if is_a(cls, abc.ABCMeta):
            self._watch("", REGISTRATIONS, "what counts as of an abstract class")
        if is_library_class(cls):
            made = cls not in self._of_instances  # code may call the class itself
            self._refuse(impure_function(cls.__module__, cls.__qualname__) if made else "")
            self._refuse(impure_method(cls, self.names))
            return
        self.classes.append(cls)
        self._open.append(_OpenNamespace(f"{cls.__name__}.", named(cls), _NAMED[:2]))
        if type(cls) is not type:
            self._waiting.append(type(cls))
        names = {name for base in cls.__mro__ for name in vars(base)}
        self.names.update(*[vars(base).get("__match_args__", ()) for base in cls.__mro__])
        for base in cls.__mro__:
            space = vars(base)
            watched = not is_library_class(base)
            if watched:
                self.objects.append(space)
                self.owners[id(space)] = base
                self._open.append(_OpenNamespace(f"{base.__name__}.", space, names))
            elif base is not object and not is_ours({"__name__": base.__module__}):
                self._open.append(_OpenNamespace("", space, tuple(space), watched=False))
            for name, part in space.items():
                if name[:2] == "__" and name not in ("__dict__", "__weakref__"):
                    if watched and _is_called(part):
                        self._watch(f"{base.__name__}.", space, name)
                    elif watched:
                        self._waiting.append(part)
                    elif is_a(part, FunctionType) and base is not object:
                        self._mention(mentions(part.__code__), sets=False)

    def _visit_object(self, value: Any) -> None:
        cls = type(value)
        self._waiting.append(cls)
        self._of_instances.update(cls.__mro__)
        is_written = is_a(value, io.IOBase) and (value.closed or not value.readable())
        if has_method(cls, "__next__") and not is_written:
            self._refuse(f"it can read from a {cls.__name__}, which is used up")
        self._refuse(hidden_state(value))
        if is_a(value, CONTAINERS):
            self.containers.append(value)
            self._waiting += parts_of(value, self._inputs)
            self._waiting.append(getattr(value, "default_factory", None))
        elif is_a(value, UNCHANGING):
            self._waiting += value
        elif is_a(value, _BUFFERS):
            self.buffers.append(value)
        elif is_a(value, collections.abc.MappingView):
            known: Any = value
            self._waiting.append(known.mapping if hasattr(known, "mapping") else known._mapping)
        elif not optree.tree_is_leaf(value, namespace=NAMESPACE):
            self._waiting += optree.tree_flatten_one_level(value, namespace=NAMESPACE)[0]
            self._waiting += (dict_of(value) or {}).values()
            slots: Any = slots_of(value) or {}
            self._waiting += [slots.get(name) for name in slots]
            return
        if cls.__module__ == "builtins" or is_ours({"__name__": cls.__module__}):
            # Wrappers of fdbr, such as the result of `jit`, hold the wrapped function here.
            self._waiting += filter(inspect.isroutine, (dict_of(value) or {}).values())
        elif is_library_class(cls):
            self._visit_library_object(value)
        else:
            self._visit_own_object(value)

    def _visit_own_object(self, value: Any) -> None:
        cls = type(value)
        label = f"{cls.__name__}."
        self.instances.append(value)
        if (own := dict_of(value)) is not None:
            # An instance attribute added later may hide that of the class.
            names = {*own, *(name for base in cls.__mro__ for name in vars(base))}
            self._open.append(_OpenNamespace(label, own, names, whole=True))
            self.objects.append(own)
            self._waiting += filter(inspect.isroutine, own.values())
        if (slots := slots_of(value)) is not None:
            self._open.append(_OpenNamespace(label, slots, slots, whole=True))

    def _visit_library_object(self, value: Any) -> None:
        """Visit an object of a library's class, whose methods may read all its attributes."""
        cls = type(value)
        if is_a(value, functools._lru_cache_wrapper):
            self._visit_memoised(value)
        elif is_a(value, operator.attrgetter | operator.methodcaller):
            for text in value.__reduce__()[1]:
                self.names.update(str(text).split("."))
        elif not is_a(value, SimpleNamespace) and not any(
            inspect.isfunction(part) for base in cls.__mro__ for part in vars(base).values()
        ):
            self._visit_own_object(value)  # without Python methods, only user code reads it
        elif (own := dict_of(value)) is not None:
            self.containers.append(own)
            self._waiting += [
                part
                for part in own.values()
                if is_a(part, io.IOBase | SimpleNamespace) or not is_library_object(part)
            ]

    def _visit_memoised(self, value: Any) -> None:
        """Visit a memoised function: its stored results must stay, as replays do not call it."""
        self._waiting.append(value.__wrapped__)
        self.plain_only = True
        for part in gc.get_referents(value):
            if type(part) is dict and part is not vars(value):
                self._open.append(_OpenNamespace("the memory of ", part, (), watched=False))
                names = list(part)[-_KEPT:]
                self.spaces[id(part)] = f"{value.__name__}'s memory: ", part, names
                self._waiting += [found for found in part.values() if not is_library_object(found)]
