"""Pooling in compiled programs: the primitives of `fdbr.ops.nn.pooling.windowed`, on all cores.

An array consists of planes, one for each index of the axes before the spatial ones.  Each element
of a plane has contiguous numbers, those of the axes after the spatial ones, such as the examples in
results of convolutions.  The inner loops run over these.
"""

import itertools
import math
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.conv.program_primitives import VJP
from fdbr.backends.cpu.runtime.compiling import address_of
from fdbr.backends.cpu.runtime.launching import launch_on, thread_count
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op
from fdbr.core.primitive import Primitive
from fdbr.ops.nn.windows import Geometry, Sizes

__all__ = ["VALUES"]

_FEWEST = 2  # contiguous numbers below which NumPy is as fast
_TAPS = 16  # positions of a window, at most: the code is unrolled over them


def _max_windows(xp: Any, x: Any, *, geometry: Geometry) -> Any:
    order = _order(x, geometry)
    if order is None:
        return op.MAX_WINDOWS.host(xp, x, geometry=geometry)
    size = x.shape[x.ndim - len(geometry.kernel) :]
    out = _empty((*x.shape[: x.ndim - len(size)], *geometry.counts(size)), x.dtype, order)
    _run("largest", geometry, order, x.shape, x, out)
    return out


def _vjp_windows(
    xp: Any, ct: Any, x: Any, out: Any, *, geometry: Geometry, size: Sizes, positive: bool
) -> Any:
    order = _order(x, geometry)
    if order is None or not ct.dtype == out.dtype == x.dtype:
        return VJP[op.TO_WINNERS].value(
            xp, ct, x, out, geometry=geometry, size=size, positive=positive
        )
    found = _empty(x.shape, x.dtype, order)
    ct, out = (_in_order(a, order) for a in (ct, out))
    _run("positive" if positive else "cotangent", geometry, order, x.shape, x, out, ct, found)
    return found


VALUES: dict[Primitive, Callable[..., Any]] = {
    op.MAX_WINDOWS: _max_windows,
    VJP[op.TO_WINNERS]: _vjp_windows,
}


# --- memory layout ------------------------------------------------------------------


def _order(x: Any, geometry: Geometry) -> Sizes | None:
    """Return the axes of ``x`` in memory order, if kernels support it; else `None`."""
    rank = len(geometry.kernel)
    if x.dtype.str not in ("<f4", "<f8") or not x.size or math.prod(geometry.kernel) > _TAPS:
        return None
    order = tuple(sorted(range(x.ndim), key=lambda axis: -x.strides[axis]))
    start = order.index(x.ndim - rank)
    spatial = order[start : start + rank]
    side = math.prod(x.shape[axis] for axis in order[start + rank :])
    if rank > 2 or spatial != tuple(range(x.ndim - rank, x.ndim)) or side < _FEWEST:
        return None
    return order if x.transpose(order).flags.c_contiguous else None


def _empty(shape: Sizes, dtype: Any, order: Sizes) -> Any:
    """Return a new array whose axes have this order in memory."""
    back = sorted(range(len(order)), key=order.__getitem__)
    return np.empty([shape[axis] for axis in order], dtype).transpose(back)


def _in_order(x: Any, order: Sizes) -> Any:
    """Return an array whose axes have this order in memory, without gaps."""
    if x.transpose(order).flags.c_contiguous:
        return x
    found = _empty(x.shape, x.dtype, order)
    found[...] = x
    return found


# --- kernels ------------------------------------------------------------------------


def _run(kind: str, geometry: Geometry, order: Sizes, shape: Sizes, *arrays: Any) -> None:
    """Run a kernel on the planes of arrays."""
    rank = len(geometry.kernel)
    start = order.index(len(shape) - rank)
    planes = math.prod(shape[axis] for axis in order[:start])
    side = math.prod(shape[axis] for axis in order[start + rank :])
    geometry, size = _plane(geometry, tuple(shape[len(shape) - rank :]))
    counts = geometry.counts(size)
    padded = any(map(any, geometry.padding))
    spaced = zip(geometry.stride, geometry.extents(), strict=True)
    apart = not padded and all(step >= extent for step, extent in spaced)
    whole = zip(geometry.kernel, counts, size, strict=True)
    exact = apart and all(n * count == length for n, count, length in whole)
    (above, _), (left, _) = geometry.padding
    sizes = (*size, side, *counts)
    steps = (*geometry.stride, above, left, *geometry.dilation)
    code = arrays[0].dtype.str[1:]
    kernel = address_of(_source(kind, code, geometry.kernel, sizes, steps, padded, apart, exact))
    table = array("q", map(id, arrays))
    threads = min(thread_count(), planes) if arrays[0].size >= TUNING.pool_thread else 1
    launch_on(threads, kernel, table.buffer_info()[0], planes)


