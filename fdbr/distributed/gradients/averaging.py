"""The average over ranks of gradients, here and now, under whatever transformations."""

from collections.abc import Sequence
from typing import Any

import attrs
from optree import PyTreeSpec

from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.gradients.buckets import buckets
from fdbr.distributed.gradients.weights import factor_of, weighted_there
from fdbr.distributed.primitives import communicate
from fdbr.distributed.structures import text_of
from fdbr.errors.lines import caller

__all__ = ["Averaging", "averaged"]


@attrs.frozen
class Averaging:
    """The way in which gradients are averaged.

    Attributes
    ----------
    name
        The public function, for messages.
    comm
        The ranks.
    bytes
        How many go in one bucket.
    wire
        The dtype in which floating numbers travel; empty for their own.
    structure
        That of the tree of gradients, as a text; empty if it is not compared.
    """

    name: str
    comm: Communicator
    bytes: int
    wire: str
    structure: str = ""

    def of(self, structure: PyTreeSpec) -> "Averaging":
        """The same for a tree of that structure."""
        return attrs.evolve(self, structure=text_of(structure))

    def call(self) -> Call:
        """The collective of one bucket, for the line of the program that asks."""
        structure, wire = self.structure, self.wire
        return Call("all_reduce", "mean", wire=wire, structure=structure, where=caller())


def averaged(how: Averaging, leaves: Sequence[Any], weight: Any) -> list[Any]:
    """The averages of some gradients, one after the other bucket.

    Parameters
    ----------
    how
        How.
    leaves
        Arrays, numbers or traced values.
    weight
        How many examples this rank has; `None` for equal shares.
    """
    if weight is not None:
        factor = factor_of(how.name, weight, how.comm)
        leaves = [weighted_there(leaf, factor) for leaf in leaves]
    found: list[Any] = [None] * len(leaves)
    call = how.call()
    for positions in buckets(leaves, how.bytes):
        means = communicate(call, how.comm, [leaves[i] for i in positions])
        assert means is not None
        for i, mean in zip(positions, means, strict=True):
            found[i] = mean
    return found
