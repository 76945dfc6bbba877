"""NumPy's numerical functions on traced values: differences, pieces, comparisons.

Every entry takes NumPy's arguments; see `fdbr.interop.signatures`.
"""

import itertools
import math
import operator
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core import tracer
from fdbr.errors.checks import describe
from fdbr.interop.numpy_basics import array_of, in_numpys, in_their_dtype, of_parts
from fdbr.interop.signatures import implements, refuse, scalars
from fdbr.ops.axes import normalize_axes, normalize_axis
from fdbr.ops.dtypes import as_weak, is_number, is_short
from fdbr.ops.shape.creation import arrays, dtype_of_steps
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.transforms.vmap import vmap

# --- numbers ------------------------------------------------------------------------


def _common_type(*arrays: Any) -> Any:
    exact = any(dtype_kind(x.dtype) in "iu" for x in arrays)
    return ops.result_type(*arrays, np.float64 if exact else np.float16).type


implements("fix")(lambda x: ops.trunc(x))
implements("isreal")(lambda x: ops.equal(ops.imag(x), 0))
implements("iscomplex")(lambda x: ops.not_equal(ops.imag(x), 0))


def _infinite(name: str, value: float) -> None:
    @implements(name)
    def infinite(x: Any) -> Any:
        if dtype_kind(x.dtype) == "c":
            raise TypeError(f"np.{name}: complex numbers have no sign, but x is {describe(x)}")
        return ops.equal(x, value)


_infinite("isposinf", math.inf)
_infinite("isneginf", -math.inf)
implements("can_cast")(lambda from_, to, casting="safe": np.can_cast(from_.dtype, to, casting))
implements("common_type")(_common_type)
implements("real_if_close")(lambda a, tol=100: array_of(ops.real(a) if _is_real(a, tol) else a))
implements("array_repr", "array_str", "array2string")(lambda a, /, *args, **how: repr(a))
implements("sinc")(lambda x: ops.sinc(x))
implements("i0")(lambda x: array_of(ops.i0(in_numpys(x))))


def _is_real(a: Any, tol: float) -> bool:
    if a.dtype.kind != "c":
        return True
    bound = tol * ops.finfo(a.dtype).eps if tol > 1 else tol
    return bool(ops.all(ops.abs(ops.imag(a)) < bound))


@implements("min_scalar_type")
def _min_scalar_type(a: Any) -> Any:
    """The smallest dtype of the same kind that holds a number; an array's own."""
    kind, own = a.dtype.kind, a.dtype.itemsize
    if a.ndim or kind == "b":
        return a.dtype
    if kind in "iu":
        names = ["uint8", "uint16", "uint32"] if bool(a >= 0) else ["int8", "int16", "int32"]
        fitting = (n for n in names if bool((a >= np.iinfo(n).min) & (a <= np.iinfo(n).max)))
        return np.dtype(next(fitting, f"{names[0][:-1]}{8 * own}"))
    parts = [a] if kind == "f" else [ops.real(a), ops.imag(a)]
    bounds = {"float16": 65000.0, "float32": 3.4e38} if kind == "f" else {"complex64": 3.4e38}
    for name, bound in bounds.items():  # NumPy's own
        holds = [(ops.abs(x) < bound) | (~ops.isfinite(x) & (kind == "f")) for x in parts]
        if np.dtype(name).itemsize >= own or all(map(bool, holds)):
            return min(np.dtype(name), a.dtype, key=lambda dtype: dtype.itemsize)
    return a.dtype


@implements("angle")
def _angle(z: Any, deg: bool = False) -> Any:
    z = ops.asarray(z)
    out = ops.atan2(ops.imag(z) if z.dtype.kind == "c" else 0, ops.real(z))
    return out * as_weak(180 / math.pi, out) if deg else out


@implements("nan_to_num")
@scalars
def _nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if not copy:
        refuse("np.nan_to_num", "copy", "arrays are never written to here. Take the result instead")
    if x.dtype.kind == "c":
        return of_parts(
            *(_nan_to_num(v, copy, nan, posinf, neginf) for v in (ops.real(x), ops.imag(x)))
        )
    if dtype_kind(x.dtype) != "f":
        return x  # integers are always numbers
    limits = ops.finfo(x.dtype)
    most, least = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    nan, most, least = (as_weak(value, x) for value in (nan, most, least))
    out = ops.where(ops.isnan(x), nan, x)
    out = ops.where(ops.equal(x, math.inf), most, out)
    return ops.where(ops.equal(x, -math.inf), least, out)


