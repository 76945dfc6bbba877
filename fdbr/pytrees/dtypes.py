"""Which dtypes are floating: NumPy's own, and those that another package has added to it.

NumPy reports an added dtype, such as ml_dtypes' ``bfloat16``, as raw bytes.  fdbr recognizes it by
its name.  It never imports the package: a program that has such an array has imported it already.
"""

import functools
import sys
from typing import Any

__all__ = ["dtype_kind", "is_added", "is_foreign", "is_short", "limits"]

_ADDED = frozenset(
    {
        *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn"),
        *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    }
)
"""The added dtypes with a sign, a zero and a NaN; the others cannot hold a derivative."""
_NAMES = ("float", "complex", "bcomplex")


def dtype_kind(dtype: Any) -> str:
    """Return NumPy's letter for the kind of a dtype: ``"f"`` for every floating one."""
    kind: str = dtype.kind
    return kind if kind != "V" else _kind_of_added(dtype.type)


@functools.cache
def _kind_of_added(scalar: type) -> str:
    return "f" if scalar.__name__ in _ADDED else "V"


def is_short(dtype: Any) -> bool:
    """Whether a dtype is floating with at most 16 bits, too few to accumulate a sum in."""
    return dtype.itemsize <= 2 and dtype_kind(dtype) == "f"


def is_added(dtype: Any) -> bool:
    """Whether a dtype is floating and was added to NumPy by another package."""
    return getattr(getattr(dtype, "type", None), "__name__", None) in _ADDED


def is_foreign(dtype: Any) -> bool:
    """Whether a dtype is floating or complex but cannot hold a derivative."""
    name = dtype.type.__name__
    return dtype.kind not in "fc" and name not in _ADDED and name.startswith(_NAMES)


def limits(xp: Any, dtype: Any) -> Any:
    """Return ``finfo`` of a floating dtype, from the package that defines it."""
    return (sys.modules[dtype.type.__module__] if is_added(dtype) else xp).finfo(dtype)
