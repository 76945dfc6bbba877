"""The objects that functions can reach, and the variables in them that their code can read.

The search follows the user's functions and classes, and what their variables hold.  It does not
follow code inside installed libraries.
"""

import abc
import contextlib
import functools
import gc
import importlib.util
import operator
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from fdbr.compiler.capture.watch.captured_inputs import (
    MISSING,
    Attributes,
    CapturedInput,
    Key,
    Path,
    dict_of,
    read,
    slots_of,
    text_of,
)
from fdbr.compiler.capture.watch.code_names import Mentions, mentions
from fdbr.compiler.capture.watch.refusals import (
    hidden_state,
    impure_function,
    impure_method,
    is_immutable,
    is_library,
    is_ours,
    is_standard,
    unwatched_memory,
)
from fdbr.core.array_modules import is_a, is_array
from fdbr.core.tracer import Tracer
from fdbr.pytrees.classes import fields_of

__all__ = ["Walk", "items_of", "parts_of", "results_of"]

GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_ITEMS = (dict, list, set, frozenset, tuple, deque)
_EXACT = frozenset({*_ITEMS, OrderedDict})
_NAMED = "__name__", "__qualname__", "__doc__", "__module__", "__annotations__"
# Methods that initialise new objects: attributes they set have not been read by older code.
_INITIALISERS = frozenset(
    {"__init__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"}
)
_KEPT = 64  # newest results of a memoised function that are watched

_OF_OBJECTS = {"__class__": vars(object)["__class__"]}

