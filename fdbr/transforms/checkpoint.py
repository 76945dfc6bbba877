"""Recomputation in the place of memory."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fdbr import tree
from fdbr.core.tape import (
    Again,
    Awaited,
    Node,
    ReverseTracer,
    again,
    backward,
    ends,
    keeping,
    new_node,
)
from fdbr.core.tracer import Trace, Tracer, replaying, running
from fdbr.errors.checks import describe, name_of, named_as
from fdbr.errors.public import public
from fdbr.ops.declare.large import sparing
from fdbr.transforms import harvest
from fdbr.transforms.jvp import ForwardTracer
from fdbr.transforms.vmap import BatchTracer

__all__ = ["checkpoint"]

P = ParamSpec("P")
R = TypeVar("R")


@public("fdbr")
def checkpoint(f: Callable[P, R]) -> Callable[P, R]:
    """The same function, which keeps no intermediate values for the backward pass.

    In the backward pass it runs again and records then, so of its memory only the arguments
    are kept (Griewank & Walther, *Algorithm 799: revolve*, 2000; Chen et al., *Training deep
    nets with sublinear memory cost*, 2016).  Values and gradients are bitwise the same, unless
    an argument is used outside of ``f`` too: then its gradient is the sum of the same terms in
    another order, and so are gradients of gradients, in which nothing is saved either.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree.  It may use traced values from around it.

    Returns
    -------
    function
        A function of the same arguments.

    Raises
    ------
    RuntimeError
        In the backward pass, if ``f`` gives another result there than before.

    >>> import fdbr, numpy as np
    >>> block = fdbr.checkpoint(lambda x: np.sin(np.sin(x)))
    >>> bool(fdbr.grad(block)(1.0) == fdbr.grad(lambda x: np.sin(np.sin(x)))(1.0))
    True
    """
    if not callable(f):
        raise TypeError(f"fdbr.checkpoint: f must be a function, not {describe(f)}")

    @named_as(f)
    def block(*args: Any, **kwargs: Any) -> Any:
        run = _as_it_is(f)
        if harvest.are_collected():
            return harvest.through(
                lambda run: _cut(f, functools.partial(run, *args, **kwargs)), run
            )
        return _cut(f, functools.partial(run, *args, **kwargs))

    return block


def _as_it_is(f: Any) -> Any:
    """A function with the variables of its closure as they are now.

    A loop that makes checkpointed functions rebinds the variables which they see.
    """
    if not isinstance(f, FunctionType) or not f.__closure__:
        return f
    cells = tuple(map(_copy, f.__closure__))
    copy = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)
    copy.__kwdefaults__ = f.__kwdefaults__
    return copy


def _copy(cell: CellType) -> CellType:
    try:
        return CellType(cell.cell_contents)
    except ValueError:  # it has no value yet, so the function does not need it now
        return CellType()


def _cut(f: Any, run: Callable[[], Any]) -> Any:
    """Run a function, and replace what it recorded by the promise to run it again."""
    mark = new_node((), "checkpoint")[0]
    around = running.get()
    kept: list[tuple[Any, Any]] = []
    outer, token = keeping.get(), keeping.set(kept if around else None)
    try:
        leaves, structure = tree.flatten(run())
    finally:
        keeping.reset(token)
    if outer is not None:
        outer += kept
    found = [tracer for leaf in leaves for tracer in _recorded(leaf)]
    if not found:
        return tree.unflatten(structure, leaves)
    trace = max((tracer._trace for tracer in found), key=lambda trace: trace.level)
    found = [tracer for tracer in found if tracer._trace is trace]
    inside: Sequence[Awaited] = trace.taken_since(mark) if around else ()
    results = [result for tape, result in kept if tape is trace]
    del kept, outer
    boundary = _boundary([tracer.node for tracer in found] + [one.node for one in inside], mark)
    harvest = [_mark(tracer.value) for tracer in found]

    def pull(cotangents: list[Any]) -> list[Any]:
        with replaying(), sparing(), _repeated(trace, results, around) as awaited:
            start = new_node((), "checkpoint")[0]
            again = [
                tracer
                for leaf in tree.leaves(run())
                for tracer in _recorded(leaf)
                if tracer._trace is trace
            ]
        if [_mark(tracer.value) for tracer in again] != harvest:
            raise RuntimeError(
                f"fdbr.checkpoint: {name_of(f)} gave another result when it was run again for the "
                "backward pass; it must be pure, and so must what it calls: pass what changes, as "
                "the variable of a loop does, as an argument"
            )
        pairs = zip(again, cotangents, strict=True)
        roots = [(tracer.node, ct) for tracer, ct in pairs if ct is not None] + ends(awaited)
        awaited.clear()
        del again, pairs
        cotangents.clear()
        with sparing():
            slopes = backward(roots, until=start)
        return [slopes.get(node[0]) for node in boundary]

    values = tuple(tracer.value for tracer in found)
    if inside:
        new = iter(trace.awaiting("checkpoint", values, boundary, pull))
    else:
        new = iter(trace.joint("checkpoint", values, boundary, pull))
    del inside
    return tree.unflatten(structure, [_renewed(leaf, trace, new) for leaf in leaves])


@contextlib.contextmanager
def _repeated(
    trace: Any, results: Sequence[Any], around: tuple[Trace, ...]
) -> Iterator[list[Awaited]]:
    """Run a function again within the traces that it ran in; the entries that are awaited then.

    What it did together with other processes is not done again: it takes the results, which the
    first run has kept.  So all of them do the same, also those where nothing of this is repeated
    because no result of theirs depends on it.
    """
    if not around:
        yield []
        return
    run = Again(trace, iter(results))
    tokens = again.set(run), running.set(around)
    try:
        yield run.awaited
    finally:
        again.reset(tokens[0])
        running.reset(tokens[1])


def _mark(value: Any) -> Any:
    """By what a result is known again: its shape, and its sum to the last bit.

    Only NumPy's sums are the same every time; a GPU may add in another order.
    """
    while isinstance(value, Tracer):
        value = value.value
    shape = getattr(value, "shape", ())
    if isinstance(value, np.ndarray | np.generic | float | complex):
        return shape, np.sum(value).tobytes()
    return shape


def _recorded(leaf: Any) -> Iterator[ReverseTracer]:
    """The recorded values in a leaf, which other transformations may have wrapped."""
    if isinstance(leaf, ReverseTracer):
        yield leaf
    elif isinstance(leaf, ForwardTracer):
        yield from _recorded(leaf.value)
        yield from _recorded(leaf.tangent)
    elif isinstance(leaf, Tracer):
        yield from _recorded(leaf.value)


def _renewed(leaf: Any, trace: Any, new: Iterator[Any]) -> Any:
    """The leaf with what ``trace`` recorded in it replaced, in the order of `_recorded`."""
    if isinstance(leaf, ReverseTracer):
        return next(new) if leaf._trace is trace else leaf
    if isinstance(leaf, ForwardTracer):
        value = _renewed(leaf.value, trace, new)
        return ForwardTracer(leaf._trace, value, _renewed(leaf.tangent, trace, new))
    if isinstance(leaf, BatchTracer):
        return BatchTracer(leaf._trace, _renewed(leaf.value, trace, new))
    return leaf


def _boundary(nodes: list[Node], mark: int) -> list[Node]:
    """The nodes from before the mark on which some nodes depend."""
    older: dict[int, Node] = {}
    seen: set[int] = set()
    while nodes:
        node = nodes.pop()
        if node[0] in seen:
            continue
        seen.add(node[0])
        if node[0] > mark:
            older[node[0]] = node
        else:
            nodes.extend(parent for parent, _, _ in node[1])
    return list(older.values())
