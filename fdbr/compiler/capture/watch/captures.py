"""The captured variables, containers and arrays of a function.

A program is valid as long as they have not changed.
"""

import operator
import random
from collections.abc import Iterable, Iterator, Sequence
from types import CellType
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.paths import Scope
from fdbr.compiler.capture.tracers import CaptureTracer, OpaqueTracer
from fdbr.compiler.capture.watch.captured_inputs import (
    MISSING,
    Attributes,
    CapturedInput,
    signature_of_value,
)
from fdbr.compiler.capture.watch.code_names import reads
from fdbr.compiler.capture.watch.constants import first_changed, snapshot
from fdbr.compiler.capture.watch.refusals import is_immutable
from fdbr.compiler.capture.watch.walk import Walk, items_of, parts_of, results_of
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
    generators, obstacle, traced, identity
        As in `Walk`.
    """

    def __init__(self, roots: Iterable[Any], inputs: Sequence[CapturedInput] = ()) -> None:
        self.inputs = list(inputs)
        self._inputs = {input.key: signature_of_value(input.get()) for input in inputs}
        walk = Walk(roots, self._inputs)
        self.obstacle, self.traced, self.identity = walk.obstacle, walk.traced, walk.identity
        self.generators = walk.generators
        self._takes_inputs = not (walk.identity or walk.plain_only)
        self._mentioned = None if walk.any_name else walk.names
        self._codes, self._held = walk.codes, walk.held
        self._variables = [(variable, variable.get()) for variable in walk.variables.values()]
        self._growing = [(own, [*own]) for own in walk.growing]
        self._absent = walk.absent
        self._containers = [(value, self._parts(value)) for value in walk.containers]
        self._memories = [(f, f.cache_info().misses) for f in walk.memories]
        arrays = walk.arrays.values()
        self.arrays = [(array, snapshot(array)) for array in arrays if not is_locked(array)]
        # Code that unlocks an array may write to it.
        self._locked = [array for array in arrays if is_locked(array)]
        self._known = set(walk.arrays)

    def holds(self) -> bool:
        """Return whether all variables and containers are unchanged."""
        if any(variable.get() is not value for variable, value in self._variables):
            return False
        for variable in self.inputs:
            kind = self._inputs[variable.key]
            if kind is None or signature_of_value(variable.get()) != kind:
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
            if variable.fits() and signature_of_value(before) == signature_of_value(variable.get())
        ]

    def untrace(self) -> None:
        """Replace the traced values that a run has left in captured variables by plain ones."""
        inputs = [variable for variable, _ in self._changed()]
        for container, _ in self._containers:
            items = items_of(container, self._parts(container))
            inputs += [CapturedInput(container, name, None) for name, _ in items]
        for variable in inputs:
            value = variable.get()
            if any(issubclass(type(leaf), CaptureTracer) for leaf in tree.leaves(value)):
                variable.put(tree.map(_untraced, value))

    def _rebound(self) -> Iterator[tuple[CapturedInput, Any]]:
        """Yield the variables that have changed, with their old values."""
        for variable, before in self._variables:
            if variable.get() is not before:
                yield variable, before

    def _changed(self) -> list[tuple[CapturedInput, Any]]:
        """Return the variables and items that have changed, with their old values."""
        found = list(self._rebound())
        for container, parts in self._containers:
            now = self._parts(container)
            if len(now) == len(parts) and is_a(container, dict | list):
                items = zip(items_of(container, parts), items_of(container, now), strict=True)
                for (key, before), (other, after) in items:
                    if key == other and before is not after:
                        path = None, "an item {!r}", key
                        found.append((CapturedInput(container, key, path), before))
        return found

    def _has_more(self) -> bool:
        """Return whether objects have got new attributes that code mentions.

        Other attributes may be added freely.
        """
        for own, known in self._growing:
            more = own.keys() - known
            if self._mentioned is None:
                if more:
                    return True
            elif not self._mentioned.isdisjoint(more) or any(map(_is_called, more)):
                return True
            known[:] = own
        return not all(own.keys().isdisjoint(names) for own, names in self._absent)

    def contains(self) -> bool:
        """Return whether the containers hold the same items, and locked arrays are still locked."""
        for container, parts in self._containers:
            if not _are_same(self._parts(container), parts):
                return False
        return not any(array.flags.writeable for array in self._locked)

    def changes(self, scope: Scope) -> list[str]:
        """Return the checks of `holds` and `changed_array` as expressions, true on changes.

        They raise `ValueError` if a cell is empty now.
        """
        name = scope.name
        found = [f"{_source(*pair, scope)} is not {name(pair[1])}" for pair in self._variables]
        found += [f"[*{name(own)}] != {name(known)}" for own, known in self._growing]
        for own, names in self._absent:
            found.append(f"not {name(own.keys())}.isdisjoint({name(names)})")
        if self._containers or self._locked:
            found.append(f"not {name(self.contains)}()")
        if self.arrays:
            found.append(f"{name(self.changed_array)}() is not None")
        return found

    def rebound(self, kind: type = object) -> str | None:
        """Return the name of the first variable that is now bound to another value of a type."""
        found = (variable for variable, _ in self._rebound() if is_a(variable.get(), kind))
        return next((variable.label for variable in found), None)

    def counts(self) -> bool:
        """Return whether all rebound variables were numbers, and still are."""
        return all(
            type(old) in _NUMBERS and type(variable.get()) in _NUMBERS
            for variable, old in self._rebound()
        )

    def change(self) -> str:
        """Describe the first check that fails, for reports."""
        name = self.rebound()
        return f"{name} was rebound" if name else "a captured list or dict has changed"

    def has_twice(self, leaves: Sequence[Any]) -> bool:
        """Return whether an argument occurs twice or is captured, and the function could tell."""
        if not self.identity:
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
        """Return whether a run has changed a container, or added an attribute, that it reads.

        A container that it only appends to, as to a log, is not read.  A memoised function may
        return the same list again, and other code may change the list meanwhile.
        """
        containers = any(
            not _are_same(self._parts(value), parts) and self._is_read(value)
            for value, parts in self._containers
        )
        return (
            containers
            or self._has_more()
            or any(
                f.cache_info().misses != misses and not all(map(_is_constant, results_of(f)[1]))
                for f, misses in self._memories
            )
        )

    def _is_read(self, container: Any) -> bool:
        """Return whether code may read the items of a container, judging by names."""
        variables = [v for v, value in self._variables if value is container]
        names = {text for v in variables if type(text := v.path and v.path[2]) is str}
        if not names or id(container) in self._held:
            return True
        return any(reads(code, name) for code in self._codes for name in names)

    def accept_containers(self) -> None:
        """Take the current items of containers as the unchanged state."""
        self._containers = [(value, self._parts(value)) for value, _ in self._containers]
        for own, known in self._growing:
            known[:] = own


def _source(variable: CapturedInput, old: Any, scope: Scope) -> str:
    """Return an expression for the value of a variable, as fast as possible."""
    holder, name = variable.holder, variable.name
    if type(holder) is CellType and old is not MISSING:
        return f"{scope.name(holder)}.cell_contents"
    if type(holder) is Attributes:
        owner = scope.name(holder.owner)
        if name == "__class__":
            return f"type({owner}())"
        if name == "__dict__":
            return f"{scope.name(object.__getattribute__)}({owner}(), '__dict__')"
        if type(holder.members) is not dict:  # a function or a class
            return f"{scope.name(holder.owner())}.{name}"
    elif type(holder) is dict or is_a(holder, type):
        space = holder if type(holder) is dict else vars(holder)
        default = f", {scope.name(MISSING)}" if old is None or old is MISSING else ""
        return f"{scope.name(space.get)}({scope.text(name)}{default})"
    return f"{scope.name(variable.get)}()"


def _are_same(found: list[Any], parts: list[Any]) -> bool:
    return len(found) == len(parts) and all(map(operator.is_, found, parts))


def _is_constant(value: Any) -> bool:
    """Return whether a value is immutable."""
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    return is_immutable(value) or (is_a(value, np.ndarray) and is_locked(value))


def _untraced(leaf: Any) -> Any:
    if type(leaf) is OpaqueTracer:
        return leaf.known
    return leaf.value if type(leaf) is CaptureTracer else leaf


def _is_called(name: str) -> bool:
    """Return whether Python may call a method of this name implicitly."""
    return name[:2] == name[-2:] == "__" and name not in _NOTES


class RandomStates:
    """The states of some random generators, and of the global ones of NumPy and Python."""

    def __init__(self, generators: Iterable[Any]) -> None:
        everywhere: Any = {"np.random": np.random.mtrand._rand, "random": random._inst}
        own = [(f"a {type(generator).__name__}", generator) for generator in generators]
        self._states = [(name, g, _state(g)) for name, g in [*everywhere.items(), *own]]

    def changed(self) -> str | None:
        """Return the name of a generator that was drawn from since; `None` if there is none."""
        return next((name for name, g, before in self._states if _state(g) != before), None)


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
