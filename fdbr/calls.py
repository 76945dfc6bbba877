"""Operations on leaves whose derivative is stated by functions: how each trace applies them.

A `Call` is to `custom_vjp` and `custom_jvp` what a primitive is to an op: each trace takes one
layer off its operands and applies the call to what is below.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr import ops, tree
from fdbr.backend import array_module
from fdbr.batching import BatchTrace, BatchTracer, vmap
from fdbr.core import Trace, Tracer, ended, escaped, retain
from fdbr.forward import ForwardTrace
from fdbr.reverse import ReverseTrace
from fdbr.transforms import vjp

__all__ = ["Call", "apply", "innermost", "zero_like"]

Leaves = Sequence[Any]


class Call:
    """An operation on leaves, with either a reverse or a forward rule.

    Attributes
    ----------
    name
        For messages and drawings.
    value
        ``value(*leaves) -> outs``, a tuple.
    fwd, bwd
        ``fwd(*leaves) -> (outs, residuals)`` and ``bwd(residuals, cotangents) -> cotangents``.
    rule
        ``rule(leaves, tangents) -> (outs, tangents)``, used if there is no ``bwd``.
    """

    __slots__ = ("bwd", "fwd", "name", "rule", "value")

    def __init__(self, name: str, value: Callable[..., Any]) -> None:
        self.name = name
        self.value = value
        self.fwd: Any = None
        self.bwd: Any = None
        self.rule: Any = None


def innermost(leaves: Leaves) -> Trace | None:
    """The innermost trace among some leaves."""
    traces = [leaf.trace for leaf in leaves if isinstance(leaf, Tracer)]
    return max(traces, key=lambda trace: trace.level, default=None)


def apply(call: Call, leaves: Leaves) -> tuple[Any, ...]:
    """Apply a call to leaves, some of them traced."""
    top: Any = innermost(leaves)
    if top is None:
        return call.value(*leaves)
    if ended(top):
        raise escaped(top, f"fdbr.{call.name}")
    mine = [isinstance(leaf, Tracer) and leaf.trace is top for leaf in leaves]
    values = [leaf.value if own else leaf for leaf, own in zip(leaves, mine, strict=True)]
    if isinstance(top, BatchTrace):
        outs = apply(_batched(call, mine, top.size), values)
        return tuple(BatchTracer(top, out) for out in outs)
    if isinstance(top, ForwardTrace):
        tangents = [leaf.tangent if own else None for leaf, own in zip(leaves, mine, strict=True)]
        outs, slopes = (_pushed_back if call.bwd else _pushed)(call, values, tangents)
        return tuple(map(top.output, outs, slopes))
    assert isinstance(top, ReverseTrace)
    outs, pull = (_pulled if call.bwd else _pulled_back)(call, values, mine)
    parents = [leaf.node for leaf, own in zip(leaves, mine, strict=True) if own]
    return top.joint(call.name, outs, parents, pull)


def _pulled(call: Call, values: Leaves, mine: Sequence[bool]) -> Any:
    """Reverse mode by a reverse rule."""
    outs, residuals = call.fwd(*values)
    residuals = tree.map(retain, residuals)
    zeros = [_Zero(out) for out in outs]

    def pull(cotangents: list[Any]) -> list[Any]:
        full = [z.make() if ct is None else ct for ct, z in zip(cotangents, zeros, strict=True)]
        found = call.bwd(residuals, full)
        return [ct for ct, own in zip(found, mine, strict=True) if own]

    return outs, pull


def _pulled_back(call: Call, values: Leaves, mine: Sequence[bool]) -> Any:
    """Reverse mode by a forward rule: the transpose of its linear part."""
    outs = apply(call, values)
    values = [retain(value) for value in values]
    zeros = [_Zero(out) for out in outs]

    def push(*tangents: Any) -> tuple[Any, ...]:
        given = iter(tangents)
        full = [
            next(given) if own else zero_like(value)
            for own, value in zip(mine, values, strict=True)
        ]
        return tuple(call.rule(values, full)[1])

    def pull(cotangents: list[Any]) -> list[Any]:
        points = [zero_like(value) for value, own in zip(values, mine, strict=True) if own]
        _, back = vjp(push, *points)
        full = [z.make() if ct is None else ct for ct, z in zip(cotangents, zeros, strict=True)]
        return list(back(tuple(full)))

    return outs, pull


def _pushed(call: Call, values: Leaves, tangents: Leaves) -> Any:
    """Forward mode by a forward rule."""
    full = [zero_like(v) if t is None else t for v, t in zip(values, tangents, strict=True)]
    return call.rule(values, full)


def _pushed_back(call: Call, values: Leaves, tangents: Leaves) -> Any:
    """Forward mode by a reverse rule: its transpose."""
    outs, residuals = call.fwd(*values)
    moved = [i for i, tangent in enumerate(tangents) if tangent is not None]

    def pull(*cotangents: Any) -> tuple[Any, ...]:
        found = call.bwd(residuals, list(cotangents))
        return tuple(zero_like(values[i]) if found[i] is None else found[i] for i in moved)

    inexact = [tree.is_inexact(out) for out in outs]
    _, push = vjp(pull, *(zero_like(out) for out in outs))
    slopes = push(tuple(tangents[i] for i in moved))
    return outs, [slope if ok else None for slope, ok in zip(slopes, inexact, strict=True)]


def _batched(call: Call, mine: Sequence[bool], size: int) -> Call:
    """The call on a whole batch, by `vmap` of its functions."""
    axes = tuple(0 if own else None for own in mine)
    new = Call(call.name, vmap(call.value, axes, axis_size=size))
    if call.rule:
        new.rule = lambda leaves, tangents: vmap(call.rule, (axes, axes), axis_size=size)(
            tuple(leaves), tuple(tangents)
        )
        return new

    def bwd(residuals: Any, cotangents: Leaves) -> list[Any]:
        found = vmap(call.bwd, axis_size=size)(residuals, list(cotangents))
        return [
            ct if own or ct is None else ops.sum(ct, axis=0)
            for ct, own in zip(found, mine, strict=True)
        ]

    new.fwd, new.bwd = vmap(call.fwd, axes, axis_size=size), bwd
    return new


def zero_like(value: Any) -> Any:
    """Zero in the shape and dtype of a leaf; `None` for what is not differentiated."""
    if not tree.is_inexact(value):
        return None
    return ops.zeros_like(value) if hasattr(value, "dtype") else 0.0


class _Zero:
    """A zero that is made when it is needed, and keeps no array until then."""

    __slots__ = ("_dtype", "_shape", "_xp")

    def __init__(self, value: Any) -> None:
        self._shape = getattr(value, "shape", ())
        self._dtype = getattr(value, "dtype", type(value))
        self._xp = array_module(value)

    def make(self) -> Any:
        """The zero."""
        if self._dtype is float:
            return 0.0
        return self._xp.zeros(self._shape, dtype=self._dtype)
