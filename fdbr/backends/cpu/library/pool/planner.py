"""Pooling of NumPy arrays: by kernels, or by the definitions, a few planes at a time."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.backends.cpu.library.conv.window_kernels import windows_of
from fdbr.backends.cpu.library.pool import pooling
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import Primitive, implement, registry
from fdbr.core.util.threads import divide, parts
from fdbr.ops.nn.pooling.windowed import winners_among
from fdbr.ops.nn.windows import Geometry, Sizes
from fdbr.pytrees.dtypes import dtype_kind

__all__: list[str] = []


_Value = Callable[..., Any]


def _spatial(x: Any, geometry: Geometry) -> Sizes:
    return tuple(x.shape[x.ndim - len(geometry.kernel) :])


def _by_planes(value: _Value) -> _Value:
    """Wrap the value of an operation on windows to compute large arrays a few planes at a time.

    Batch axes are divided among threads.  Pieces stay in the caches, as the value reads its
    operands once for each position of a window.
    """

    @functools.wraps(value)
    def of_any(xp: Any, *operands: Any, geometry: Geometry, **params: Any) -> Any:
        x = operands[0]
        if x.nbytes < TUNING.divide_share or not all(v.flags.c_contiguous for v in operands):
            return value(xp, *operands, geometry=geometry, **params)
        lead = x.shape[: x.ndim - len(geometry.kernel)]
        count = math.prod(lead)
        if count < 2:
            return value(xp, *operands, geometry=geometry, **params)
        flat = [v.reshape(count, *_spatial(v, geometry)) for v in operands]
        sample = value(xp, *(v[:1] for v in flat), geometry=geometry, **params)
        out = np.empty((count, *sample.shape[1:]), sample.dtype)

        def work(piece: slice) -> None:
            out[piece] = value(xp, *(v[piece] for v in flat), geometry=geometry, **params)

        divide(work, parts(count, max(2, max(x.nbytes, out.nbytes) // TUNING.divide_share)))
        return out.reshape(*lead, *out.shape[1:])

    return of_any


def _by_kernel(primitive: Primitive, value: _Value | None = None) -> Callable[[_Value], _Value]:
    """Return a decorator that registers a kernel for a primitive.

    The kernel takes the operands and keywords.  Where it returns `None`, the primitive's definition
    computes, or ``value``, which computes the same.
    """
    by_planes = _by_planes(value or primitive.value)

    def register(kernel: _Value) -> _Value:
        @implement(primitive, np)
        def of_any(xp: Any, *operands: Any, **params: Any) -> Any:
            found = kernel(*operands, **params)
            return by_planes(xp, *operands, **params) if found is None else found

        return kernel

    return register


for _name in ("sum_windows", "spread_windows"):
    implement(registry[_name], np)(_by_planes(registry[_name].value))


@_by_kernel(registry["max_windows"])
def _largest(x: Any, geometry: Geometry) -> Any:
    counts = geometry.counts(_spatial(x, geometry))
    return pooling.largest(x, windows_of(geometry), counts)


def _winners_in_planes(xp: Any, x: Any, out: Any, *, geometry: Geometry) -> Any:
    may_have_nan = dtype_kind(x.dtype) == "f" and np.isnan(out).any()
    return winners_among(xp, x, out, geometry, may_have_nan)


@_by_kernel(registry["window_winners"], _winners_in_planes)
def _winners(x: Any, out: Any, geometry: Geometry) -> Any:
    return pooling.winners(x, windows_of(geometry), _spatial(out, geometry))


@_by_kernel(registry["at_winners"])
def _at_winners(x: Any, winners: Any, geometry: Geometry) -> Any:
    return pooling.at_winners(x, winners, windows_of(geometry), _spatial(x, geometry))


@_by_kernel(registry["to_winners"])
def _to_winners(x: Any, winners: Any, geometry: Geometry, size: Sizes) -> Any:
    return pooling.to_winners(x, winners, windows_of(geometry), size, geometry.is_disjoint)
