"""NumPy's functions about shapes and elements of arrays, on traced values.

Every entry has NumPy's parameters; see `fdbr.interop.signatures` for those that it lacks.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, device_put
from fdbr.core.tracer import own
from fdbr.errors.checks import describe
from fdbr.interop.signatures import implements, refuse, scalars
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.declare import elementwise
from fdbr.ops.dtypes import is_number
from fdbr.ops.shape.creation import arrays
from fdbr.pytrees.dtypes import dtype_kind, is_added

__all__ = [
    *("array_of", "as_tuple", "cast", "checked_order", "flattened", "in_numpys", "in_their_dtype"),
    *("of_parts", "within"),
]


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple, of one thing if it is neither a tuple nor a list."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


# --- what an array is ---------------------------------------------------------------

implements("shape")(lambda a: a.shape)
implements("ndim")(lambda a: a.ndim)
implements("iscomplexobj")(lambda x: x.dtype.kind == "c")
implements("isrealobj")(lambda x: x.dtype.kind != "c")
implements("result_type")(ops.result_type)
implements("copy")(lambda a, order="K": own(a))
implements("real")(ops.real)
implements("imag")(ops.imag)


@implements("size")
def _size(a: Any, axis: Any = None) -> int:
    size = 1
    for i in normalize_axes(axis, a.ndim, "size"):
        size *= a.shape[i]
    return size


@implements("astype")
def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return ops.astype(x, dtype, copy=copy, device=device)


# --- arrays like others -------------------------------------------------------------


def _like(name: str, fill: Any) -> None:
    """Entries for arrays that depend on nothing but a shape: plain ones, for the caller to fill."""

    @implements(name)
    def like(
        a: Any, /, dtype: Any = None, order: str = "K", *, shape: Any = None, device: Any = None
    ) -> Any:
        shape = a.shape if shape is None else shape
        out = array_module(a).full(shape, fill, dtype=a.dtype if dtype is None else dtype)
        return out if device is None else device_put(out, device)


_like("zeros_like", 0)
_like("ones_like", 1)
_like("empty_like", 0)


@implements("full_like")
def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    *,
    shape: Any = None,
    device: Any = None,
) -> Any:
    dtype = a.dtype if dtype is None else dtype
    if shape is None:
        return ops.full_like(a, fill_value, dtype=dtype, device=device)
    return ops.full(shape, fill_value, dtype=dtype, device=device)


# With ``like=``, by which they come here, these are as traced values if they are made of any.


@implements("asarray", "asanyarray")
def _asarray(
    a: Any,
    /,
    dtype: Any = None,
    order: str | None = "K",
    *,
    copy: Any = None,
    ndmin: int = 0,
    device: Any = None,
) -> Any:
    return _at_least(ops.asarray(a, dtype=dtype, device=device, copy=copy), ndmin)


@implements("ascontiguousarray", "asfortranarray")
def _contiguous(a: Any, /, dtype: Any = None) -> Any:
    return _at_least(ops.asarray(a, dtype=dtype), 1)


@implements("array")
def _array(a: Any, /, *args: Any, copy: Any = True, **how: Any) -> Any:
    return _asarray(a, *args, copy=copy, **how)


def _made(name: str, make: Callable[..., Any]) -> None:
    implements(name)(lambda *args, **how: make(*args, **how))


for _name in "arange empty eye fromfunction identity ones tri zeros".split():
    _made(_name, getattr(np, _name))


@implements("full")
def _full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None
) -> Any:
    return ops.full(shape, fill_value, dtype=dtype, device=device)


# --- shape --------------------------------------------------------------------------


def checked_order(x: Any, order: Any, name: str) -> str:
    """In which order elements are read: ``"C"`` or ``"F"``; a traced value lies in no order."""
    if order == "C":
        return "C"
    if order in ("F", "c", "f"):
        return str(order).upper()
    if order not in ("A", "K", "a", "k", None):
        raise ValueError(f"{name}: order is {order!r}, not 'C', 'F', 'A' or 'K'")
    if order is not None and sum(n != 1 for n in x.shape) > 1:
        refuse(name, "order", f"{order!r} asks how it lies in memory, which is not defined for a "
               "traced value. Say 'C' or 'F'")  # fmt: skip
    return "C"


def flattened(x: Any, order: Any, name: str) -> Any:
    """The elements of an array in an order."""
    return ops.reshape(_reversed(x) if checked_order(x, order, name) == "F" else x, -1)


def _reversed(x: Any) -> Any:
    return ops.permute_dims(x, tuple(reversed(range(x.ndim))))


@implements("reshape")
def _reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: Any = None) -> Any:
    a = ops.asarray(a)
    if checked_order(a, order, "np.reshape") == "C":
        return ops.reshape(a, shape, copy=copy)
    return _reversed(ops.reshape(_reversed(a), as_tuple(shape)[::-1]))


@implements("ravel")
def _ravel(a: Any, order: Any = "C") -> Any:
    return flattened(a, order, "np.ravel")


@implements("transpose", "permute_dims")
def _transpose(a: Any, axes: Any = None) -> Any:
    return _reversed(a) if axes is None else ops.permute_dims(a, tuple(axes))


implements("matrix_transpose")(ops.matrix_transpose)
implements("swapaxes")(lambda a, axis1, axis2: ops.swapaxes(a, axis1, axis2))
implements("moveaxis")(lambda a, source, destination: ops.moveaxis(a, source, destination))
implements("expand_dims")(
    lambda a, axis: ops.expand_dims(a, axis=tuple(axis) if isinstance(axis, list) else axis)
)
implements("squeeze")(lambda a, axis=None: ops.squeeze(a, axis=axis))
implements("broadcast_to")(lambda array, shape: ops.broadcast_to(array, as_tuple(shape)))
implements("broadcast_arrays")(lambda *args: tuple(map(array_of, ops.broadcast_arrays(*args))))
implements("flip")(lambda m, axis=None: ops.flip(m, axis=axis))
implements("fliplr")(lambda m: ops.flip(m, axis=1))
implements("flipud")(lambda m: ops.flip(m, axis=0))
implements("tile")(lambda A, reps: own(ops.tile(A, as_tuple(reps))))


def array_of(x: Any) -> Any:
    """An array without dimensions where ``x`` is a scalar."""
    return x if issubclass(x.__class__, np.ndarray) else ops.reshape(ops.reshape(x, (1,)), ())


@implements("roll")
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    a = ops.asarray(a)
    if axis is None:  # NumPy shifts the elements in a row by the sum of all shifts
        return own(ops.reshape(_roll(ops.reshape(a, -1), shift, 0), a.shape))
    if not isinstance(shift, tuple | list) and not getattr(shift, "shape", ()):  # an integer
        return ops.roll(a, shift, axis=axis)
    shifts, axes = np.broadcast_arrays(shift, _normalize_each(axis, a.ndim, "roll"))
    if shifts.ndim > 1:
        raise ValueError("np.roll: shift and axis must be numbers or sequences of numbers")
    total = dict.fromkeys(axes.ravel().tolist(), 0)
    for by, i in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        total[i] += int(by)
    return ops.roll(a, tuple(total.values()), axis=tuple(total)) if total else own(a)


def _normalize_each(axis: Any, ndim: int, name: str) -> list[int]:
    """Axes as numbers from 0 up, each as often as it is given."""
    return [normalize_axis(i, ndim, name) for i in as_tuple(axis)]


# --- joining and dividing -----------------------------------------------------------

_CASTING = "same_kind"


def cast(parts: Any, dtype: Any, casting: Any, name: str) -> Any:
    """Arrays in a dtype that was asked for, as far as NumPy's rule of casting allows."""
    if dtype is None:
        return parts
    for part in parts:
        if not np.can_cast(getattr(part, "dtype", np.asarray(0).dtype), dtype, casting):
            raise TypeError(
                f"{name}: {describe(part)} cannot become {np.dtype(dtype)} by casting={casting!r}"
            )
    return [ops.astype(part, dtype) for part in parts]


