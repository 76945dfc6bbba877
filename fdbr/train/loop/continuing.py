"""Checks that the batches of a resumed run continue the epoch in which it stopped."""

import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from fdbr import tree

__all__ = ["NAME", "Again", "check", "checksum_of", "warn_unless_checked"]

NAME = "fit/batches"
"""The name under which a position within an epoch keeps the settings of its batches."""

CONTENT = "checksum of the consumed batches"
"""The setting that holds a checksum of the batches of an iterable."""

_PER_ROW = 64  # numbers of each example that a checksum reads: of a photograph, 1 in 2000


def check(before: Mapping[str, Any] | None, now: Mapping[str, Any], epoch: int, batch: int) -> None:
    """Raise a ValueError if batches have other settings than when the position was reached.

    Only settings that both know are compared: an iterable has some only after it was read.
    """
    changed = [
        f"{name} was {before[name]}, now {now[name]}"
        for name in before or ()
        if before and None not in (now.get(name), before[name]) and now[name] != before[name]
    ]
    if not changed:
        return
    where = f"within epoch {epoch}, after batch {batch}," if batch else f"before epoch {epoch},"
    following = epoch + 1 if batch else epoch
    iterable = (
        " An iterable is read from its beginning and must give the same batches again; for "
        "batches whose content varies in a fixed order, give an object with epoch(number, start)."
    )
    raise ValueError(
        f"fdbr.train.fit: the run stopped {where} and these batches would continue it in another "
        f"order: {'; '.join(changed)}. Examples would be repeated or lost. Resume with the "
        "batches of the earlier run. Other batches may only begin with an epoch: resume from the "
        f"report at the end of an epoch, or give state, iteration and position=Position("
        f"{following}) to leave out the rest.{iterable if CONTENT in changed[-1] else ''}"
    )


def warn_unless_checked(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Warn that the order of an iterable cannot be compared with the order before."""
    if now.get(CONTENT) is not None and (before or {}).get(CONTENT) is not None:
        return
    warnings.warn(
        "fdbr.train.fit: the run continues within an epoch of an iterable, and nothing tells "
        "whether it gives the same batches again. If its order is random, examples are repeated "
        "and lost. Resume from the end of an epoch, or give fdbr.train.Batches or an object with "
        "epoch(number, start)",
        RuntimeWarning,
        stacklevel=4,  # where the next report is asked for
    )


def checksum_of(*arrays: Any) -> str:
    """A checksum of arrays of numbers, as a text."""
    found = 0
    for array in arrays:
        array = np.ascontiguousarray(array)
        found = zlib.crc32(f"{array.dtype}{array.shape}".encode(), found)
        found = zlib.crc32(array.reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


def _digest(batch: Any, before: int) -> int | None:
    """Add some numbers of every example of a batch to a checksum; `None` if none can be read."""
    found: int | None = None
    for leaf in tree.leaves(batch):
        text = _sample(leaf)
        if text is not None:
            found = zlib.crc32(text, before if found is None else found)
    return found


def _sample(leaf: Any) -> bytes | None:
    if isinstance(leaf, bool | int | float | complex | str | bytes):
        return repr(leaf).encode()
    try:
        array = np.asarray(leaf)
        if array.dtype.hasobject:
            return None
        head = f"{array.dtype}{array.shape}".encode()
        if array.ndim > 1 and array.size:
            rows = array.reshape(len(array), -1)
            array = rows[:, :: max(1, rows.shape[1] // _PER_ROW)]
        return head + array.tobytes()
    except Exception:  # of a tensor on a device, say: it is left out
        return None


class Again:
    """An iterable of batches as a source, which is read from its beginning for every epoch.

    It keeps a checksum of the batches that were read, since only that tells whether a resumed run
    reads the same ones.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._sums: dict[tuple[int, int], int | None] = {}

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch after the first ones, which are read and dropped."""
        total: int | None = 0
        done = 0
        stream = iter(self._batches)
        try:
            for done, batch in enumerate(stream, 1):
                total = None if total is None else _digest(batch, total)
                self._sums[number, done] = total
                # The loop reads one batch ahead and checks the one before the first.
                self._sums.pop((number, done - 3), None)
                if done > start:
                    yield batch
            if done < start:
                raise ValueError(
                    f"fdbr.train.fit: position is at batch {start}, but batches ended after "
                    f"{done}; give the batches with which the position was reached, from their "
                    "beginning"
                )
        finally:
            self._sums = {key: total for key, total in self._sums.items() if key[0] == number}
            if (close := getattr(stream, "close", None)) is not None:
                close()

    def order_settings(self, number: int, start: int) -> Mapping[str, Any]:
        """The checksum of the batches that were read up to a position."""
        total = self._sums.get((number, start))
        if not start:
            return {}
        return {"source": "iterable", CONTENT: None if total is None else f"{total:08x}"}
