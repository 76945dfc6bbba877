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
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock

__all__ = ["Packed", "flattened", "received", "unflattened"]

_SMALL = 2**12
_ALIGNMENT = 64
_PASSING = hasattr(reduction, "sendfds")

Parts = Sequence[memoryview]
"""A value as its pickle and the memory of its arrays, which are not copied."""


def flattened(value: Any) -> Parts:
    """A value in parts; whatever error pickling it raises, if it cannot be pickled."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return stream.getbuffer(), *[buffer.raw() for buffer in buffers]


@attrs.frozen
class Packed:
    """A copy of a value that is ready to be sent, any number of times."""

    copies: tuple[bytes, ...] = attrs.field(repr=False)
    places: tuple[tuple[int, int], ...]
    descriptor: int | None

    @classmethod
    def of(cls, parts: Parts) -> "Packed":
        """A copy of a value in parts."""
        places, end = [], 0
        for part in parts:
            places.append((end, part.nbytes))
            end += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        if end < _SMALL or not _PASSING:
            return cls(tuple(map(bytes, parts)), (), None)
        descriptor = _anonymous()
        try:
            os.ftruncate(descriptor, end)
            for part, (begin, _) in zip(parts, places, strict=True):
                _write(descriptor, part.cast("B") if part.nbytes else part, begin)
        except BaseException:
            os.close(descriptor)
            raise
        return cls((), tuple(places), descriptor)

    def holds(self, parts: Parts) -> bool:
        """Whether it is a copy of what a value in parts is now."""
        if self.descriptor is None:
            return self.copies == tuple(map(bytes, parts))
        if [size for _, size in self.places] != [part.nbytes for part in parts]:
            return False
        own = _mapped(self.descriptor, self.places)
        return all(map(_same_bytes, own, parts))

    def send(self, connection: Any) -> None:
        """Send it; the error is an OSError if nobody is there to receive it."""
        if self.descriptor is None:
            connection.send((None, self.copies))
        else:
            connection.send((self.places, None))
            reduction.send_handle(connection, self.descriptor, None)

    def close(self) -> None:
        """Give its memory back, as far as nobody has received it."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def _same_bytes(one: memoryview, other: memoryview, step: int = 2**22) -> bool:
    """Whether the bytes are the same, compared by pieces: all at once would take memory."""
    first, second = (np.frombuffer(part, np.uint8) for part in (one, other))
    pieces = range(0, one.nbytes, step)
    return all(np.array_equal(first[i : i + step], second[i : i + step]) for i in pieces)


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


def received(connection: Any, shared: bool = False) -> Parts:
    """The parts of the next value that was sent, which cannot be written to.

    They are copies, or, if ``shared``, views of the memory in which they were sent.
    """
    places, parts = connection.recv()
    if places is None:
        return tuple(map(memoryview, parts))
    descriptor = reduction.recv_handle(connection)
    try:
        return _mapped(descriptor, places) if shared else _read(descriptor, places)
    finally:
        os.close(descriptor)


def unflattened(parts: Parts) -> Any:
    """The value in parts, with read-only arrays in their memory."""
    return pickle.loads(parts[0], buffers=parts[1:])


def _read(descriptor: int, places: Any) -> list[memoryview]:
    parts = []
    for begin, size in places:
        part = np.empty(size, np.uint8)
        done = 0
        while done < size:
            done += os.preadv(descriptor, [part.data[done : done + 2**30]], begin + done)
        parts.append(lock(part).data)
    return parts


def _mapped(descriptor: int, places: Any) -> list[memoryview]:
    view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    return [view[begin : begin + size] for begin, size in places]


# --- what pickle alone does not know ------------------------------------------------


class _Pickler(pickle.Pickler):
    """Pickles arrays that are mapped from files as positions in these files."""

    def reducer_override(self, value: Any) -> Any:
        """The way to make a value anew; that of pickle for most."""
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


def _map_again(path: str, dtype: Any, shape: Any, strides: Any, place: int) -> Any:
    whole = np.memmap(path, np.uint8, "r")
    return np.ndarray(shape, dtype, whole, place, strides)
