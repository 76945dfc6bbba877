"""Pad arrays at the ends of their axes."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import is_differentiated
from fdbr.errors.checks import describe, index
from fdbr.errors.public import public
from fdbr.ops.axes import normalize_axis
from fdbr.ops.declare import linear
from fdbr.ops.dtypes import astype, is_traced
from fdbr.ops.elementwise.arithmetic import divide, floor, round
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.reductions.reduce import max, mean, min
from fdbr.ops.reductions.statistics import median
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, concat, flip
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["pad"]

Pair = tuple[Any, Any]


# --- padding with zeros ---------------------------------------------------------------


def _batch_widths(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    return apply(*values, widths=((0, 0), *params["widths"]))


def _inner(widths: Sequence[Pair], shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(before, before + n) for (before, _), n in zip(widths, shape, strict=True))


@linear(x=lambda ct, shape, widths: ct[_inner(widths, shape)], batch=_batch_widths, fresh=True)
def _pad_zeros(xp: Any, x: ArrayLike, *, widths: tuple[Pair, ...]) -> Array:
    shape = [n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)]
    out = xp.zeros(shape, dtype=x.dtype)
    out[_inner(widths, x.shape)] = x
    return out


def resize(x: Array, shape: Sequence[int]) -> Any:
    """Truncate an array at the end of its axes, or pad it with zeros there, to a shape."""
    if tuple(shape) == x.shape:
        return x
    if any(n > m for n, m in zip(x.shape, shape, strict=True)):
        x = x[tuple(slice(n) for n in shape)]
    if any(n < m for n, m in zip(x.shape, shape, strict=True)):
        widths = tuple((0, m - n) for n, m in zip(x.shape, shape, strict=True))
        x = _pad_zeros(x, widths=widths)
    return x


# --- padding in other modes -----------------------------------------------------------

Mode = Literal[
    "constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect",
    "symmetric", "wrap", "empty",
]  # fmt: skip
_STATISTICS = ("maximum", "mean", "median", "minimum")


@public("fdbr.ops")
def pad(
    x: Any,
    pad_width: Any,
    /,
    mode: Mode = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: Literal["even", "odd"] = "even",
) -> Any:
    """The array padded with elements before and after its own along its axes, as `numpy.pad`.

    Parameters
    ----------
    x
        An array.
    pad_width
        The numbers of new elements: a number for all ends, a pair ``(before, after)`` for all
        axes, or a pair for each axis.
    mode
        The values of new elements: ``"constant"``; ``"edge"``, the element at the edge;
        ``"reflect"`` and ``"symmetric"``, the elements mirrored at the edge, without and with the
        edge itself; ``"wrap"``, the elements of the other end; ``"linear_ramp"``, numbers between
        the edge and ``end_values``; ``"maximum"``, ``"mean"``, ``"median"``, ``"minimum"`` of
        elements next to the edge; ``"empty"``, undefined values (here: zeros).
    constant_values
        The numbers for ``"constant"``, in the form of ``pad_width``; they may be traced.
    end_values
        The numbers at the far ends for ``"linear_ramp"``, in the form of ``pad_width``.
    stat_length
        The number of elements for a statistic, in the form of ``pad_width``; by default all.
    reflect_type
        ``"odd"`` mirrors at the edge's value as well: ``2 * edge - element``.

    Raises
    ------
    ValueError
        If the mode does not exist, a width is negative, or an axis without elements would be
        padded with its own elements.
    TypeError
        If traced numbers would lose their derivative in an integer array, or complex numbers
        their imaginary part in a real one.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.pad(np.array([1.0, 2.0]), (1, 2))
    array([0., 1., 2., 0., 0.])
    >>> ops.pad(np.array([1.0, 2.0, 3.0]), 2, mode="reflect")
    array([3., 2., 1., 2., 3., 2., 1.])
    """
    x = asarray(x)
    widths = _pairs(pad_width, x.ndim, "pad_width")
    widths = [(_width(before), _width(after)) for before, after in widths]
    if mode not in Mode.__args__:  # type: ignore[attr-defined]
        raise ValueError(f"fdbr.ops.pad: mode is {mode!r}; it is one of {Mode.__args__}")  # type: ignore[attr-defined]
    if reflect_type not in ("even", "odd"):
        raise ValueError(f"fdbr.ops.pad: reflect_type is {reflect_type!r}, not 'even' or 'odd'")
    if mode == "empty" or (mode == "constant" and _is_zero(constant_values)):
        return _pad_zeros(x, widths=tuple(widths))
    pad_axis = _padder(mode, x, constant_values, end_values, stat_length, reflect_type)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            if mode != "constant" and not x.shape[axis]:
                raise ValueError(
                    f"fdbr.ops.pad: axis {axis} of {describe(x)} has no element to pad by in mode "
                    f"{mode!r}; use mode 'constant'"
                )
            x = pad_axis(x, axis, before, after)
    return x


def _pairs(value: Any, ndim: int, name: str) -> list[Pair]:
    """Expand one value for all ends, or one pair for all axes, to a pair for each axis."""
    if isinstance(value, dict):
        pairs = {normalize_axis(axis, ndim, "pad"): v for axis, v in value.items()}
        return [_pairs(pairs.get(i, 0), 1, name)[0] for i in range(ndim)]
    if getattr(value, "ndim", 0) and not is_traced(value):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return [(value, value)] * ndim
    nested = [isinstance(part, list | tuple) or getattr(part, "ndim", 0) for part in value]
    if not any(nested) and len(value) in (1, 2):
        return [(value[0], value[-1])] * ndim
    if all(nested) and len(value) in (1, ndim) and all(len(part) in (1, 2) for part in value):
        each = [(part[0], part[-1]) for part in value]
        return each if len(each) == ndim else each * ndim
    raise ValueError(
        f"fdbr.ops.pad: {name} is {value!r}; give a number, a pair (before, after), or such a pair "
        f"for each of {ndim} axes"
    )


def _width(value: Any) -> int:
    width = index(value) if isinstance(value, bool) else int(value)
    if width != value or width < 0:
        raise ValueError(f"fdbr.ops.pad: a width is {value!r}; give integers from 0 up")
    return width


def _is_zero(value: Any) -> bool:
    return type(value) in (int, float) and value == 0


def _padder(
    mode: str, x: Any, constants: Any, ends: Any, lengths: Any, reflect_type: str
) -> Callable[[Any, int, int, int], Any]:
    """Choose the function ``(x, axis, before, after)`` that pads along one axis."""
    if mode == "constant":
        values = _numbers_like(_pairs(constants, x.ndim, "constant_values"), x)
        return lambda x, axis, *widths: _pad_values(x, axis, widths, values[axis])
    if mode == "linear_ramp":
        like = astype(x, float) if dtype_kind(x.dtype) == "b" else x  # a ramp to 7 is one of floats
        values = _numbers_like(_pairs(ends, x.ndim, "end_values"), like)
        return lambda x, axis, *widths: _pad_ramp(x, axis, widths, values[axis])
    if mode in _STATISTICS:
        pairs = _pairs(lengths, x.ndim, "stat_length")
        return lambda x, axis, *widths: _pad_statistic(mode, x, axis, widths, pairs[axis])
    if mode == "edge":
        return lambda x, axis, *widths: _pad_values(
            x, axis, widths, (_slice_along(x, axis, 0, 1), _slice_along(x, axis, -1, None))
        )
    if mode == "wrap":
        return _pad_wrap
    edge, odd = mode == "symmetric", reflect_type == "odd"
    return lambda x, axis, before, after: _pad_mirror(x, axis, before, after, edge, odd)


def _numbers_like(pairs: Sequence[Pair], x: Any) -> list[Pair]:
    """Convert padding numbers to the array's dtype."""

    def number(value: Any) -> Any:
        value = array_module(x).asarray(value) if not hasattr(value, "dtype") else value
        if value.dtype.kind == "c" and x.dtype.kind != "c":
            raise TypeError(
                f"fdbr.ops.pad: {describe(value)} around {describe(x)} would lose its imaginary "
                "part; make the array complex first"
            )
        if (
            is_differentiated(value)
            and dtype_kind(value.dtype) == "f"
            and dtype_kind(x.dtype) not in "fc"
        ):
            raise TypeError(
                f"fdbr.ops.pad: {describe(value)} around {describe(x)} would be cut off from its "
                "derivative; make the array floating first"
            )
        return astype(value, x.dtype, copy=False)

    return [(number(before), number(after)) for before, after in pairs]


