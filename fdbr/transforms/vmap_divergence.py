"""Parts of a batch whose examples answer alike what Python control flow asks.

The examples of a part are run together.  In eager mode a part is what it says: some examples.

Where a batch is captured by `jit`, which examples answer what differs from call to call.  A part
is as large as the batch then: in the places of examples that are not part of it stands another one
that is.  So a branch is run on no example that does not take it, the program depends on *which*
answers there are and not on who gives them, and results are put together by ``where``.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, stop_gradient

__all__ = ["Part", "distinct", "joined", "spread", "take_examples"]

_FEW = 4  # parts that are worth it, each as large as the batch,
_ROWS = 1024  # or as many examples in all parts together
_EXACT = 1 << 53


def spread(value: Any) -> int:
    """Summarise truth values: 0 if all are false, 2 if all are true, else 1."""
    count = np.count_nonzero(value)
    return 0 if not count else 2 if count == np.size(value) else 1


def distinct(value: Any) -> list[int]:
    """The integers in an array, each once and in order; none, if one is too large."""
    found = sorted({int(element) for element in np.ravel(value).tolist()})
    return found if max(map(abs, found), default=0) < _EXACT else []


class Part:
    """Examples of a batch that have answered all questions alike.

    Parameters
    ----------
    chosen
        The numbers of the batch's examples that may be part of it.
    fixed
        Whether in captured programs, too, it is the same examples always that answer alike.

    Attributes
    ----------
    parts
        What it is divided into, if its examples do not agree; else `None`.
    unfit
        Whether what it was divided from had better be divided as if it was fixed.
    mask
        Which of the chosen examples are part of it: traced truth values; `None` if all are.
    """

    __slots__ = (
        *("_asked", "_first", "_known", "_question", "_root", "_thread"),
        *("chosen", "fixed", "mask", "parts", "unfit"),
    )

    def __init__(self, chosen: Any, fixed: bool = False) -> None:
        self.chosen = chosen
        self.fixed = fixed
        self.parts: list[Part] | None = None
        self.unfit = False
        self.mask: Any = None
        self._first: Any = None  # the number of the first example that is part of it
        self._root: Part | None = None  # if it has a mask, the part without one that it is of
        self._known: list[tuple[Any, Any]] = []  # questions and answers, in their order
        self._asked = 0  # of these, in this run
        self._thread = threading.get_ident()  # others may ask in another order the next time

    @property
    def root(self) -> "Part":
        """The part without a mask from which it comes."""
        return self._root or self

    def _masked(self, mask: Any, known: list[Any]) -> "Part":
        """A part of this one."""
        part = Part(self.chosen)
        part._root = self.root
        part.mask = mask if self.mask is None else ops.logical_and(self.mask, mask)
        part._first = ops.argmax(part.mask, keepdims=True)
        part._known = known
        return part

    def examples(self, values: Any, size: int) -> Any:
        """The examples of this part, of a batch; and in between such as stand in for others.

        No derivative goes to the latter: it would be zero, but for zeros times infinity.
        """
        if len(self.chosen) < size:
            values = take_examples(values, self.chosen)
        return self._filled(values)

    def _filled(self, values: Any) -> Any:
        if self.mask is None:
            return values
        instead = stop_gradient(ops.take(values, self._first, axis=0))
        return ops.where(_spread_out(self.mask, values), values, instead)

    def alone(self, values: Any) -> Any:
        """The values of its own examples, and zeros in between."""
        return values if self.mask is None else ops.where(_spread_out(self.mask, values), values, 0)

    def asks(self, values: Any) -> bool:
        """Whether it depends on the run who answers what."""
        return not self.fixed and (self.mask is not None or _is_recorded(values))

    def ask(self, values: Any, kind: Any) -> list[Any]:
        """The different answers of the examples; there is a part for each, if there are several.

        There is no answer at all where examples cannot be divided in this way.
        """
        if self.mask is not None and _is_cut(self.mask):
            self.unfit = True  # what comes now is asked in another way than before
            return []
        if self._is_own and self._asked < len(self._known):
            before, answer = self._known[self._asked]
            if before is kind:
                self._asked += 1
                return [answer]
            self._asked = len(self._known)  # a batch within asks in another way: so ask again
        if not _is_recorded(values):
            values = self._filled(values)
        find = _FINDING.get(kind)
        answers, masks = find(values) if find else ([], [])
        if len(answers) == 1:
            self.note(answers[0], kind)
        if len(answers) > 1 and self.parts is None:
            if self.mask is None:
                self._question = values, kind
            self.parts = [
                self._masked(mask, [*self._known, *([(kind, answer)] if self._is_own else [])])
                for answer, mask in zip(answers, masks, strict=True)
            ]
        return answers

    def note(self, answer: Any, kind: Any) -> None:
        """Keep the one answer to a question, for parts of this that are asked it again.

        They are asked the same in the same order, so no question may be left out: also one of
        values that are the same in each run.
        """
        if self._is_own:
            self._known.append((kind, answer))
            self._asked = len(self._known)

    @property
    def _is_own(self) -> bool:
        return threading.get_ident() == self._thread

    def agrees(self, answers: list[Any], kind: Any) -> bool:
        """Whether the examples' answers are one; if not, it is divided as they are now."""
        # Numbers are the same if they are written the same: NaN is NaN, and -0.0 is not 0.0.
        keys = answers if kind in (bool, int) else list(map(repr, answers))
        if keys.count(keys[0]) == len(keys):
            return True
        if self.mask is not None:
            self.unfit = True
        elif self.parts is None:
            array = np.array(keys)
            self.parts = [Part(self.chosen[array == key], self.fixed) for key in np.unique(array)]
        return False

    @property
    def is_divided(self) -> bool:
        """Whether its examples do not agree, or cannot be run together."""
        return self.parts is not None or self.unfit

    @property
    def is_used(self) -> bool:
        """Whether what it is divided from was not divided in another way since."""
        return self.mask is None or not self.root.fixed

    def pays(self, parts: "Sequence[Part]") -> bool:
        """Whether to have all these parts, each as large as what it is divided from."""
        if self.unfit:
            return False
        count = sum(part.mask is not None and part.root is self.root for part in parts)
        return count <= _FEW or count * len(self.chosen) <= _ROWS

    def divided_anew(self, answers_of: Callable[..., list[Any]]) -> "list[Part]":
        """The division by the first question, if the same examples always answer alike."""
        self.fixed, self.parts = True, None
        values, kind = self._question
        self.agrees(answers_of(values, len(self.chosen), kind), kind)
        return self.parts or []