# Objects that never change themselves, and the attributes that hold what may.
_PARTS = {
    MethodType: ("__func__", "__self__"),
    property: ("fget",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    BuiltinFunctionType: ("__self__",),
    MethodWrapperType: ("__self__",),
    slice: ("start", "stop", "step"),
}


class Setting:
    """A holder of one value that a function computes: the same object while it is equal."""

    known: dict[Any, Any] = {}

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute
        self.identity = id(compute)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value."""
        found = self._compute()
        return self.known.setdefault(found, found)


def _precision() -> Any:
    context = sys.modules["decimal"].getcontext()
    return context.prec, context.rounding


_REGISTRATIONS, _PRECISION = Setting(abc.get_cache_token), Setting(_precision)


class Walk:
    """The variables and objects that some functions can read.

    Attributes
    ----------
    found
        All objects that were found, by identity, with their paths.
    variables
        The variables and attributes that code mentions, by identity.
    containers, growing
        Containers, and dictionaries of attributes to which names may be added.
    absent
        Namespaces, with names that code looks for and that are not there.
    arrays
        The NumPy arrays, by identity.
    generators, memories
        Random generators, and functions with `lru_cache`.
    codes
        The code of the user's functions.
    held
        The identities of items of containers and of default values.
    names, any_name
        The attributes that code mentions, and whether it may read others, too.
    identity
        Whether code compares objects by identity.
    plain_only
        Whether captured variables must not be traced: code tests types, or memoises results.
    traced
        Whether something is traced by an outer transformation.
    obstacle
        Why something cannot be watched; empty if everything can.
    """

    def __init__(self, roots: Iterable[Any], inputs: Collection[Key] = ()) -> None:
        self._inputs = inputs
        self.variables: dict[Key, CapturedInput] = {}
        self.containers: list[Any] = []
        self.growing: list[Mapping[str, Any]] = []
        self.absent: list[tuple[Mapping[str, Any], frozenset[str]]] = []
        self.arrays: dict[int, np.ndarray] = {}
        self.generators: list[Any] = []
        self.memories: list[Any] = []
        self.codes: list[CodeType] = []
        self.held: set[int] = set()
        self.identity = self.plain_only = self.traced = False
        self.any_name = self._by_name = False
        self.obstacle = ""
        self.names: set[str] = set()
        self._asked: set[str] = set()  # names that code looks for where they may be missing
        # Holders with the names that they have, and whether they are instances.
        self._named: list[tuple[Any, Any, Path, bool]] = []
        self._probed: list[tuple[Any, dict[str, Any], Path]] = []  # functions and modules
        self._libraries: set[type] = set()
        self._unwatched = ""  # why functions of a module that was found cannot be replayed
        self.found: dict[int, tuple[Any, Path]] = {}
        self._waiting: list[tuple[Any, Path]] = []
        roots = list(roots)
        self._home = next(filter(None, map(_globals_of, roots)), None)
        for root in roots:
            self._add(root, _named(root))
        while self._waiting:
            while self._waiting:
                self._visit(*self._waiting.pop())
            for holder, there, path, of_instance in self._named:
                if self._by_name or (self.any_name and of_instance):
                    names = [name for name in there if name[:2] != "__" or name in self.names]
                else:
                    names = [name for name in self.names if name in there]
                for name in names:
                    self._watch(holder, name, (path, ".{}", name))
        self._finish()

    def _finish(self) -> None:
        for holder, own, path in self._probed:
            if self._by_name:
                self.growing.append(own)
            names = self._asked | {"__getattr__"} if self._asked else set()
            if is_a(holder, ModuleType):
                names |= self.names if "__getattr__" in own else set()
            elif own or names:  # a function's dictionary may be replaced
                self._watch(holder, "__dict__", path, visit=False)
            if names := names - own.keys():
                self.absent.append((own, frozenset(names)))
        for cls in self._libraries:
            self._refuse(impure_method(cls, self.names))
        if self._by_name:  # for example `getattr(time, name)`
            self._refuse(self._unwatched)

    def _add(self, value: Any, path: Path) -> None:
        if id(value) not in self.found:
            self.found[id(value)] = value, path
            self._waiting.append((value, path))

    def _add_class(self, cls: type) -> None:
        """Read the user's classes of an object."""
        for base in type.mro(cls):
            if is_library(base):
                self._libraries.add(base)
            else:
                self._add(base, _named(base))

    def _watch(self, holder: Any, name: Any, path: Path, visit: bool = True) -> None:
        variable = CapturedInput(holder, name, path)
        key = variable.key
        if key not in self.variables and key not in self._inputs:
            self.variables[key] = variable
            if visit:
                self._add(variable.get(), path)

    def _mention(self, found: Mentions, sets: bool) -> None:
        self.names |= found.attributes
        self._asked |= found.asked
        self.identity |= found.identity
        self.plain_only |= "type" in found.variables
        self._refuse(found.world)
        if sets:
            self.any_name |= found.any_attribute
            self._by_name |= found.by_name
            self.names |= found.set_attributes

    def _refuse(self, why: str) -> None:
        """Record the first thing that cannot be watched."""
        self.obstacle = self.obstacle or why

    def _refuse_object(self, value: Any, path: Path, why: str) -> None:
        if why:
            what, name = text_of(path), type(value).__name__
            held = "an object" if what in ("", name) else f"{what},"
            self._refuse(
                f"it can reach {held} of type {name}, {why}; pass the values that it reads as "
                "arguments"
            )

    def _visit(self, value: Any, path: Path) -> None:
        kind = type(value)
        if is_a(value, Tracer):
            self.traced = True
        elif value is MISSING:
            pass
        elif kind in _PARTS:
            self._visit_parts(value, path)
        elif is_immutable(value):
            self._add_class(kind)
            if kind in (operator.attrgetter, operator.methodcaller):
                for text in value.__reduce__()[1]:
                    self.names.update(str(text).split("."))
            if kind.__module__ == "decimal":
                self._watch(_PRECISION, "decimal.getcontext()", None)
        else:
            next(row for kinds, row in ROWS if issubclass(kind, kinds))(self, value, path)

    def _visit_parts(self, value: Any, path: Path) -> None:
        held = getattr(value, "__self__", None)
        if is_a(value, BuiltinFunctionType):
            self._refuse(impure_function(getattr(value, "__module__", None) or "", value.__name__))
            if is_a(held, type):
                self._refuse(impure_method(held, (value.__name__,)))
            elif is_a(held, ModuleType):
                return
        for name in _PARTS[type(value)]:
            part = getattr(value, name)
            self._add(part, _named(part) if name == "__self__" else path)

    # --- the rows of the table ------------------------------------------------------

    def _read_cell(self, cell: CellType, path: Path) -> None:
        self._watch(cell, None, path)

    def _read_function(self, function: FunctionType, path: Path) -> None:
        code, space = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if not is_ours(space):
                self._watch(cell, None, (None, "{}", name))
            elif (held := read(cell, None)) is not MISSING:
                # A dict that fdbr made is not watched itself; its values may be the user's.
                for part in held.values() if type(held) is dict else (held,):
                    self._add(part, (None, "{}", name))
        if space is not self._home and is_library(space):
            self._add(function.__defaults__, path)
            self._read_foreign(function, path)
            return
        self.codes.append(code)
        found = mentions(code)
        self._mention(found, function.__name__ not in _INITIALISERS)
        own, fixed = vars(function), Attributes(function, vars(FunctionType))
        self._watch(fixed, "__code__", (path, ".{}", "__code__"))
        if code.co_argcount:
            self._watch(fixed, "__defaults__", (path, ".{}", "__defaults__"))
        if code.co_kwonlyargcount:
            self._watch(fixed, "__kwdefaults__", (path, ".{}", "__kwdefaults__"))
        self._named += [(fixed, _NAMED, path, False), (own, own, path, False)]
        self._probed.append((fixed, own, path))
        for name in found.variables:
            self._watch(space, name, (None, "{}", name))
            if name not in space:
                self._watch(function.__builtins__, name, (None, "{}", name))
        for module, level in found.modules:
            with contextlib.suppress(ImportError, TypeError, ValueError):  # the import fails, too
                if level:
                    package = space.get("__package__")
                    module = importlib.util.resolve_name("." * level + module, package)
                self._watch(sys.modules, module, (None, "{}", module))

    def _read_foreign(self, function: FunctionType, path: Path) -> None:
        """Read a library's function: what it wraps, and the C functions that it calls."""
        space = function.__globals__
        self._add(getattr(function, "__wrapped__", None), path)
        if is_ours(space):
            self._add(getattr(function, "primitive", None), path)  # an operation's definition
            return
        self._refuse(impure_function(str(space.get("__name__")), function.__name__))
        if not is_standard(space):
            return
        found = mentions(function.__code__)
        for name in found.variables:
            value = space.get(name)
            if is_a(value, ModuleType):  # for example os.path calls functions of os
                called = [vars(value).get(name) for name in found.attributes]
            else:
                called = [value]
            for part in called:
                if is_a(part, BuiltinFunctionType):
                    self._add(part, path)

    def _read_class(self, cls: type, path: Path) -> None:
        """Read the attributes of a class, and the methods that Python calls implicitly."""
        if is_a(cls, abc.ABCMeta):
            self._watch(_REGISTRATIONS, "registrations of abstract classes", None)
        if is_library(cls):
            self._refuse(impure_function(cls.__module__, cls.__qualname__))
            self._libraries.add(cls)
            if cls.__module__ == "decimal":
                self._watch(_PRECISION, "decimal.getcontext()", None)
            return
        if not is_library(type(cls)):
            self._refuse_object(cls, path, "which is a metaclass")
        self._add_class(cls)
        fixed, space = Attributes(cls, vars(type)), vars(cls)
        self._watch(fixed, "__mro__", (path, ".{}", "__mro__"), visit=False)
        self._named += [(fixed, _NAMED[:2], path, False), (cls, space, path, False)]
        self.growing.append(space)
        self.names.update(space.get("__match_args__", ()))
        for name, part in space.items():
            if name[:2] == "__" and _is_called(part):
                self._watch(cls, name, (path, ".{}", name))

    def _read_module(self, module: ModuleType, path: Path) -> None:
        space = vars(module)
        fixed = Attributes(module, _OF_OBJECTS)
        self._watch(fixed, "__class__", (path, ".{}", "__class__"), visit=False)
        self._unwatched = self._unwatched or impure_function(module.__name__, "a function")
        self._named.append((space, space, path, False))
        if not is_library(space):
            if type(module) is not ModuleType:
                self._refuse_object(module, path, "which is a module with a class of its own")
            self._probed.append((module, space, path))
            if "__getattr__" in space:
                self._watch(space, "__getattr__", (path, ".{}", "__getattr__"))

    def _read_items(self, container: Any, path: Path) -> None:
        kind = type(container)
        if not is_a(container, tuple | frozenset):
            self._refuse_object(container, path, hidden_state(container))
            self.containers.append(container)
        form = ".{}" if path and path[2] == "__dict__" else "[{!r}]"
        for name, part in items_of(container, parts_of(container, self._inputs)):
            self.held.add(id(part))
            self._add(part, (path, form, name))
            self._add(name, path)
        if kind not in _ITEMS:
            self._read_attributes(container, path)

    def _read_array(self, array: Any, path: Path) -> None:
        why = hidden_state(array) if type(array) is not np.ndarray else ""
        self._refuse_object(array, path, why or unwatched_memory(array))
        self.arrays[id(array)] = array

    def _read_object(self, value: Any, path: Path) -> None:
        cls = type(value)
        if is_a(value, functools._lru_cache_wrapper):
            self._read_memory(value, path)
        elif is_a(value, np.ufunc):
            if set("".join(value.types)) <= set("O->"):
                self._refuse(f"it can call {value.__name__}, a ufunc of a Python function")
        elif is_array(value) and not is_a(value, np.void):
            pass  # another array module's arrays are compared with copies
        elif any(value is stream for stream in (sys.stdout, sys.stderr)):
            pass
        elif is_a(value, GENERATORS) and not is_a(value, random.SystemRandom):
            self.generators.append(value)  # `RandomStates` compares their states
        elif fields_of(cls) is None and is_ours({"__name__": cls.__module__}):
            # Wrappers of fdbr, such as the result of `jit`, hold the user's functions.
            for name, part in (dict_of(value) or {}).items():
                if callable(part):
                    self._add(part, (path, ".{}", name))
        elif fields_of(cls) is not None:
            self._add_class(cls)
            for name, part in _attributes_of(value):
                self._add(part, (path, ".{}", name))
        else:
            why = hidden_state(value)
            if why and callable(value) and type(getattr(value, "__qualname__", None)) is str:
                # A function of another compiler, such as Cython's.
                self._refuse(impure_function(str(value.__module__), value.__qualname__))
                return
            self._refuse_object(value, path, "" if is_a(value, functools.partial) else why)
            self._read_attributes(value, path)

    def _read_attributes(self, value: Any, path: Path) -> None:
        """Read the attributes of an instance: all if a library's methods may read them."""
        cls, own = type(value), dict_of(value)
        slots = slots_of(value)
        if is_a(value, functools.partial):
            slots = {name: vars(functools.partial)[name] for name in ("func", "args", "keywords")}
        fixed = Attributes(value, {**slots, **_OF_OBJECTS})
        whole = any(is_library(base) and _has_functions(base) for base in type.mro(cls))
        self._add_class(cls)
        self._watch(fixed, "__class__", (path, ".{}", "__class__"), visit=False)
        if own is not None:
            self._watch(fixed, "__dict__", (path, "", "__dict__"), visit=whole)
        if own is not None and not whole:
            # An instance attribute that is added later may hide an attribute of the class.
            there = {*own, *(name for base in type.mro(cls) for name in vars(base))}
            self._named.append((own, there, path, True))
            self.growing.append(own)
        if whole or is_a(value, functools.partial):
            for name in slots:
                self._watch(fixed, name, (path, ".{}", name))
        elif slots:
            self._named.append((fixed, slots, path, True))

    def _read_memory(self, function: Any, path: Path) -> None:
        """Read a memoised function: its stored results must stay, as replays do not call it."""
        self._add(function.__wrapped__, path)
        self.plain_only = True
        self.memories.append(function)
        memory, results = results_of(function)
        for name in list(memory)[-_KEPT:]:
            self._watch(memory, name, (path, "'s result for {!r}", name), visit=False)
        for part in results:
            self._add(part, (path, "{}", "()"))


ROWS: tuple[tuple[Any, Callable[[Walk, Any, Path], None]], ...] = (
    (CellType, Walk._read_cell),
    (FunctionType, Walk._read_function),
    (type, Walk._read_class),
    (ModuleType, Walk._read_module),
    (_ITEMS, Walk._read_items),
    (np.ndarray, Walk._read_array),
    (object, Walk._read_object),
)
"""The kinds of objects with contents that may change, and how these contents are read.

`Captures` compares variables and items by identity, and the elements of arrays by their bits.
"""


def parts_of(container: Any, inputs: Collection[Key] = ()) -> list[Any]:
    """Return the items of a container by its builtin class's methods, not by overridden ones.

    The keys of a dict come before its values.  Items that are inputs of the program are `MISSING`.
    """
    kind = type(container)
    if kind not in _EXACT:
        kind = next(kind for kind in (OrderedDict, *_ITEMS) if is_a(container, kind))
    if issubclass(kind, dict):
        parts = [*kind.keys(container), *kind.values(container)]
    else:
        parts = [*kind.__iter__(container)]
    if inputs:
        start = len(parts) // 2 if issubclass(kind, dict) else 0
        for position, (name, _) in enumerate(items_of(container, parts), start):
            if (id(container), name) in inputs:
                parts[position] = MISSING
    return parts


def items_of(container: Any, parts: list[Any]) -> list[tuple[Any, Any]]:
    """Return the items of a container with these parts, each with its key or index."""
    if not is_a(container, dict):
        return list(enumerate(parts))
    count = len(parts) // 2
    return list(zip(parts[:count], parts[count:], strict=True))


def results_of(function: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Return the memory of a function with `lru_cache`, and the results in it."""
    parts = gc.get_referents(function)
    memory = next(part for part in parts if type(part) is dict and part is not vars(function))
    others = (function.__wrapped__, memory, vars(function))
    found = [*memory.values(), *parts]
    return memory, [
        part
        for part in found
        if not is_a(part, type) and not any(part is other for other in others)
    ]


def _named(value: Any) -> Path:
    """Return the path of an object that messages call by its class or by its own name."""
    if is_a(value, FunctionType | MethodType | ModuleType):
        return None
    return None, "{}", (value if is_a(value, type) else type(value)).__name__


def _globals_of(root: Any) -> dict[str, Any] | None:
    """Return the globals of the jitted function's own module, even if it is a library's."""
    while is_a(root, MethodType | functools.partial):
        root = root.__func__ if is_a(root, MethodType) else root.func
    return root.__globals__ if is_a(root, FunctionType) and not is_ours(root.__globals__) else None


def _attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    slots = Attributes(value, slots_of(value))
    yield from ((name, slots.get(name)) for name in slots.members)
    yield from (dict_of(value) or {}).items()


def _has_functions(cls: type) -> bool:
    return any(is_a(part, FunctionType) for part in vars(cls).values())


def _is_called(part: Any) -> bool:
    """Return whether an entry of a class is a method that the user wrote, not attrs."""
    if is_a(part, FunctionType):
        made = part.__code__.co_filename.startswith("<attrs generated")
        return not made and not is_library(part.__globals__)
    callables = staticmethod | classmethod | property
    return is_a(part, callables) or (callable(part) and not is_immutable(part))
