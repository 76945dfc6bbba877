"""The captured variables, containers and arrays of a function.

A program is valid as long as they have not changed.
"""

import operator
import random
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.paths import Scope
from fdbr.compiler.capture.tracers import CaptureTracer, OpaqueTracer
from fdbr.compiler.capture.watch.captured_inputs import (
    CapturedInput,
    items_of,
    of_cell,
    of_item,
    of_space,
    signature_of_value,
)
from fdbr.compiler.capture.watch.code_names import reads
from fdbr.compiler.capture.watch.constants import first_changed, snapshot
from fdbr.compiler.capture.watch.containers import parts_of
from fdbr.compiler.capture.watch.free_variables import GENERATORS, FreeVariables
from fdbr.compiler.capture.watch.namespaces import MISSING
from fdbr.core.array_modules import is_a, is_locked
from fdbr.core.tracer import Tracer

__all__ = ["Captures", "ImpureError", "RandomStates"]


_NUMBERS = frozenset({int, float, complex})
_NOTES = frozenset({"__annotations__", "__doc__", "__warningregistry__"})  # Python adds them itself


class ImpureError(RuntimeError):
    """A function under `jit` depends on, or changes, state outside its arguments."""


class Captures:
    """The variables and objects that a function reads, and whether they have changed.

    Parameters
    ----------
    roots
        The function, and the types and static leaves of its arguments.
    inputs
        The captured variables that are inputs of programs, and not watched.

    Attributes
    ----------
    arrays
        The writeable arrays among the values of variables, with copies.
    generators
        The random generators that the function can reach.
    obstacle
        Why something cannot be watched; empty if everything can.
    traced
        Whether a captured value is traced by an outer transformation.
    """

    __slots__ = (
        "_buffers",
        "_cells",
        "_codes",
        "_containers",
        "_counts",
        "_inputs",
        "_known",
        "_lasts",
        "_locked",
        "_mentioned",
        "_names",
        "_objects",
        "_orders",
        "_owners",
        "_spaces",
        "_takes_inputs",
        "_types",
        "_variables",
        "arrays",
        "generators",
        "obstacle",
        "traced",
    )

    def __init__(self, roots: Iterable[Any], inputs: Sequence[CapturedInput] = ()) -> None:
        self._inputs = {
            variable.key: (variable, signature_of_value(variable.get())) for variable in inputs
        }
        free = FreeVariables(roots, self._inputs)
        self._spaces, self._owners = list(free.spaces.values()), free.owners
        self._takes_inputs = not (free.identity or free.plain_only)
        # Flat lists, because every call goes through them.
        self._variables = [
            (space.get, name, space.get(name, MISSING))
            for _, space, names in free.spaces.values()
            for name in names
        ]
        self._cells = [(cell, _contents(cell)) for _, cell in free.cells.values()]
        self._codes = [(f, f.__code__, f.__defaults__, f.__kwdefaults__) for f in free.functions]
        self._orders = [(cls, cls.__mro__) for cls in free.classes]
        self._types = [(_reference(value), type(value)) for value in free.instances]
        self._objects = [(own, set(own)) for own in free.objects]
        self._mentioned = None if free.any_name else frozenset(free.names)
        self._counts = [len(own) for own in free.objects]
        self._lasts = [next(reversed(own), None) for own in free.objects]
        self._containers = [(value, self._parts(value)) for value in free.containers]
        self._buffers = [(value, bytes(value)) for value in free.buffers]
        self.arrays = [
            (array, snapshot(array)) for array in free.arrays.values() if not is_locked(array)
        ]
        # Code that unlocks an array may write to it.
        self._locked = [array for array in free.arrays.values() if is_locked(array)]
        # The labels of the variables, and then of the cells.
        self._names = [
            f"{label}{name}" for label, _, names in free.spaces.values() for name in names
        ]
        self._names += [name for name, _ in free.cells.values()]
        self.generators = [value for value in free.values if _is_generator(value)]
        self._known = set(free.arrays) if free.identity else None
        self.obstacle = free.obstacle
        self.traced = any(is_a(value, Tracer) for value in free.values)

    def holds(self) -> bool:
        """Return whether all variables and containers are unchanged."""
        for get, name, value in self._variables:
            if get(name, MISSING) is not value:
                return False
        for cell, value in self._cells:
            if _contents(cell) is not value:
                return False
        for variable, kind in self._inputs.values():
            if kind is None or signature_of_value(variable.get()) != kind:
                return False
        for f, *parts in self._codes:
            if any(map(operator.is_not, (f.__code__, f.__defaults__, f.__kwdefaults__), parts)):
                return False
        if any(cls.__mro__ is not order for cls, order in self._orders):
            return False
        if any(type(value()) is not cls for value, cls in self._types):
            return False
        return self.contains() and not self._has_more()

    def _parts(self, container: Any) -> list[Any]:
        return parts_of(container, self._inputs)

    def changed_inputs(self) -> list[CapturedInput]:
        """Return the captured variables whose arrays or numbers changed, but not their avals.

        Functions that could observe that the values are traced have none.
        """
        if not self._takes_inputs:
            return []
        return [
            variable
            for variable, before in self._changed()
            if _has_same_signature(before, variable)
        ]

    def untrace(self) -> None:
        """Replace the traced values that a run has left in captured variables by plain ones."""
        inputs = [variable for variable, _ in self._changed()]
        for container, _ in self._containers:
            items = items_of(container, self._parts(container))
            inputs += [of_item(container, name, "") for name, _ in items]
        for variable in inputs:
            value = variable.get()
            if any(issubclass(type(leaf), CaptureTracer) for leaf in tree.leaves(value)):
                variable.put(tree.map(_untraced, value))

    def _changed(self) -> list[tuple[CapturedInput, Any]]:
        """Return the variables and items that have changed, with their old values."""
        found: list[tuple[CapturedInput | None, Any]] = []
        old = iter(self._variables)
        for label, space, names in self._spaces:
            for name in names:
                before = next(old)[2]
                if space.get(name, MISSING) is not before:
                    owner = self._owners.get(id(space))
                    found.append((of_space(space, owner, name, f"{label}{name}"), before))
        names = self._names[len(self._variables) :]
        for (cell, before), name in zip(self._cells, names, strict=True):
            if _contents(cell) is not before:
                found.append((of_cell(cell, name), before))
        for container, parts in self._containers:
            now = self._parts(container)
            if len(now) == len(parts):
                items = zip(items_of(container, parts), items_of(container, now), strict=True)
                for (key, before), (other, after) in items:
                    if key is other and before is not after:
                        found.append((of_item(container, key, f"an item {key!r}"), before))
        return [(variable, before) for variable, before in found if variable is not None]

    def _has_more(self) -> bool:
        """Return whether objects have got new attributes that code mentions.

        Other attributes may be added freely.
        """
        for own, known in self._objects:
            more = own.keys() - known
            if self._mentioned is None:
                if more:
                    return True
            elif not self._mentioned.isdisjoint(more) or any(map(_is_called, more)):
                return True
            known |= more
        self._count()
        return False

    def _count(self) -> None:
        self._counts[:] = [len(own) for own, _ in self._objects]
        self._lasts[:] = [next(reversed(own), None) for own, _ in self._objects]

    def contains(self) -> bool:
        """Return whether the containers hold the same items, and locked arrays are still locked."""
        for container, parts in self._containers:
            if not _are_same(self._parts(container), parts):
                return False
        if any(array.flags.writeable for array in self._locked):
            return False
        return all(bytes(buffer) == found for buffer, found in self._buffers)

    def changes(self, scope: Scope) -> list[str]:
        """Return the checks of `holds` and `changed_array` as expressions, true on changes.

        They raise `ValueError` if a cell is empty now.
        """
        name = scope.name
        found = []
        for get, key, old in self._variables:
            now = f"{name(get)}({key!r})" if type(key) is str else f"{name(get)}({name(key)})"
            if old is None or old is MISSING:
                now = f"{now[:-1]}, {name(MISSING)})"
            found.append(f"{now} is not {name(old)}")
        for cell, old in self._cells:
            now = f"{name(cell)}.cell_contents"
            now = f"{name(_contents)}({name(cell)})" if old is MISSING else now
            found.append(f"{now} is not {name(old)}")
        for f, code, *defaults in self._codes:
            found.append(f"{name(f)}.__code__ is not {name(code)}")
            for attribute, old, count in (
                ("__defaults__", defaults[0], code.co_argcount),
                ("__kwdefaults__", defaults[1], code.co_kwonlyargcount),
            ):
                if count:
                    found.append(f"{name(f)}.{attribute} is not {name(old)}")
        found += [f"{name(cls)}.__mro__ is not {name(order)}" for cls, order in self._orders]
        found += [f"type({name(value)}()) is not {name(cls)}" for value, cls in self._types]
        counts, lasts = name(self._counts), name(self._lasts)
        for i, (own, _) in enumerate(self._objects):
            found.append(f"len({name(own)}) != {counts}[{i}]")
            if is_a(own, dict):
                found.append(f"next(reversed({name(own)}), None) is not {lasts}[{i}]")
        if self._containers or self._locked or self._buffers:
            found.append(f"not {name(self.contains)}()")
        if self.arrays:
            found.append(f"{name(self.changed_array)}() is not None")
        return found

    def rebound(self, kind: type = object) -> str | None:
        """Return the name of the first variable that is now bound to another value of a type."""
        return next((name for name, _, now in self._rebound() if is_a(now, kind)), None)

    def counts(self) -> bool:
        """Return whether all rebound variables were numbers, and still are."""
        return all(
            type(old) in _NUMBERS and type(now) in _NUMBERS for _, old, now in self._rebound()
        )

    def _rebound(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield the names of rebound variables, with their old and new values."""
        now = [get(name, MISSING) for get, name, _ in self._variables]
        now += [_contents(cell) for cell, _ in self._cells]
        before = [value for _, _, value in self._variables]
        before += [value for _, value in self._cells]
        for name, value, old in zip(self._names, now, before, strict=True):
            if value is not old:
                yield name, old, value

    def change(self) -> str:
        """Describe the first check that fails, for reports."""
        name = self.rebound()
        return f"{name} was rebound" if name else "a captured list or dict has changed"

    @property
    def inputs(self) -> list[CapturedInput]:
        """The captured variables that are inputs of programs."""
        return [variable for variable, _ in self._inputs.values()]

    @property
    def identity(self) -> bool:
        """Whether the function compares objects by identity."""
        return self._known is not None

    def has_twice(self, leaves: Sequence[Any]) -> bool:
        """Return whether an argument occurs twice or is captured, and the function could tell."""
        if self._known is None:
            return False
        found = set(map(id, leaves))
        return len(found) < len(leaves) or not self._known.isdisjoint(found)

    def changed_array(self) -> Any:
        """Return a captured array whose elements have changed; `None` if there is none."""
        return first_changed(self.arrays)

    def keeper(self) -> str | None:
        """Return the name of a variable or container in which the run stored a traced value."""
        name = self.rebound(Tracer)
        if name is None and any(
            is_a(part, Tracer) and not any(part is one for one in before)
            for value, before in self._containers
            for part in self._parts(value)
        ):
            return "a captured list or dict"
        return name

    def mutates_what_it_reads(self) -> bool:
        """Return whether a container that the function reads has changed.

        A container that it only appends to, as to a log, is not read.
        """
        return any(
            not _are_same(self._parts(value), parts) and self._is_read(value)
            for value, parts in self._containers
        )

    def _is_read(self, container: Any) -> bool:
        """Return whether code may read the items of a container, judging by names."""
        held = [value for _, parts in self._containers for value in parts]
        for _, _, defaults, of_keywords in self._codes:
            held += [*(defaults or ()), *(of_keywords or {}).values()]
        names = [name for _, name, value in self._variables if value is container]
        cells = zip(self._names[len(self._variables) :], self._cells, strict=True)
        names += [name for name, (_, value) in cells if value is container]
        if not names or any(value is container for value in held):
            return True
        return any(reads(code, name) for _, code, *_ in self._codes for name in names)

    def accept_containers(self) -> None:
        """Take the current items of containers as the unchanged state."""
        self._containers = [(value, self._parts(value)) for value, _ in self._containers]
        self._count()


def _are_same(found: list[Any], parts: list[Any]) -> bool:
    return len(found) == len(parts) and all(map(operator.is_, found, parts))


def _reference(value: Any) -> Callable[[], Any]:
    """Return a function that returns an object, weakly referenced where possible."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _untraced(leaf: Any) -> Any:
    if type(leaf) is OpaqueTracer:
        return leaf.known
    return leaf.value if type(leaf) is CaptureTracer else leaf


def _has_same_signature(before: Any, variable: CapturedInput) -> bool:
    """Return whether the value of a captured variable has the aval that it had."""
    kind = signature_of_value(before)
    return kind is not None and kind == signature_of_value(variable.get())


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return MISSING


def _is_called(name: str) -> bool:
    """Return whether Python may call a method of this name implicitly."""
    return name[:2] == name[-2:] == "__" and name not in _NOTES


def _is_generator(value: Any) -> bool:
    """Return whether it is a random generator with a state; `SystemRandom` has none."""
    return is_a(value, GENERATORS) and not is_a(value, random.SystemRandom)


class RandomStates:
    """The states of the random generators that a function can reach without an argument.

    Parameters
    ----------
    generators
        Those found among captured values; the modules' global ones are always included.
    """

    __slots__ = ("_generators", "_states")

    def __init__(self, generators: Iterable[Any]) -> None:
        self._generators = list(generators)
        self._states = self._read()

    def _read(self) -> list[Any]:
        return [
            _plain(np.random.get_state(legacy=False)),
            random.getstate(),
            *map(_state, self._generators),
        ]

    def changed(self) -> str | None:
        """Return the name of a generator that was drawn from since; `None` if there is none."""
        names = ["np.random", "random", *(f"a {type(g).__name__}" for g in self._generators)]
        for name, before, now in zip(names, self._states, self._read(), strict=True):
            if before != now:
                return name
        return None


def _state(generator: Any) -> Any:
    if is_a(generator, random.Random):
        return generator.getstate()
    if is_a(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    return _plain(getattr(generator, "bit_generator", generator).state)


def _plain(state: Any) -> Any:
    """Return a nested dict with arrays as a value that can be compared."""
    if is_a(state, dict):
        return {name: _plain(part) for name, part in state.items()}
    return state.tobytes() if is_a(state, np.ndarray) else state
