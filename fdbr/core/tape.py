"""Reverse mode: the tape, and the backward pass over it.

Every operation on a traced value makes an entry of the tape, a `Node`: its number, one edge
for each operand that is differentiated, and the operation's name.  An edge holds the
operand's node, the rule that takes the output's cotangent to the operand's, and the arrays
which that rule needs.  Nodes refer to their parents and to nothing else, so what the result
does not depend on is freed with the last traced value that depends on it.

An entry may be *awaited* by other processes, which do the same at the same time: then the trace
refers to it, and backward visits it even if no cotangent reaches it.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from heapq import heappop, heappush
from typing import Any

import attrs
import numpy as np

from fdbr.core import collective_log
from fdbr.core.array_modules import on_device, several
from fdbr.core.backward_notes import blame
from fdbr.core.lazy_cotangents import Deferred, added
from fdbr.core.observation import hook
from fdbr.core.ownership import publish, retain, retain_from
from fdbr.core.primitive import EXPLAINED, Primitive, dispatch, host_types, seen
from fdbr.core.tracer import Trace, Tracer
from fdbr.errors.checks import number_types, recoverable
from fdbr.pytrees.locking import SMALL, locked_arrays
from fdbr.pytrees.structure import is_inexact, leaf_types

__all__ = [
    "Again",
    "Awaited",
    "Node",
    "ReverseTrace",
    "ReverseTracer",
    "again",
    "backward",
    "ends",
    "entries",
    "keeping",
    "new_node",
]

Node = tuple[int, Sequence[tuple[Any, Any, tuple[Any, ...]]], str]
"""``(number, edges, name)``.

A number is counted downward, so that of several nodes the latest is the least.  Each edge is
``(parent, pull, saved)``: the operand's cotangent is ``pull(cotangent, *saved)``.  The inputs
of a transformation have none.  Tuples, because one is made for every operation.
"""

_count = itertools.count(0, -1)
_new = object.__new__


def new_node(edges: Sequence[tuple[Any, Any, tuple[Any, ...]]], name: str) -> Node:
    """Make the next entry of the tape."""
    return next(_count), edges, name


def entries() -> int:
    """Return a number that grows by one with each entry of any tape, and with each call."""
    return -next(_count)


@attrs.frozen(eq=False, slots=True)
class Awaited:
    """An entry that backward visits even if no cotangent reaches it.

    Attributes
    ----------
    node
        The entry, whose cotangent is the list of those of its outputs.
    count
        How many these are.
    """

    node: Node
    count: int


class Again:
    """A repeated run for one tape, which takes the results of collectives from the first run.

    Attributes
    ----------
    trace
        The tape's.
    results
        The results of the first run, in its order.
    awaited
        The awaited entries of the repeated run.
    """

    __slots__ = ("awaited", "results", "trace")

    def __init__(self, trace: "ReverseTrace", results: Iterator[Any]) -> None:
        self.trace = trace
        self.results = results
        self.awaited: list[Awaited] = []


again: ContextVar[Again | None] = ContextVar("again", default=None)
"""The repeated run in progress; `None` if there is none."""

keeping: ContextVar[list[tuple[Any, Any]] | None] = ContextVar("keeping", default=None)
"""Where a run that will be repeated keeps each tape's results of collectives."""


class ReverseTracer(Tracer):
    """A value whose history is recorded."""

    __slots__ = ("node",)

    node: Node


leaf_types.add(ReverseTracer)


def _tracer(trace: "ReverseTrace", value: Any, node: Node) -> ReverseTracer:
    # No __init__: calling one costs as much as a small array operation's bookkeeping.
    tracer = _new(ReverseTracer)
    tracer._trace = trace
    tracer.value = value
    tracer.node = node
    return tracer


