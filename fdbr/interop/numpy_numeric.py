"""NumPy's numerical functions on traced values: differences, pieces, comparisons.

Every entry takes NumPy's arguments; see `fdbr.interop.numpy_protocol`.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.array import ufunc_methods, ufuncs
from fdbr.batching import vmap
from fdbr.interop.numpy_protocol import implements
from fdbr.ops.creation import arrays
from fdbr.ops.dtypes import is_number
from fdbr.ops.kinds import constant, elementwise
from fdbr.ops.shape import normalize_axes, normalize_axis

# --- ufuncs -------------------------------------------------------------------------


@elementwise(x=1, y=lambda x, y: -ops.trunc(x / y))
def _fmod(xp: Any, x: Any, y: Any) -> Any:
    return xp.fmod(x, y)


@elementwise(x=None)
def _spacing(xp: Any, x: Any) -> Any:
    if xp is np:
        return np.spacing(x)
    size = abs(x * 1.0)
    above = xp.nextafter(size, math.inf) - size
    below = size - xp.nextafter(size, 0.0)  # of the largest number of all
    return xp.copysign(xp.where(xp.isinf(above), below, above), x)


@elementwise(x=None)
def _exponent(xp: Any, x: Any) -> Any:
    return xp.frexp(x)[1]


@elementwise(x=lambda n, dtype: ops.exp2(ops.astype(n, dtype)), n=None)
def _ldexp(xp: Any, x: Any, n: Any) -> Any:
    return xp.ldexp(x, n)


@constant
def _gcd(xp: Any, x: Any, y: Any) -> Any:
    return xp.gcd(x, y)


@constant
def _lcm(xp: Any, x: Any, y: Any) -> Any:
    return xp.lcm(x, y)


def _but_nan(op: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of which a number and NaN give the number."""

    def f(x: Any, y: Any) -> Any:
        no_x, no_y = ops.isnan(x), ops.isnan(y)
        return op(ops.where(no_x & ~no_y, y, x), ops.where(no_y & ~no_x, x, y))

    return f


def _heaviside(x: Any, at_zero: Any) -> Any:
    dtype = ops.result_type(x, at_zero)
    step = ops.where(ops.isnan(x), math.nan, ops.astype(x > 0, dtype))
    return ops.where(ops.equal(x, 0), at_zero, step)


def _frexp(x: Any) -> Any:
    exponent = _exponent(x)
    return _ldexp(x, -exponent), exponent


def _float_power(x: Any, y: Any) -> Any:
    dtype = np.complex128 if ops.result_type(x, y).kind == "c" else np.float64
    x, y = (v if is_number(v) else ops.astype(v, dtype) for v in (x, y))
    return ops.power(x, y)


