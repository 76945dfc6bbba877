"""Writing to places that index arrays name, with the same result on every array module.

NumPy's way is the rule: values for one place are added up, compared, or the last of them stays;
and a place that there is not is an error.  On a GPU the threads come in any order, places wrap
around, and few dtypes can be added to or compared in memory.  There all is brought to what can
be: sums of the parts of complex numbers, comparisons of integers, and to each place only one
value.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.errors.checks import describe
from fdbr.ops.declare import constant
from fdbr.ops.indexing import flat_index
from fdbr.pytrees.dtypes import dtype_kind, is_short
from fdbr.pytrees.typing import Array

__all__ = ["extremes_at", "last_named", "put_at", "sums_at", "within"]

_ADDED = "iIlLqQfd"  # the dtypes that CuPy adds to in memory
_COMPARED = "iIlLqQ"  # and those that it compares there; floating ones with the loss of digits


@constant
def within(
    xp: Any, index: Any, *, least: int, count: int, name: str, error: Any = IndexError
) -> Array:
    """The index itself, whose elements must lie in ``least … count - 1``.

    To know that, the host waits for the device; rules of derivatives do not ask again.
    """
    if not index.size:
        return index
    outside = index >= count
    if index.dtype.kind == "i":
        outside = outside | (index < least)
    if bool(outside.any()):
        raise error(
            f"fdbr.ops.{name}: an index of {describe(index)} lies between {int(index.min())} and "
            f"{int(index.max())}, and there are {count} places: {least} … {count - 1}"
        )
    return index


def sums_at(xp: Any, shape: tuple[int, ...], key: Any, values: Any) -> Any:
    """Zeros, with values added at the places of a key."""
    dtype = values.dtype
    if is_short(dtype):
        return sums_at(xp, shape, key, values.astype(xp.float32)).astype(dtype)
    if xp is np:
        return flat_index.added_at(shape, key, values)
    if dtype.char in _ADDED:
        out = xp.zeros(shape, dtype=dtype)
        xp.add.at(out, key, values)
        return out
    if dtype.kind == "c":
        return _complex(
            xp, sums_at(xp, shape, key, values.real), sums_at(xp, shape, key, values.imag), dtype
        )
    return sums_at(xp, shape, key, values.astype(xp.int32)).astype(dtype)


def extremes_at(xp: Any, x: Any, key: Any, values: Any, largest: bool) -> Any:
    """A copy of ``x`` with the largest, or smallest, of the values for each place and its own."""
    ufunc = xp.maximum if largest else xp.minimum
    if xp is np or x.dtype.char in _COMPARED:
        out = xp.array(x)
        with np.errstate(invalid="ignore"):  # of which NumPy warns where there is NaN
            ufunc.at(out, key, values)
        return out
    if x.dtype.kind == "c":
        return _complex_extremes(xp, x, key, values, largest)
    if dtype_kind(x.dtype) == "f":
        ranks = _ranks(xp, values, largest)
        return _of_ranks(xp, extremes_at(xp, _ranks(xp, x, largest), key, ranks, largest), x.dtype)
    wide = extremes_at(xp, x.astype(xp.int32), key, values.astype(xp.int32), largest)
    return wide.astype(x.dtype)


def _ranks(xp: Any, x: Any, largest: bool) -> Any:
    """Integers in the order of floating numbers; NaN before all others, or behind them."""
    wide = xp.array(x, dtype=xp.float64 if x.dtype.itemsize == 8 else xp.float32, order="C")
    bits = wide.view(xp.int64 if x.dtype.itemsize == 8 else xp.int32)
    limits = xp.iinfo(bits.dtype)
    ranks = _turned(xp, bits)
    return xp.where(xp.isnan(wide), limits.max if largest else limits.min, ranks)


def _of_ranks(xp: Any, ranks: Any, dtype: Any) -> Any:
    bits = _turned(xp, ranks)
    wide = xp.float64 if bits.dtype.itemsize == 8 else xp.float32
    return bits.view(wide).astype(dtype)


def _turned(xp: Any, bits: Any) -> Any:
    """Of the bits of a negative number all but the sign: what is larger is smaller then."""
    return xp.where(bits < 0, bits ^ xp.iinfo(bits.dtype).max, bits)


def _complex_extremes(xp: Any, x: Any, key: Any, values: Any, largest: bool) -> Any:
    """By the real parts, and where these are equal by the imaginary ones."""
    undefined = xp.isnan(values)
    given = xp.where(undefined, math.nan, values.real)
    real = extremes_at(xp, xp.where(xp.isnan(x), math.nan, x.real), key, given, largest)
    worst = -math.inf if largest else math.inf
    own = xp.where(x.real == real, x.imag, worst)
    imag = extremes_at(xp, own, key, xp.where(given == real[key], values.imag, worst), largest)
    return _complex(xp, real, xp.where(xp.isnan(real), math.nan, imag), x.dtype)


def _complex(xp: Any, real: Any, imag: Any, dtype: Any) -> Any:
    out = xp.empty(real.shape, dtype=dtype)
    out.real = real
    out.imag = imag
    return out


def put_at(xp: Any, out: Any, key: Any, values: Any) -> None:
    """``out[key] = values`` for values of the key's shape; the last for a place stays there."""
    if xp is np:
        flat_index.put_at(out, key, values)
        return
    if values.size and _names_places(key):
        # Each writes what the last one would.
        last, _ = _writers(xp, out.shape, key, values.shape)
        values = values.reshape(-1)[last - 1]
    out[key] = values


def last_named(xp: Any, shape: tuple[int, ...], key: Any) -> Any:
    """For each element of a key's region, whether no later one names the same place."""
    if xp is np:
        return flat_index.last_named(shape, key)
    last, order = _writers(xp, shape, key, flat_index.region_shape(shape, key))
    return last == order


def _writers(xp: Any, shape: tuple[int, ...], key: Any, region: tuple[int, ...]) -> Any:
    """For each element of a key's region, the last one for the same place, and itself.

    They are numbers from 1 on, in the order of the region's elements.
    """
    order = xp.arange(1, 1 + math.prod(region)).reshape(region)
    last = extremes_at(xp, xp.zeros(shape, dtype=int), key, order, largest=True)
    return last[key], order


def _names_places(key: Any) -> bool:
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    return any(hasattr(part, "dtype") for part in parts)
