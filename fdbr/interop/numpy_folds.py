"""The methods of NumPy's ufuncs on traced values: ``reduce``, ``accumulate`` and their kin.

Every ufunc of two operands has them.  Those that fdbr has as a reduction are that; of the others
the elements are combined pair by pair where the order does not matter, else one after the other.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer_methods import ufunc_methods
from fdbr.interop.numpy_reductions import extreme_but_nan, reduced
from fdbr.interop.numpy_ufuncs import ufuncs
from fdbr.interop.signatures import as_scalar, refuse
from fdbr.interop.ufunc_arguments import called
from fdbr.ops.axes import normalize_axis
from fdbr.pytrees.dtypes import dtype_kind

_NOT_GIVEN = np._NoValue


def _logsumexp(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """`fdbr.ops.logsumexp` in the ufunc's dtype; of no elements it is -inf."""
    if dtype_kind(x.dtype) not in "fc":
        x = ops.astype(x, np.logaddexp.resolve_dtypes((x.dtype, x.dtype, None))[-1])
    if 0 in [x.shape[i] for i in axis]:
        return ops.full_like(ops.sum(x, axis=axis, keepdims=keepdims), -math.inf)
    return ops.logsumexp(x, axis=axis, keepdims=keepdims)


_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.add: ops.sum,
    np.multiply: ops.prod,
    np.maximum: ops.max,
    np.minimum: ops.min,
    np.logical_and: ops.all,
    np.logical_or: ops.any,
    np.logaddexp: _logsumexp,
}
_RUNNING: dict[Any, Callable[..., Any]] = {
    np.add: ops.cumulative_sum,
    np.multiply: ops.cumulative_prod,
}
_LOGICAL = frozenset({np.logical_and, np.logical_or, np.logical_xor})
_ASSOCIATIVE = frozenset(
    {*_REDUCTIONS, *_LOGICAL, np.fmax, np.fmin, np.logaddexp2, np.hypot, np.gcd, np.lcm}
    | {np.bitwise_and, np.bitwise_or, np.bitwise_xor}
)
_COMPARING = frozenset(
    {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
)
"""NumPy reduces truth values by them, and nothing else."""


def _pairwise(op: Callable[..., Any], x: Any) -> Any:
    """All rows of an array combined: its halves with each other, again and again."""
    while (n := x.shape[0]) > 1:
        half = n // 2
        both = op(x[:half], x[half : 2 * half])
        x = both if n == 2 * half else ops.concat([both, x[2 * half :]])
    return x[0]


def _in_order(op: Callable[..., Any], x: Any) -> Any:
    out = x[0]
    for i in range(1, x.shape[0]):
        out = op(out, x[i])
    return out


def _folding(ufunc: Any, op: Callable[..., Any]) -> Callable[..., Any]:
    """The reduction that a ufunc makes, of one axis or several."""
    if ufunc in _REDUCTIONS:
        return _REDUCTIONS[ufunc]
    combine = _pairwise if ufunc in _ASSOCIATIVE else _in_order
    name = f"np.{ufunc.__name__}.reduce"

    def fold(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        if len(axis) > 1 and ufunc not in _ASSOCIATIVE:
            raise ValueError(
                f"{name}: it is not known in which order to reduce axes {axis}; give one"
            )
        rest = [n for i, n in enumerate(x.shape) if i not in axis]
        kept = [1 if i in axis else n for i, n in enumerate(x.shape)]
        count = math.prod([x.shape[i] for i in axis])
        rows = ops.reshape(ops.moveaxis(x, axis, tuple(range(len(axis)))), (count, *rest))
        if count:
            out = combine(op, rows)
        elif ufunc.identity is None:
            raise ValueError(
                f"{name}: there is no element over axes {axis}, and it has no identity"
            )
        else:
            out = ops.full(tuple(rest), ufunc.reduce(np.empty(0, x.dtype)))
        return ops.reshape(out, kept) if keepdims else out

    return fold


def _reduce(ufunc: Any, op: Callable[..., Any]) -> Callable[..., Any]:
    name = f"np.{ufunc.__name__}.reduce"
    fold = _folding(ufunc, op)
    if ufunc is np.fmax:
        fold = extreme_but_nan(name, ops.max, op, -math.inf)
    elif ufunc is np.fmin:
        fold = extreme_but_nan(name, ops.min, op, math.inf)

    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        *,
        keepdims: bool = False,
        initial: Any = _NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        x = _folded(ufunc, array, dtype, name)
        if not x.ndim and axis in (0, -1):
            axis = ()  # NumPy takes a number as its own sum, along either
        x = x != 0 if ufunc in _LOGICAL else x
        if ufunc not in _ASSOCIATIVE:
            if where is not True:
                refuse(name, "where", "no element does nothing here. Take the elements first")
            if initial is not _NOT_GIVEN and initial is not None:
                axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
                axis = normalize_axis(axis, x.ndim, name)
                first = ops.broadcast_to(
                    ops.astype(initial, x.dtype),
                    tuple(1 if i == axis else n for i, n in enumerate(x.shape)),
                )
                x, initial = ops.concat([first, x], axis=axis), None
        out = reduced(name, fold, op, ufunc.identity, x, axis, keepdims, initial, where)
        return as_scalar(out if dtype is None else ops.astype(out, dtype, copy=False))

    return reduce


def _folded(ufunc: Any, array: Any, dtype: Any, name: str) -> Any:
    """The elements in the dtype in which NumPy folds them, if it folds such at all."""
    x = ops.asarray(array) if dtype is None else ops.astype(array, dtype)
    if ufunc not in _REDUCTIONS and ufunc not in _LOGICAL:
        kinds = x.dtype, x.dtype, None
        how = {} if dtype is None else {"signature": (np.dtype(dtype), None, None)}
        try:
            ufunc.resolve_dtypes(kinds, **how)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
    return x


def _one_axis(axis: Any, ndim: int, name: str) -> int:
    """An axis of ``accumulate`` or ``reduceat``; `None` is the only one that there is."""
    if not ndim:
        raise TypeError(f"{name}: a number has no axis")
    if axis is None:
        if ndim > 1:
            raise ValueError(f"{name}: it takes one axis, not all of {ndim}")
        return 0
    if isinstance(axis, bool):
        raise TypeError(f"{name}: axis is {axis}, no integer")
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ValueError(f"{name}: it takes one axis, not {axis}")
        (axis,) = axis
    return normalize_axis(axis, ndim, name)


def _accumulate(ufunc: Any, op: Callable[..., Any]) -> Callable[..., Any]:
    name = f"np.{ufunc.__name__}.accumulate"

    def accumulate(array: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = _folded(ufunc, array, dtype, name)
        axis = _one_axis(axis, x.ndim, name)
        x = x != 0 if ufunc in _LOGICAL else x
        if ufunc in _RUNNING:
            return _RUNNING[ufunc](x, axis=axis, dtype=dtype)
        if not x.shape[axis]:
            return op(x, x)  # whose dtype may be another
        rows = ops.moveaxis(x, axis, 0)
        return ops.moveaxis(_steps(ufunc, op, rows), 0, axis)

    return accumulate


def _steps(ufunc: Any, op: Callable[..., Any], x: Any) -> Any:
    """Fold the rows up to each; in a logarithmic number of steps if the order is free."""
    if ufunc not in _ASSOCIATIVE:
        out = [x[0]]
        for i in range(1, x.shape[0]):
            out.append(op(out[-1], x[i]))
        return ops.stack(out)
    shift = 1
    while shift < x.shape[0]:
        x = ops.concat([x[:shift], op(x[shift:], x[:-shift])])
        shift *= 2
    return x


def _reduceat(ufunc: Any, reduce: Callable[..., Any]) -> Callable[..., Any]:
    """The reduction from each place up to the next, and the element there if that lies before."""
    name = f"np.{ufunc.__name__}.reduceat"

    def reduceat(array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = _folded(ufunc, array, dtype, name)
        axis = _one_axis(axis, x.ndim, name)
        n = x.shape[axis]
        starts = [int(i) for i in ops.asarray(indices)]
        if wrong := [i for i in starts if not 0 <= i < n]:
            raise IndexError(f"{name}: index {wrong[0]} is out of bounds for {n} elements")
        ends = [*starts[1:], n][: len(starts)]
        before = (slice(None),) * axis
        parts = [
            reduce(x[(*before, slice(i, max(j, i + 1)))], axis=axis, dtype=dtype)
            for i, j in zip(starts, ends, strict=True)
        ]
        if not parts:
            return reduce(x, axis=axis, dtype=dtype, keepdims=True)[(*before, slice(0))]
        return ops.stack(parts, axis=axis)

    return reduceat


def _outer(ufunc: Any, op: Callable[..., Any]) -> Callable[..., Any]:
    name = f"np.{ufunc.__name__}.outer"

    def outer(a: Any, b: Any, /, **how: Any) -> Any:
        a, b = ops.asarray(a), ops.asarray(b)
        operands = ops.reshape(a, (*a.shape, *(1,) * b.ndim)), b
        return called(op, ufunc, name, operands, **how) if how else op(*operands)

    return outer


for _ufunc, _op in ufuncs.items():
    if _ufunc.nin == 2 and _ufunc.signature is None:
        ufunc_methods[_ufunc, "outer"] = _outer(_ufunc, _op)
        if _ufunc.nout == 1 and _ufunc not in _COMPARING:
            ufunc_methods[_ufunc, "reduce"] = _reduce(_ufunc, _op)
            ufunc_methods[_ufunc, "accumulate"] = _accumulate(_ufunc, _op)
            ufunc_methods[_ufunc, "reduceat"] = _reduceat(_ufunc, _reduce(_ufunc, _op))