def _slice_along(
    x: Any, axis: int, start: int | None, stop: int | None, step: int | None = None
) -> Any:
    return x[(slice(None),) * axis + (slice(start, stop, step),)]


def _pad_values(x: Any, axis: int, widths: Pair, values: Pair) -> Any:
    """Pad with two values, each broadcast to its width along the axis."""
    shapes = [tuple(w if i == axis else n for i, n in enumerate(x.shape)) for w in widths]
    before, after = (broadcast_to(v, shape) for v, shape in zip(values, shapes, strict=True))
    return concat([before, x, after], axis=axis)


def _pad_ramp(x: Any, axis: int, widths: Pair, ends: Pair) -> Any:
    xp = array_module(x)
    ramps = []
    for width, end, edge in zip(
        widths, ends, (_slice_along(x, axis, 0, 1), _slice_along(x, axis, -1, None)), strict=True
    ):
        # From the far end to the edge.
        if dtype_kind(x.dtype) in "fc":
            steps = divide(xp.arange(width, dtype=x.dtype), width or 1)
            steps = steps.reshape((-1, *(1,) * (x.ndim - axis - 1)))
            ramps.append(astype(end + (edge - end) * steps, x.dtype, copy=False))
        else:  # in NumPy's order, because the result is rounded down
            numbers = xp.arange(width, dtype=float).reshape((-1, *(1,) * (x.ndim - axis - 1)))
            end, edge = astype(end, float), astype(edge, float)
            step = (edge - end) / (width or 1)
            is_flat = (step == 0).any()  # somewhere: then NumPy divides first everywhere
            ramp = where(is_flat, numbers / (width or 1) * (edge - end), numbers * step) + end
            ramps.append(astype(ramp if dtype_kind(x.dtype) == "b" else floor(ramp), x.dtype))
    return concat([ramps[0], x, flip(ramps[1], axis=axis)], axis=axis)


