"""Values on their way from process to process, their arrays in shared memory without a name.

A value is pickled, with arrays out of band; pickle and arrays are put into memory that is known
by a file descriptor alone, which goes over the socket.  Nobody has to unlink it: it is freed with
its last descriptor and mapping, whoever dies.  What is small goes over the socket itself, and so
does everything on systems without descriptors to pass.
"""

import io
import mmap
import os
import pickle
import tempfile
from multiprocessing import reduction
from types import FunctionType
from typing import Any

import attrs
import numpy as np

from fdbr.backend import lock

__all__ = ["Packed", "pack", "receive"]

_SMALL = 2**12
_ALIGNMENT = 64
_PASSING = hasattr(reduction, "sendfds")


@attrs.frozen
class Packed:
    """A value that is ready to be sent, any number of times."""

    parts: tuple[Any, ...] = attrs.field(repr=False)
    places: tuple[tuple[int, int], ...]
    descriptor: int | None

    def send(self, connection: Any) -> None:
        """Send it; the error is an OSError if nobody is there to receive it."""
        if self.descriptor is None:
            connection.send((None, [bytes(part) for part in self.parts]))
        else:
            connection.send((self.places, None))
            reduction.send_handle(connection, self.descriptor, None)

    def close(self) -> None:
        """Give its memory back, as far as nobody has received it."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def pack(value: Any) -> Packed:
    """A value ready to be sent; whatever error pickling it raises, if it cannot be."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = (stream.getbuffer(), *[buffer.raw() for buffer in buffers])
    places, end = [], 0
    for part in parts:
        places.append((end, part.nbytes))
        end += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
    if end < _SMALL or not _PASSING:
        return Packed(parts, (), None)
    descriptor = _anonymous()
    try:
        os.ftruncate(descriptor, end)
        for part, (begin, _) in zip(parts, places, strict=True):
            _write(descriptor, part.cast("B") if part.nbytes else part, begin)
    except BaseException:
        os.close(descriptor)
        raise
    return Packed((), tuple(places), descriptor)


def _anonymous() -> int:
    """The descriptor of memory without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fdbr", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _write(descriptor: int, part: memoryview, place: int) -> None:
    done = 0
    while done < part.nbytes:
        done += os.pwrite(descriptor, part[done : done + 2**30], place + done)


def receive(connection: Any, shared: bool = False) -> Any:
    """The next value that was sent, with read-only arrays.

    They are copies, or, if ``shared``, views of the memory in which they were sent.
    """
    places, parts = connection.recv()
    if places is not None:
        descriptor = reduction.recv_handle(connection)
        try:
            parts = _mapped(descriptor, places) if shared else _read(descriptor, places)
        finally:
            os.close(descriptor)
    return pickle.loads(parts[0], buffers=parts[1:])


def _read(descriptor: int, places: Any) -> list[Any]:
    parts = []
    for begin, size in places:
        part = np.empty(size, np.uint8)
        done = 0
        while done < size:
            done += os.preadv(descriptor, [part.data[done : done + 2**30]], begin + done)
        parts.append(lock(part))
    return parts


def _mapped(descriptor: int, places: Any) -> list[Any]:
    view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    return [view[begin : begin + size] for begin, size in places]


# --- what pickle alone does not know ------------------------------------------------


class _Pickler(pickle.Pickler):
    """Pickles arrays that are mapped from files as places in these, and public functions."""

    def reducer_override(self, value: Any) -> Any:
        """The way to make a value anew; that of pickle for most."""
        if isinstance(value, FunctionType):
            # A module has the function itself, and what is public explains its errors.
            inner = getattr(value, "__wrapped__", None)
            ours = value.__module__.startswith("fdbr.") and inner is not None
            return (_same, (inner,)) if ours else NotImplemented
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return NotImplemented
        base: Any = value
        mapped = None
        while isinstance(base, np.ndarray):
            if isinstance(base, np.memmap) and base.filename is not None:
                mapped = base
            base = base.base
        if mapped is None or not isinstance(base, mmap.mmap):
            return NotImplemented
        if mapped.mode == "c":  # what was written to it is not in the file
            return NotImplemented
        begin = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
        # The first byte that is mapped, in the file.
        origin = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
        place = origin + value.__array_interface__["data"][0] - begin
        arguments = (str(mapped.filename), value.dtype, value.shape, value.strides, place)
        return _map_again, arguments


def _same(function: Any) -> Any:
    return function


def _map_again(path: str, dtype: Any, shape: Any, strides: Any, place: int) -> Any:
    whole = np.memmap(path, np.uint8, "r")
    return np.ndarray(shape, dtype, whole, place, strides)
