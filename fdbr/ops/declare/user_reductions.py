"""Reduce along axes by a user's function of two elements, with derivatives.

An element is a *state*: one number, or a tuple of several.  The first half of the elements is
combined with the second half, whole arrays at a time, until one is left, in about
``log2(count)`` steps.  The derivative is that of these steps: it does not divide by elements, so
it holds for zeros too.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fdbr.core.array_modules import array_module, lock
from fdbr.core.primitive import dispatch, registry
from fdbr.core.tape import ReverseTrace, ReverseTracer, backward
from fdbr.core.tracer import Tracer, run
from fdbr.errors.checks import describe
from fdbr.ops.declare.operation import operation
from fdbr.ops.declare.rules import Function, Rules
from fdbr.ops.declare.unbroadcast import zeros_of
from fdbr.pytrees.structure import is_inexact

__all__ = ["Combine", "reduce_states", "reduce", "spread"]

States = tuple[Any, ...]


class Combine:
    """A function that combines two states, and the name of its reduction.

    One is made for each application; two are equal if their functions are the same object.  The
    compiler caches what it derived from the function in ``found``, which lasts for this
    application only, as the function's captured variables may change.
    """

    __slots__ = ("found", "function", "name")

    def __init__(self, function: Function, name: str) -> None:
        self.function, self.name = function, name
        self.found: dict[Any, Any] = {}

    def __call__(self, a: States, b: States) -> States:
        """Combine two states, and check that shapes and dtypes are kept."""
        several = len(a) > 1
        found = self.function(a, b) if several else self.function(a[0], b[0])
        out = found if several else (found,)
        if type(out) is not tuple or len(out) != len(a):
            given = f"a tuple of {len(out)}" if type(out) is tuple else type(out).__name__
            raise TypeError(
                f"{self.where}: combine takes two tuples of {len(a)} arrays, as map gives them, "
                f"and must return such a tuple, got {given}"
            )
        for i, (part, own) in enumerate(zip(out, a, strict=True)):
            shape, dtype = getattr(part, "shape", ()), getattr(part, "dtype", type(part).__name__)
            # Operations on big-endian numbers give native ones.
            if shape != own.shape or dtype not in (own.dtype, own.dtype.newbyteorder("=")):
                which = f"part {i} of its result" if several else "its result"
                raise TypeError(
                    f"{self.where}: combine must keep shape and dtype, of {describe(own)} it made "
                    f"{describe(part)} as {which}; convert what map returns (ops.astype), and "
                    "write combine with operations on each element"
                )
        return out

    @property
    def where(self) -> str:
        """The beginning of error messages."""
        return f"fdbr.ops.{self.name}"

    def __eq__(self, other: object) -> bool:
        return type(other) is Combine and other.function is self.function

    def __hash__(self) -> int:
        return id(self.function)

    def __repr__(self) -> str:
        return self.name


def reduce_states(combine: Combine, states: States, axes: tuple[int, ...]) -> States:
    """Combine all states along some axes, which have at least one element.

    Parts of a state without axes are the same for all elements; at least one part has axes.
    """
    shape = max((x.shape for x in states), key=len)
    states, axis = _merge_axes(tuple([spread(x, shape) for x in states]), axes)
    before = (slice(None),) * axis

    def part(start: int, stop: int) -> States:
        return tuple([x[(*before, slice(start, stop))] for x in states])

    odd: States | None = None
    while (count := states[0].shape[axis]) > 1:
        half = count // 2
        if count % 2:
            last = part(count - 1, count)
            odd = last if odd is None else combine(odd, last)
        states = combine(part(0, half), part(half, 2 * half))
    if odd is not None:
        states = combine(states, odd)
    return tuple([x[(*before, 0)] for x in states])


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a part of the states to the shape of the elements."""
    if x.shape == shape:
        return x
    if isinstance(x, Tracer):
        return dispatch(registry["broadcast_to"], (x,), {"to": shape})
    return array_module(x).broadcast_to(x, shape)  # without a copy


