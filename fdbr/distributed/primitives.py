"""Collectives under every transformation.

All ranks run a collective together, forward and in the backward pass.  Each running trace that
differentiates records it, whether or not its operands depend on what that trace differentiates on
this rank, and the backward pass visits the entries in reverse order, whatever cotangents come.  So
all ranks run the same collectives in the same order, also ranks without cotangents.

Collectives are higher-order primitives: each trace unwraps the operands and applies the collective
to their values; the innermost trace comes first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from fdbr import ops, tree
from fdbr.compiler.capture.tracers import CaptureTrace, capturing
from fdbr.core import collective_log, effects
from fdbr.core.array_modules import array_module, is_array, lock
from fdbr.core.higher_order import HigherOrder
from fdbr.core.primitive import Facts
from fdbr.core.tape import ReverseTrace
from fdbr.core.tracer import Tracer, running
from fdbr.distributed.calls import Call
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.exchange import check, exchange, shapes_after
from fdbr.distributed.packing import from_wire, is_compressed, to_wire
from fdbr.errors.checks import describe
from fdbr.transforms.custom_call import Zero, zero_like
from fdbr.transforms.jvp import ForwardTrace
from fdbr.transforms.vmap import BatchTrace, BatchTracer

__all__ = ["RecordedError", "as_array", "communicate"]

Leaves = Sequence[Any]

_FROM_ROOT = frozenset({"broadcast", "scatter"})
_TO_ROOT = frozenset({"reduce", "gather"})
_OF_SHARDS = frozenset({"from_shards", "maximum_of_shards"})


class RecordedError(RuntimeError):
    """A program would run a collective that the transformations around it must record."""


@attrs.frozen(eq=False)
class _Kind:
    """The aval of an array: its shape, dtype and array module."""

    shape: tuple[int, ...]
    dtype: Any
    xp: Any

    @classmethod
    def of(cls, value: Any) -> "_Kind":
        shape = tuple(getattr(value, "shape", ()))
        dtype = getattr(value, "dtype", None)
        return cls(shape, np.dtype(type(value)) if dtype is None else dtype, array_module(value))

    def zeros(self, shape: tuple[int, ...] | None = None) -> Any:
        """Return zeros of the dtype, in the shape or in a given one."""
        return self.xp.zeros(self.shape if shape is None else shape, dtype=self.dtype)

    def with_axis(self, size: int) -> "_Kind":
        """Return the aval of a batch, whose axis comes last."""
        return attrs.evolve(self, shape=(*self.shape, size))


Kinds = tuple[_Kind, ...] | None


def communicate(
    call: Call, comm: Communicator, leaves: Leaves | None, like: Leaves | None = None
) -> list[Any] | None:
    """Run a collective on leaves that may be traced.

    Parameters
    ----------
    call, comm
        The collective.
    leaves
        Arrays, numbers or traced values; `None` if this rank gives nothing.
    like
        For a rank that gives nothing, values like the root's, if they are known.

    Returns
    -------
    list
        As many as were given; `None` where this rank gets nothing.
    """
    if leaves is not None:
        leaves = list(leaves)
        check(call, comm, [as_array(call, leaf) for leaf in leaves])
    return _begun(call, comm, leaves, None if like is None else tuple(map(_Kind.of, like)))


def _begun(
    call: Call, comm: Communicator, leaves: Leaves | None, like: Kinds = None
) -> list[Any] | None:
    effects.before_effect()
    collective_log.note_collective()
    return _applied(call, comm, leaves, like)


def _applied(
    call: Call, comm: Communicator, leaves: Leaves | None, like: Kinds = None
) -> list[Any] | None:
    """Apply a collective by its primitive, which has no results where this rank gets nothing."""
    params = {"call": call, "comm": comm, "like": like, "gives": leaves is not None}
    outs = _PRIMITIVES[call.name].apply(*(leaves or ()), **params)
    return list(outs) if _gets(call, comm) else None


def _gets(call: Call, comm: Communicator) -> bool:
    """Whether this rank gets results."""
    if call.name in ("barrier", "send"):
        return False
    return call.name not in _TO_ROOT or comm.rank == call.root


# --- arrays -----------------------------------------------------------------------------


def _met(call: Call, comm: Communicator, leaves: Leaves | None, like: Kinds) -> list[Any] | None:
    """Run a collective on arrays and numbers."""
    arrays = None if leaves is None else [as_array(call, leaf) for leaf in leaves]
    if not effects.effects_are_had():
        return _pretended(call, comm, arrays, like)

    if call.name == "to_shards":
        assert arrays is not None
        return [array if array.shape else array[()] for array in arrays]
    asked = attrs.evolve(call, name="all_reduce") if call.name in _OF_SHARDS else call

    def meet() -> list[Any] | None:
        outs = exchange(asked, comm, arrays)
        if outs is None:
            return None
        pairs = zip(arrays or (), outs, strict=True) if call.masked else ()
        masks = [_mask(call, array, out) for array, out in pairs]
        return list(map(_published, outs + masks))

    kinds = None if arrays is None else tuple([(a.shape, a.dtype) for a in arrays])
    outs: list[Any] | None = collective_log.met(_Key(call, id(comm), kinds), meet)
    if call.backward and any(array_module(part).any(part) for part in outs or arrays or ()):
        collective_log.note_cotangents()  # also where a run that begins anew is given what it had
    return outs


@attrs.frozen
class _Key:
    """The key by which a repeated run finds the results of a collective."""

    call: Call
    comm: int
    kinds: Any

    def __str__(self) -> str:
        return f"fdbr.distributed.{self.call}"


def _pretended(
    call: Call, comm: Communicator, arrays: Leaves | None, like: Kinds
) -> list[Any] | None:
    """Return the zeros that a collective gives in a run without side effects."""
    kinds = like if arrays is None else tuple(map(_Kind.of, arrays))
    if not _gets(call, comm):
        return None
    if kinds is None:
        text = (
            f"fdbr.distributed.{call.name}: what comes from rank {call.root} is not known in a run "
            "that asks no other rank; give x in the form of the root's on this rank too"
        )
        trace = capturing.get()
        if trace is not None:
            trace.abandon(text)
        raise RuntimeError(text)
    shapes = [shapes_after(call, comm.size, kind.shape) for kind in kinds]
    zeros = [kind.zeros(shape) for kind, shape in zip(kinds, shapes, strict=True)]
    masks = [zero.astype(bool) for zero in zeros] if call.masked else []
    return list(map(_published, zeros + masks))


def as_array(call: Call, leaf: Any) -> Any:
    """Convert a leaf to an array; raise if it is neither an array nor a number."""
    if isinstance(leaf, Tracer) or is_array(leaf):
        return leaf
    array = array_module(leaf).asarray(leaf)
    if array.dtype == object:
        raise TypeError(
            f"fdbr.distributed.{call.name}: a leaf is {describe(leaf)}, which is no array; for "
            f"objects of Python there is {call.name}_object"
        )
    return array


def _mask(call: Call, array: Any, out: Any) -> Any:
    """Mark the elements where a rank's operand, as it was sent, is the extreme value.

    The mask is computed when ranks communicate: a repeated run may compute other last bits.
    """
    if is_compressed(array.dtype, call.wire):
        array = from_wire(to_wire(array, call.wire), call.wire, array.dtype)
    return array_module(out).equal(array, out)


def _published(out: Any) -> Any:
    return lock(out) if out.shape or array_module(out) is not np else out[()]


# --- programs ---------------------------------------------------------------------------


def _run(
    xp: Any, *leaves: Any, call: Call, comm: Communicator, like: Kinds, gives: bool
) -> tuple[Any, ...] | None:
    """Run a step of a program."""
    effects.before_effect()
    if running.get():
        raise RecordedError(f"fdbr.distributed.{call.name}: it is to be recorded")
    collective_log.note_collective()
    if call.name == "to_shards":  # a program may reuse the memory of its operands
        leaves = tuple(array_module(leaf).array(leaf) for leaf in leaves)
    outs = _met(call, comm, leaves if gives else None, like)
    return tuple(outs) if outs else None


def _capture(
    trace: CaptureTrace,
    operands: Leaves,
    call: Call,
    comm: Communicator,
    like: Kinds,
    gives: bool,
) -> Leaves:
    """Make it a step of the program."""
    if collective_log.collectives_are_refused():
        trace.abandon(
            "it communicates, and is differentiated from outside; jit what differentiates"
        )
    outs = _applied(call, comm, trace.unwrap(operands)[0] if gives else None, like)
    params = {"call": call, "comm": comm, "like": like, "gives": gives}
    step = _PRIMITIVES[call.name]
    return trace.noted(step, tuple(operands), params, tuple(outs) if outs else None) or ()


# --- batches ----------------------------------------------------------------------------


def _batch(
    trace: BatchTrace,
    values: Leaves,
    batched: Sequence[bool],
    call: Call,
    comm: Communicator,
    like: Kinds,
    gives: bool,
) -> tuple[Leaves, Sequence[bool]]:
    """Apply the collective once for all examples, whose axis comes last.

    Results that only the root knows are batches on all ranks, because others do not know whether
    the root has a batch.
    """
    trace.meets(f"fdbr.distributed.{call.name}")
    if call.name in _FROM_ROOT:
        like = like and tuple(kind.with_axis(trace.size) for kind in like)
        values = [
            value if mine else _spread(value, trace.size)
            for value, mine in zip(values, batched, strict=True)
        ]
        batched = [True] * len(values)
    elif not any(batched):
        outs = _applied(call, comm, values if gives else None, like) or ()
        return outs, [False] * len(outs)
    last = [ops.moveaxis(v, 0, -1) if m else v for v, m in zip(values, batched, strict=True)]
    outs = _applied(call, comm, last if gives else None, like) or ()
    own = [*batched] * (2 if call.masked else 1) if gives else [True] * len(outs)
    own = own if outs else []
    return [ops.moveaxis(o, -1, 0) if m else o for o, m in zip(outs, own, strict=True)], own


def _spread(value: Any, size: int) -> Any:
    """Repeat a value for each example."""
    value = value if hasattr(value, "shape") else np.asarray(value)
    return ops.broadcast_to(value, (size, *value.shape))


def _of_batches(values: Leaves) -> list[Any]:
    """The values as batches of all batches that are running, so that they are so on all ranks."""
    batches = [trace for trace in running.get() if isinstance(trace, BatchTrace)]
    if not batches:
        return list(values)
    return [_of_all(value, batches) for value in values]


def _of_all(value: Any, batches: Sequence[BatchTrace]) -> Any:
    found = set()
    below = value
    while isinstance(below, Tracer):
        found.add(below._trace.level)
        below = below.value
    if all(trace.level in found for trace in batches):
        return value
    zero = _Kind.of(value).zeros()
    for trace in batches:
        zero = BatchTracer(trace, _spread(zero, trace.size))
    return ops.add(value, zero)


# --- derivatives ------------------------------------------------------------------------


def _reverse(
    trace: ReverseTrace,
    values: Leaves,
    tracked: Sequence[bool],
    call: Call,
    comm: Communicator,
    like: Kinds,
    gives: bool,
) -> tuple[Leaves, Callable[[list[Any]], list[Any]] | None]:
    """Reverse mode: the backward pass runs the transpose."""
    given = values if gives else None
    if _is_constant(call, tracked):
        return _applied(call, comm, given, like) or (), None
    outs, all_masks = _apart(call, _applied(_masked(call), comm, given, like))
    joined = _joined(call, outs, all_masks) or ()
    positions = _inexact(outs if given is None else given)
    if not positions:
        return joined, None
    kinds = None if given is None else [_Kind.of(given[i]) for i in positions]
    zeros = None if outs is None else [Zero(outs[i]) for i in positions]
    masks = [all_masks[i] for i in positions] if all_masks else None
    number = {i: n for n, i in enumerate(positions)}
    mine = [i for i, yes in enumerate(tracked) if yes]
    # What `receive` is given tells the form of the message, and nothing depends on its values.
    reached = set() if call.name == "receive" else number.keys() & set(mine)

    def vjp(cotangents: list[Any]) -> list[Any]:
        full = None
        if zeros is not None:
            present = [zero.fill(cotangents[i]) for zero, i in zip(zeros, positions, strict=True)]
            full = _of_batches(present)
        found = _transposed(call, comm, full, kinds, masks)
        return [found[number[i]] if found is not None and i in reached else None for i in mine]

    return joined, vjp


def _forward(
    trace: ForwardTrace,
    values: Leaves,
    tangents: Leaves,
    call: Call,
    comm: Communicator,
    like: Kinds,
    gives: bool,
) -> tuple[Leaves, Leaves]:
    """Forward mode: the same collective of the tangents."""
    given = values if gives else None
    outs, all_masks = _apart(call, _applied(_masked(call), comm, given, like))
    joined = _joined(call, outs, all_masks) or ()
    of_outs: list[Any] = [None] * len(joined)
    positions = _inexact(outs if given is None else given)
    if _is_constant(call, [t is not None for t in tangents]) or not positions:
        return joined, of_outs
    moved = None
    if given is not None:
        moved = _of_batches(
            [zero_like(given[i]) if tangents[i] is None else tangents[i] for i in positions]
        )
    collective_log.note_collective()
    found: Any
    if all_masks:
        masks = [all_masks[i] for i in positions]
        terms = [ops.where(m, t, 0) for m, t in zip(masks, moved or (), strict=True)]
        found = _shared(call, comm, terms, masks)
    else:
        kinds = like and tuple(kind for kind in like if _is_inexact(kind.dtype))
        found = _applied(call, comm, moved, kinds)
    for i, tangent in zip(positions, found, strict=True) if outs is not None else ():
        of_outs[i] = tangent
    return joined, of_outs


def _is_constant(call: Call, own: Sequence[bool]) -> bool:
    """Return whether the results are constants, which holds on all ranks or on none."""
    if call.name == "maximum_of_shards":
        return True
    return call.name.endswith("_shards") and not any(own)


def _inexact(values: Leaves | None) -> list[int]:
    """Return the indices of the values that have derivatives."""
    return [i for i, value in enumerate(values or ()) if tree.is_inexact(value)]


def _is_inexact(dtype: Any) -> bool:
    return bool(tree.is_inexact(np.empty(0, dtype)))


def _masked(call: Call) -> Call:
    """Return the call to differentiate: for extreme values, one that also gives masks."""
    return attrs.evolve(call, masked=True) if call.op in ("max", "min") else call


def _apart(call: Call, outs: Any) -> tuple[Any, Leaves]:
    """Split the results of a call of `_masked` into results and masks."""
    count = len(outs) // 2 if outs and call.op in ("max", "min") else len(outs or ())
    return (outs, ()) if outs is None else (outs[:count], outs[count:])


def _joined(call: Call, outs: Any, masks: Leaves) -> Any:
    """Append the masks to the results if the call asked for them."""
    return [*outs, *masks] if outs is not None and call.masked else outs


def _shared(
    call: Call, comm: Communicator, terms: Leaves, masks: Leaves, backward: bool = False
) -> list[Any]:
    """Sum terms over all ranks, divided by the number of ranks with the extreme value."""
    counts = _of_batches([ops.astype(m, t.dtype) for m, t in zip(masks, terms, strict=True)])
    total = attrs.evolve(call, op="sum", asked="", masked=False, structure="", backward=backward)
    sums: Any = _applied(total, comm, [*terms, *counts])
    totals, numbers = sums[: len(terms)], sums[len(terms) :]
    return [ops.divide(t, ops.maximum(n, 1)) for t, n in zip(totals, numbers, strict=True)]


def _transposed(
    call: Call, comm: Communicator, cts: Leaves | None, kinds: Any, masks: Leaves | None
) -> list[Any] | None:
    """Compute the cotangents of a rank's operands from those of its results."""
    if masks is not None:
        effects.before_effect()
        collective_log.note_collective()
        shares = _shared(call, comm, cts or (), masks, backward=True)
        return [ops.where(mask, share, 0) for mask, share in zip(masks, shares, strict=True)]
    return _TRANSPOSES[call.name](call, comm, cts, kinds)