class ReverseTrace(Trace):
    """One tape: a run of one function under `vjp` or `grad`."""

    __slots__ = ()

    def input(self, value: Any) -> ReverseTracer:
        """Make a traced value, and record what depends on it."""
        if type(value) is np.ndarray:
            locked = locked_arrays.get(id(value))
            if value.flags.writeable or locked is None or locked() is not value:
                if value.nbytes <= SMALL:
                    # Now, which is cheaper than to keep an eye on it; as it lies in memory, which
                    # decides what is a view of what.
                    value = value.copy("K")
                else:
                    self.borrow(value)
        elif type(value) not in number_types:
            self.borrow(value)
        tracer = _new(ReverseTracer)
        tracer._trace = self
        tracer._base = self
        tracer.value = value
        tracer.node = (next(_count), (), "input")
        return tracer

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        # This runs for every operation of a traced function.  One operand, the usual case, is
        # spelled out; and the primitive is applied here where nothing but NumPy is below.
        try:
            rules = primitive.rules
            if len(args) == 1:
                tracer = args[0]
                value = tracer.value
                if type(value) in host_types:
                    if hook.watch is not None:
                        primitive = seen(primitive)
                    out = (
                        primitive.host(np, value, **params) if params else primitive.host(np, value)
                    )
                else:
                    out = dispatch(primitive, (value,), params)
                rule = rules[0]
                if rule is None:
                    return publish(self, out)
                if self.borrowed and rule.retains:
                    tracer.value = value = retain_from(self, value)
                edges: Any = ((tracer.node, rule.pull, rule.save((value,), out, params)),)
            else:
                values: list[Any] = []
                mine = []
                host = True  # whether only NumPy's arrays are below, and no further trace
                exposed = bool(self.borrowed)  # whether the caller may write to an operand
                for arg in args:
                    kind = type(arg)
                    if kind is ReverseTracer and arg._trace is self:
                        mine.append(len(values))
                        arg = arg.value
                        if type(arg) not in host_types:
                            host = False
                    elif kind not in number_types:
                        exposed = True
                        if kind is not np.ndarray:
                            host = False
                    values.append(arg)
                if host:
                    if hook.watch is not None:
                        primitive = seen(primitive)
                    if not params and len(values) == 2:
                        out = primitive.host(np, values[0], values[1])
                    else:
                        out = primitive.host(np, *values, **params)
                else:
                    out = dispatch(primitive, tuple(values), params)
                edges = []
                first = None
                if type(rules) is not list and mine:
                    first = rules.first
                    if rules.shared is not None:
                        params = rules.shared(values, params)
                for index in mine:
                    rule = rules[index]
                    if rule is None:
                        continue
                    if exposed and rule.retains:
                        self.retain(rule.retains, values, args)
                    edges.append((args[index].node, rule.pull, rule.save(values, out, params)))
                if not edges:
                    return publish(self, out)
                if first is not None:
                    if exposed and first.retains:
                        self.retain(first.retains, values, args)
                    saved = first.save(values, out, params)
                    edges = [(new_node(edges, primitive.name), first.pull, saved)]
            if type(out) is tuple:
                return self.outputs(primitive.name, out, edges)
            tracer = _new(ReverseTracer)
            tracer._trace = self
            tracer.value = out
            tracer.node = (next(_count), edges, primitive.name)
            return tracer
        except EXPLAINED as error:
            raise primitive.explain(error, args)  # noqa: B904

    def retain(self, positions: Any, values: list[Any], args: tuple[Any, ...]) -> None:
        """Replace operands that the caller can write to by copies; ``...`` means all."""
        for index in range(len(values)) if positions is ... else positions:
            arg = args[index]
            if type(arg) is ReverseTracer and arg._trace is self:
                arg.value = values[index] = retain_from(self, values[index])
            else:
                values[index] = retain(values[index])

    def outputs(self, name: str, outs: tuple[Any, ...], edges: Any) -> tuple[Any, ...]:
        """Trace the outputs of an operation that has several.

        The operation's cotangent is then a list, with `None` for unused outputs.  Each output has a
        node of its own, whose cotangent goes to the output's index in that list.
        """
        return self._outputs(new_node(edges, name), outs)

    def _outputs(self, whole: Node, outs: tuple[Any, ...]) -> tuple[Any, ...]:
        count = len(outs)
        traced = []
        for index, out in enumerate(outs):
            if is_inexact(out):
                node = new_node([(whole, _place, (index, count))], whole[2])
                traced.append(_tracer(self, out, node))
            else:
                traced.append(publish(self, out))
        return tuple(traced)

    def transform(self, primitive: Any, operands: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.reverse is None:
            raise primitive.missing(self)
        values: list[Any] = []
        mine: list[bool] = []
        parents: list[Node] = []
        for leaf in operands:
            own = type(leaf) is ReverseTracer and leaf._trace is self
            mine.append(own)
            if own:
                parents.append(leaf.node)
                leaf = leaf.value
            values.append(leaf)
        if primitive.communicates:
            outs, vjp, awaited = self._communicated(primitive, values, mine, params)
        else:
            outs, vjp = primitive.reverse(self, values, mine, **params)
            awaited = False
        if vjp is None:
            return tuple([publish(self, out) for out in outs])
        record = self.awaiting if awaited else self.joint
        return record(primitive.title(params), tuple(outs), parents, vjp)

    def _communicated(
        self, primitive: Any, values: list[Any], mine: list[bool], params: dict[str, Any]
    ) -> tuple[Any, Any, bool]:
        """The results and vjp rule of a primitive, and whether other processes await its entry.

        They do if its rule has run a collective.  A repeated run takes all of that from the first
        one, in the order of the applications.
        """
        repeated, kept = again.get(), keeping.get()
        known = None
        if repeated is not None and repeated.trace is self:
            known = next(repeated.results)
        if known is None:
            count = collective_log.collective_count()
            outs, vjp = primitive.reverse(self, values, mine, **params)
            if primitive.facts.collective or collective_log.collective_count() > count:
                known = outs, vjp, params
        else:
            outs, vjp, first = known
            primitive.resume(params, first)
        if kept is not None:
            kept.append((self, known))
        return outs, vjp, known is not None

    def joint(self, name: str, outs: tuple[Any, ...], parents: Sequence[Node], pull: Any) -> Any:
        """Trace outputs whose vjp rule gives the cotangents of all parents at once.

        ``pull(cotangents)`` takes a list of the outputs' cotangents, which it may use up, to a
        list of the parents'; in both, `None` is zero.
        """
        split = new_node([(parent, _pick, (i,)) for i, parent in enumerate(parents)], name)
        return self.outputs(name, outs, [(split, pull, ())])

    def awaiting(
        self,
        name: str,
        outs: tuple[Any, ...],
        parents: Sequence[Node],
        pull: Any,
    ) -> tuple[Any, ...]:
        """Do the same as `joint` for a rule that is applied even if no cotangent comes."""
        split = new_node([(parent, _pick, (i,)) for i, parent in enumerate(parents)], name)
        whole = new_node([(split, pull, ())], name)
        known = self._known()
        if known is not None:
            known.append(Awaited(whole, len(outs)))
        return self._outputs(whole, outs)

    def _known(self) -> list[Awaited] | None:
        """The awaited entries of the run in progress; `None` if there is none."""
        run = again.get()
        if run is not None and run.trace is self:
            return run.awaited
        if self.awaited is None and self.running:
            self.awaited = []
        return self.awaited if self.running else None

    def taken_since(self, mark: int) -> list[Awaited]:
        """Remove and return the awaited entries since a node's number, for the caller to visit."""
        known = self._known() or []
        taken = [entry for entry in known if entry.node[0] < mark]
        known[:] = [entry for entry in known if entry.node[0] > mark]
        return taken

    def lower(self, tracer: Tracer) -> Any:
        return publish(self, tracer.value)


def _pick(cotangents: Any, index: int) -> Any:
    return cotangents[index]


def _place(cotangent: Any, index: int, count: int) -> Deferred:
    return Deferred(_listed, (cotangent, index, count), 0, 1)


def _listed(terms: Sequence[tuple[Any, int, int]]) -> list[Any]:
    """List the cotangents of an operation's outputs, each of which came with its index."""
    cotangents = [None] * terms[0][2]
    for cotangent, index, _ in terms:
        if cotangent is not None:
            cotangents[index] = cotangent
    return cotangents


def ends(awaited: Sequence[Awaited]) -> list[tuple[Node, Any]]:
    """Make roots by which a backward pass visits awaited entries."""
    return [(one.node, Deferred(_listed, (None, 0, one.count), 0, 1)) for one in awaited]


def backward(
    roots: list[tuple[Node, Any]],
    until: int = 1,
    cotangents: dict[int, Any] | None = None,
    *,
    observed: bool = False,
) -> dict[int, Any]:
    """Run backward from some nodes with their cotangents.

    The entries of ``roots`` are taken out of the list: where the caller keeps no node, each
    entry of the tape is freed as soon as it has been visited.  Nodes from number ``until``
    up, which are older, count as inputs.  A root may be no operation's: its rule is applied when
    all entries with lower numbers have been visited, gives `None`, and finds in ``cotangents``, if
    that is given, what there is by then.  It is ``observed`` where a debugger runs it.

    Returns
    -------
    dict
        The cotangents of the inputs reached, by their nodes' numbers.
    """
    if (watch := hook.watch) is not None and not observed:
        found = watch.backward(roots, until, cotangents)
        if found is not NotImplemented:
            return found
    if cotangents is None:
        cotangents = {}
    heap: list[Node] = []
    own: set[int] = set()  # the sums made here, which may be added to in place
    edges: Any
    cotangent = parent = pull = None
    name = "a result"
    if len(roots) == 1 and roots[0][0][1] and roots[0][0][0] < until and not several:
        node, cotangent = roots.pop()
        edges, name = node[1:]
        if type(cotangent) is Deferred:
            cotangent = cotangent.value()
        del node
    else:
        edges = [(node, _give, (cotangent,)) for node, cotangent in roots]
        roots.clear()
    try:
        while True:
            for parent, pull, saved in edges:
                given = pull(cotangent, *saved)
                if given is None:
                    continue
                number = parent[0]
                if number not in cotangents:
                    cotangents[number] = given
                    if parent[1] and number < until:
                        heappush(heap, parent)
                elif number in own and type(given) is type(cotangents[number]):
                    if several:
                        given = _added_to(cotangents.pop(number), given)
                        cotangents[number] = given
                    else:
                        cotangents[number] += given
                else:
                    cotangents[number] = _add(cotangents[number], given)
                    own.add(number)
            if not heap:
                for number, left in cotangents.items():  # of inputs
                    if type(left) is Deferred:
                        cotangents[number] = left.value()
                return cotangents
            # The loop variables would keep the visited entry and its arrays alive.
            parent = pull = saved = given = edges = None
            number, edges, name = heappop(heap)
            cotangent = cotangents.pop(number)
            if type(cotangent) is Deferred:
                cotangent = cotangent.value()
            if several:
                edges = _there(cotangent, edges)
    except recoverable() as error:
        if pull is not None:
            blame(error, name, (parent, pull, saved), cotangent)
        raise


def _there(cotangent: Any, edges: Any) -> Any:
    """The edges of a node with rules that run where its cotangent lies."""
    place = on_device(*cotangent if type(cotangent) in (list, tuple) else (cotangent,))
    if isinstance(place, contextlib.nullcontext):
        return edges
    return [(parent, partial(_run_in, pull, place), saved) for parent, pull, saved in edges]


def _run_in(pull: Any, place: Any, cotangent: Any, *saved: Any) -> Any:
    with place:
        return pull(cotangent, *saved)


def _give(_: Any, cotangent: Any) -> Any:
    return cotangent


def _added_to(a: Any, b: Any) -> Any:
    with on_device(a, b):
        a += b
        return a


def _add(a: Any, b: Any) -> Any:
    if several:
        with on_device(a, b):
            return added(a, b)
    return added(a, b)