@implements("isclose")
def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    a, b = (x if is_number(x) else ops.asarray(x) for x in (a, b))
    if is_number(b):
        b = b * 1.0
    elif dtype_kind(b.dtype) in "biu":  # whose differences would wrap
        b = ops.astype(b, ops.result_type(b.dtype, np.float64))
    near = (ops.abs(a - b) <= atol + rtol * ops.abs(b)) & ops.isfinite(b) | ops.equal(a, b)
    return near | (ops.isnan(a) & ops.isnan(b)) if equal_nan else near


@implements("allclose")
def _allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return bool(ops.all(_isclose(a, b, rtol, atol, equal_nan)))


@implements("array_equal")
def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    if (both := _arrays_of(a1, a2)) is None:
        return False
    a, b = both
    if a.shape != b.shape:
        return False
    same = ops.equal(a, b)
    return bool(ops.all(same | (ops.isnan(a) & ops.isnan(b)) if equal_nan else same))


def _arrays_of(*values: Any) -> Any:
    """The arrays of two values; `None` where one holds no numbers, which equals none."""
    if any(not hasattr(v, "dtype") and np.asarray(v).dtype.kind not in "biufc" for v in values):
        return None
    return arrays(*values)


@implements("array_equiv")
def _array_equiv(a1: Any, a2: Any) -> Any:
    if (both := _arrays_of(a1, a2)) is None:
        return False
    a, b = both
    for m, n in itertools.zip_longest(a.shape[::-1], b.shape[::-1], fillvalue=1):
        if m != n and 1 not in (m, n):
            return False
    return bool(ops.all(ops.equal(a, b)))


# --- sequences ----------------------------------------------------------------------


def _at_least_one(x: Any) -> Any:
    return x if x.ndim else ops.reshape(x, (1,))


@implements("convolve")
def _convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = map(_at_least_one, arrays(a, v))
    return in_their_dtype(ops.convolve(a, v, mode), a, v)


@implements("correlate")
def _correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = arrays(a, v)
    if not (a.ndim and v.ndim):
        raise ValueError(f"np.correlate: {describe(a)} and {describe(v)} must have one dimension")
    return in_their_dtype(ops.correlate(a, v, mode), a, v)


@implements("interp")
def _interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """NumPy's, which has every dtype in double precision."""
    x, xp, fp = arrays(x, xp, fp)
    if "c" in (x.dtype.kind, xp.dtype.kind) and period is None:
        raise TypeError(f"np.interp: x and xp must be real, not {describe(x)} and {describe(xp)}")
    x, xp, fp = (ops.astype(v, np.result_type(v.dtype, float)) for v in (x, xp, fp))
    if not x.size and xp.shape == fp.shape == (0,):
        np.interp(*np.empty((3, 0)))  # which is an error up to NumPy 2.4
        return ops.astype(x, fp.dtype)
    return ops.interp(x, xp, fp, left, right, period)


@implements("trapezoid")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    steps = dx
    if x is not None:
        y, x = arrays(y, x)
        steps = ops.diff(x if x.ndim == 1 else ops.moveaxis(x, axis, -1))
    y = ops.moveaxis(ops.asarray(y), axis, -1)
    return ops.sum(steps * (y[..., 1:] + y[..., :-1]) / 2.0, axis=-1)


@implements("gradient")
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    if f.dtype.kind == "b":
        raise TypeError("np.gradient: truth values have no differences; convert them to integers")
    f = in_numpys(ops.asarray(f))
    f = ops.astype(f, float) if f.dtype.kind in "biu" else f  # whose differences would wrap
    axes = normalize_axes(axis, f.ndim, "gradient")
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"np.gradient: {len(steps)} spacings for {len(axes)} axes")
    out = tuple(
        ops.moveaxis(_derivatives(ops.moveaxis(f, i, 0), step, edge_order), 0, i)
        for i, step in zip(axes, steps, strict=True)
    )
    return out[0] if len(out) == 1 else out


