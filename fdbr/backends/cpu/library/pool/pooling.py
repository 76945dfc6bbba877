"""Maxima of windows, and scatters to or gathers from the positions of the maxima.

Arrays consist of contiguous planes of the spatial axes; all axes before these are a batch.
"""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import Plan, key_of, planned
from fdbr.backends.cpu.library.conv.window_kernels import Windows
from fdbr.backends.cpu.library.pool import pooling_kernels
from fdbr.backends.cpu.runtime.machine import address_of, vector_bytes
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.expr import FLOATS, InexpressibleError

__all__ = ["at_winners", "largest", "to_winners", "winners"]

_POSITIONS = 128  # positions of a window, at most: their numbers are bytes
_WIDEST = 1 << 13  # elements of a row that fit into a thread's own memory
_ADDITIONS = 4  # estimated cost of an element, in additions


def largest(x: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    """Return the largest element of each window, or NaN; `None` if there is no kernel.

    Parameters
    ----------
    x
        An array whose last axes are spatial.
    windows, counts
        The geometry of windows, and their number along each axis.
    """
    return _run("largest", windows, counts, x, x.dtype)


def winners(x: Any, windows: Windows, counts: tuple[int, ...]) -> Any:
    """Return the number of the first position in each window with its largest element, as uint8."""
    return _run("winners", windows, counts, x, np.uint8)


def _run(kind: str, windows: Windows, counts: tuple[int, ...], x: Any, dtype: Any) -> Any:
    if type(x) is not np.ndarray or x.nbytes * TUNING.heavy_passes < TUNING.kernel_bytes:
        return None
    plan = planned(
        (kind, windows, counts, key_of([x])),
        lambda: _reading(kind == "winners", windows, counts, x, np.dtype(dtype)),
    )
    return plan and plan.run([x])


def _reading(which: bool, windows: Windows, counts: tuple[int, ...], x: Any, dtype: Any) -> Plan:
    _check(windows, x)
    lanes = vector_bytes() // x.itemsize
    while lanes > 4 and lanes >= 2 * counts[-1]:
        lanes //= 2
    size = x.shape[x.ndim - len(counts) :]
    stride, dilation, low = windows.stride[-1], windows.dilation[-1], windows.padding[-1]
    end = (counts[-1] + 3 * lanes) * stride + (windows.kernel[-1] - 1) * dilation
    room = -(-max(low + size[-1] + lanes, end) // lanes) * lanes
    if room > _WIDEST:
        raise InexpressibleError("rows that are too long")
    plan = _plan(
        pooling_kernels.largest(x.dtype, windows, lanes, which),
        x.shape,
        size,
        counts,
        counts,
        dtype,
    )
    plan.lengths = (*plan.lengths, room)
    return plan


def to_winners(x: Any, numbers: Any, windows: Windows, size: tuple[int, ...], apart: bool) -> Any:
    """Scatter the element of each window to its numbered position, in zeros of lengths ``size``.

    Elements at one position are added.  With ``apart`` there is at most one for each.
    """
    return _moved(
        x, numbers, windows, size, "to", lambda: pooling_kernels.to_winners(x.dtype, windows, apart)
    )


def at_winners(x: Any, numbers: Any, windows: Windows, size: tuple[int, ...]) -> Any:
    """Return the element of ``x`` at the numbered position of each window; 0 if it is outside."""
    return _moved(
        x, numbers, windows, size, "at", lambda: pooling_kernels.at_winners(x.dtype, windows)
    )


def _moved(
    x: Any, numbers: Any, windows: Windows, size: tuple[int, ...], kind: str, write: Any
) -> Any:
    arrays = [x, numbers]
    bytes = math.prod(x.shape[: x.ndim - len(size)]) * math.prod(size) * x.itemsize
    if type(x) is not np.ndarray or bytes * TUNING.heavy_passes < TUNING.kernel_bytes:
        return None

    def make() -> Plan:
        _check(windows, x)
        if numbers.dtype != np.uint8 or not numbers.flags.c_contiguous or not numbers.size:
            raise InexpressibleError("other numbers")
        counts = numbers.shape[numbers.ndim - len(size) :]
        rest = size if kind == "to" else counts
        return _plan(write(), numbers.shape, size, counts, rest, x.dtype)

    plan = planned((kind, windows, size, key_of(arrays)), make)
    return plan and plan.run(arrays)


def _check(windows: Windows, x: Any) -> None:
    if x.dtype not in FLOATS or not x.flags.c_contiguous or not x.size:
        raise InexpressibleError("other arrays")
    if math.prod(windows.kernel) > _POSITIONS:
        raise InexpressibleError("other windows")


def _plan(
    source: str,
    shape: tuple[int, ...],
    size: tuple[int, ...],
    counts: tuple[int, ...],
    rest: tuple[int, ...],
    dtype: Any,
) -> Plan:
    """Return a plan over planes of lengths ``size`` with ``counts`` windows."""
    lead = shape[: len(shape) - len(size)]
    plan = Plan()
    plan.guarded, plan.turned, plan.several = False, False, False
    plan.single, plan.copied = [], []
    plan.address = address_of(source)
    plan.outs = [((*lead, *rest), dtype)]
    plan.divide(False, math.prod(lead), math.prod(size), _ADDITIONS)
    plan.lengths = (1, 1, 1, *size, *counts)
    return plan
