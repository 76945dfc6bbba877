"""Division of a batch whose examples take different branches of Python control flow.

A *guard* is where Python control flow converts a traced value to a truth value or an integer, and
its *outcome* is the result.  The function runs once for each sub-batch of examples that have the
same outcomes.  In eager mode a sub-batch consists of these examples alone.

Under `jit`, which examples have an outcome differs from call to call.  A sub-batch is then as large
as the batch, with a mask: the examples that are not part of it are filled with a copy of one that
is, and their results are discarded.  So each branch runs only on examples that take it, the program
depends on which outcomes occur but not on which examples have them, and ``where`` joins the
results.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, stop_gradient

__all__ = ["SubBatch", "distinct_integers", "join", "summarize_truths", "take_examples"]

# Masked sub-batches are as large as the batch, so only a few are faster than a division by
# examples: this many of any size, or as many as have so many examples together.
_MOST_CHILDREN = 4
_MOST_EXAMPLES = 1024
_LARGEST = 1 << 53  # integers up to this are exact in float64


def summarize_truths(value: Any) -> int:
    """Summarise truth values: 0 if all are false, 2 if all are true, else 1."""
    count = np.count_nonzero(value)
    return 0 if not count else 2 if count == np.size(value) else 1


def distinct_integers(value: Any) -> list[int]:
    """Return the sorted distinct integers in an array; none if one exceeds 2**53."""
    found = sorted({int(element) for element in np.ravel(value).tolist()})
    return found if max(map(abs, found), default=0) < _LARGEST else []


class SubBatch:
    """Examples of a batch whose guards have had the same outcomes so far.

    Parameters
    ----------
    chosen
        The indices of the batch's examples that may belong to it.
    fixed
        Whether the same examples have the same outcomes in every run of a captured program.

    Attributes
    ----------
    children
        The sub-batches it is divided into, if its examples have disagreed; else `None`.
    needs_examples
        Whether a mask cannot express its division, so that its root has to be divided by examples.
    mask
        Which of the chosen examples belong to it: traced truth values; `None` if all do.
    """

    __slots__ = (
        *("_first", "_guard", "_outcomes", "_position", "_root", "_thread"),
        *("children", "chosen", "fixed", "mask", "needs_examples"),
    )

    def __init__(self, chosen: Any, fixed: bool = False) -> None:
        self.chosen = chosen
        self.fixed = fixed
        self.children: list[SubBatch] | None = None
        self.needs_examples = False
        self.mask: Any = None
        self._first: Any = None  # the index of the first example that belongs to it
        self._root: SubBatch | None = None  # of one with a mask: its ancestor without
        self._outcomes: list[tuple[Any, Any]] = []  # guards and outcomes, in order
        self._position = 0  # how many of these this run has passed
        self._thread = threading.get_ident()  # another thread may pass guards in another order

    @property
    def root(self) -> "SubBatch":
        """The ancestor without a mask."""
        return self._root or self

    def _masked(self, mask: Any, known: list[Any]) -> "SubBatch":
        """Return the examples of this sub-batch where ``mask`` holds."""
        part = SubBatch(self.chosen)
        part._root = self.root
        part.mask = mask if self.mask is None else ops.logical_and(self.mask, mask)
        part._first = ops.argmax(part.mask, keepdims=True)
        part._outcomes = known
        return part

    def examples(self, values: Any, size: int) -> Any:
        """Return its examples of a batch; those outside of the mask are copies of one inside.

        No gradient flows to the copies: it would be zero, except that 0 times infinity is NaN.
        """
        if len(self.chosen) < size:
            values = take_examples(values, self.chosen)
        return self._filled(values)

    def _filled(self, values: Any) -> Any:
        if self.mask is None:
            return values
        instead = stop_gradient(ops.take(values, self._first, axis=0))
        return ops.where(_broadcast_mask(self.mask, values), values, instead)

    def own_values(self, values: Any) -> Any:
        """Return the values of its own examples, and zeros for those outside of the mask."""
        return (
            values
            if self.mask is None
            else ops.where(_broadcast_mask(self.mask, values), values, 0)
        )

    def is_captured(self, values: Any) -> bool:
        """Whether the outcomes for each example may differ between runs of a captured program."""
        return not self.fixed and (self.mask is not None or _is_recorded(values))

    def outcomes(self, values: Any, kind: Any) -> list[Any]:
        """Return the distinct outcomes of a guard, and divide the batch if there are several.

        The list is empty if the examples cannot be divided by masks.
        """
        if self.mask is not None and _is_cut(self.mask):
            self.needs_examples = True  # the outcomes of later guards are plain values
            return []
        if self._is_own_thread and self._position < len(self._outcomes):
            before, outcome = self._outcomes[self._position]
            if before is kind:
                self._position += 1
                return [outcome]
            self._position = len(self._outcomes)  # an inner batch has other guards: evaluate again
        if not _is_recorded(values):
            values = self._filled(values)
        find = _SPLITTERS.get(kind)
        outcomes, masks = find(values) if find else ([], [])
        if len(outcomes) == 1:
            self.record(outcomes[0], kind)
        if len(outcomes) > 1 and self.children is None:
            if self.mask is None:
                self._guard = values, kind
            self.children = [
                self._masked(
                    mask, [*self._outcomes, *([(kind, outcome)] if self._is_own_thread else [])]
                )
                for outcome, mask in zip(outcomes, masks, strict=True)
            ]
        return outcomes

    def record(self, outcome: Any, kind: Any) -> None:
        """Record the common outcome of a guard, for sub-batches that run past it again.

        They pass the same guards in the same order, so every guard is recorded, also one whose
        outcome is the same in each run.
        """
        if self._is_own_thread:
            self._outcomes.append((kind, outcome))
            self._position = len(self._outcomes)

    @property
    def _is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def agrees(self, outcomes: list[Any], kind: Any) -> bool:
        """Whether all examples have one outcome; if not, divide by their present outcomes."""
        # Numbers are compared by their text, so that NaN equals NaN and -0.0 differs from 0.0.
        keys = outcomes if kind in (bool, int) else list(map(repr, outcomes))
        if keys.count(keys[0]) == len(keys):
            return True
        if self.mask is not None:
            self.needs_examples = True
        elif self.children is None:
            array = np.array(keys)
            self.children = [
                SubBatch(self.chosen[array == key], self.fixed) for key in np.unique(array)
            ]
        return False

    @property
    def is_divided(self) -> bool:
        """Whether its examples disagree, or cannot run together."""
        return self.children is not None or self.needs_examples

    @property
    def is_used(self) -> bool:
        """Whether its root has not been divided by examples since."""
        return self.mask is None or not self.root.fixed

    def is_worthwhile(self, others: "Sequence[SubBatch]") -> bool:
        """Whether masked sub-batches, each as large as the root, are few enough."""
        if self.needs_examples:
            return False
        count = sum(part.mask is not None and part.root is self.root for part in others)
        return count <= _MOST_CHILDREN or count * len(self.chosen) <= _MOST_EXAMPLES

    def split_by_examples(self, outcomes_of: Callable[..., list[Any]]) -> "list[SubBatch]":
        """Divide by examples at the first guard, whose outcomes are taken as fixed."""
        self.fixed, self.children = True, None
        values, kind = self._guard
        self.agrees(outcomes_of(values, len(self.chosen), kind), kind)
        return self.children or []


def _is_recorded(value: Any) -> bool:
    """Whether a guard on a value is recorded, for runs with other values."""
    while isinstance(value, Tracer):
        if value._trace.records:
            return True
        value = value.value
    return False


def _is_cut(mask: Any) -> bool:
    """Whether the capture that divides examples by masks has ended before the run."""
    while isinstance(mask, Tracer):
        if mask._trace.records:
            return mask._trace.cut
        mask = mask.value
    return True  # it ended while this mask was computed


def _decide(values: Any, kind: Callable[[Any], Any]) -> Any:
    """Evaluate a guard on a whole batch; after the end of a capture its values are plain arrays."""
    return values._trace.decide(values, kind) if isinstance(values, Tracer) else kind(values)


def _split_truths(values: Any) -> tuple[list[bool], list[Any]]:
    """Return the outcomes that occur, and for each the mask of its examples."""
    yes = ops.astype(values, bool)
    outcome = _decide(yes, summarize_truths)
    if outcome != 1:
        return [outcome == 2], [None]
    return [False, True], [ops.logical_not(yes), yes]


def _split_integers(values: Any) -> tuple[list[int], list[Any]]:
    if isinstance(values, Tracer) and not values._trace.records:  # of an outer batch
        return [], []
    outcomes = _decide(values, distinct_integers)
    if values.dtype.kind == "b":
        values = ops.astype(values, np.int64)
    elif values.dtype.kind == "f":
        values = ops.trunc(values)
    return outcomes, [ops.equal(values, outcome) for outcome in outcomes]


_SPLITTERS: dict[Any, Callable[[Any], tuple[list[Any], list[Any]]]] = {
    bool: _split_truths,
    int: _split_integers,
}


def join(values: Sequence[tuple[SubBatch, Any]]) -> Any:
    """Join the values of all sub-batches, in the order of the batch's examples."""
    groups: dict[SubBatch, Any] = {}
    for part, own in values:
        before: Any = groups.get(part.root)
        new = before is None
        groups[part.root] = own if new else ops.where(_broadcast_mask(part.mask, own), own, before)
    if len(groups) == 1:
        return next(iter(groups.values()))
    order = np.argsort(np.concatenate([part.chosen for part in groups]))
    return take_examples(ops.concat(list(groups.values())), order)


def _broadcast_mask(mask: Any, values: Any) -> Any:
    """Return a mask of examples with trailing axes of length 1, as many as their values have."""
    return ops.reshape(mask, (*mask.shape, *(1,) * (len(values.shape) - 1)))


def take_examples(values: Any, chosen: Any) -> Any:
    """Return some of a batch's examples; ``chosen`` is a NumPy array of their indices."""
    return ops.take(values, array_module(values).asarray(chosen), axis=0)