def _merge_axes(states: States, axes: tuple[int, ...]) -> tuple[States, int]:
    """Merge several axes of the states into one; return the states and that axis."""
    rank = states[0].ndim
    axes = tuple(sorted(axes))
    axis = axes[0] if axes else 0
    if axes != tuple(range(axis, axis + len(axes))):
        order = (*axes, *(i for i in range(rank) if i not in axes))
        states = tuple([dispatch(registry["permute"], (x,), {"axes": order}) for x in states])
        axes, axis = tuple(range(len(axes))), 0
    if len(axes) != 1:
        shape = states[0].shape
        count = math.prod(shape[axis : axis + len(axes)])
        to = (*shape[:axis], count, *shape[axis + len(axes) :])
        states = tuple([dispatch(registry["reshape"], (x,), {"to": to}) for x in states])
    return states, axis


# --- rules ----------------------------------------------------------------------------


def _vjp(
    cotangents: Sequence[Any], states: States, axes: tuple[int, ...], combine: Combine
) -> list[Any]:
    """Compute the cotangents of the states; `None` for a state without one."""
    trace = ReverseTrace("vjp", combine.function)
    given = tuple([trace.input(x) if is_inexact(x) else x for x in states])
    nodes = [x.node[0] if type(x) is ReverseTracer and x._trace is trace else 0 for x in given]
    found = backward(
        list(_ends(trace, run(trace, reduce_states, combine, given, axes), cotangents))
    )
    return [found.get(node) for node in nodes]


def _ends(trace: ReverseTrace, outs: Sequence[Any], cotangents: Sequence[Any]) -> Iterator[Any]:
    """Yield the node and the cotangent of each result that has both."""
    for out, cotangent in zip(outs, cotangents, strict=True):
        if cotangent is not None and type(out) is ReverseTracer and out._trace is trace:
            yield out.node, cotangent


def _forward(values: States, tangents: Any, out: Any, params: Any) -> Any:
    """Compute the jvp as the transpose of `_vjp`, which is linear in the cotangents."""
    outs = out if type(out) is tuple else (out,)
    trace = ReverseTrace("jvp", params["combine"].function)
    given = [trace.input(lock(zeros_of(x))) if is_inexact(x) else None for x in outs]
    vjp_of = run(trace, _vjp, given, values, params["axes"], params["combine"])
    nodes = [0 if x is None else x.node[0] for x in given]
    found = backward(list(_ends(trace, vjp_of, tangents)))
    tangent_out = tuple([found.get(node) for node in nodes])
    return tangent_out if type(out) is tuple else tangent_out[0]


class _SharedRule:
    """The shared rule: it computes the cotangents of all operands at once."""

    __slots__ = ()

    retains = ...  # all operands

    @staticmethod
    def save(args: Any, out: Any, params: Any) -> tuple[Any, ...]:
        return tuple(args), params["axes"], params["combine"]

    pull = staticmethod(_vjp)


class _OperandRule:
    """The rule of one operand: it selects the operand's cotangent among all of them."""

    __slots__ = ("index",)

    retains = (0,)

    def __init__(self, index: int) -> None:
        self.index = index

    def save(self, args: Any, out: Any, params: Any) -> tuple[Any, ...]:
        if len(args) > 1:
            return (self.index,)
        return 0, tuple(args), params["axes"], params["combine"]

    @staticmethod
    def pull(ct: Any, index: int, *alone: Any) -> Any:
        return (_vjp([ct], *alone) if alone else ct)[index]


def _batch(apply: Function, values: Any, batched: Any, size: int, params: Any) -> Any:
    axes = tuple([axis + 1 for axis in params["axes"]])
    own = [x.shape[flag:] for x, flag in zip(values, batched, strict=True)]
    shape = size, *max(own, key=len)
    states = [_batched(x, flag, shape) for x, flag in zip(values, batched, strict=True)]
    return apply(*states, axes=axes, combine=params["combine"])


def _batched(x: Any, flag: bool, shape: tuple[int, ...]) -> Any:
    """Broadcast a part of the states to the shape of the batch."""
    if flag and x.shape != shape:
        x = dispatch(registry["reshape"], (x,), {"to": (shape[0], *(1,) * (len(shape) - 1))})
    return x if x.ndim == 0 else spread(x, shape)


def _reduce(xp: Any, *states: Any, axes: tuple[int, ...], combine: Combine) -> Any:
    """Combine elements along some axes, giving one array for each part of a state."""
    outs = reduce_states(combine, states, axes)
    return outs if len(outs) > 1 else outs[0]


reduce = operation(_reduce, "opaque", Rules(_OperandRule, first=_SharedRule()), _forward, _batch)