@implements("concatenate", "concat")
def _concatenate(
    arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: str = _CASTING
) -> Any:
    return ops.concat(cast(arrays, dtype, casting, "np.concatenate"), axis=axis)


@implements("stack")
def _stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: str = _CASTING) -> Any:
    return ops.stack(cast(arrays, dtype, casting, "np.stack"), axis=axis)


def _at_least(x: Any, ndim: int) -> Any:
    x = ops.asarray(x)
    return ops.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape))


@implements("vstack")
def _vstack(tup: Any, *, dtype: Any = None, casting: str = _CASTING) -> Any:
    return ops.concat(cast([_at_least(x, 2) for x in tup], dtype, casting, "np.vstack"))


@implements("hstack")
def _hstack(tup: Any, *, dtype: Any = None, casting: str = _CASTING) -> Any:
    parts = cast([_at_least(x, 1) for x in tup], dtype, casting, "np.hstack")
    return ops.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


implements("unstack")(lambda x, /, *, axis=0: ops.unstack(x, axis=axis))


@implements("atleast_1d")
def _atleast_1d(*arys: Any) -> Any:
    out = tuple(_at_least(x, 1) for x in arys)
    return out[0] if len(out) == 1 else out


@implements("atleast_2d")
def _atleast_2d(*arys: Any) -> Any:
    out = tuple(_at_least(x, 2) for x in arys)
    return out[0] if len(out) == 1 else out


