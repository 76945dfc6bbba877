"""Copies of arrays with their first axis last, for batches that enter a convolutional network."""

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.conv.program_primitives import PUT_LAST
from fdbr.backends.cpu.runtime.compiling import address_of
from fdbr.backends.cpu.runtime.launching import launch_on, thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import Primitive

__all__ = ["VALUES"]

_BLOCK = 16  # neighbouring elements that are read together: a cache line in float32

_ITERATION = f"""
def kernel(table, start, stop, thread):
    x, out, sizes = data(table, 0, {{code}}(0)), data(table, 1, {{code}}(0)), data(table, 2, i8(0))
    count, size = sizes[0], sizes[1]
    for block in range(start, stop):
        first = block * {_BLOCK}
        if first + {_BLOCK} <= size:
            for n in range(count):
                for i in range({_BLOCK}):
                    out[(first + i) * count + n] = x[n * size + first + i]
        else:
            for i in range(first, size):
                for n in range(count):
                    out[i * count + n] = x[n * size + i]
"""


def _put_last(xp: Any, x: Any) -> Any:
    if x.dtype.str not in ("<f4", "<f8") or x.size < TUNING.extra_pass or not x.flags.c_contiguous:
        return PUT_LAST.host(xp, x)
    count, size = len(x), x.size // len(x)
    out = np.empty((*x.shape[1:], count), x.dtype)
    sizes = np.array((count, size), np.int64)
    table = array("q", map(id, (x, out, sizes)))
    kernel, blocks = address_of(_ITERATION.format(code=x.dtype.str[1:])), -(-size // _BLOCK)
    threads = min(thread_count(), blocks) if x.size >= TUNING.batch_last_thread else 1
    launch_on(threads, kernel, table.buffer_info()[0], blocks)
    return out


VALUES: dict[Primitive, Callable[..., Any]] = {PUT_LAST: _put_last}
