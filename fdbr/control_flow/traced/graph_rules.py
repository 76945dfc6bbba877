"""A graph in a program: one instruction, and what transformations make of it.

In reverse mode the instruction gives its path beside its results: a second one goes back over the
blocks of that path, each of which is run again for what its pullback needs.  Of a batch each
example goes its own way.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fdbr.compiler.capture.tracers import AbandonedError, capturing
from fdbr.compiler.ir.guards import GuardFailure
from fdbr.compiler.ir.program import Instruction, Program
from fdbr.control_flow.body_tracing import STOP, NoBodyError, Step
from fdbr.control_flow.operands import for_each, own_memory, scalar, zero
from fdbr.control_flow.traced.batched_graph import LanesPath, run_lanes
from fdbr.control_flow.traced.graph_vjp import back_over, back_over_lanes
from fdbr.control_flow.traced.graphs import NOWHERE, Graph, Path, UnknownWay, run
from fdbr.core.higher_order import HigherOrder
from fdbr.core.tracer import Trace
from fdbr.transforms.vmap import BatchTrace

__all__ = ["apply"]

Leaves = Sequence[Any]
Flags = tuple[bool, ...]


def apply(graph: Graph, operands: Leaves) -> tuple[Any, ...]:
    """The results, on operands that may be traced."""
    outs: tuple[Any, ...] = _GRAPH.apply(*operands, graph=graph)
    return outs


def _taken(operands: Leaves, f: Callable[[bool], Any]) -> tuple[Any, ...]:
    """The results of a run, which is told whether it is captured, in memory of their own."""
    captured = capturing.get() is not None
    try:
        return own_memory(f(captured), operands)
    except UnknownWay as way:
        if captured:
            raise
        raise GuardFailure(NOWHERE, None) from way  # where a block is compiled
    except NoBodyError as error:
        raise AbandonedError(str(error)) from error


def _run(xp: Any, *operands: Any, graph: Graph) -> tuple[Any, ...]:
    return _taken(operands, lambda captured: run(graph, operands, None, captured))


def _run_kept(xp: Any, *operands: Any, graph: Graph) -> tuple[Any, ...]:
    path = Path()
    return (*_taken(operands, lambda captured: run(graph, operands, path, captured)), path)


def _run_back(
    xp: Any, path: Path, *operands: Any, graph: Graph, wanted: tuple[int, ...], there: Flags
) -> tuple[Any, ...]:
    given = iter(operands[graph.inputs :])
    outs = [scalar(next(given)) if one else None for one in there]

    def back(_: bool) -> list[Any]:
        found = back_over(graph, path, wanted, outs)
        pairs = zip(wanted, found, strict=True)
        return [scalar(zero(operands[i]) if s is None else s) for i, s in pairs]

    return _taken(operands, back)


def _there(cotangents: list[Any]) -> tuple[Flags, list[Any]]:
    """Which cotangents there are, and these."""
    return tuple(ct is not None for ct in cotangents), [ct for ct in cotangents if ct is not None]


def _require_differentiable(graph: Graph) -> None:
    if not all(_is_differentiable(block.body.program) for block in graph.blocks):
        raise NoBodyError("a derivative in it is differentiated")


def _is_differentiable(program: Program) -> bool:
    """Whether there are reverse rules for all steps."""
    for step in program.steps:
        assert isinstance(step, Instruction)
        primitive = step.primitive
        if primitive is not STOP and isinstance(primitive, HigherOrder) and not primitive.reverse:
            return False
        inner = step.params.get("graph")
        if inner is not None:
            _require_differentiable(inner)
    return True


def _reverse(trace: Trace, values: Leaves, mine: Sequence[bool], graph: Graph) -> Any:
    _require_differentiable(graph)
    *outs, path = _KEPT.apply(*values, graph=graph)
    wanted = tuple(i for i, own in enumerate(mine) if own)

    def vjp(cotangents: list[Any]) -> list[Any]:
        there, given = _there(cotangents)
        return list(_BACK.apply(path, *values, *given, graph=graph, wanted=wanted, there=there))

    return outs, vjp


# --- batches ------------------------------------------------------------------------


def _run_lanes(xp: Any, *operands: Any, graph: Graph, own: Flags, size: int) -> tuple[Any, ...]:
    f = functools.partial(run_lanes, graph, operands, own, size, None)
    return _taken(operands, f)


def _run_lanes_kept(
    xp: Any, *operands: Any, graph: Graph, own: Flags, size: int
) -> tuple[Any, ...]:
    path = LanesPath()
    f = functools.partial(run_lanes, graph, operands, own, size, path)
    return (*_taken(operands, f), path)


def _run_lanes_back(
    xp: Any,
    path: LanesPath,
    *operands: Any,
    graph: Graph,
    own: Flags,
    size: int,
    wanted: tuple[int, ...],
    there: Flags,
    each: bool,
) -> tuple[Any, ...]:
    """The cotangents; those of what all examples share are sums, unless ``each`` has its own."""
    given = iter(operands[graph.inputs :])
    outs = [next(given) if one else None for one in there]

    def back(_: bool) -> list[Any]:
        full = []
        found = back_over_lanes(graph, path, wanted, outs, size)
        for i, slope in zip(wanted, found, strict=True):
            like = scalar(zero(operands[i]))
            if own[i]:
                full.append(like if slope is None else slope)
            elif each:
                shape = (size, *np.shape(like))
                full.append(np.broadcast_to(like, shape) if slope is None else slope)
            else:
                full.append(like if slope is None else slope.sum(axis=0))
        return full

    return _taken(operands, back)


def _batch(trace: BatchTrace, values: Leaves, mine: Sequence[bool], graph: Graph) -> Any:
    outs = _LANES.apply(*values, graph=graph, own=tuple(mine), size=trace.size)
    return outs, [True] * len(outs)


def _batch_kept(trace: BatchTrace, values: Leaves, mine: Sequence[bool], graph: Graph) -> Any:
    outs = _LANES_KEPT.apply(*values, graph=graph, own=tuple(mine), size=trace.size)
    return outs, [*(True for _ in outs[:-1]), False]


def _batch_back(
    trace: BatchTrace,
    values: Leaves,
    mine: Sequence[bool],
    graph: Graph,
    wanted: tuple[int, ...],
    there: Flags,
) -> Any:
    count = 1 + graph.inputs
    given = [
        value if one else for_each(value, trace.size)
        for value, one in zip(values[count:], mine[count:], strict=True)
    ]
    own = tuple(mine[1:count])
    params = {"graph": graph, "own": own, "size": trace.size, "wanted": wanted, "there": there}
    found = _LANES_BACK.apply(*values[:count], *given, each=True, **params)
    return found, [True] * len(found)


def _reverse_lanes(
    trace: Trace, values: Leaves, mine: Sequence[bool], graph: Graph, own: Flags, size: int
) -> Any:
    _require_differentiable(graph)
    known: dict[str, Any] = {"graph": graph, "own": own, "size": size}
    *outs, path = _LANES_KEPT.apply(*values, **known)
    wanted = tuple(i for i, one in enumerate(mine) if one)

    def vjp(cotangents: list[Any]) -> list[Any]:
        there, given = _there(cotangents)
        params = {**known, "wanted": wanted, "there": there, "each": False}
        return list(_LANES_BACK.apply(path, *values, *given, **params))

    return outs, vjp


_GRAPH = Step("graph", _run, reverse=_reverse, batch=_batch)
_KEPT = Step("graph_kept", _run_kept, batch=_batch_kept)
_BACK = Step("graph_vjp", _run_back, batch=_batch_back)
_LANES = Step("graph_lanes", _run_lanes, reverse=_reverse_lanes)
_LANES_KEPT = Step("graph_lanes_kept", _run_lanes_kept)
_LANES_BACK = Step("graph_lanes_vjp", _run_lanes_back)