def _derivatives(f: Any, step: Any, edge_order: int) -> Any:
    """Derivatives along the first axis, by parabolas through elements and their neighbours."""
    n = f.shape[0]
    if n <= edge_order or edge_order not in (1, 2):
        raise ValueError(f"np.gradient: edge_order={edge_order} for {n} elements")
    f, step = arrays(f, step)
    if dtype_kind(f.dtype) in "fc":  # whose dtype is the result's
        step = ops.astype(step, ops.real(f).dtype, copy=False)
    if step.ndim and not isinstance(step, tracer.Tracer):
        widths = np.diff(step)
        step = widths[0] if (widths == widths[:1]).all() else step
    # NumPy's own sums, so that NaN and infinities reach the same elements.
    if not step.ndim:
        middle = (f[2:] - f[:-2]) / (2.0 * step)
        widths = ops.broadcast_to(step, (n - 1, *(1,) * (f.ndim - 1)))
    else:
        widths = ops.reshape(ops.diff(step), (n - 1, *(1,) * (f.ndim - 1)))
        left, right = widths[:-1], widths[1:]
        own = (right - left) / (left * right) * f[1:-1]
        # NumPy leaves this term out between equal widths.
        is_left_out = ops.all(widths == widths[:1]) & ~ops.isfinite(f[1:-1])
        before = -right / (left * (left + right)) * f[:-2]
        after = left / (right * (left + right)) * f[2:]
        middle = before + ops.where(is_left_out, 0, own) + after
    if edge_order == 1:
        first, last = ((f[i + 1 : i + 2] - f[i : i + 1]) / widths[i : i + 1] for i in (0, n - 2))
        return ops.concat([first, middle, last])
    first = _end(widths[:1], widths[1:2], f[:1], f[1:2], f[2:3])
    last = _end(-widths[-1:], -widths[-2:-1], f[-1:], f[-2:-1], f[-3:-2])
    return ops.concat([first, middle, last])


def _end(width: Any, next_width: Any, *f: Any) -> Any:
    """The derivative at the first of three elements, by the parabola through the elements."""
    whole = width + next_width
    return (
        -(2.0 * width + next_width) / (width * whole) * f[0]
        + whole / (width * next_width) * f[1]
        - width / (next_width * whole) * f[2]
    )


@implements("unwrap")
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    p = in_numpys(ops.asarray(p))
    steps = ops.diff(p, axis=axis)
    wrapped = ops.remainder(steps + period / 2, period) - period / 2
    wrapped = ops.where((wrapped == -period / 2) & (steps > 0), period / 2, wrapped)
    least = period / 2 if discont is None else max(discont, period / 2)
    moved = ops.where(ops.abs(steps) < least, 0, wrapped - steps)
    return p + ops.cumulative_sum(
        ops.pad(moved, [(int(i == axis % p.ndim), 0) for i in range(p.ndim)]), axis=axis
    )


# --- sequences between ends ---------------------------------------------------------


def _placed(out: Any, dtype: Any, axis: int) -> Any:
    """Samples along a first axis brought to an axis, in a dtype; integers are rounded down."""
    if dtype is not None:
        dtype = np.dtype(dtype)
        out = ops.astype(ops.floor(out) if dtype.kind in "iu" else out, dtype, copy=False)
    return ops.moveaxis(out, 0, axis) if axis else out


def _number(num: Any) -> int:
    """The number of samples."""
    if (found := operator.index(num)) < 0:
        raise ValueError(f"num must not be negative, and is {found}")
    return found


@implements("linspace")
def _linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    ends = [x if is_number(x) else ops.asarray(x) for x in (start, stop)]
    exact = dtype_of_steps(*(x for x in ends if not is_number(x)))
    start, stop = (  # differences of integers may wrap, and truth values have none
        x if is_number(x) or dtype_kind(x.dtype) not in "iub" else ops.astype(x, exact)
        for x in ends
    )
    num = _number(num)
    out = _placed(ops.linspace(start, stop, num, endpoint=endpoint, device=device), dtype, axis)
    parts = num - 1 if endpoint else num
    return (out, (stop - start) / (parts or math.nan)) if retstep else out