def _plane(geometry: Geometry, size: Sizes) -> tuple[Geometry, Sizes]:
    """Return the same geometry with two spatial axes."""
    if len(size) == 2:
        return geometry, size
    kernel, stride, padding, dilation = geometry
    one = Geometry((1, *kernel), (1, *stride), ((0, 0), *padding), (1, *dilation))
    return one, (1, *size)


_LOOPS = """
def kernel(table, start, stop, thread):
    rows, columns, side, down, across = {sizes}
    step_down, step_across, above, left, apart_down, apart_across = {steps}
    x, out = data(table, 0, {code}(0)), data(table, 1, {code}(0))
    {operands}
    zero, lowest = {code}(0), {code}(-inf)
    for plane in range(start, stop):
        first = plane * rows * columns * side
        {clear}
        for a in range(down):
            for b in range(across):
                h, w = a * step_down - above, b * step_across - left
                t = ((plane * down + a) * across + b) * side
                {places}
                for i in range(side):
                    {inner}
"""


@lru_cache(256)
def _source(
    kind: str,
    code: str,
    kernel: Sizes,
    sizes: Sizes,
    steps: Sizes,
    padded: bool,
    apart: bool,
    exact: bool,
) -> str:
    """Return the source of a kernel.

    Parameters
    ----------
    kind
        What it computes: ``"largest"``, the maxima; ``"cotangent"``, the cotangent of their
        operand; or ``"positive"``, the cotangent of the operand of a `relu` before.
    kernel, sizes, steps
        Literal numbers: LLVM needs them to see that two positions never alias.
    padded
        Whether positions of a window may be outside; they read the first element instead.
    apart, exact
        Whether windows are disjoint, and whether they cover all elements.
    """
    taps = list(itertools.product(*map(range, kernel)))
    places, values = [], []
    for n, (i, j) in enumerate(taps):
        places.append(f"h{n}, w{n} = h + {i} * apart_down, w + {j} * apart_across")
        place = f"first + (h{n} * columns + w{n}) * side"
        if padded:
            places.append(f"v{n} = 0 <= h{n} < rows and 0 <= w{n} < columns")
            place = f"{place} if v{n} else first"
        places.append(f"s{n} = {place}")
        values.append(f"select(v{n}, x[s{n} + i], lowest)" if padded else f"x[s{n} + i]")
    if kind == "largest":
        inner = [
            f"m = {values[0]}",
            *(f"m = maximum(m, {x})" for x in values[1:]),
            "out[t + i] = m",
        ]
    else:
        inner = ["m, c, lost = out[t + i], ct[t + i], True"]
        inner += [f"x{n} = {value}" for n, value in enumerate(values)]
        for n in range(len(taps)):
            won = "lost" if n == len(taps) - 1 else f"lost & ((x{n} == m) | (x{n} != x{n}))"
            inner += [f"won = {won}", "lost = lost & (not won)"]
            given = f"won & v{n}" if padded else "won"
            given += f" & (x{n} > zero)" if kind == "positive" else ""
            inner += [f"d{n} = select({given}, c, zero)"]
        inner += [f"dx[s{n} + i] {'=' if apart else '+='} d{n}" for n in range(len(taps))]
    clear = ["for i in range(first, first + rows * columns * side):", "    dx[i] = zero"]
    return _LOOPS.format(
        code=code,
        sizes=sizes,
        steps=steps,
        operands=""
        if kind == "largest"
        else f"ct, dx = data(table, 2, {code}(0)), data(table, 3, {code}(0))",
        clear="" if kind == "largest" or exact else ("\n" + " " * 8).join(clear),
        places=("\n" + " " * 16).join(places),
        inner=("\n" + " " * 20).join(inner),
    )
