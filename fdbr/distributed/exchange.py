"""One collective on a list of plain arrays: agreed upon, packed, moved, unpacked."""

from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.devices import is_host
from fdbr.distributed.calls import Call, Record
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.packing import Packing, from_wire, is_compressed, to_wire
from fdbr.distributed.placement import by_place
from fdbr.distributed.transports.interface import Transport
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["check", "exchange", "shapes_after"]

_DIVIDES = frozenset({"scatter", "reduce_scatter", "all_to_all"})


def exchange(call: Call, comm: Communicator, arrays: Sequence[Any] | None) -> list[Any] | None:
    """The part that this rank gets of a collective.

    Parameters
    ----------
    call
        The collective; every rank calls the same.
    comm
        The ranks.
    arrays
        What this rank gives, for `receive` arrays like those that come; `None` for nothing (of
        `scatter` and `broadcast`, on ranks that are not the root).

    Returns
    -------
    list
        Arrays in memory of their own, as many as were given; `None` where this rank gets nothing.
    """
    transport = comm.transport
    if arrays is not None:
        check(call, comm, arrays)
    if call.name in ("send", "receive"):
        assert arrays is not None
        return _message(call, transport, arrays)
    record = Record.of(call, arrays)
    agreed = transport.agree(record, call.root)
    if call.name == "barrier":
        return None
    kinds = record.arrays if arrays is not None else agreed.arrays
    assert kinds is not None
    rows = comm.size * (call.name in _DIVIDES)

    def move(xp: Any, kinds: list[Any], part: list[Any] | None) -> list[Any] | None:
        return _MOVES[call.name](call, transport, Packing(xp, kinds, rows), part)

    return by_place(transport, kinds, arrays, move)


def _message(call: Call, transport: Transport, arrays: Sequence[Any]) -> list[Any] | None:
    """Send, or receive: one message for each kind of memory."""

    def move(xp: Any, kinds: list[Any], part: list[Any] | None) -> list[Any] | None:
        assert part is not None
        record, packing = Record.of(call, part), Packing(xp, kinds)
        if call.name == "receive":
            return packing.unpacked(_received(transport, record, packing.empty(), call))
        transport.send(record, _sent(packing.packed(part), call.wire), call.to, call.tag)
        return None

    known = Record.of(call, arrays).arrays
    assert known is not None
    return by_place(transport, known, arrays, move)


