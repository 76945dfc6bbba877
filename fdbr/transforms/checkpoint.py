"""`checkpoint`: recomputation in the backward pass, instead of stored intermediate values."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

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
from fdbr.core.util.pickling import made_of
from fdbr.errors.checks import name_of
from fdbr.errors.public import public
from fdbr.ops.declare.memory_saving import saving_memory
from fdbr.pytrees import structure as tree
from fdbr.transforms import harvest
from fdbr.transforms.jvp import ForwardTracer
from fdbr.transforms.vmap import BatchTracer

__all__ = ["checkpoint"]

P = ParamSpec("P")
R = TypeVar("R")


@public("fdbr")
def checkpoint(f: Callable[P, R]) -> Callable[P, R]:
    """Return the same function, which keeps only its arguments for the backward pass.

    It runs again in the backward pass, and records its operations then (Griewank & Walther,
    *Algorithm 799: revolve*, 2000; Chen et al., *Training deep nets with sublinear memory cost*,
    2016).  Values and gradients are bitwise the same, with one exception: if an argument is used
    outside of ``f`` too, its gradient is the sum of the same terms in another order.  So are
    gradients of gradients, which save no memory.

    Parameters
    ----------
    f
        A pure function of trees, which returns a tree.  It may capture traced values.

    Returns
    -------
    function
        A function of the same arguments.

    Raises
    ------
    RuntimeError
        In the backward pass, if ``f`` returns another result than in the forward pass.

    >>> import fdbr, numpy as np
    >>> block = fdbr.checkpoint(lambda x: np.sin(np.sin(x)))
    >>> bool(fdbr.grad(block)(1.0) == fdbr.grad(lambda x: np.sin(np.sin(x)))(1.0))
    True
    """

    @made_of(f, checkpoint)
    def block(*args: Any, **kwargs: Any) -> Any:
        run = _as_it_is(f)
        if harvest.are_collected():
            return harvest.through(
                lambda run: _cut(f, functools.partial(run, *args, **kwargs)), run
            )
        return _cut(f, functools.partial(run, *args, **kwargs))

    return block


def _as_it_is(f: Any) -> Any:
    """Return the function with its captured variables as they are now.

    A loop that makes checkpointed functions may rebind the variables that they capture.
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
    except ValueError:  # the variable has no value yet
        return CellType()


def _cut(f: Any, run: Callable[[], Any]) -> Any:
    """Run a function, and replace the entries it recorded by one that runs it again."""
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
        with replaying(), saving_memory(), _repeated(trace, results, around) as awaited:
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
        with saving_memory():
            derivatives = backward(roots, until=start)
        return [derivatives.get(node[0]) for node in boundary]

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
    """Run a function again within the traces of its first run; yields the awaited entries.

    Collectives do not communicate again: they return the results that the first run has kept.  So
    all processes call the same collectives, also those that need no second run because no result
    of theirs depends on it.
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
    """Return a fingerprint of a result: its shape, and the bits of its sum.

    The sum is left out for arrays on a GPU, which may add in another order every time.
    """
    while isinstance(value, Tracer):
        value = value.value
    shape = getattr(value, "shape", ())
    if isinstance(value, np.ndarray | np.generic | float | complex):
        return shape, np.sum(value).tobytes()
    return shape


def _recorded(leaf: Any) -> Iterator[ReverseTracer]:
    """Yield the recorded values in a leaf, which other transformations may have wrapped."""
    if isinstance(leaf, ReverseTracer):
        yield leaf
    elif isinstance(leaf, ForwardTracer):
        yield from _recorded(leaf.value)
        yield from _recorded(leaf.tangent)
    elif isinstance(leaf, Tracer):
        yield from _recorded(leaf.value)


def _renewed(leaf: Any, trace: Any, new: Iterator[Any]) -> Any:
    """Replace the values in a leaf that ``trace`` recorded, in the order of `_recorded`."""
    if isinstance(leaf, ReverseTracer):
        return next(new) if leaf._trace is trace else leaf
    if isinstance(leaf, ForwardTracer):
        value = _renewed(leaf.value, trace, new)
        return ForwardTracer(leaf._trace, value, _renewed(leaf.tangent, trace, new))
    if isinstance(leaf, BatchTracer):
        return BatchTracer(leaf._trace, _renewed(leaf.value, trace, new))
    return leaf


def _boundary(nodes: list[Node], mark: int) -> list[Node]:
    """Return the entries before the mark that the given entries depend on."""
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