def _pad_statistic(mode: str, x: Any, axis: int, widths: Pair, lengths: Pair) -> Any:
    statistic: Any = {"maximum": max, "minimum": min, "mean": mean, "median": median}[mode]
    n = x.shape[axis]
    counts = [n if length is None else _width(length) for length in lengths]
    parts = (
        _slice_along(x, axis, None, counts[0]),
        _slice_along(x, axis, n - counts[1] if counts[1] < n else 0, None),
    )
    values = [statistic(p, axis=axis, keepdims=True) for p in parts]
    if dtype_kind(x.dtype) in "iu":
        values = [value if value.dtype == x.dtype else round(value) for value in values]
    values = [astype(value, x.dtype, copy=False) for value in values]
    return _pad_values(x, axis, widths, (values[0], values[1]))


def _pad_wrap(x: Any, axis: int, before: int, after: int) -> Any:
    n = x.shape[axis]
    head, tail = _slice_along(x, axis, n - before % n, None), _slice_along(x, axis, None, after % n)
    return concat([head, *[x] * (before // n + 1 + after // n), tail], axis=axis)


def _pad_mirror(x: Any, axis: int, before: int, after: int, edge: bool, odd: bool) -> Any:
    """Pad by mirroring at the edges, repeatedly where a width exceeds the length so far."""
    first = 0 if edge else 1
    if x.shape[axis] == first:  # only the edge itself
        return _pad_values(x, axis, (before, after), (x, x))
    while before or after:
        n = x.shape[axis]
        left, right = (n - first if w > n - first else w for w in (before, after))
        head = flip(_slice_along(x, axis, first, first + left), axis=axis)
        tail = flip(_slice_along(x, axis, n - first - right, n - first), axis=axis)
        if odd:
            head = 2 * _slice_along(x, axis, 0, 1) - head
            tail = 2 * _slice_along(x, axis, n - 1, None) - tail
            head, tail = (astype(part, x.dtype, copy=False) for part in (head, tail))
        x = concat([head, x, tail], axis=axis)
        before, after = before - left, after - right
    return x