def _sections(given: Any) -> Any:
    """The indices or the number of parts of a split: NumPy cuts off a number's fraction."""
    return given if hasattr(given, "__len__") and np.ndim(given) else int(given)


@implements("array_split")
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    n = ary.shape[axis]
    indices_or_sections = _sections(indices_or_sections)
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ValueError(f"np.array_split: {indices_or_sections} parts; give 1 or more")
        small, extra = divmod(n, indices_or_sections)
        lengths = [small + (i < extra) for i in range(indices_or_sections)]
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    else:
        ends = [*indices_or_sections, n]
    before = (slice(None),) * (axis % ary.ndim)
    starts = [0, *ends[:-1]]
    return [ary[(*before, slice(i, j))] for i, j in zip(starts, ends, strict=True)]


@implements("split")
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    indices_or_sections = _sections(indices_or_sections)
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError(
            f"np.split: length {ary.shape[axis]} does not divide into {indices_or_sections} parts"
        )
    return _array_split(ary, indices_or_sections, axis)


# --- elements -----------------------------------------------------------------------


def within(indices: Any, n: int, mode: str, name: str) -> Any:
    """Places brought among ``n`` as a mode has it; ``"raise"`` leaves them as they are."""
    if mode == "raise":
        return indices
    if mode == "wrap":
        return indices % n
    if mode == "clip":
        return ops.clip(indices, 0, n - 1)
    raise ValueError(f"{name}: mode is {mode!r}, not 'raise', 'wrap' or 'clip'")


@elementwise(x=1, y=lambda y: 1j)
def of_parts(xp: Any, x: Any, y: Any) -> Any:
    """The complex numbers of these parts, whatever they are: ``x + 1j * y`` makes NaN of infinities
    and loses the sign of zeros.
    """
    x, y = xp.asarray(x), xp.asarray(y)
    out = xp.empty(np.broadcast_shapes(x.shape, y.shape), xp.result_type(x.dtype, "complex64"))
    out.real, out.imag = x, y
    return out


