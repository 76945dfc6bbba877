"""Write at index arrays, with the same result on every array module.

NumPy defines the result: values for the same index are added, compared, or the last one stays;
an index out of bounds is an error.  On a GPU threads write in any order, indices wrap around, and
few dtypes have atomic additions and comparisons.  There complex numbers are added by parts,
floating numbers are compared as integers, and only the last value for an index is written.
"""

import math
from collections.abc import Sequence
from typing import Any

from fdbr.core.routine import Routine
from fdbr.errors.checks import describe
from fdbr.ops.declare import constant
from fdbr.ops.indexing.regions import region_shape
from fdbr.pytrees.dtypes import dtype_kind, is_short
from fdbr.pytrees.typing import Array

__all__ = [
    *("add_at", "checked_index", "extremes_at", "last_written", "put_at", "read_at", "sums_at"),
]

_ADDED = "iIlLqQfd"  # dtypes of CuPy's atomic additions
_COMPARED = "iIlLqQ"  # dtypes of CuPy's exact atomic min and max; those of floats lose digits


@constant
def checked_index(
    xp: Any, index: Any, *, least: int, count: int, name: str, error: Any = IndexError
) -> Array:
    """Return the index after checking that its elements lie in ``least … count - 1``.

    The host waits for the device to know that; derivative rules do not check again.
    """
    if not index.size:
        return index
    outside = index >= count
    if index.dtype.kind == "i":
        outside = outside | (index < least)
    if bool(outside.any()):
        raise error(
            f"fdbr.ops.{name}: an index of {describe(index)} lies between {int(index.min())} and "
            f"{int(index.max())}; valid indices are {least} … {count - 1}"
        )
    return index


@Routine
def read_at(xp: Any, x: Any, key: Any) -> Any:
    """Read ``x[key]`` as an array in row-major order."""
    return x[key]


@Routine
def add_at(xp: Any, out: Any, key: Any, values: Any) -> None:
    """Add values to an array at a key in place, each value for repeated indices."""
    out += sums_at.on(xp)(xp, out.shape, key, values)


@Routine
def sums_at(xp: Any, shape: tuple[int, ...], key: Any, values: Any) -> Any:
    """Add values to zeros at a key, each value for repeated indices."""
    dtype = values.dtype
    if is_short(dtype):
        return sums_at.definition(xp, shape, key, values.astype(xp.float32)).astype(dtype)
    if dtype.char in _ADDED:
        out = xp.zeros(shape, dtype=dtype)
        xp.add.at(out, key, values)
        return out
    if dtype.kind == "c":
        real, imag = (
            sums_at.definition(xp, shape, key, part) for part in (values.real, values.imag)
        )
        return _complex(xp, real, imag, dtype)
    return sums_at.definition(xp, shape, key, values.astype(xp.int32)).astype(dtype)


def extremes_at(xp: Any, x: Any, key: Any, values: Any, largest: bool) -> Any:
    """Copy ``x`` and replace elements by the maximum, or minimum, of theirs and the values."""
    ufunc = xp.maximum if largest else xp.minimum
    if x.dtype.char in _COMPARED:
        out = xp.array(x)
        ufunc.at(out, key, values)
        return out
    if x.dtype.kind == "c":
        return _complex_extremes(xp, x, key, values, largest)
    if dtype_kind(x.dtype) == "f":
        ranks = _ranks(xp, values, largest)
        return _from_ranks(
            xp, extremes_at(xp, _ranks(xp, x, largest), key, ranks, largest), x.dtype
        )
    wide = extremes_at(xp, x.astype(xp.int32), key, values.astype(xp.int32), largest)
    return wide.astype(x.dtype)


def _ranks(xp: Any, x: Any, largest: bool) -> Any:
    """Map floating numbers to integers of the same order; NaN is the extreme that is searched."""
    wide = xp.array(x, dtype=xp.float64 if x.dtype.itemsize == 8 else xp.float32, order="C")
    bits = wide.view(xp.int64 if x.dtype.itemsize == 8 else xp.int32)
    limits = xp.iinfo(bits.dtype)
    ranks = _flip_negative(xp, bits)
    return xp.where(xp.isnan(wide), limits.max if largest else limits.min, ranks)


def _from_ranks(xp: Any, ranks: Any, dtype: Any) -> Any:
    bits = _flip_negative(xp, ranks)
    wide = xp.float64 if bits.dtype.itemsize == 8 else xp.float32
    return bits.view(wide).astype(dtype)


def _flip_negative(xp: Any, bits: Any) -> Any:
    """Invert all bits but the sign of negative numbers, which reverses their order."""
    return xp.where(bits < 0, bits ^ xp.iinfo(bits.dtype).max, bits)


def _complex_extremes(xp: Any, x: Any, key: Any, values: Any, largest: bool) -> Any:
    """Compare by the real parts, and where these are equal, by the imaginary parts."""
    is_nan = xp.isnan(values)
    given = xp.where(is_nan, math.nan, values.real)
    real = extremes_at(xp, xp.where(xp.isnan(x), math.nan, x.real), key, given, largest)
    worst = -math.inf if largest else math.inf
    own_imag = xp.where(x.real == real, x.imag, worst)
    imag = extremes_at(xp, own_imag, key, xp.where(given == real[key], values.imag, worst), largest)
    return _complex(xp, real, xp.where(xp.isnan(real), math.nan, imag), x.dtype)


def _complex(xp: Any, real: Any, imag: Any, dtype: Any) -> Any:
    out = xp.empty(real.shape, dtype=dtype)
    out.real = real
    out.imag = imag
    return out


@Routine
def put_at(xp: Any, out: Any, key: Any, values: Any) -> None:
    """Assign ``out[key] = values``: a number, or values of that shape; the last one stays."""
    if getattr(values, "size", 0) and _has_index_array(key):
        # Threads write in any order, so each writes the last value for its index.
        last, _ = _writers(xp, out.shape, key, values.shape)
        values = values.reshape(-1)[last - 1]
    out[key] = values


@Routine
def last_written(xp: Any, shape: tuple[int, ...], key: Any) -> Any:
    """Mark the elements of ``x[key]`` whose index does not occur again later in the key."""
    last, order = _writers(xp, shape, key, region_shape(shape, key))
    return last == order


def _writers(xp: Any, shape: tuple[int, ...], key: Any, region: tuple[int, ...]) -> Any:
    """Return for each element of ``x[key]`` the number of the last one with its index, and its own.

    The elements are numbered from 1 on, in row-major order.
    """
    order = xp.arange(1, 1 + math.prod(region)).reshape(region)
    last = extremes_at(xp, xp.zeros(shape, dtype=int), key, order, largest=True)
    return last[key], order


def _has_index_array(key: Any) -> bool:
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    return any(hasattr(part, "dtype") for part in parts)
