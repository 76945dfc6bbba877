"""Convert cotangents to the shape and dtype of operands, and tangents to those of outputs."""

from typing import Any

import numpy as np

from fdbr.core.primitive import dispatch, registry
from fdbr.core.routine import Routine
from fdbr.core.tracer import Tracer, plain
from fdbr.errors.checks import number_types
from fdbr.pytrees.dtypes import dtype_kind, is_short

__all__ = [
    "accumulate",
    "as_factors",
    "as_floats",
    "converted",
    "dtype_of",
    "fit",
    "in_precision",
    "like",
    "match",
    "shape_of",
    "zeros_of",
]


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or number."""
    return getattr(value, "shape", ())


def dtype_of(value: Any) -> Any:
    """The dtype of an array, or the type of a Python number, which is weakly typed."""
    return getattr(value, "dtype", None) or type(value)


def like(value: Any, out: Any) -> Any:
    """The shape and dtype of an operand, for `fit`; `None` where they are the output's."""
    shape, dtype = shape_of(value), dtype_of(value)
    return None if shape == shape_of(out) and dtype == dtype_of(out) else (shape, dtype)


def fit(cotangent: Any, like: Any) -> Any:
    """Convert the cotangent of a broadcast output to an operand's shape and dtype.

    The transpose of broadcasting is a sum.  A promoted dtype is cast back; a real operand gets
    the real part of a complex cotangent.
    """
    if like is None:
        return cotangent
    shape, dtype = like
    if cotangent.shape != shape:
        cotangent = _unbroadcast(cotangent, shape)
    if cotangent.dtype != dtype:
        if (
            cotangent.dtype.kind == "c"
            and dtype is not complex
            and getattr(dtype, "kind", "") != "c"
        ):
            cotangent = cotangent.real
        cotangent = converted(cotangent, dtype)
    return cotangent


def _unbroadcast(value: Any, shape: tuple[int, ...]) -> Any:
    extra = value.ndim - len(shape)
    if extra == 1 and 1 not in shape:
        if type(value) is np.ndarray:
            return registry["sum_of_rows"].host(np, value)
        return dispatch(registry["sum_of_rows"], (value,), {})
    ones = (extra + i for i, n in enumerate(shape) if n == 1 and value.shape[extra + i] != 1)
    value = accumulate(value, (*range(extra), *ones))
    return value if value.shape == shape else value.reshape(shape)


@Routine
def accumulate(value: Any, axes: Any, keepdims: bool = False) -> Any:
    """Sum along axes; 16-bit arrays are summed in float32 and rounded once."""
    if value.itemsize <= 2 and is_short(value.dtype) and not isinstance(value, Tracer):
        return value.sum(axis=axes, keepdims=keepdims, dtype="float32").astype(value.dtype)
    return value.sum(axis=axes, keepdims=keepdims)


@Routine
def converted(value: Any, to: Any) -> Any:
    """Return an array in another dtype, as a new array."""
    return value.astype(to)


def in_precision(value: Any, to: Any) -> Any:
    """Convert an operand to the precision of the result, whose dtype is ``to``, for a rule.

    Integers would wrap, and smaller floating dtypes overflow, where the result does not.  A real
    operand of a complex result stays real, and Python numbers stay as they are.
    """
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype is to or not hasattr(to, "kind") or dtype_kind(to) not in "fc":
        return value
    if to.kind == "c" and dtype.kind != "c":
        to = _REAL[to.char]
    elif dtype.kind == "c" and to.kind != "c":  # a complex operand, with the tangent of a real one
        to = _COMPLEX.get(to.char, dtype)
    if dtype == to or type(plain(value)) in number_types:
        return value
    if type(value) is np.ndarray:
        return converted.host(value, to)
    return dispatch(registry["astype_inexact"], (value,), {"to": to})


def as_floats(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert integers and truth values to the floating dtype that NumPy's functions give them.

    Negation, squares and ``abs`` wrap in an integer dtype.  Python numbers stay weak.
    """
    given = [
        x.dtype for x in operands if hasattr(x, "dtype") and type(plain(x)) not in number_types
    ]
    if not any(dtype.kind in "biu" for dtype in given):
        return operands
    to = np.result_type(*given)
    to = np.result_type(to, np.float16) if to.kind in "biu" else to
    return tuple([in_precision(x, to) for x in operands])


def as_factors(arrays: list[Any]) -> list[Any]:
    """Convert integers to floats if a later factor of a product is floating.

    The product of the first factors, which are small integers, wraps.
    """
    kinds = {dtype_kind(x.dtype) for x in arrays}
    is_mixed = not kinds.isdisjoint("biu") and not kinds.isdisjoint("fc")
    return list(as_floats(tuple(arrays))) if is_mixed and len(arrays) > 2 else arrays


_REAL = {code: np.dtype(real) for code, real in zip("FDG", "fdg", strict=True)}
_COMPLEX = {code: np.dtype(whole) for code, whole in zip("fdg", "FDG", strict=True)}


def match(tangent: Any, out: Any) -> Any:
    """Broadcast and cast a tangent to the shape and dtype of its output."""
    if tangent is None:
        return None
    if type(out) is tuple:
        return tuple(match(t, o) for t, o in zip(tangent, out, strict=True))
    if shape_of(tangent) != shape_of(out):
        tangent = dispatch(registry["broadcast_to"], (tangent,), {"to": out.shape})
    if hasattr(out, "dtype") and dtype_of(tangent) != out.dtype:
        tangent = dispatch(registry["astype_inexact"], (tangent,), {"to": out.dtype})
    return tangent


def zeros_of(value: Any) -> Any:
    """Return zeros with the shape and dtype of an operand."""
    if not hasattr(value, "dtype"):
        return 0.0
    return dispatch(registry["full_like"], (value,), {"value": 0, "dtype": None})
