"""Loop nests: what a kernel computes, and the order in which it does.

The extents of loops are arguments of kernels, so one kernel serves arrays of all sizes.
"""

from typing import Any, NamedTuple

from fdbr.core.expr import Node

__all__ = ["Access", "LoopNest", "Schedule"]


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
    """

    kept: tuple[bool, ...]
    operands: tuple[Access, ...]
    outs: tuple[Node, ...]
    conditions: tuple[Node, ...] = ()


class Schedule(NamedTuple):
    """Describe the order of iterations.

    A kernel computes *units*, which threads share: an iteration of the loops that are kept, without
    the vectorised loop, of which a unit does all iterations or a *panel* of adjacent ones.

    Attributes
    ----------
    vector
        The number of the loop whose iterations are the lanes of vectors.
    panel
        The vectors of a panel; 0 if a unit does the whole loop.
    masked
        Whether the loop may be shorter than a vector.
    exact
        Whether sums are compensated for rounding (Kahan), as those of many elements must be.
    ragged
        Whether the vectorised loop of the last unit may be shorter: its iterations in all units
        together are an argument of the kernel.
    """

    vector: int
    panel: int = 0
    masked: bool = True
    exact: bool = False
    ragged: bool = False
