"""Detection of repetition in a program: stretches of steps with a period.

Each step gets a number for what it does, regardless of its variables: equal steps have equal
numbers.  The numbers ignore what differs between the iterations of a loop, such as the integers in
a key.  In the sequence of numbers, a loop is a stretch with a period.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.ir.program import Guard, Instruction, Step, has_effect, kind_of
from fdbr.compiler.passes.cse import Identities

__all__ = ["Stretch", "looks_of", "stretches"]

_WIDTHS = 1, 4, 16  # lengths of the subsequences whose recurrence suggests periods
_MOST = 24  # periods that are tried; each costs a pass over the sequence


@attrs.frozen
class Stretch:
    """A periodic stretch of steps.

    Attributes
    ----------
    start, stop
        The first step, and the one after the last.
    period
        The distance at which steps are equal.
    """

    start: int
    stop: int
    period: int

    @property
    def iterations(self) -> int:
        """The number of periods in it."""
        return (self.stop - self.start) // self.period

    @property
    def saved(self) -> int:
        """The number of steps that a loop saves."""
        return (self.iterations - 1) * self.period


class _Looks:
    """Numbers of steps, equal for steps that do the same."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._kinds: dict[int, int] = {}
        self._held: list[Any] = []
        self._identities = Identities()

    def number(self, key: Any) -> int:
        """Return the number of a key."""
        return self._numbers.setdefault(key, len(self._numbers))

    def kind(self, value: Any) -> int:
        """Return the number of a value's aval."""
        kind = kind_of(value)
        found = self._kinds.get(id(kind))
        if found is None:
            self._held.append(kind)  # keeps it alive, as its id is the key
            found = self._kinds[id(kind)] = self.number(kind)
        return found

    def of_step(self, step: Step) -> int:
        """Return the number of a step; a unique one for steps that no loop may contain."""
        if type(step) is Guard:
            return self.number((step.question, repr(step.answer), self.kind(step.operand)))
        if type(step) is not Instruction or has_effect(step):
            return self.number(id(step))
        values = *step.operands, *step.outs
        if not all(_is_plain(kind_of(value).type) for value in values):
            return self.number(id(step))
        kinds = [self.kind(value) for value in values]
        params: list[Any] = []
        for name, value in step.params.items():
            key = _shape_of_key(value) if name == "key" else self._identities.of_value(value)
            params.append((name, key))
        marks = len(step.operands), bool(step.remat)
        return self.number((step.primitive, *marks, *kinds, *params))


@functools.cache
def _is_plain(kind: type) -> bool:
    return issubclass(kind, np.ndarray | np.generic) or kind in (bool, int, float, complex)


def _shape_of_key(key: Any) -> Any:
    """Return the structure of a key without its integers."""
    if type(key) is tuple:
        return tuple(map(_shape_of_key, key))
    if type(key) is slice:
        return slice, key.step
    return type(key)


def looks_of(steps: Sequence[Step]) -> Any:
    """Return an array of the numbers of steps."""
    looks = _Looks()
    return np.array(list(map(looks.of_step, steps)), np.int64)


def stretches(numbers: Any) -> Iterator[Stretch]:
    """Yield the periodic stretches, those that save most first."""
    found = []
    for period in _periods(numbers):
        same = numbers[period:] == numbers[:-period]
        edges = np.flatnonzero(np.diff(same, prepend=False, append=False))
        for start, stop in edges.reshape(-1, 2).tolist():
            if stop - start >= period:
                found.append(Stretch(start, stop + period, period))
    return iter(sorted(found, key=lambda stretch: (-stretch.saved, stretch.period)))


def _periods(numbers: Any) -> list[int]:
    """Return the most frequent distances between equal subsequences, and their doubles."""
    counts: Counter[int] = Counter()
    for width in _WIDTHS:
        if len(numbers) < 2 * width:
            break
        parts = np.lib.stride_tricks.sliding_window_view(numbers, width)
        weights = np.random.default_rng(0).integers(1, 1 << 62, width, dtype=np.int64)
        with np.errstate(over="ignore"):
            codes = (parts * weights).sum(axis=1)
        order = np.argsort(codes, kind="stable")
        again = codes[order[1:]] == codes[order[:-1]]
        distances, many = np.unique((order[1:] - order[:-1])[again], return_counts=True)
        best = np.argsort(-many, kind="stable")[:_MOST]
        for distance, count in zip(distances[best].tolist(), many[best].tolist(), strict=True):
            counts[distance] += count
    periods = [period for period, _ in counts.most_common(_MOST)]
    doubles = [2 * period for period in periods if 4 * period <= len(numbers)]
    return list(dict.fromkeys([*periods, *doubles]))
