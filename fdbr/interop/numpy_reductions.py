"""NumPy's reductions on traced values: of all elements, of those that are chosen, of those not NaN.

What is left out by ``where`` becomes what changes nothing: 0 in a sum, 1 in a product.  The
functions that pass NaN by are those that do not, ``where`` no element is NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe
from fdbr.interop.signatures import as_scalar, implements, refuse, scalars
from fdbr.ops.axes import normalize_axes
from fdbr.ops.dtypes import as_weak, float_dtype, is_short
from fdbr.ops.reductions.reduce import kept_shape, root_of_variance
from fdbr.pytrees.dtypes import dtype_kind

__all__ = ["extreme_but_nan", "fmax", "fmin", "reduced"]

_NOT_GIVEN = np._NoValue


def scalar(value: Any, like: Any) -> Any:
    """A number in the dtype of an array."""
    if dtype_kind(ops.result_type(value)) == "c" and dtype_kind(like.dtype) != "c":
        raise TypeError(f"a complex number {value!r} beside real ones of {like.dtype}")
    return ops.astype(value, like.dtype) if ops.result_type(value, like) != like.dtype else value


def chosen(where: Any, x: Any, name: str) -> Any:
    """``where`` as truth values in the shape of an array."""
    where = ops.asarray(where)
    if where.dtype.kind != "b":
        raise TypeError(f"{name}: where must hold truth values, not {describe(where)}")
    return ops.broadcast_to(where, x.shape)


def reduced(
    name: str,
    op: Callable[..., Any],
    combine: Callable[[Any, Any], Any],
    neutral: Any,
    x: Any,
    axis: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Any:
    """A reduction of the chosen elements and an initial one.

    Parameters
    ----------
    name
        NumPy's name, for messages.
    op
        ``op(x, axis=…, keepdims=…)``.
    combine
        What it is of two elements.
    neutral
        What it is of none; `None` where that does not exist.
    x, axis, keepdims, initial, where
        NumPy's arguments.
    """
    given = initial is not _NOT_GIVEN and initial is not None
    axes = normalize_axes(tuple(axis) if isinstance(axis, list) else axis, x.ndim, name)
    if where is not True:
        if not given and neutral is None:
            raise ValueError(f"{name}: where needs an initial value, as there may be no element")
        instead = scalar(initial if neutral is None else neutral, x)
        x = ops.where(chosen(where, x, name), x, instead)
    if given and neutral is None and not math.prod([x.shape[i] for i in axes]):
        rest = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        whole = kept_shape(x.shape, axes) if keepdims else rest
        return as_scalar(ops.broadcast_to(ops.astype(initial, x.dtype), whole))
    out = op(x, axis=axes, keepdims=keepdims)
    return combine(out, scalar(initial, out)) if given else out


def _typed(
    name: str, op: Callable[..., Any], combine: Callable[[Any, Any], Any], neutral: Any
) -> Callable[..., Any]:
    def reduction(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        *,
        keepdims: bool = False,
        initial: Any = _NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        if where is True and initial is _NOT_GIVEN:
            return op(a, axis=axis, dtype=dtype, keepdims=keepdims)
        a = ops.asarray(a) if dtype is None else ops.astype(a, dtype)
        typed = lambda x, **how: op(x, dtype=dtype, **how)  # noqa: E731
        return reduced(f"np.{name}", typed, combine, neutral, a, axis, keepdims, initial, where)

    return implements(name)(reduction)


def _untyped(
    names: tuple[str, ...], op: Callable[..., Any], combine: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    def reduction(
        a: Any,
        axis: Any = None,
        *,
        keepdims: bool = False,
        initial: Any = _NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        if where is True and initial is _NOT_GIVEN:
            return op(a, axis=axis, keepdims=keepdims)
        a = ops.asarray(a)
        return reduced(f"np.{names[0]}", op, combine, None, a, axis, keepdims, initial, where)

    return implements(*names)(reduction)


_sum = _typed("sum", ops.sum, ops.add, 0)
_prod = _typed("prod", ops.prod, ops.multiply, 1)
_untyped(("max", "amax"), ops.max, ops.maximum)
_untyped(("min", "amin"), ops.min, ops.minimum)


def _truth(name: str, op: Callable[..., Any], neutral: bool) -> None:
    @implements(name)
    def truth(a: Any, axis: Any = None, *, keepdims: bool = False, where: Any = True) -> Any:
        if where is not True:
            a = ops.asarray(a)
            a = ops.where(chosen(where, a, f"np.{name}"), a != 0, neutral)
        return op(a, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)


_truth("all", ops.all, True)
_truth("any", ops.any, False)


def _plain(name: str, op: Callable[..., Any]) -> None:
    @implements(name)
    def plain(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return op(a, axis=axis, keepdims=keepdims)


for _op in (ops.argmax, ops.argmin, ops.count_nonzero):
    _plain(_op.__name__, _op)


@implements("ptp")
def _ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return ops.max(a, axis=axis, keepdims=keepdims) - ops.min(a, axis=axis, keepdims=keepdims)


# --- running ------------------------------------------------------------------------


def _running(op: Callable[..., Any], neutral: Any, *names: str) -> None:
    def running(a: Any, axis: Any = None, dtype: Any = None) -> Any:
        a = ops.reshape(a, -1) if axis is None else a
        return op(a, axis=0 if axis is None else axis, dtype=dtype)

    implements(names[0])(running)
    implements(names[1])(
        lambda a, axis=None, dtype=None: running(
            ops.where(_numbers(a), a, scalar(neutral, a)), axis, dtype
        )
    )


_running(ops.cumulative_sum, 0, "cumsum", "nancumsum")
_running(ops.cumulative_prod, 1, "cumprod", "nancumprod")


def _of_the_standard(name: str) -> None:
    op = getattr(ops, name)

    @implements(name)
    def running(
        x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        x = x if x.ndim else ops.reshape(x, 1)
        return op(x, axis=axis, dtype=dtype, include_initial=include_initial)


_of_the_standard("cumulative_sum")
_of_the_standard("cumulative_prod")


# --- means and variances ------------------------------------------------------------


def _count(where: Any, axis: Any) -> Any:
    """The number of elements that are chosen, as a floating number, with the axes kept."""
    return ops.sum(ops.astype(where, float), axis=axis, keepdims=True)


def _floating(a: Any, dtype: Any) -> Any:
    """An array in the dtype in which to take its mean."""
    a = ops.asarray(a) if dtype is None else ops.astype(a, dtype)
    return ops.astype(a, float_dtype(a), copy=False)


def _result(out: Any, dtype: Any, axis: Any, keepdims: bool, ndim: int) -> Any:
    """A result whose axes were kept, as it was asked for."""
    out = ops.astype(out, dtype, copy=False)
    return out if keepdims else ops.squeeze(out, axis=normalize_axes(axis, ndim, "mean"))


def _wide(a: Any) -> Any:
    """Half precision is added up in single, as NumPy does."""
    return ops.astype(a, np.float32) if is_short(a) else a


@implements("mean")
@scalars
def _mean(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> Any:
    x = _floating(a, dtype)
    to = x.dtype if dtype is None else dtype
    if where is True:
        return ops.astype(ops.mean(x, axis=axis, keepdims=keepdims), to, copy=False)
    where = chosen(where, x, "np.mean")
    total = ops.sum(ops.where(where, _wide(x), 0), axis=axis, keepdims=True)
    return _result(total / _count(where, axis), to, axis, keepdims, x.ndim)


def _correction(ddof: Any, correction: Any, name: str) -> Any:
    if correction is _NOT_GIVEN:
        return ddof
    if ddof != 0:
        raise ValueError(f"np.{name}: ddof and correction are one argument; give either")
    return correction


def _spread(name: str, root: bool, pass_nan_by: bool) -> None:
    @implements(name)
    @scalars
    def spread(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        *,
        ddof: float = 0,
        keepdims: bool = False,
        where: Any = True,
        mean: Any = _NOT_GIVEN,
        correction: Any = _NOT_GIVEN,
    ) -> Any:
        if dtype is not None and dtype_kind(np.dtype(dtype)) not in "fc":
            refuse(
                f"np.{name}", "dtype", f"{np.dtype(dtype)} has no fractions. Give a floating dtype"
            )
        x = _floating(a, dtype)
        to = dtype
        if dtype is None and pass_nan_by:
            to = ops.real(x).dtype
        elif dtype is None:
            to = ops.result_type(*(ops.real(v) for v in (x, mean) if v is not _NOT_GIVEN))
        lost = _correction(ddof, correction, name)
        if where is True and mean is _NOT_GIVEN and not pass_nan_by:
            op = ops.std if root else ops.var
            out = op(x, axis=axis, correction=lost, keepdims=keepdims)
            return ops.astype(out, to, copy=False)
        where = True if where is True else chosen(where, x, f"np.{name}")
        where = where & _numbers(x) if pass_nan_by else where
        out = _variance(_wide(x), axis, lost, where, mean, 0 if not pass_nan_by else math.nan)
        return _result(root_of_variance(out) if root else out, to, axis, keepdims, x.ndim)


def _variance(x: Any, axis: Any, lost: Any, where: Any, mean: Any, none: float) -> Any:
    """The variance with the axes kept; ``none`` is what it is divided by where nothing is left."""
    where = ops.broadcast_to(ops.asarray(where), x.shape)
    number = _count(where, axis)
    if mean is _NOT_GIVEN:
        mean = ops.sum(ops.where(where, x, 0), axis=axis, keepdims=True) / number
    away = ops.where(where, x - ops.astype(mean, x.dtype, copy=False), 0)
    total = ops.sum(ops.real(away * ops.conj(away)), axis=axis, keepdims=True)
    left = ops.where(number > lost, number - lost, none)
    return total / left


_spread("var", root=False, pass_nan_by=False)
_spread("std", root=True, pass_nan_by=False)
_spread("nanvar", root=False, pass_nan_by=True)
_spread("nanstd", root=True, pass_nan_by=True)


# --- without NaN --------------------------------------------------------------------


def _numbers(a: Any) -> Any:
    """Which elements are numbers."""
    a = ops.asarray(a)
    return ~ops.isnan(a)


def _both(where: Any, a: Any) -> Any:
    return _numbers(a) if where is True else ops.logical_and(_numbers(a), where)


def _but_nan(name: str, reduction: Callable[..., Any]) -> None:
    @implements(name)
    def without_nan(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        *,
        keepdims: bool = False,
        initial: Any = _NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        how = {} if initial is _NOT_GIVEN else {"initial": initial}
        return reduction(a, axis, dtype, keepdims=keepdims, where=_both(where, a), **how)


_but_nan("nansum", _sum)
_but_nan("nanprod", _prod)


@implements("nanmean")
def _nanmean(
    a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = True
) -> Any:
    if dtype is not None and dtype_kind(a.dtype) in "fc" and np.dtype(dtype).kind not in "fc":
        raise TypeError(f"np.nanmean: {np.dtype(dtype)} has no fractions. Give a floating dtype")
    return _mean(a, axis, dtype, keepdims=keepdims, where=_both(where, a))


def extreme_but_nan(
    name: str, op: Callable[..., Any], combine: Callable[[Any, Any], Any], worst: float
) -> Callable[..., Any]:
    """The largest or smallest element that is a number; NaN where there is none."""

    def without(x: Any, *, axis: Any, keepdims: bool) -> Any:
        if dtype_kind(x.dtype) not in "fc":
            return op(x, axis=axis, keepdims=keepdims)
        out = op(ops.where(ops.isnan(x), as_weak(worst, x), x), axis=axis, keepdims=keepdims)
        nothing = ops.all(ops.isnan(x), axis=axis, keepdims=keepdims)
        return ops.where(nothing, as_weak(math.nan, x), out)

    def reduction(
        a: Any,
        axis: Any = None,
        *,
        keepdims: bool = False,
        initial: Any = _NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        a = ops.asarray(a)
        return reduced(name, without, combine, None, a, axis, keepdims, initial, where)

    return scalars(reduction)


def fmax(x: Any, y: Any) -> Any:
    """The larger of two elements, of which one may be NaN."""
    return _but_one(ops.maximum, x, y)


def fmin(x: Any, y: Any) -> Any:
    """The smaller of two elements, of which one may be NaN."""
    return _but_one(ops.minimum, x, y)


def _but_one(op: Callable[..., Any], x: Any, y: Any) -> Any:
    if dtype_kind(ops.result_type(x, y)) not in "fc":
        return op(x, y)
    no_x, no_y = ops.isnan(x), ops.isnan(y)  # of a Python number they are `bool`s, which have no ~
    return op(
        ops.where(no_x & ops.logical_not(no_y), y, x), ops.where(no_y & ops.logical_not(no_x), x, y)
    )


implements("nanmax")(extreme_but_nan("np.nanmax", ops.max, fmax, -math.inf))
implements("nanmin")(extreme_but_nan("np.nanmin", ops.min, fmin, math.inf))


def _place(name: str, find: Callable[..., Any], worst: float) -> None:
    @implements(name)
    def place(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        a = ops.asarray(a)
        if dtype_kind(a.dtype) not in "fc":
            return find(a, axis=axis, keepdims=keepdims)
        none = ops.isnan(a)
        if bool(ops.any(ops.all(none, axis=axis))):
            raise ValueError(f"np.{name}: there is nothing but NaN along axis {axis}")
        return find(ops.where(none, as_weak(worst, a), a), axis=axis, keepdims=keepdims)


_place("nanargmax", ops.argmax, -math.inf)
_place("nanargmin", ops.argmin, math.inf)