@implements("logspace")
def _logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    ends = ops.broadcast_arrays(*arrays(start, stop, base)) if getattr(base, "ndim", 0) else None
    start, stop, base = ends or (start, stop, base)
    exponents = _linspace(start, stop, num, endpoint)
    return _placed(ops.power(base, exponents), dtype, axis)


@implements("geomspace")
def _geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    start, stop = ops.broadcast_arrays(
        *(ops.astype(x, np.result_type(x.dtype, float)) for x in arrays(start, stop))
    )
    num = _number(num)
    if bool(ops.any(start == 0)) or bool(ops.any(stop == 0)):
        raise ValueError("np.geomspace: 0 is on no geometric sequence; give ends that are not 0")
    sign = ops.sign(start)
    exponents = _linspace(ops.log(start / sign), ops.log(stop / sign), num, endpoint)
    out = sign * ops.exp(exponents)
    if num:  # the ends are those that were given, to the last digit
        last = [stop[None]] if endpoint and num > 1 else []
        out = ops.concat([start[None], out[1 : num - len(last)], *last])
    return _placed(out, dtype, axis)


# --- pieces -------------------------------------------------------------------------


@implements("select")
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = ops.where(condition, choice, out)
    return ops.astype(out, ops.result_type(*choicelist, default), copy=False)


@implements("piecewise")
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    rows = isinstance(condlist, list | tuple) or condlist.ndim > 1
    x, *conditions = arrays(x, *(condlist if rows else [condlist]))
    conditions = [ops.broadcast_to(ops.astype(c, bool, copy=False), x.shape) for c in conditions]
    if len(funclist) == len(conditions) + 1:
        conditions.append(ops.logical_not(ops.any(ops.stack(conditions), axis=0)))
    out = ops.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(x[condition], *args, **kw) if callable(function) else function
        out = ops.at(out)[condition].set(value)
    return out


@implements("apply_along_axis")
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    axis = normalize_axis(axis, arr.ndim, "apply_along_axis")
    rows = ops.moveaxis(arr, axis, -1)
    around, flat = rows.shape[:-1], ops.reshape(rows, (math.prod(rows.shape[:-1]), rows.shape[-1]))
    out = vmap(lambda row: ops.asarray(func1d(row, *args, **kwargs)))(flat)
    own = out.ndim - 1
    out = ops.reshape(out, (*around, *out.shape[1:]))
    last = tuple(range(out.ndim - own, out.ndim))
    return tracer.own(ops.moveaxis(out, last, tuple(range(axis, axis + own))) if own else out)


@implements("apply_over_axes")
def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    for axis in axes if isinstance(axes, list | tuple) else [axes]:
        out = func(a, axis)
        a = out if out.ndim == a.ndim else ops.expand_dims(out, axis)
    return a


# --- functions that become complex where they have to -------------------------------


def _widening(name: str, least: float, most: float = math.inf) -> None:
    op = getattr(np, name)

    @implements(name, module=np.lib.scimath)
    def widened(x: Any) -> Any:
        x = ops.asarray(x)
        if x.dtype.kind != "c" and bool(ops.any((x < least) | (x > most))):
            short = is_short(x)  # which become as wide as numbers that are none of these
            x = ops.astype(x, np.complex128 if short else ops.result_type(x, np.complex64))
        return op(x)


for _name in ("sqrt", "log", "log2", "log10"):
    _widening(_name, 0)
for _name in ("arccos", "arcsin", "arctanh"):
    _widening(_name, -1, 1)


@implements("logn", module=np.lib.scimath)
def _logn(n: Any, x: Any) -> Any:
    return np.lib.scimath.log(x) / np.lib.scimath.log(n)


@implements("power", module=np.lib.scimath)
def _power(x: Any, p: Any) -> Any:
    x, p = arrays(x, p)
    if x.dtype.kind != "c" and bool(ops.any(x < 0)):
        x = ops.astype(x, ops.result_type(x, np.complex64))
    if p.dtype.kind in "iu" and bool(ops.any(p < 0)):
        p = ops.astype(p, float)
    return ops.power(x, p)
