"""What a function uses that is no argument: the variables, containers and arrays around it.

A recording holds as long as they are what they were.
"""

import collections
import operator
import random
from collections.abc import Iterable
from types import CellType
from typing import Any

import numpy as np

from fdbr.backend import is_locked
from fdbr.compiler.capture.constants import first_changed, snapshot
from fdbr.compiler.capture.free_variables import Reach
from fdbr.compiler.capture.paths import Scope
from fdbr.core import Tracer

__all__ = ["Environment", "ImpureError", "RandomStates"]

_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_CONTAINERS = (dict, list, set, collections.deque)


class ImpureError(RuntimeError):
    """A function under `jit` depends on, or changes, something that is no argument."""


class Environment:
    """What is around a function, and how it was.

    Parameters
    ----------
    roots
        The function, and what else is to be watched: types and static leaves of its arguments.

    Attributes
    ----------
    arrays
        The arrays among what variables are bound to that somebody can write to, with copies.
    generators
        The random generators that it can reach.
    traced
        Whether there is a traced value of a transformation around it.
    """

    __slots__ = ("_cells", "_containers", "_names", "_variables", "arrays", "generators", "traced")

    def __init__(self, roots: Iterable[Any]) -> None:
        reach = Reach(roots)
        # Flat, for they are looked through at every call.
        self._variables = [
            (space.get, name, space.get(name))
            for _, space, names in reach.spaces.values()
            for name in names
        ]
        self._cells = [(cell, cell.cell_contents) for _, cell in reach.cells.values()]
        self._containers = [
            (value, _inside(value)) for value in reach.values if isinstance(value, _CONTAINERS)
        ]
        self.arrays = [
            (array, snapshot(array)) for array in reach.arrays.values() if not is_locked(array)
        ]
        # What messages call the variables, and then the cells.
        self._names = [
            f"{label}{name}" for label, _, names in reach.spaces.values() for name in names
        ]
        self._names += [name for name, _ in reach.cells.values()]
        self.generators = [value for value in reach.values if _is_generator(value)]
        self.traced = any(isinstance(value, Tracer) for value in reach.values)

    def holds(self) -> bool:
        """Whether all is bound as it was, and the containers hold what they held."""
        for get, name, value in self._variables:
            if get(name) is not value:
                return False
        for cell, value in self._cells:
            if _contents(cell) is not value:
                return False
        return self.contains()

    def contains(self) -> bool:
        """Whether the containers hold what they held."""
        for container, parts in self._containers:
            found = _inside(container)
            if len(found) != len(parts) or not all(map(operator.is_, found, parts)):
                return False
        return True

    def changes(self, scope: Scope) -> list[str]:
        """What `holds` and `changed_array` ask, as expressions that are true of what changed.

        They raise `ValueError` where a cell is empty now.
        """
        name = scope.name
        found = [f"{name(get)}({key!r}) is not {name(old)}" for get, key, old in self._variables]
        found += [f"{name(cell)}.cell_contents is not {name(old)}" for cell, old in self._cells]
        if self._containers:
            found.append(f"not {name(self.contains)}()")
        if self.arrays:
            found.append(f"{name(self.changed_array)}() is not None")
        return found

    def rebound(self, kind: type = object) -> str | None:
        """What messages call the first variable that is bound to something else of a kind now."""
        now = [get(name) for get, name, _ in self._variables]
        now += [_contents(cell) for cell, _ in self._cells]
        before = [value for _, _, value in self._variables]
        before += [value for _, value in self._cells]
        for name, value, old in zip(self._names, now, before, strict=True):
            if value is not old and isinstance(value, kind):
                return name
        return None

    def change(self) -> str:
        """What does not hold any more, for reports."""
        name = self.rebound()
        return f"{name} was bound anew" if name else "a list or dict around it has changed"

    def changed_array(self) -> Any:
        """An array whose elements are not what they were; `None` if there is none."""
        return first_changed(self.arrays)

    def keeper(self) -> str | None:
        """What messages call a variable or container that holds a traced value only now."""
        name = self.rebound(Tracer)
        if name is None and any(
            isinstance(part, Tracer) and not any(part is one for one in before)
            for value, before in self._containers
            for part in _inside(value)
        ):
            return "a list or dict around it"
        return name

    def settle(self) -> None:
        """Take the containers as they are now."""
        self._containers = [(value, _inside(value)) for value, _ in self._containers]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is bound to it any more
        return None


def _inside(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [*container, *container.values()]
    return list(container)


def _is_generator(value: Any) -> bool:
    """Whether it is a random generator with a state; the system's has none."""
    return isinstance(value, _GENERATORS) and not isinstance(value, random.SystemRandom)


class RandomStates:
    """The states of the random generators that a function can reach without an argument.

    Parameters
    ----------
    generators
        Those in sight; the modules' own ones belong to everybody.
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
        """What messages call a generator that was drawn from since; `None` if there is none."""
        names = ["np.random", "random", *(f"a {type(g).__name__}" for g in self._generators)]
        for name, before, now in zip(names, self._states, self._read(), strict=True):
            if before != now:
                return name
        return None


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    return _plain(generator.bit_generator.state)


def _plain(state: Any) -> Any:
    """A nest of dicts with arrays, as a value that can be compared."""
    if isinstance(state, dict):
        return {name: _plain(part) for name, part in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state