def shapes_after(call: Call, size: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what comes of an array of that shape, where something comes."""
    if call.name in ("gather", "all_gather"):
        return (size, *shape)
    if call.name in ("scatter", "reduce_scatter"):
        return (shape[0] // size, *shape[1:])
    return shape


def check(call: Call, comm: Communicator, arrays: Sequence[Any]) -> None:
    """Raise the error for arrays that this collective does not take, before anybody waits."""
    where = f"fdbr.distributed.{call.asked or call.name}"
    for array in arrays:
        kind = dtype_kind(array.dtype)
        if call.op and kind not in "fciub":
            raise TypeError(f"{where}: elements of dtype {array.dtype} cannot be combined")
        if call.op in ("max", "min") and kind == "c":
            raise TypeError(f"{where}: complex numbers have no {call.op}; take that of their parts")
        if call.op == "mean" and kind not in "fc":
            raise TypeError(f"{where}: a mean of {array.dtype}; cast x to a floating dtype first")
        if call.op == "sum" and kind == "b":
            raise TypeError(
                f"{where}: a sum of booleans; cast x to an integer dtype, or use op='max' for any"
            )
        if call.name in _DIVIDES and (not array.shape or array.shape[0] % comm.size):
            raise ValueError(
                f"{where}: the first axis is divided among {comm.size} ranks, so its length must "
                f"be a multiple of that, but an array has shape {tuple(array.shape)}"
            )


# --- reductions -----------------------------------------------------------------------


def _scaled(buffer: Any, call: Call, size: int) -> None:
    if call.op == "mean":
        buffer /= size


def _all_reduced(transport: Transport, buffer: Any, call: Call) -> Any:
    op = "sum" if call.op == "mean" else call.op
    if _by_pieces(transport, buffer, call):
        total = _sum_by_pieces(transport, buffer, call, op)
        if dtype_kind(total.dtype) == "f" and total.dtype == buffer.dtype:
            return total
        return total.astype(buffer.dtype)
    if dtype_kind(buffer.dtype) == "b":
        buffer = buffer.view("uint8")
        transport.all_reduce(buffer, op)
        return buffer.view("bool")
    transport.all_reduce(buffer, op)
    _scaled(buffer, call, transport.size)
    return buffer


def _by_pieces(transport: Transport, buffer: Any, call: Call) -> bool:
    short = dtype_kind(buffer.dtype) == "f" and buffer.dtype.itemsize == 2
    return short or is_compressed(buffer.dtype, call.wire)


def _sum_by_pieces(transport: Transport, buffer: Any, call: Call, op: str) -> Any:
    """The combination of short floating numbers, each computed in float32 by one rank."""
    xp = array_module(buffer)
    size, count = transport.size, buffer.shape[0]
    wire = call.wire if is_compressed(buffer.dtype, call.wire) else ""
    each = -(-count // size)
    padded = xp.zeros(each * size, buffer.dtype)
    padded[:count] = buffer
    mine = _combined_piece(transport, padded.reshape(size, each), wire, call, op)
    whole = xp.empty((size, each), mine.dtype)
    transport.all_gather(mine, whole)
    whole = whole.reshape(-1)[:count]
    return from_wire(whole, wire, buffer.dtype) if wire else whole


def _combined_piece(transport: Transport, rows: Any, wire: str, call: Call, op: str) -> Any:
    """The row of this rank of the combination of all ranks' rows, as it travels."""
    xp = array_module(rows)
    given = to_wire(rows, wire) if wire else rows
    parts = xp.empty_like(given)
    transport.all_to_all(given, parts)
    wide = from_wire(parts, wire, xp.float32) if wire else parts.astype(xp.float32)
    combine = {"sum": xp.add, "max": xp.maximum, "min": xp.minimum}[op]
    total = wide[0]
    for part in wide[1:]:
        total = combine(total, part)
    if call.op == "mean":
        total = total / xp.float32(transport.size)
    return to_wire(total, wire) if wire else total.astype(rows.dtype)


def _all_reduce(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    if is_host(packing.xp) and transport.piece:
        return packing.unpacked(_all_reduced_in_pieces(call, transport, packing, arrays))
    buffers = packing.packed(arrays)
    return packing.unpacked([_all_reduced(transport, buffer, call) for buffer in buffers])


def _all_reduced_in_pieces(
    call: Call, transport: Transport, packing: Packing, arrays: Any
) -> list[Any]:
    """The reduced buffers, filled and scaled piece by piece, while that is in the caches."""
    op = "sum" if call.op == "mean" else call.op
    size = transport.size  # a power of two divides exactly, and so before as well as after
    factor = 1.0 / size if call.op == "mean" and size & (size - 1) == 0 else 1.0
    buffers = packing.empty()
    for group, buffer in enumerate(buffers):
        if _by_pieces(transport, buffer, call):
            packing.fill(buffer, arrays, group)
            buffers[group] = _all_reduced(transport, buffer, call)
            continue
        raw = buffer.view("uint8") if dtype_kind(buffer.dtype) == "b" else buffer
        count = transport.piece // buffer.itemsize
        for start in range(0, buffer.size, count):
            packing.fill(buffer, arrays, group, start, start + count, factor)
            piece = raw[start : start + count]
            transport.all_reduce(piece, op)
            if factor == 1.0:
                _scaled(piece, call, transport.size)
    return buffers


def _reduce(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any] | None:
    buffers = packing.packed(arrays)
    op = "sum" if call.op == "mean" else call.op
    for i, buffer in enumerate(buffers):
        if _by_pieces(transport, buffer, call) or dtype_kind(buffer.dtype) == "b":
            buffers[i] = _all_reduced(transport, buffer, call)
            continue
        transport.reduce(buffer, op, call.root)
        if transport.rank == call.root:
            _scaled(buffer, call, transport.size)
    return packing.unpacked(buffers) if transport.rank == call.root else None


def _reduce_scatter(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    outs = []
    op = "sum" if call.op == "mean" else call.op
    xp = packing.xp
    for buffer in packing.packed(arrays):
        if _by_pieces(transport, buffer, call):
            wire = call.wire if is_compressed(buffer.dtype, call.wire) else ""
            piece = _combined_piece(transport, buffer, wire, call, op)
            outs.append(from_wire(piece, wire, buffer.dtype) if wire else piece)
            continue
        raw = buffer.view("uint8") if dtype_kind(buffer.dtype) == "b" else buffer
        out = xp.empty(raw.shape[1:], raw.dtype)
        transport.reduce_scatter(raw, out, op)
        out = out.view(buffer.dtype)
        _scaled(out, call, transport.size)
        outs.append(out)
    return _part(packing, call, transport.size).unpacked(outs)


# --- what only moves --------------------------------------------------------------------


def _part(packing: Packing, call: Call, size: int) -> Packing:
    """The packing of each rank's part."""
    kinds = [(shapes_after(call, size, shape), dtype) for shape, dtype in packing.kinds]
    return Packing(packing.xp, kinds)


def _sent(buffers: list[Any], wire: str) -> list[Any]:
    return [to_wire(b, wire) if is_compressed(b.dtype, wire) else b for b in buffers]


def _moved(buffers: list[Any], outs: list[Any], wire: str, move: Callable[..., None]) -> list[Any]:
    """The outs, after each pair has been moved as it travels."""
    for i, out in enumerate(outs):
        given = buffers[i]
        if is_compressed(out.dtype, wire):
            given = None if given is None else to_wire(given, wire)
            got = array_module(out).empty(out.shape, "uint16" if wire == "bfloat16" else wire)
            move(given, got)
            outs[i] = from_wire(got, wire, out.dtype)
        else:
            move(given, out)
    return outs


def _received(transport: Transport, record: Record, buffers: list[Any], call: Call) -> list[Any]:
    def short(b: Any) -> Any:
        return array_module(b).empty(b.shape, "uint16" if call.wire == "bfloat16" else call.wire)

    got = [short(b) if is_compressed(b.dtype, call.wire) else b for b in buffers]
    transport.receive(record, got, call.source, call.tag)
    pairs = zip(got, buffers, strict=True)
    return [g if g is b else from_wire(g, call.wire, b.dtype) for g, b in pairs]


def _broadcast(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    root = transport.rank == call.root
    buffers = packing.packed(arrays) if root else packing.empty()
    for i, buffer in enumerate(buffers):
        if is_compressed(buffer.dtype, call.wire):
            short = to_wire(buffer, call.wire)
            transport.broadcast(short, call.root)
            buffers[i] = from_wire(short, call.wire, buffer.dtype)
        else:
            transport.broadcast(buffer, call.root)
    return packing.unpacked(buffers)


def _rows(packing: Packing, size: int) -> list[Any]:
    shapes = [(size, buffer.shape[0], buffer.dtype) for buffer in packing.empty()]
    return [packing.xp.empty((size, count), dtype) for size, count, dtype in shapes]


def _all_gather(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    outs = _rows(packing, transport.size)
    moved = _moved(packing.packed(arrays), outs, call.wire, transport.all_gather)
    return packing.stacked(moved)


def _gather(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any] | None:
    outs = _rows(packing, transport.size)
    root = transport.rank == call.root

    def move(given: Any, out: Any) -> None:
        transport.gather(given, out if root else None, call.root)

    moved = _moved(packing.packed(arrays), outs, call.wire, move)
    return packing.stacked(moved) if root else None


def _scatter(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    root = transport.rank == call.root
    part = _part(packing, call, transport.size)
    outs = part.empty()
    given = packing.packed(arrays) if root else [None] * len(outs)
    return part.unpacked(
        _moved(given, outs, call.wire, lambda g, out: transport.scatter(g, out, call.root))
    )


def _all_to_all(call: Call, transport: Transport, packing: Packing, arrays: Any) -> list[Any]:
    buffers = packing.packed(arrays)
    outs = [packing.xp.empty_like(buffer) for buffer in buffers]
    return packing.unpacked(_moved(buffers, outs, call.wire, transport.all_to_all))


_MOVES: dict[str, Callable[..., list[Any] | None]] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "gather": _gather,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "scatter": _scatter,
}
