"""Traces that note where what they record comes from, and backward passes that are observed.

A node of the tape has a name and nothing else to say of itself.  Where it is observed, the
name is a `Label`, which knows more.  The tape is otherwise what it always is: nothing that
observes stays on it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.lazy_cotangents import settled
from fdbr.core.primitive import Primitive
from fdbr.core.tape import Node, ReverseTrace, ReverseTracer, _give, _pick, _place, backward
from fdbr.core.tracer import Trace, Tracer
from fdbr.debug.observing import Application, Place, current, place, run, traced, within
from fdbr.debug.sources import Source, user_source
from fdbr.ops.declare.unbroadcast import dtype_of, shape_of
from fdbr.transforms.jvp import ForwardTrace
from fdbr.transforms.vmap import BatchTrace

__all__ = ["Label", "is_joint", "observed_backward", "observed_kinds"]

_bookkeeping = (_give, _pick, _place)


class Label(str):
    """A node's name that knows whence the node is, and what the value was."""

    direction: str
    source: Source | None
    rule: str | None
    shape: tuple[int, ...] | None
    dtype: Any

    @classmethod
    def here(cls, name: str, value: Any = None) -> "Label":
        """The label of what is recorded now."""
        at = place()
        self = cls(name)
        self.direction, self.rule = at.direction, at.rule
        self.source = at.source or user_source()
        self.shape = self.dtype = None
        if value is not None:
            self.shape, dtype = tuple(shape_of(value)), dtype_of(value)
            self.dtype = np.dtype(dtype) if isinstance(dtype, type) else dtype
        return self


def _label(tracer: ReverseTracer) -> None:
    number, edges, name = tracer.node
    tracer.node = (number, edges, Label.here(str(name), tracer.value))


def _made(out: Any) -> None:
    for observer in current():
        observer.made(out)


class _Reverse(ReverseTrace):
    __slots__ = ()

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        out = super().process(primitive, args, params)
        if type(out) is ReverseTracer and out._trace is self:
            _label(out)
            _made(out)
        return out

    def outputs(self, name: str, outs: tuple[Any, ...], edges: Any) -> tuple[Any, ...]:
        tracers = super().outputs(Label.here(name), outs, edges)
        for tracer in tracers:
            if type(tracer) is ReverseTracer and tracer._trace is self:
                _label(tracer)
        _made(tracers)
        return tracers


class _Noting(Trace):
    """The common base of observed traces that have no tape to write to."""

    __slots__ = ()

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        out = super().process(primitive, args, params)
        _made(out)
        return out


class _Forward(_Noting, ForwardTrace):
    __slots__ = ()


class _Batch(_Noting, BatchTrace):
    __slots__ = ()


observed_kinds: dict[type[Trace], type[Trace]] = {
    ReverseTrace: _Reverse,
    ForwardTrace: _Forward,
    BatchTrace: _Batch,
}
"""The class of an observed trace, by the class that it has where nothing observes."""


# --- backward -----------------------------------------------------------------------


def observed_backward(
    roots: list[tuple[Node, Any]], until: int, cotangents: dict[int, Any] | None
) -> dict[int, Any]:
    """Run backward with a copy of the tape whose rules are observed."""
    roots[:] = _observed(roots, until)
    at = place()
    if at.within is None:
        at = Place("backward", clock=at.clock)
    inputs = within(at, functools.partial(backward, roots, until, cotangents, observed=True))
    for observer in current():
        observer.reached(inputs)
    return inputs


def _observed(roots: list[tuple[Node, Any]], until: int) -> list[tuple[Node, Any]]:
    found: dict[int, Node] = {}
    waiting = [node for node, _ in roots]
    while waiting:
        node = waiting.pop()
        if node[0] not in found:
            found[node[0]] = node
            if node[0] < until:
                waiting += [parent for parent, _, _ in node[1]]
    copies: dict[int, Node] = {}
    for number in sorted(found, reverse=True):  # parents first: numbers count downward
        node = found[number]
        copies[number] = node if number >= until or not node[1] else _copy(node, copies)
    return [(copies[node[0]], cotangent) for node, cotangent in roots]


def _copy(node: Node, copies: dict[int, Node]) -> Node:
    number, edges, name = node
    watched = [
        (
            copies[parent[0]],
            pull if pull in _bookkeeping else functools.partial(_vjp, pull, name, parent),
            saved,
        )
        for parent, pull, saved in edges
    ]
    return number, watched, name


def is_joint(parent: Node) -> bool:
    """Whether a node hands out the cotangents that one rule gave for several operands."""
    return bool(parent[1]) and all(pull is _pick for _, pull, _ in parent[1])


def _vjp(pull: Any, name: str, parent: Node, cotangent: Any, *saved: Any) -> Any:
    """Call one rule of the tape, observed."""

    def call() -> Any:
        return settled(pull(cotangent, *saved))

    at = place()
    cotangents, kept = _operands(cotangent), _operands(saved)
    application = Application(
        str(name),
        "backward",
        getattr(name, "source", None),
        (*cotangents, *kept),
        ("cotangent",) * len(cotangents) + ("kept",) * len(kept),
        rule=getattr(name, "rule", None),
        within=at.within,
        traced=traced((cotangent, saved)),
        composite=is_joint(parent),
    )
    if not application.composite:
        return run(application, call)
    # It calls functions of the user's, whose lines are their own.  `checkpoint` runs forward.
    direction = "forward" if name == "checkpoint" else "backward"
    return run(application, call, Place(direction, within=at.within, inside=at.inside))


def _operands(values: Any) -> list[Any]:
    """The arrays and floating numbers in what a rule was given; the rest is structure."""
    if type(values) in (tuple, list):
        return [operand for value in values for operand in _operands(value)]
    known = hasattr(values, "dtype") and not isinstance(values, type)
    return [values] if known or isinstance(values, float | complex) else []


def values_below(value: Any) -> list[Any]:
    """The arrays, or numbers, of which a traced value is made."""
    if not isinstance(value, Tracer):
        return [value]
    found = values_below(value.value)
    if hasattr(value, "tangent"):
        found += values_below(value.tangent)
    return found


def parts(values: Any) -> Sequence[Any]:
    """The arrays and numbers in what an operation or a rule gave."""
    if type(values) in (tuple, list):
        return [part for value in values for part in parts(value)]
    return [] if values is None else values_below(values)