def _floating(op: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes integers floating, which fdbr's does not."""
    return lambda x: op(x) if ops.result_type(x).kind in "fc" else op(ops.astype(x, float))


def _modf(x: Any) -> Any:
    finite = ops.where(ops.isinf(x), 0, x)
    return finite - ops.trunc(finite), ops.trunc(x)


_LN2 = math.log(2)


def _logaddexp2(x: Any, y: Any) -> Any:
    dtype = ops.result_type(x, y)  # before they are rounded in a narrower one
    x, y = (v if is_number(v) else ops.astype(v, dtype) for v in (x, y))
    return ops.logaddexp(x * _LN2, y * _LN2) / _LN2


ufuncs.update(
    {
        np.fmax: _but_nan(ops.maximum),
        np.fmin: _but_nan(ops.minimum),
        np.fmod: _fmod,
        np.spacing: _spacing,
        np.ldexp: _ldexp,
        np.frexp: _frexp,
        np.modf: _floating(_modf),
        np.fabs: _floating(ops.abs),
        np.rint: _floating(ops.round),
        np.gcd: _gcd,
        np.lcm: _lcm,
        np.heaviside: _heaviside,
        np.float_power: _float_power,
        np.logaddexp2: _logaddexp2,
    }
)


def _accumulate(op: Callable[..., Any]) -> Callable[..., Any]:
    """What comes of the elements up to each along an axis, in a logarithmic number of steps."""

    def accumulate(x: Any, axis: int = 0) -> Any:
        before = (slice(None),) * normalize_axis(axis, x.ndim, "accumulate")
        shift = 1
        while shift < x.shape[axis]:
            tail = op(x[(*before, slice(shift, None))], x[(*before, slice(None, -shift))])
            x = ops.concat([x[(*before, slice(None, shift))], tail], axis=axis)
            shift *= 2
        return x

    return accumulate


for _ufunc in (np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp):
    ufunc_methods[_ufunc, "accumulate"] = _accumulate(ufuncs[_ufunc])
ufunc_methods[np.logaddexp, "reduce"] = lambda x, axis=0, keepdims=False: ops.logsumexp(
    x, axis=axis, keepdims=keepdims
)


# --- numbers ------------------------------------------------------------------------

implements("fix")(lambda x: ops.trunc(x))
implements("isreal")(lambda x: ops.equal(ops.imag(x), 0))
implements("iscomplex")(lambda x: ops.not_equal(ops.imag(x), 0))
implements("isposinf")(lambda x: ops.equal(x, math.inf))
implements("isneginf")(lambda x: ops.equal(x, -math.inf))
implements("can_cast")(lambda from_, to, casting="safe": np.can_cast(from_.dtype, to, casting))
implements("common_type")(lambda *arrays: ops.result_type(*arrays, np.float16).type)
implements("real_if_close")(lambda a, tol=100: ops.real(a) if _is_real(a, tol) else a)
implements("array_repr", "array_str", "array2string")(lambda a, *args, **kwargs: repr(a))
implements("sinc")(ops.sinc)
implements("i0")(ops.i0)


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
    out = ops.atan2(ops.imag(z), ops.real(z))
    return out * (180 / math.pi) if deg else out


@implements("nan_to_num")
def _nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if x.dtype.kind == "c":
        return ops.add(
            _nan_to_num(ops.real(x), copy, nan, posinf, neginf),
            1j * _nan_to_num(ops.imag(x), copy, nan, posinf, neginf),
        )
    limits = ops.finfo(x.dtype)
    out = ops.where(ops.isnan(x), nan, x)
    out = ops.where(ops.equal(x, math.inf), limits.max if posinf is None else posinf, out)
    return ops.where(ops.equal(x, -math.inf), limits.min if neginf is None else neginf, out)


@implements("isclose")
def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    a, b = arrays(a, b)
    near = (ops.abs(a - b) <= atol + rtol * ops.abs(b)) & ops.isfinite(b) | ops.equal(a, b)
    return near | (ops.isnan(a) & ops.isnan(b)) if equal_nan else near


@implements("allclose")
def _allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    return ops.all(_isclose(a, b, rtol, atol, equal_nan))


@implements("array_equal")
def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    a, b = arrays(a1, a2)
    if a.shape != b.shape:
        return False
    same = ops.equal(a, b)
    return ops.all(same | (ops.isnan(a) & ops.isnan(b)) if equal_nan else same)


@implements("array_equiv")
def _array_equiv(a1: Any, a2: Any) -> Any:
    a, b = arrays(a1, a2)
    for m, n in itertools.zip_longest(a.shape[::-1], b.shape[::-1], fillvalue=1):
        if m != n and 1 not in (m, n):
            return False
    return ops.all(ops.equal(a, b))


# --- sequences ----------------------------------------------------------------------

implements("convolve")(lambda a, v, mode="full": ops.convolve(a, v, mode))
implements("correlate")(lambda a, v, mode="valid": ops.correlate(a, v, mode))
implements("interp")(
    lambda x, xp, fp, left=None, right=None, period=None: ops.interp(x, xp, fp, left, right, period)
)


@implements("trapezoid")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    steps = dx
    if x is not None:
        y, x = arrays(y, x)
        steps = ops.diff(x if x.ndim == 1 else ops.moveaxis(x, axis, -1))
    y = ops.moveaxis(ops.asarray(y), axis, -1)
    return ops.sum(steps * (y[..., 1:] + y[..., :-1]) / 2, axis=-1)


@implements("gradient")
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = ops.asarray(f)
    axes = normalize_axes(axis, f.ndim, "gradient")
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"np.gradient: {len(steps)} spacings for {len(axes)} axes")
    out = tuple(
        ops.moveaxis(_slopes(ops.moveaxis(f, i, 0), step, edge_order), 0, i)
        for i, step in zip(axes, steps, strict=True)
    )
    return out[0] if len(out) == 1 else out