@implements("take")
def _take(a: Any, indices: Any, axis: Any = None, *, mode: str = "raise") -> Any:
    a = ops.asarray(a)
    if mode != "raise":
        a = ops.reshape(a, -1) if axis is None else a
        normalize_axis(axis or 0, a.ndim, "take")
        axis = 0 if axis is None else axis
        indices = within(ops.asarray(indices), a.shape[axis], mode, "np.take")
    return ops.take(a, indices, axis=axis)


@implements("take_along_axis")
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(
                f"np.take_along_axis: axis is None, and indices {indices.shape} are not of one "
                "dimension; give an axis, or a row of indices"
            )
        arr, axis = ops.reshape(arr, -1), 0
    sizes = zip(arr.shape, np.shape(indices), strict=False)
    if any(m != n and 1 not in (m, n) for i, (m, n) in enumerate(sizes) if i != axis % arr.ndim):
        raise IndexError(
            f"np.take_along_axis: indices {np.shape(indices)} do not fit {describe(arr)} beside "
            f"axis {axis}"
        )
    return ops.take_along_axis(arr, indices, axis=axis)


@implements("round", "around")
@scalars
def _round(a: Any, decimals: int = 0) -> Any:
    decimals = operator.index(decimals)
    if decimals and not is_number(a) and dtype_kind(a.dtype) == "c":
        return of_parts(_round(ops.real(a), decimals), _round(ops.imag(a), decimals))
    if not decimals or (decimals > 0 and dtype_kind(ops.result_type(a)) in "biu"):
        return ops.round(a)
    # As in NumPy: 10**-5 is inexact, and 10**5 is exact.
    factor = 10.0 ** abs(decimals)
    out = ops.round(a * factor) / factor if decimals > 0 else ops.round(a / factor) * factor
    return out if is_number(a) else ops.astype(out, a.dtype, copy=False)


def in_numpys(x: Any) -> Any:
    """An array of floating numbers as those functions take it that ask for a dtype of NumPy's own.

    Of others, as bfloat16, they make float64.
    """
    return ops.astype(x, np.float64) if is_added(x.dtype) else x


def in_their_dtype(out: Any, *operands: Any) -> Any:
    """A product in the dtype of its factors.

    NumPy's ufuncs multiply matrices of bfloat16 and the like in float32; its older functions round
    that.
    """
    operands = tuple(arrays(*operands))
    if dtype_kind(out.dtype) != "f" or not any(is_added(x.dtype) for x in operands):
        return out
    try:
        dtype = ops.result_type(*operands)
    except TypeError:  # only ufuncs promote these together, such as int32 and bfloat16
        return out
    return ops.astype(out, dtype) if is_added(dtype) else out


_NOT_GIVEN = np._NoValue


def _given(old: Any, new: Any, name: str) -> Any:
    if new is _NOT_GIVEN:
        return None if old is _NOT_GIVEN else old
    if old is not _NOT_GIVEN:
        raise ValueError(f"np.clip: a_{name} and {name} are one argument; give either")
    return new


@implements("clip")
@scalars
def _clip(
    a: Any,
    a_min: Any = _NOT_GIVEN,
    a_max: Any = _NOT_GIVEN,
    *,
    min: Any = _NOT_GIVEN,
    max: Any = _NOT_GIVEN,
    dtype: Any = None,
) -> Any:
    if (a_min is _NOT_GIVEN) is not (a_max is _NOT_GIVEN):
        raise TypeError("np.clip: give both a_min and a_max, of which one may be None")
    low, high = _given(a_min, min, "min"), _given(a_max, max, "max")
    if dtype is not None:
        a = ops.astype(a, dtype)
        low, high = (b if b is None else ops.astype(b, dtype) for b in (low, high))
    return ops.clip(a, low, high)


@implements("diff")
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = _NOT_GIVEN, append: Any = _NOT_GIVEN
) -> Any:
    if n == 0:
        return a  # whatever the others are
    ends = (None if x is _NOT_GIVEN else x for x in (prepend, append))
    return ops.diff(a, n=n, axis=axis, **dict(zip(("prepend", "append"), ends, strict=True)))
