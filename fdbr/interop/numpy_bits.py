"""NumPy's packed bits on traced values: eight to a byte.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.interop.signatures import implements
from fdbr.ops.axes import normalize_axis


def _shifts(x: Any, name: str, bitorder: str) -> Any:
    """By how much each bit of a byte is shifted."""
    if bitorder not in ("big", "little"):
        raise ValueError(f"np.{name}: bitorder is {bitorder!r}, not 'big' or 'little'")
    shifts = array_module(x).arange(8, dtype=np.uint8)
    return shifts[::-1] if bitorder == "big" else shifts


def _last(x: Any, axis: int | None, name: str) -> tuple[Any, int]:
    """The array with an axis at its end, and where that was; flattened if there is none."""
    if axis is None:
        return ops.reshape(x, -1), 0
    axis = normalize_axis(axis, x.ndim, name)
    return ops.moveaxis(x, axis, -1), axis


@implements("packbits")
def _packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    if a.dtype.kind not in "iub":
        raise TypeError(
            f"np.packbits: integers or truth values are needed, not {describe(a)}; compare first, "
            "as in np.packbits(x > 0)"
        )
    bits, axis = _last(ops.astype(a != 0, np.uint8), axis, "packbits")
    bits = ops.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, -bits.shape[-1] % 8)])
    bits = ops.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    packed = ops.bitwise_left_shift(bits, _shifts(a, "packbits", bitorder))
    return ops.moveaxis(ops.sum(packed, axis=-1, dtype=np.uint8), -1, axis)


@implements("unpackbits")
def _unpackbits(
    a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    if a.dtype != np.uint8:
        raise TypeError(
            f"np.unpackbits: bytes (uint8) are needed, not {describe(a)}; convert with "
            "ops.astype(x, 'uint8')"
        )
    packed, axis = _last(a, axis, "unpackbits")
    bits = ops.bitwise_right_shift(packed[..., None], _shifts(a, "unpackbits", bitorder)) & 1
    bits = ops.reshape(bits, (*packed.shape[:-1], 8 * packed.shape[-1]))
    if count is not None:
        missing = max(count - bits.shape[-1], 0)
        bits = ops.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, missing)])[..., :count]
    return ops.moveaxis(bits, -1, axis)