def _slopes(f: Any, step: Any, edge_order: int) -> Any:
    """The slopes along the first axis: of the parabola through each element and its neighbours."""
    n = f.shape[0]
    if n <= edge_order or edge_order not in (1, 2):
        raise ValueError(f"np.gradient: edge_order={edge_order} for {n} elements")
    f, step = arrays(f, step)
    if f.dtype.kind in "fc":  # whose dtype is the result's
        step = ops.astype(step, ops.real(f).dtype, copy=False)
    widths = ops.diff(step) if step.ndim else ops.broadcast_to(step, (n - 1,))
    widths = ops.reshape(widths, (n - 1, *(1,) * (f.ndim - 1)))
    chords = ops.diff(f, axis=0) / widths
    left, right = widths[:-1], widths[1:]
    middle = (right * chords[:-1] + left * chords[1:]) / (left + right)
    first, last = chords[:1], chords[-1:]
    if edge_order == 2:
        first = chords[:1] - widths[:1] * (chords[1:2] - chords[:1]) / (widths[:1] + widths[1:2])
        bend = (chords[-1:] - chords[-2:-1]) / (widths[-1:] + widths[-2:-1])
        last = chords[-1:] + widths[-1:] * bend
    return ops.concat([first, middle, last])


@implements("unwrap")
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    steps = ops.diff(p, axis=axis)
    wrapped = ops.remainder(steps + period / 2, period) - period / 2
    wrapped = ops.where((wrapped == -period / 2) & (steps > 0), period / 2, wrapped)
    least = period / 2 if discont is None else max(discont, period / 2)
    moved = ops.where(ops.abs(steps) < least, 0, wrapped - steps)
    return p + ops.cumulative_sum(
        ops.pad(moved, [(int(i == axis % p.ndim), 0) for i in range(p.ndim)]), axis=axis
    )


@implements("geomspace")
def _geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True) -> Any:
    sign = ops.sign(start)
    low, high = ops.log(start * sign), ops.log(stop * sign)
    return sign * ops.exp(ops.linspace(low, high, num, endpoint=endpoint))


@implements("logspace")
def _logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0) -> Any:
    return ops.power(base, ops.linspace(start, stop, num, endpoint=endpoint))


@implements("linspace")
def _linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False
) -> Any:
    out = ops.linspace(start, stop, num, endpoint=endpoint)
    return (out, (stop - start) / (num - 1 if endpoint else num)) if retstep else out


# --- pieces -------------------------------------------------------------------------


@implements("select")
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    out = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        out = ops.where(condition, choice, out)
    return out


@implements("piecewise")
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kwargs: Any) -> Any:
    rows = isinstance(condlist, list | tuple) or condlist.ndim > 1
    x, *conditions = arrays(x, *(condlist if rows else [condlist]))
    conditions = [ops.broadcast_to(c, x.shape) for c in conditions]
    if len(funclist) == len(conditions) + 1:
        conditions.append(~ops.any(ops.stack(conditions), axis=0))
    out = ops.zeros_like(x)
    for condition, function in zip(conditions, funclist, strict=True):
        value = function(x[condition], *args, **kwargs) if callable(function) else function
        out = ops.at(out)[condition].set(value)
    return out


@implements("apply_along_axis")
def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    axis = normalize_axis(axis, arr.ndim, "apply_along_axis")
    rows = ops.moveaxis(arr, axis, -1)
    around, flat = rows.shape[:-1], ops.reshape(rows, (-1, rows.shape[-1]))
    out = vmap(lambda row: ops.asarray(func1d(row, *args, **kwargs)))(flat)
    own = out.ndim - 1
    out = ops.reshape(out, (*around, *out.shape[1:]))
    last = tuple(range(out.ndim - own, out.ndim))
    return ops.moveaxis(out, last, tuple(range(axis, axis + own))) if own else out


@implements("apply_over_axes")
def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    for axis in axes if isinstance(axes, list | tuple) else [axes]:
        out = func(a, axis)
        a = out if out.ndim == a.ndim else ops.expand_dims(out, axis)
    return a
