"""The objects that functions can reach, and the variables in them that their code can read.

The search follows the user's functions and classes, and what their variables hold.  It does not
follow code inside installed libraries.
"""

import abc
import builtins
import contextlib
import functools
import gc
import importlib.util
import operator
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fdbr.compiler.capture.watch import refusals
from fdbr.compiler.capture.watch.captured_inputs import (
    MISSING,
    Attributes,
    CapturedInput,
    Key,
    Path,
    dict_of,
    slots_of,
    text_of,
)
from fdbr.compiler.capture.watch.code_names import BY_NAME, mentions
from fdbr.compiler.capture.watch.refusals import hidden_state, is_immutable, is_library, is_ours
from fdbr.core.array_modules import is_a, is_array
from fdbr.core.tracer import Tracer
from fdbr.pytrees.classes import fields_of

__all__ = ["Walk", "items_of", "parts_of", "results_of"]

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_ITEMS = (dict, list, set, frozenset, tuple, deque)
_EXACT = frozenset({*_ITEMS, OrderedDict})
_NAMED = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
_CLASS = {"__class__": vars(object)["__class__"]}
# Methods that initialise new objects: attributes they set have not been read by older code.
_INITIALISERS = frozenset("__init__ __getstate__ __setstate__ __reduce__ __reduce_ex__".split())
_KEPT = 64  # newest results of a memoised function that are watched

