"""Averages that are made while the next step computes: double buffering."""

from collections.abc import Callable
from typing import Any

import optree

from fdbr.core.array_modules import lock
from fdbr.distributed.gradients.averaging import Averaging, averaged
from fdbr.distributed.gradients.buckets import buckets
from fdbr.distributed.gradients.steps import begin_bucket, begin_round, programs_around, wait_for
from fdbr.distributed.gradients.weights import weight_of
from fdbr.distributed.primitives import as_array
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import flatten, map, trainable, unflatten
from fdbr.train.optim.leafwise import zeros

__all__ = ["Average", "begun", "nothing"]


class Average:
    """A tree of gradients, averaged over the ranks, which may still be on its way.

    It is a node of trees, with that tree below it: whoever asks for its leaves (a snapshot, a
    jitted function) waits for them, and gets arrays.
    """

    __slots__ = ("__weakref__", "_arriving", "_tree")

    def __init__(self, tree: Any = None, arriving: Callable[[], Any] | None = None) -> None:
        self._tree = tree
        self._arriving = arriving

    @property
    def tree(self) -> Any:
        """The gradients, when they are there."""
        arriving = self._arriving
        if arriving is not None:
            self._tree = arriving()
            self._arriving = None
        return self._tree

    def __repr__(self) -> str:
        return f"Average({'on its way' if self._arriving is not None else repr(self._tree)})"


def _apart(average: Any) -> Any:
    return (average.tree,), None, ("tree",)


def _again(_: Any, children: Any) -> Any:
    return Average(next(iter(children)))


_node: Any = Average
optree.register_pytree_node(
    _node,
    _apart,
    _again,
    namespace=NAMESPACE,
)


def nothing(params: Any) -> Average:
    """The average of no gradients: zeros."""
    return Average(map(lambda leaf: lock(zeros(leaf)), trainable(params)))


def begun(how: Averaging, grads: Any, weight: Any) -> Average:
    """The average of gradients, made in the background; at once in a program, or traced."""
    leaves, structure = flatten(grads)
    how = how.of(structure)
    around = programs_around()
    if around is None:
        return Average(unflatten(structure, averaged(how, leaves, weight)))
    mine = None if weight is None else weight_of(how.name, weight)
    number = begin_round(around, how, mine)
    groups = buckets(leaves, how.bytes)
    parts = [[as_array(how.call(), leaves[i]) for i in group] for group in groups]
    numbers = [begin_bucket(around, number, part) for part in parts]

    def arrive() -> Any:
        found: list[Any] = [None] * len(leaves)
        for group, one, kinds in zip(groups, numbers, parts, strict=True):
            for i, mean in zip(group, wait_for(around, one, kinds), strict=True):
                found[i] = mean
        return unflatten(structure, found)

    return Average(arrive()) if around else Average(arriving=arrive)
