"""Arrays in host memory and arrays on devices in one collective: each kind goes its own way."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fdbr.core import devices
from fdbr.core.array_modules import module_of, number_of
from fdbr.distributed.packing import dtype_named
from fdbr.distributed.transports.interface import Transport

__all__ = ["by_place", "groups_of"]

Kind = tuple[tuple[int, ...], Any]
Move = Callable[[Any, list[Kind], list[Any] | None], list[Any] | None]


def by_place(
    transport: Transport,
    kinds: Sequence[tuple[str, tuple[int, ...]]],
    arrays: Sequence[Any] | None,
    move: Move,
) -> list[Any] | None:
    """The results of moving the arrays of each kind of memory.

    Parameters
    ----------
    transport
        What moves them; arrays on devices are brought to the one that it names, and their results
        back to where they lay.
    kinds
        Dtype and shape of each array, as all ranks know them.
    arrays
        The arrays; `None` on a rank that gives none, and gets its own in the same kind of memory.
    move
        Given an array module, shapes and dtypes, and arrays or `None`; their results, or `None`.
    """
    results: list[Any] | None = [None] * len(kinds)
    for is_host, members in groups_of([name for name, _ in kinds]):
        part = None if arrays is None else [arrays[i] for i in members]
        shapes = [kinds[i][1] for i in members]
        if part is None:
            dtypes = [dtype_named(kinds[i][0]) for i in members]
        else:
            dtypes = [array.dtype for array in part]
        typed = list(zip(shapes, dtypes, strict=True))
        got = move(np, typed, part) if is_host else _on_device(transport, typed, part, move)
        if got is None or results is None:
            results = None
            continue
        for i, result in zip(members, got, strict=True):
            results[i] = result
    return results


def groups_of(names: Sequence[str]) -> Iterator[tuple[bool, list[int]]]:
    """The numbers of arrays in host memory, and of those on devices; at least one group."""
    on_devices = [i for i, name in enumerate(names) if name.startswith("gpu:")]
    on_host = [i for i in range(len(names)) if i not in set(on_devices)]
    if on_host or not on_devices:
        yield True, on_host
    if on_devices:
        yield False, on_devices


def _on_device(
    transport: Transport, kinds: list[Kind], arrays: list[Any] | None, move: Move
) -> list[Any] | None:
    first = None if arrays is None else arrays[0]
    xp = devices.accelerator() if arrays is None else module_of(type(first), first)
    there = getattr(transport, "device", None)
    if there is None:
        there = xp.cuda.runtime.getDevice() if arrays is None else number_of(first)
    with xp.cuda.Device(there):
        near = None
        if arrays is not None:
            near = [a if number_of(a) == there else xp.asarray(a) for a in arrays]
        got = move(xp, kinds, near)
    if got is None or arrays is None:
        return got
    return [_brought(xp, out, number_of(a)) for out, a in zip(got, arrays, strict=True)]


def _brought(xp: Any, array: Any, number: int | None) -> Any:
    if number_of(array) == number:
        return array
    with xp.cuda.Device(number):
        return xp.asarray(array)