# Objects that never change themselves, and the attributes that hold what may.
_PARTS = {
    MethodType: ("__func__", "__self__"),
    property: ("fget",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    BuiltinFunctionType: ("__self__",),
    types.MethodWrapperType: ("__self__",),
    slice: ("start", "stop", "step"),
}


class _Setting:
    """A holder of a value that a function computes: the same object as long as it is equal."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute, self._known = compute, {}  # type: ignore[var-annotated]

    def get(self, name: str, default: Any = None) -> Any:
        found = self._compute()
        return self._known.setdefault(found, found)


_REGISTRATIONS = _Setting(abc.get_cache_token)
_PRECISION = _Setting(lambda: operator.attrgetter("prec", "rounding")(_decimal().getcontext()))


def _decimal() -> Any:
    return sys.modules["decimal"]


class Walk:
    """The variables and objects that some functions can read.

    Attributes
    ----------
    found
        All objects that were found, by identity, with their paths.
    variables, containers, arrays, generators, memories
        What can change: variables that code mentions, objects with items, NumPy arrays, random
        generators, and functions with `lru_cache`.
    growing, absent
        Dictionaries to which attributes may be added, and namespaces in which code looks for names
        that are not there.
    codes, names, any_name
        The code of the user's functions, the attributes that it mentions, and whether it may read
        others of instances, too.
    held
        The identities of items of containers.
    identity, plain_only, traced
        Whether code compares objects by identity, must not see traced values in captured variables,
        and captures values that an outer transformation traces.
    obstacle
        Why something cannot be watched; empty if everything can.
    """

    def __init__(self, roots: Iterable[Any], inputs: Collection[Key] = ()) -> None:
        self.found: dict[int, tuple[Any, Path]] = {}
        self.variables: dict[Key, CapturedInput] = {}
        self.containers: list[Any] = []
        self.arrays: dict[int, np.ndarray] = {}
        self.generators: list[Any] = []
        self.memories: list[Any] = []
        self.growing: list[Mapping[str, Any]] = []
        self.absent: list[tuple[Mapping[str, Any], frozenset[str]]] = []
        self.codes: list[CodeType] = []
        self.names: set[str] = set()
        self.held: set[int] = set()
        self.identity = self.plain_only = self.traced = self.any_name = self._by_name = False
        self.obstacle = ""
        self._inputs = inputs
        self._asked: set[str] = set()  # names that code looks for where they may be missing
        # Holders, the names that they have, and their kind if code may read others of them.
        self._named: list[tuple[Any, Collection[str], Path, str]] = []
        self._probed: list[tuple[Any, dict[str, Any], Path]] = []  # functions and modules
        self._libraries: set[Any] = set()  # classes and modules
        self._unwatched = ""  # why functions of a module that was found cannot be replayed
        self._waiting: list[tuple[Any, Path]] = []
        roots = list(roots)
        self._home = next(filter(None, map(_globals_of, roots)), None)
        for root in roots:
            self._add(root, _named(root))
        while self._waiting:
            while self._waiting:
                self._visit(*self._waiting.pop())
            for holder, there, path, kind in self._named:
                names = [name for name in self.names if name in there]
                if (self._by_name and kind) or (self.any_name and kind == "instance"):
                    names += [name for name in there if name[:2] != "__"]
                for name in sorted(names):
                    self._watch(holder, name, path)
        self._finish()

    def _finish(self) -> None:
        for holder, own, path in self._probed:
            names = self._asked | {"__getattr__"} if self._asked else set()
            if "__getattr__" in own:  # a module's
                names |= self.names
            if type(holder) is Attributes and (own or names):  # a function's may be replaced
                self._watch(holder, "__dict__", path, visit=False)
            if names := names - own.keys():
                self.absent.append((own, frozenset(names)))
            self.growing += [own] if self._by_name else []
        for cls in sorted(self._libraries, key=lambda owner: owner.__name__):
            self._refuse(refusals.impure_method(cls, self.names))
        if self._by_name:  # for example `getattr(time, name)`
            self._refuse(self._unwatched)

    def _add(self, value: Any, path: Path) -> None:
        if id(value) not in self.found:
            self.found[id(value)] = value, path
            self._waiting.append((value, path))

    def _add_class(self, cls: type) -> None:
        for base in type.mro(cls):
            if not is_library(base):
                self._add(base, _named(base))
            elif base.__module__ != "builtins" and base not in self._libraries:
                self._libraries.add(base)
                values = {name for name, part in vars(base).items() if not _is_method(part)}
                self._named.append((base, values, _named(base), ""))

    def _watch(
        self, holder: Any, name: Any, above: Path = None, form: str = ".{}", visit: bool = True
    ) -> None:
        key = (holder.identity if type(holder) is Attributes else id(holder)), name
        if key not in self.variables and key not in self._inputs:
            variable = self.variables[key] = CapturedInput(holder, name, (above, form, name))
            if visit:
                self._add(variable.get(), variable.path)

    def _refuse(self, why: str) -> None:
        self.obstacle = self.obstacle or why  # the first one

    def _refuse_object(self, value: Any, path: Path, why: str) -> None:
        what, name = text_of(path), type(value).__name__
        if why:
            held = "an object" if what in ("", name) else f"{what},"
            end = "pass the values that it reads as arguments"
            self._refuse(f"it can reach {held} of type {name}, {why}; {end}")

    def _visit(self, value: Any, path: Path) -> None:
        kind = type(value)
        if is_a(value, Tracer):
            self.traced = True
        elif kind in _PARTS:
            self._visit_parts(value, path)
        elif is_immutable(value):
            self._add_class(kind)
            if kind in (operator.attrgetter, operator.methodcaller):
                self.names.update(*(str(text).split(".") for text in value.__reduce__()[1]))
            if kind.__module__ == "decimal":
                self._watch(_PRECISION, "the precision of decimal")
        elif value is not MISSING:
            next(row for kinds, row in ROWS if issubclass(kind, kinds))(self, value, path)

    def _visit_parts(self, value: Any, path: Path) -> None:
        if is_a(value, BuiltinFunctionType):
            held, name = value.__self__, value.__name__
            if held is builtins and name in BY_NAME and path and path[2] != name:
                self.any_name = self._by_name = True  # code calls it by another name
            self._refuse(refusals.impure_function(getattr(value, "__module__", None) or "", name))
            if is_a(held, type):
                self._refuse(refusals.impure_method(held, (name,)))
            elif is_a(held, ModuleType):
                return
        for name in _PARTS[type(value)]:
            part = getattr(value, name)
            self._add(part, _named(part) if name == "__self__" else path)

    # --- the rows of the table ------------------------------------------------------

    def _read_cell(self, cell: CellType, path: Path) -> None:
        self._watch(cell, "a cell", path)

    def _read_function(self, function: FunctionType, path: Path) -> None:
        code, space = function.__code__, function.__globals__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if not is_ours(space):
                self._watch(cell, name)
            elif (held := CapturedInput(cell, name, None).get()) is not MISSING:
                # A dict that fdbr made is not watched itself; its values may be the user's.
                for part in held.values() if type(held) is dict else (held,):
                    self._add(part, (None, "{}", name))
        if space is not self._home and is_library(space):
            self._add(function.__defaults__, path)
            self._read_foreign(function, path)
            return
        found = mentions(code)
        self.codes.append(code)
        self.names |= found.attributes
        self._asked |= found.asked
        self.identity |= found.identity
        self.plain_only |= "type" in found.variables
        self._refuse(found.world)
        if function.__name__ not in _INITIALISERS:
            self.any_name |= found.any_attribute
            self._by_name |= found.by_name
            self.names |= found.set_attributes
        own, fixed = vars(function), Attributes(function, vars(FunctionType))
        counts = {"__defaults__": code.co_argcount, "__kwdefaults__": code.co_kwonlyargcount}
        for name in ("__code__", *filter(counts.get, counts)):
            self._watch(fixed, name, path)
        self._named += [(fixed, _NAMED, path, ""), (own, own, path, "function")]
        self._probed.append((fixed, own, path))
        for name in sorted(found.variables):  # so that reports name the same object each time
            self._watch(space, name)
            if name not in space:
                self._watch(function.__builtins__, name)
        for module, level in found.modules:
            with contextlib.suppress(ImportError, TypeError, ValueError):  # the import fails, too
                whole = "." * level + module
                package = space.get("__package__") if level else None
                self._watch(sys.modules, importlib.util.resolve_name(whole, package))

    def _read_foreign(self, function: FunctionType, path: Path) -> None:
        """Read a library's function: what it wraps, and the C functions that it calls."""
        space = function.__globals__
        self._add(getattr(function, "__wrapped__", None), path)
        if is_ours(space):
            self._add(getattr(function, "primitive", None), path)  # an operation's definition
            return
        self._refuse(refusals.impure_function(str(space.get("__name__")), function.__name__))
        found = mentions(function.__code__) if refusals.is_standard(space) else mentions(_NOTHING)
        called = [space.get(name) for name in found.variables]
        for module in [part for part in called if is_a(part, ModuleType)]:
            # For example, os.path calls functions of os.
            called += [vars(module).get(name) for name in found.attributes]
        for part in called:
            if is_a(part, BuiltinFunctionType):
                self._add(part, path)

    def _read_class(self, cls: type, path: Path) -> None:
        """Read the attributes of a class, and the methods that Python calls implicitly."""
        if is_a(cls, abc.ABCMeta):
            self._watch(_REGISTRATIONS, "what counts as of an abstract class")
        self._add_class(cls)
        if is_library(cls):
            self._refuse(refusals.impure_function(cls.__module__, cls.__qualname__))
            if cls.__module__ == "decimal":
                self._watch(_PRECISION, "the precision of decimal")
            return
        if not is_library(type(cls)):
            self._refuse_object(cls, path, "which is a metaclass")
        fixed, space = Attributes(cls, vars(type)), vars(cls)
        self._watch(fixed, "__mro__", path, visit=False)
        self._named += [(fixed, _NAMED[:2], path, ""), (cls, space, path, "class")]
        self.growing.append(space)
        self.names.update(space.get("__match_args__", ()))
        for name, part in space.items():
            code = getattr(part, "__code__", None) if is_a(part, FunctionType) else None
            if code is not None and code.co_filename.startswith("<attrs generated"):
                # It reads what else no code mentions, but a frozen object's fields never change.
                self.names.update(() if fields_of(cls) else mentions(code).attributes)
            elif name[:2] != "__":
                # Metaclasses of libraries, such as the one of enumerations, read any attribute.
                if type(cls) not in (type, abc.ABCMeta):
                    self._watch(cls, name, path)
            elif code is not None or (callable(part) and not is_immutable(part)):
                self._watch(cls, name, path)

    def _read_module(self, module: ModuleType, path: Path) -> None:
        space, name = vars(module), module.__name__
        users = not is_library(space)
        self._watch(Attributes(module, _CLASS), "__class__", path, visit=False)
        self._unwatched = self._unwatched or refusals.impure_function(name, "a function")
        self._libraries.update(() if users else (module,))
        self._named.append((space, space, path, "module" if users else ""))
        if users:
            other = type(module) is not ModuleType
            self._refuse_object(module, path, "a module with a class of its own" if other else "")
            self._probed.append((module, space, path))
            if "__getattr__" in space:
                self._watch(space, "__getattr__", path)

    def _read_items(self, container: Any, path: Path) -> None:
        if not is_a(container, tuple | frozenset):
            self._refuse_object(container, path, hidden_state(container))
            self.containers.append(container)
        form = ".{}" if path and path[2] == "__dict__" else "[{!r}]"
        for name, part in items_of(container, parts_of(container, self._inputs)):
            self.held.add(id(part))
            self._add(part, (path, form, name))
            self._add(name, path)
        if type(container) not in _ITEMS:
            self._read_attributes(container, path)

    def _read_array(self, array: Any, path: Path) -> None:
        self._refuse_object(array, path, refusals.unwatched_array(array))
        self.arrays[id(array)] = array

    def _read_object(self, value: Any, path: Path) -> None:
        cls = type(value)
        if is_a(value, functools._lru_cache_wrapper):
            self._read_memory(value, path)
        elif is_a(value, np.ufunc):
            if set("".join(value.types)) <= set("O->"):
                self._refuse(f"it can call {value.__name__}, a ufunc of a Python function")
        elif type(value) is np.vectorize:  # it keeps ufuncs of its function, as distributions do
            self._watch(vars(value), "pyfunc", path)
        elif is_array(value) and not is_a(value, np.void):
            pass  # another array module's arrays are compared with copies
        elif value is sys.stdout or value is sys.stderr:
            pass
        elif is_a(value, _GENERATORS) and not is_a(value, random.SystemRandom):
            self.generators.append(value)  # `RandomStates` compares their states
        elif fields_of(cls) is not None or is_ours({"__name__": cls.__module__}):
            self._add_class(cls)
            slots = Attributes(value, slots_of(value) if fields_of(cls) is not None else {})
            parts = {name: slots.get(name) for name in slots.members} | (dict_of(value) or {})
            for name, part in parts.items():
                # Wrappers of fdbr, such as the result of `jit`, hold the user's functions.
                if fields_of(cls) is not None or callable(part):
                    self._add(part, (path, ".{}", name))
        else:
            why = hidden_state(value)
            if why and callable(value) and type(getattr(value, "__qualname__", None)) is str:
                # A function of another compiler, such as Cython's.
                self._refuse(refusals.impure_function(str(value.__module__), value.__qualname__))
            else:
                self._refuse_object(value, path, why)
                self._read_attributes(value, path)

    def _read_attributes(self, value: Any, path: Path) -> None:
        """Read the attributes of an instance: all if a library's methods may read them."""
        cls, own, slots = type(value), dict_of(value), slots_of(value)
        whole = any(is_library(base) and _has_functions(base) for base in type.mro(cls))
        if is_a(value, functools.partial):
            slots = {name: vars(functools.partial)[name] for name in ("func", "args", "keywords")}
        fixed = Attributes(value, slots | _CLASS)
        self._add_class(cls)
        self._watch(fixed, "__class__", path, visit=False)
        if own is not None:
            self._watch(fixed, "__dict__", path, "", visit=whole)
        if own is not None and not whole:
            # An instance attribute that is added later may hide an attribute of the class.
            there = {*own, *(name for base in type.mro(cls) for name in vars(base))}
            self._named.append((own, there, path, "instance"))
            self.growing.append(own)
        if whole or is_a(value, functools.partial):
            for name in slots:
                self._watch(fixed, name, path)
        else:
            self._named.append((fixed, slots, path, "instance"))

    def _read_memory(self, function: Any, path: Path) -> None:
        """Read a memoised function: its stored results must stay, as replays do not call it."""
        self._add(function.__wrapped__, path)
        self.plain_only = True
        self.memories.append(function)
        memory, results = results_of(function)
        for name in list(memory)[-_KEPT:]:
            self._watch(memory, name, path, "'s result for {!r}", visit=False)
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

_NOTHING = compile("", "", "exec")


def parts_of(container: Any, inputs: Collection[Key] = ()) -> list[Any]:
    """Return the items of a container by its builtin class's methods, not by overridden ones.

    The keys of a dict come before its values.  Items that are inputs of the program are `MISSING`.
    """
    kind = type(container)
    if kind not in _EXACT:
        kind = next(kind for kind in (OrderedDict, *_ITEMS) if is_a(container, kind))
    mapping = issubclass(kind, dict)
    parts = [*kind.__iter__(container)]
    if mapping:
        parts += kind.values(container)
    if inputs:
        start = len(parts) // 2 if mapping else 0
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
    known = {id(part) for part in (function.__wrapped__, memory, vars(function))}
    found = [part for part in (*memory.values(), *parts) if not is_a(part, type)]
    return memory, [part for part in found if id(part) not in known]


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


def _has_functions(cls: type) -> bool:
    return cls is types.SimpleNamespace or any(
        is_a(part, FunctionType) for part in vars(cls).values()
    )


def _is_method(part: Any) -> bool:
    methods = FunctionType | staticmethod | classmethod | property
    return is_a(part, methods) or (is_immutable(part) and callable(part))