def _is_recorded(value: Any) -> bool:
    """Whether control flow that asks for a value is recorded, for other values to come."""
    while isinstance(value, Tracer):
        if value._trace.records:
            return True
        value = value.value
    return False


def _is_cut(mask: Any) -> bool:
    """Whether the capture for which examples were divided has come to its end before the run."""
    while isinstance(mask, Tracer):
        if mask._trace.records:
            return mask._trace.cut
        mask = mask.value
    return True  # while this was computed


def _decided(values: Any, kind: Callable[[Any], Any]) -> Any:
    """An answer about a batch; a capture may have been cut off, and left plain arrays."""
    return values._trace.decide(values, kind) if isinstance(values, Tracer) else kind(values)


def _truths(values: Any) -> tuple[list[bool], list[Any]]:
    """The answers that there are, and for each which examples give it."""
    yes = ops.astype(values, bool)
    answer = _decided(yes, spread)
    if answer != 1:
        return [answer == 2], [None]
    return [False, True], [ops.logical_not(yes), yes]


def _integers(values: Any) -> tuple[list[int], list[Any]]:
    if isinstance(values, Tracer) and not values._trace.records:  # but one of a batch of batches
        return [], []
    answers = _decided(values, distinct)
    if values.dtype.kind == "b":
        values = ops.astype(values, np.int64)
    elif values.dtype.kind == "f":
        values = ops.trunc(values)
    return answers, [ops.equal(values, answer) for answer in answers]


_FINDING: dict[Any, Callable[[Any], tuple[list[Any], list[Any]]]] = {
    bool: _truths,
    int: _integers,
}


def joined(values: Sequence[tuple[Part, Any]]) -> Any:
    """The examples of all parts, in their order."""
    groups: dict[Part, Any] = {}
    for part, own in values:
        before = groups.get(part.root)
        new = before is None
        groups[part.root] = own if new else ops.where(_spread_out(part.mask, own), own, before)
    if len(groups) == 1:
        return next(iter(groups.values()))
    order = np.argsort(np.concatenate([part.chosen for part in groups]))
    return take_examples(ops.concat(list(groups.values())), order)


def _spread_out(mask: Any, values: Any) -> Any:
    """A mask of examples, with as many axes as their values have."""
    return ops.reshape(mask, (*mask.shape, *(1,) * (len(values.shape) - 1)))


def take_examples(values: Any, chosen: Any) -> Any:
    """Some of a batch's examples; ``chosen`` is a NumPy array of their numbers."""
    return ops.take(values, array_module(values).asarray(chosen), axis=0)
