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
from fdbr.control_flow.body_tracing import NoBodyError, Step
from fdbr.control_flow.operands import for_each, is_captured, own_memory, scalar, zero
from fdbr.control_flow.traced.batched_graph import LanesPath, run_lanes
from fdbr.control_flow.traced.graph_vjp import back_over, back_over_lanes
from fdbr.control_flow.traced.graphs import NOWHERE, Graph, Path, UnknownWay, run
from fdbr.core.primitive import dispatch
from fdbr.core.tape import ReverseTrace
from fdbr.core.tracer import ended, escaped
from fdbr.transforms.custom_call import innermost, taken_off
from fdbr.transforms.vmap import BatchTrace, BatchTracer

__all__ = ["apply"]

_DIFFERENTIABLE = frozenset({"stop_gradient", "call", "graph", "graph_lanes", "while_loop", "scan"})

Leaves = Sequence[Any]
Flags = tuple[bool, ...]


def apply(graph: Graph, operands: Leaves) -> tuple[Any, ...]:
    """The results, on operands that may be traced."""
    return _applied(_GRAPH, operands, graph=graph)


def _applied(step: Step, operands: Leaves, **params: Any) -> tuple[Any, ...]:
    """A step on operands that may be traced, by the rule of the innermost trace."""
    top: Any = innermost(operands)
    if top is not None and ended(top):
        raise escaped(top, "fdbr.jit")
    rule = _RULES.get((step, type(top)))
    if rule is not None:
        values, mine = taken_off(top, operands)
        return tuple(rule(top, operands, values, mine, **params))
    if top is None or is_captured(top, operands):
        return tuple(dispatch(step, tuple(operands), params))
    raise NoBodyError(f"there is a {type(top).__name__} around its derivative")


def _step(name: str, value: Callable[..., Any]) -> Step:
    step: Step
    step = Step(name, value, lambda *operands, **params: _applied(step, operands, **params))
    return step


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


_GRAPH = _step("graph", _run)
_KEPT = _step("graph_kept", _run_kept)
_BACK = _step("graph_vjp", _run_back)


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
        if step.primitive.kind == "program" and step.primitive.name not in _DIFFERENTIABLE:
            return False
        inner = step.params.get("graph")
        if inner is not None:
            _require_differentiable(inner)
    return True


def _reverse(top: Any, operands: Leaves, values: Leaves, mine: Flags, graph: Graph) -> Any:
    _require_differentiable(graph)
    *outs, path = _applied(_KEPT, values, graph=graph)
    parents = [leaf.node for leaf, own in zip(operands, mine, strict=True) if own]
    wanted = tuple(i for i, own in enumerate(mine) if own)

    def pull(cotangents: list[Any]) -> list[Any]:
        there, given = _there(cotangents)
        operands = [path, *values, *given]
        return list(_applied(_BACK, operands, graph=graph, wanted=wanted, there=there))

    return top.joint("graph", tuple(outs), parents, pull)


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


_LANES = _step("graph_lanes", _run_lanes)
_LANES_KEPT = _step("graph_lanes_kept", _run_lanes_kept)
_LANES_BACK = _step("graph_lanes_vjp", _run_lanes_back)


def _batch(top: Any, operands: Leaves, values: Leaves, mine: Flags, graph: Graph) -> Any:
    outs = _applied(_LANES, values, graph=graph, own=tuple(mine), size=top.size)
    return [BatchTracer(top, out) for out in outs]


def _batch_kept(top: Any, operands: Leaves, values: Leaves, mine: Flags, graph: Graph) -> Any:
    *outs, path = _applied(_LANES_KEPT, values, graph=graph, own=tuple(mine), size=top.size)
    return [*(BatchTracer(top, out) for out in outs), path]


def _batch_back(
    top: Any,
    operands: Leaves,
    values: Leaves,
    mine: Flags,
    graph: Graph,
    wanted: tuple[int, ...],
    there: Flags,
) -> Any:
    count = 1 + graph.inputs
    given = [
        value if one else for_each(value, top.size)
        for value, one in zip(values[count:], mine[count:], strict=True)
    ]
    own = tuple(mine[1:count])
    params = {"graph": graph, "own": own, "size": top.size, "wanted": wanted, "there": there}
    found = _applied(_LANES_BACK, [*values[:count], *given], each=True, **params)
    return [BatchTracer(top, slope) for slope in found]


def _reverse_lanes(
    top: Any, operands: Leaves, values: Leaves, mine: Flags, graph: Graph, own: Flags, size: int
) -> Any:
    _require_differentiable(graph)
    known = {"graph": graph, "own": own, "size": size}
    *outs, path = _applied(_LANES_KEPT, values, **known)
    parents = [leaf.node for leaf, one in zip(operands, mine, strict=True) if one]
    wanted = tuple(i for i, one in enumerate(mine) if one)

    def pull(cotangents: list[Any]) -> list[Any]:
        there, given = _there(cotangents)
        params = {**known, "wanted": wanted, "there": there, "each": False}
        return list(_applied(_LANES_BACK, [path, *values, *given], **params))

    return top.joint("graph", tuple(outs), parents, pull)


_RULES: dict[Any, Any] = {
    (_GRAPH, ReverseTrace): _reverse,
    (_GRAPH, BatchTrace): _batch,
    (_KEPT, BatchTrace): _batch_kept,
    (_BACK, BatchTrace): _batch_back,
    (_LANES, ReverseTrace): _reverse_lanes,
}
