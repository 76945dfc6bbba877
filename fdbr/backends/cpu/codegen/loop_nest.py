"""Loop nests: what a kernel computes, and the order in which it does.

The extents of loops are arguments of kernels, so one kernel serves arrays of all sizes.
"""

import ast
from typing import Any, NamedTuple

import numpy as np

from fdbr.core.expr import Graph, Node, every

__all__ = ["Access", "LoopNest", "Schedule", "Total", "read", "text_of"]

_PANEL = 4  # vectors of neighbouring results, at most, so that their totals stay in registers

_NARROW = 4  # vectors of a row below which one more counts


class Access(NamedTuple):
    """Describe how an operand is read.

    Attributes
    ----------
    dtype
        The dtype of the elements.
    axes
        A character for each loop: ``"-"`` if the operand is the same in all iterations, ``"c"`` if
        the distance of its elements is the number of elements that the later loops read, and
        ``"s"`` if the distance is an argument of the kernel.
    """

    dtype: Any
    axes: str


class Total(NamedTuple):
    """Describe a reduction whose result keeps other loops than the results of the nest do.

    Each thread has its own, which are reduced afterwards.

    Attributes
    ----------
    how
        ``"sum"``, ``"max"`` or ``"min"``.
    node
        What is reduced.
    left
        For each loop, whether it is not reduced.
    """

    how: str
    node: Node
    left: tuple[bool, ...]


class LoopNest(NamedTuple):
    """Describe nested loops over the elements of operands.

    Attributes
    ----------
    kept
        For each loop, outermost first, whether results have an axis for it; others are reduced.
    operands
        How the operands are read, in the order of the nodes' numbers.
    outs
        The nodes of the results: their elements are stored for each iteration of all loops if they
        depend on a reduced one or if there is none, and otherwise of the loops that are kept.
    conditions
        Nodes that must be true for all elements; the kernel reports whether they are.
    totals
        Reductions along other loops, which no node depends on.
    broadcast
        The numbers of the results that are stored for each iteration of all loops, although they
        depend on no reduced one.
    streamed
        The numbers of the results that are written past the caches, by non-temporal stores.
    """

    kept: tuple[bool, ...]
    operands: tuple[Access, ...]
    outs: tuple[Node, ...]
    conditions: tuple[Node, ...] = ()
    totals: tuple[Total, ...] = ()
    broadcast: frozenset[int] = frozenset()
    streamed: frozenset[int] = frozenset()


class Schedule(NamedTuple):
    """Describe the order of iterations.

    A kernel computes *units*, which threads share: an iteration of the loops that are kept, without
    the vectorised loop.  A unit does all iterations of that one, or a *panel* of adjacent ones.

    Attributes
    ----------
    vector
        The number of the loop whose iterations are the lanes of vectors.
    panel, tail
        The vectors of a panel, and of the last one if it is shorter, or else 0; both are 0 if a
        unit does the whole loop.
    masked
        Whether the loop may be shorter than a vector; of panels, whether the last vector of the
        tail is not full.
    exact
        Whether sums are compensated for rounding (Kahan), as those of many elements must be.
    ragged
        Whether the vectorised loop of the last unit may be shorter: its iterations in all units
        together are an argument of the kernel.
    short
        Whether sums are compensated only after each vectorised loop that is reduced.
    half
        Whether vectors are half as long, because the last ones would be nearly empty.
    few
        Whether the vectorised loop has so few vectors that one total suffices.
    rest
        The lanes of the last vector of the vectorised loop if it is not full, or 0; -1 if that is
        known only when the kernel runs.
    """

    vector: int
    panel: int = 0
    tail: int = 0
    masked: bool = True
    exact: bool = False
    ragged: bool = False
    half: bool = False
    short: bool = False
    few: bool = False
    rest: int = -1

    def panelled(self, extent: int, lanes: int) -> tuple["Schedule", int]:
        """Return the schedule with panels for a vectorised loop, and the number of panels."""
        half = extent < _NARROW * lanes and 0 < extent % lanes <= lanes // 2
        lanes //= 2 if half else 1
        panel = min(2 * _PANEL if half else _PANEL, -(-extent // lanes))
        whole, rest = divmod(extent, panel * lanes)
        tail = -(-rest // lanes)
        schedule = self._replace(
            panel=panel if whole else 0, tail=tail, masked=rest % lanes != 0, half=half
        )
        return schedule, whole + (tail > 0)


def text_of(nest: LoopNest, schedule: Schedule) -> str:
    """Return a nest and a schedule as text, which is the same for equal ones."""
    nodes = every([*nest.outs, *nest.conditions, *[total.node for total in nest.totals]])
    order = {node: i for i, node in enumerate(nodes)}
    lines = [
        (node.op, node.dtype.str, tuple([order[arg] for arg in node.args]), _detail(node))
        for node in nodes
    ]
    roots = [tuple([order[node] for node in part]) for part in (nest.outs, nest.conditions)]
    totals = [(total.how, order[total.node], total.left) for total in nest.totals]
    operands = [(access.dtype.str, access.axes) for access in nest.operands]
    numbers = sorted(nest.broadcast), sorted(nest.streamed)
    whole = nest.kept, operands, lines, roots, totals, *numbers, tuple(schedule)
    return f"nest{whole!r}"


def _detail(node: Node) -> Any:
    if node.op != "constant":
        return node.detail
    number = node.detail[0]
    return number.hex() if isinstance(number, float) else number


def read(text: str) -> tuple[LoopNest, Schedule]:
    """Return the nest and the schedule that a text describes."""
    found = ast.literal_eval(text.removeprefix("nest"))
    kept, operands, lines, (outs, conditions), totals, broadcast, streamed, schedule = found
    graph, nodes = Graph(np), []
    for op, name, args, detail in lines:
        dtype = np.dtype(name)
        if op == "constant":
            number = float.fromhex(detail) if isinstance(detail, str) else detail
            nodes.append(graph.constant(number, dtype))
        else:
            nodes.append(graph.node(op, dtype, tuple([nodes[i] for i in args]), detail))
    nest = LoopNest(
        kept,
        tuple([Access(np.dtype(name), axes) for name, axes in operands]),
        tuple([nodes[i] for i in outs]),
        tuple([nodes[i] for i in conditions]),
        tuple([Total(how, nodes[i], left) for how, i, left in totals]),
        frozenset(broadcast),
        frozenset(streamed),
    )
    return nest, Schedule(*schedule)
