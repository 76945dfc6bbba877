"""Batched runs of graphs: examples take their own paths, and run blocks together where they meet.

A block always runs for the whole batch.  Examples that are at another block are filled with a copy
of one that is at this block, so the block never sees values that do not reach it.  A register has
a value for each example, written by the last block that the example ran.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.ir.guards import GuardFailure
from fdbr.control_flow.body_tracing import Body, stage
from fdbr.control_flow.operands import for_each, scalar
from fdbr.control_flow.traced.discovery import answer_key
from fdbr.control_flow.traced.graphs import NOWHERE, Block, Graph, UnknownWay
from fdbr.transforms.vmap import on_batch

__all__ = [
    *("Lane", "Lanes", "LanesPath", "is_apart", "run_lanes", "batched_body"),
    "filled",
    "filled_with_zeros",
    "kept",
]

_MOST = 1024  # batch size up to which examples run one by one: no vectors, but no masked blocks

Leaves = Sequence[Any]
Lane = tuple[Block, Any, Leaves, tuple[bool, ...]]
"""A block, the mask of examples at it, its operands, and which of them are batched."""


class LanesPath:
    """The blocks that a batch has run; a value in programs.

    Attributes
    ----------
    steps
        The blocks, if examples ran them together.
    logs
        The log of each example, if examples ran one by one.
    """

    __slots__ = ("logs", "steps")

    shape = ()
    dtype = np.dtype(object)

    def __init__(self) -> None:
        self.steps: list[Lane] = []
        self.logs: list[Any] = []


def run_lanes(
    graph: Graph,
    operands: Leaves,
    own: Sequence[bool],
    size: int,
    path: LanesPath | None,
    capturing: bool,
) -> list[Any]:
    """Run a graph for a batch; return the batched results."""
    if is_apart(graph, size):
        found = graph.machine.forward_apart(operands, own, size, path)
        if found is not None:
            return found
    with graph.machine.accounting():
        return Lanes(graph, operands, own, size, path).run(capturing)


def is_apart(graph: Graph, size: int) -> bool:
    """Return whether machine code runs the graph for one example after the other."""
    return 0 < size <= _MOST and not graph.machine.refused


def filled(value: Any, mask: Any, first: int) -> Any:
    """Replace the examples outside of a mask by a copy of one inside."""
    return np.where(_spread(mask, value), value, value[first])


def filled_with_zeros(value: Any, mask: Any) -> Any:
    """Replace the examples outside of a mask by zeros."""
    return value if mask.all() else np.where(_spread(mask, value), value, value.dtype.type(0))


def kept(value: Any, mask: Any, old: Any) -> Any:
    """Return a batch with the old values for examples outside of a mask."""
    return value if old is None else np.where(_spread(mask, value), value, old)


def _spread(mask: Any, value: Any) -> Any:
    return mask.reshape(mask.shape + (1,) * (value.ndim - 1))


def batched_body(
    block: Block, key: Any, f: Callable[[list[Any]], Leaves], leaves: Leaves, own: Leaves, size: int
) -> Body:
    """Return a function of one example's leaves as a program for a batch of them."""
    kinds = tuple([getattr(leaf, "dtype", type(leaf)) for leaf in leaves])
    known: Body | None = block.backs.get(("batch", key, size, own, kinds))
    if known is not None:
        return known

    def batched(given: list[Any]) -> list[Any]:
        outs, mine = on_batch(f, size, given, own)
        return [out if one else for_each(out, size) for out, one in zip(outs, mine, strict=True)]

    made = stage(batched, list(leaves))
    made.waits = block.body.waits
    block.backs["batch", key, size, own, kinds] = made
    return made


class Lanes:
    """A run of a graph for a batch.

    Parameters
    ----------
    graph
        The graph.
    operands
        Arrays and numbers.
    own
        Which of them are batched.
    size
        The number of examples.
    path
        The record of the blocks that are run, or `None`.
    """

    def __init__(
        self,
        graph: Graph,
        operands: Leaves,
        own: Sequence[bool],
        size: int,
        path: LanesPath | None,
    ) -> None:
        self.graph, self.operands, self.own, self.size = graph, operands, own, size
        self.path = path
        count = graph.registers - graph.inputs
        self.registers: list[Any] = [*map(scalar, operands), *[None] * count]
        self.is_batch = [*own, *[True] * count]
        self.there = np.full(size, graph.blocks.index(graph.first))
        self.left = size
        self.results: list[Any] = []
        self.apart = is_apart(graph, size)

    def run(self, capturing: bool) -> list[Any]:
        """Run the graph, and return the batched results."""
        with np.errstate(all="ignore"):
            while self.left:
                number = self.there[self.there >= 0].min()
                self._block(self.graph.blocks[number], self.there == number, capturing)
        return self.results

    def _block(self, block: Block, mask: Any, capturing: bool) -> None:
        given = [self.registers[i] for i in block.reads]
        own = tuple([self.is_batch[i] for i in block.reads])
        first = int(mask.argmax())
        if self.apart:
            block.visits += int(mask.sum())
            pairs = zip(given, own, strict=True)
            block.body.captured([value[first] if one else value for value, one in pairs])
        if not mask.all():
            given = [
                filled(value, mask, first) if one else value
                for value, one in zip(given, own, strict=True)
            ]
        body = batched_body(block, "run", block.evaluated, given, own, self.size)
        leaves = [*given, *body.found]
        outs = (body.steps(leaves) if self.apart else body.code(leaves).run)(*leaves)
        if self.path is not None:
            self.path.steps.append((block, mask, given, own))
        if block.question is None:
            self.results = [
                kept(out, mask, old)
                for out, old in zip(outs, self.results or [None] * len(outs), strict=True)
            ]
            self.there[mask] = -1
            self.left -= int(mask.sum())
            return
        moved = [self._batch(source) for _, source in block.moves]
        for i, value in zip(block.writes, outs[1:], strict=True):
            self.registers[i] = kept(value, mask, self.registers[i])
        for (i, _), value in zip(block.moves, moved, strict=True):
            self.registers[i] = kept(value, mask, self.registers[i])
        self._go_on(block, mask, outs[0], capturing)

    def _batch(self, register: int) -> Any:
        value = self.registers[register]
        if self.is_batch[register]:
            return value
        return np.broadcast_to(value, (self.size, *np.shape(value)))

    def _go_on(self, block: Block, mask: Any, asked: Any, capturing: bool) -> None:
        """Set the next block of each example by its outcome."""
        asked = np.asarray(asked).reshape(self.size)
        for lane in np.flatnonzero(mask).tolist():
            answer = block.question(asked[lane])
            following = block.nexts.get(answer_key(answer))
            if following is None:
                if not capturing:
                    raise GuardFailure(NOWHERE, answer)
                pairs = zip(self.operands, self.own, strict=True)
                leaves = [value[lane] if own else value for value, own in pairs]
                raise UnknownWay(leaves, lane)
            self.there[lane] = following