_BACK = ", on the way back"


def _as(call: Call, name: str, **changes: Any) -> Call:
    """Return the call of the transpose."""
    where = call.where.removesuffix(_BACK) + _BACK
    changes = {"op": "", "asked": "", "structure": "", **changes}  # some leaves have no cotangents
    return attrs.evolve(call, name=name, where=where, backward=True, **changes)


def _all_reduce(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "all_reduce", op=call.op), comm, cts)


def _reduce(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    derivatives = _begun(_as(call, "broadcast"), comm, cts, kinds)
    return _divided(derivatives, comm) if call.op == "mean" else derivatives


def _broadcast(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "reduce", op="sum"), comm, cts)


def _gather(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    whole = tuple(attrs.evolve(kind, shape=(comm.size, *kind.shape)) for kind in kinds)
    return _without_row(_begun(_as(call, "scatter"), comm, cts, whole))


def _all_gather(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _without_row(_begun(_as(call, "reduce_scatter", op=call.op or "sum"), comm, cts))


def _scatter(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _in_one_row(_begun(_as(call, "gather"), comm, cts))


def _reduce_scatter(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    derivatives = _in_one_row(_begun(_as(call, "all_gather"), comm, cts))
    return _divided(derivatives, comm) if call.op == "mean" else derivatives


def _all_to_all(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "all_to_all"), comm, cts)


def _send(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    zeros = _of_batches([kind.zeros() for kind in kinds])
    return _begun(_as(call, "receive", source=call.to, to=-1), comm, zeros)


def _to_shards(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "from_shards", op="sum"), comm, cts)


def _from_shards(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "to_shards"), comm, cts)


def _receive(call: Call, comm: Communicator, cts: Any, kinds: Any) -> Any:
    return _begun(_as(call, "send", to=call.source, source=-1), comm, cts)


_TRANSPOSES: dict[str, Callable[..., Any]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "from_shards": _from_shards,
    "gather": _gather,
    "receive": _receive,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
    "send": _send,
    "to_shards": _to_shards,
}


def _divided(values: Any, comm: Communicator) -> Any:
    return values and [value / comm.size for value in values]


def _without_row(values: Any) -> Any:
    """Remove the first axis, of one row."""
    return values and [ops.squeeze(value, axis=0) for value in values]


def _in_one_row(values: Any) -> Any:
    """Merge the first two axes."""
    return values and [
        ops.reshape(value, (value.shape[0] * value.shape[1], *value.shape[2:])) for value in values
    ]


# --- primitives -------------------------------------------------------------------------


class _Collective(HigherOrder):
    """A collective as a primitive; its operands are leaves, and none where this rank gives none."""

    __slots__ = ()

    communicates = True

    def __init__(self, name: str) -> None:
        rules: dict[str, Any] = {
            "reverse": _reverse,
            "forward": _forward,
            "batch": _batch,
            "capture": _capture,
        }
        super().__init__(name, _run, facts=Facts(effect=True, collective=True), **rules)

    def evaluate(self, operands: Leaves, params: dict[str, Any]) -> Leaves:
        leaves = operands if params["gives"] else None
        return _met(params["call"], params["comm"], leaves, params["like"]) or ()

    def title(self, params: dict[str, Any]) -> str:
        return f"distributed.{self.name}"


_PRIMITIVES = {name: _Collective(name) for name in (*_TRANSPOSES, "barrier", "maximum_of_shards")}
