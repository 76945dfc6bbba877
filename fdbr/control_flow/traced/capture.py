"""Traced control flow of functions that are transformed inside a jitted one."""

import functools
import types
from collections.abc import Callable
from typing import Any

from fdbr import tree
from fdbr.compiler.capture.loop_states import IncomparableError, StateKey
from fdbr.compiler.capture.tracers import learners
from fdbr.compiler.ir.program import Program, kind_of
from fdbr.control_flow.body_tracing import NoBodyError, evaluate, example
from fdbr.control_flow.operands import scalar
from fdbr.control_flow.traced.discovery import Flow
from fdbr.control_flow.traced.graph_rules import apply
from fdbr.control_flow.traced.graphs import Graph, Kept, UnknownWay, graph_of
from fdbr.control_flow.traced.trial_run import rehearse
from fdbr.core.tracer import Trace, Tracer, plain
from fdbr.transforms.vmap import BatchTrace

__all__ = ["Learner"]

_MOST = 100  # runs to discover a function's control flow in one capture


class _Known:
    """The known control flow of a function, and the graph that was last built from it."""

    __slots__ = ("bodies", "flow", "graphs")

    def __init__(self) -> None:
        self.flow = Flow()
        self.bodies: Kept = {}
        self.graphs: dict[Any, Graph] = {}

    def graph(self, args: int) -> Graph:
        """Return the graph of what is known now."""
        lifted = tuple(sorted(self.flow.lifted))
        key = self.flow.version, args, lifted
        known = self.graphs.get(key)
        if known is None:
            known = graph_of(self.flow, args, lifted, self.bodies)
            self.graphs = {key: known}
        return known


class _Sight(StateKey):
    """A key that identifies values captured by a function by their avals only."""

    def foreign(self, value: Any) -> Any:
        return type(value), kind_of(example(value))


class Learner:
    """Traces the control flow of the functions that a jitted function transforms.

    It is called in place of such a function when traced values are passed to it.
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Known] = {}
        self._refused: set[Any] = set()
        self._held: list[Any] = []
        self.graphs = 0

    def __call__(
        self, trace: Trace, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        leaves, structure = tree.flatten((args, kwargs))
        mine = [isinstance(leaf, Tracer) for leaf in leaves]
        code = _code_of(f)
        if code is None or not any(mine) or (code, trace.origin[0]) in self._refused:
            return f(*args, **kwargs)
        try:
            return self._staged(trace, f, leaves, mine, structure)
        except (NoBodyError, Exception):  # the original function raises a better one
            self._refused.add((code, trace.origin[0]))
        return f(*args, **kwargs)

    def _staged(
        self, trace: Trace, f: Any, leaves: list[Any], mine: list[bool], structure: Any
    ) -> Any:
        traced = [leaf for leaf, own in zip(leaves, mine, strict=True) if own]
        shown = [example(leaf) for leaf in traced]

        def run(given: list[Any]) -> Any:
            new = iter(given)
            full = [next(new) if own else leaf for leaf, own in zip(leaves, mine, strict=True)]
            args, kwargs = tree.unflatten(structure, full)
            return f(*args, **kwargs)

        run.__qualname__ = getattr(f, "__qualname__", "f")
        known: _Known | None = None
        examples: dict[int, Any] = {}
        tried: set[int] = set()
        for _ in range(_MOST):
            found = rehearse(run, shown, examples)
            if known is None and found.questions:
                known = self._known_of(trace, f, leaves, mine, structure)
            if known is None or not found.questions:
                operands = [*traced, *found.lifted.values()]
                heads = (*found.inputs, *found.lifted)
                program = _program(heads, found)
                try:
                    return tree.unflatten(found.structure, evaluate(program, operands))
                except UnknownWay as way:  # raised by a graph inside this function
                    if way.lane is None or way.lane in tried:
                        raise NoBodyError("it takes other paths than before") from None
                    tried.add(way.lane)
                    shown = [_of_lane(leaf, trace, way.lane) for leaf in traced]
                    continue
            new = known.flow.learn(found)
            graph = known.graph(len(traced))
            values = [known.flow.lifted[number] for number in graph.lifted]
            try:
                outs = apply(graph, [*traced, *values])
            except UnknownWay as way:
                if not new and shown is way.leaves:
                    break
                shown = list(way.leaves[: len(traced)])
                pairs = zip(values, way.leaves[len(traced) :], strict=True)
                examples = {id(value): leaf for value, leaf in pairs}
                continue
            self.graphs += 1
            return tree.unflatten(found.structure, outs)
        raise NoBodyError("every run takes a new path")

    def _known_of(
        self, trace: Trace, f: Any, leaves: list[Any], mine: list[bool], structure: Any
    ) -> _Known:
        """Return the known control flow of a function with such arguments."""
        try:
            sight = _Sight(trace, (), self._held)
            static = [leaf for leaf, own in zip(leaves, mine, strict=True) if not own]
            kinds = [kind_of(example(leaf)) for leaf, own in zip(leaves, mine, strict=True) if own]
            key = structure, tuple(mine), tuple(kinds), sight.of(f), sight.of(static)
        except (IncomparableError, TypeError):
            return _Known()
        return self._known.setdefault(key, _Known())


def _of_lane(leaf: Any, trace: Trace, lane: int) -> Any:
    """Return a plain value with the aval of a traced one; for a batch, the given example's."""
    if isinstance(leaf, Tracer) and leaf._trace is trace and isinstance(trace, BatchTrace):
        return scalar(plain(leaf)[lane])
    return example(leaf)


def _program(heads: Any, found: Any) -> Program:
    return Program("straight", tuple(heads), tuple(found.steps), tuple(found.outputs))


def _code_of(f: Any) -> Any:
    """Return the code of a function outside fdbr; `None` if there is none."""
    while isinstance(f, functools.partial):
        f = f.func
    f = getattr(f, "__wrapped__", f)
    if isinstance(f, types.MethodType):
        f = f.__func__
    if not isinstance(f, types.FunctionType):
        calls = (vars(kind).get("__call__") for kind in type(f).__mro__)
        f = next((call for call in calls if call is not None), None)
    code = getattr(f, "__code__", None)
    if code is None or f.__globals__.get("__name__", "").split(".")[0] == "fdbr":
        return None
    return code


learners.append(Learner)
