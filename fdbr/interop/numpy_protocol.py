"""NumPy's own functions on traced values: which op each of them is.

NumPy hands its functions here through ``__array_ufunc__`` and ``__array_function__`` when an
argument is traced.  Every entry takes NumPy's arguments, and rejects by its signature those
that have no meaning here (``out``, ``where``, ``order``).
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.array import functions, ufunc_methods, ufuncs

_RENAMED = {
    "arccos": ops.acos,
    "arccosh": ops.acosh,
    "arcsin": ops.asin,
    "arcsinh": ops.asinh,
    "arctan": ops.atan,
    "arctan2": ops.atan2,
    "arctanh": ops.atanh,
    "absolute": ops.abs,
    "conjugate": ops.conj,
    "invert": ops.bitwise_invert,
    "left_shift": ops.bitwise_left_shift,
    "right_shift": ops.bitwise_right_shift,
    "true_divide": ops.divide,
    "divmod": lambda x, y: (ops.floor_divide(x, y), ops.remainder(x, y)),
    "deg2rad": lambda x: x * (np.pi / 180),
    "radians": lambda x: x * (np.pi / 180),
    "rad2deg": lambda x: x * (180 / np.pi),
    "degrees": lambda x: x * (180 / np.pi),
}

for name, ufunc in list(vars(np).items()):  # `dir` would import what NumPy imports lazily
    if isinstance(ufunc, np.ufunc):
        op = _RENAMED.get(name) or getattr(ops, name, None)
        if op is not None:
            ufuncs[ufunc] = op


def _reduce(op: Callable[..., Any]) -> Callable[..., Any]:
    """A ufunc's ``reduce``, whose default axis is the first."""

    def reduce(x: Any, axis: Any = 0, dtype: Any = None, *, keepdims: bool = False) -> Any:
        x = x if dtype is None else ops.astype(x, dtype)
        return op(x, axis=axis, keepdims=keepdims)

    return reduce


def _outer(op: Callable[..., Any]) -> Callable[..., Any]:
    def outer(x: Any, y: Any) -> Any:
        x, y = ops.asarray(x), ops.asarray(y)
        return op(ops.reshape(x, (*x.shape, *(1,) * y.ndim)), y)

    return outer


for ufunc, op in (
    (np.add, ops.sum),
    (np.multiply, ops.prod),
    (np.maximum, ops.max),
    (np.minimum, ops.min),
    (np.logical_and, ops.all),
    (np.logical_or, ops.any),
):
    ufunc_methods[ufunc, "reduce"] = _reduce(op)
for ufunc, op in ((np.add, ops.cumulative_sum), (np.multiply, ops.cumulative_prod)):
    ufunc_methods[ufunc, "accumulate"] = lambda x, axis=0, dtype=None, op=op: op(
        x, axis=axis, dtype=dtype
    )
for ufunc, op in ufuncs.items():
    if ufunc.nin == 2:
        ufunc_methods[ufunc, "outer"] = _outer(op)


def implements(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as what NumPy's functions of these names do."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        if function.__module__ == __name__:
            function.__qualname__ = f"np.{names[0]}"  # how Python's own messages call it
        for name in names:
            functions[getattr(np, name)] = function
        return function

    return enter


def _tuple(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _check_order(order: str) -> None:
    if order != "C":
        raise TypeError(f"order={order!r} of a traced value: elements are in row-major order here")


# --- what an array is ---------------------------------------------------------------

implements("shape")(lambda a: a.shape)
implements("ndim")(lambda a: a.ndim)
implements("size")(lambda a, axis=None: a.size if axis is None else a.shape[axis])
implements("iscomplexobj")(lambda x: x.dtype.kind == "c")
implements("isrealobj")(lambda x: x.dtype.kind != "c")
implements("result_type")(ops.result_type)
implements("copy")(lambda a, order="K": a)
implements("asarray")(ops.asarray)
implements("real")(ops.real)
implements("imag")(ops.imag)


@implements("astype")
def _astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    return ops.astype(x, dtype, copy=copy)


implements("zeros_like")(lambda a, dtype=None: ops.zeros_like(a, dtype=dtype))
implements("ones_like")(lambda a, dtype=None: ops.ones_like(a, dtype=dtype))
implements("empty_like")(lambda a, dtype=None: ops.empty_like(a, dtype=dtype))


@implements("full_like")
def _full_like(a: Any, fill_value: Any, dtype: Any = None) -> Any:
    return ops.full_like(a, fill_value, dtype=dtype)


# --- shape --------------------------------------------------------------------------


@implements("reshape")
def _reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    _check_order(order)
    return ops.reshape(a, shape)


@implements("ravel")
def _ravel(a: Any, order: str = "C") -> Any:
    _check_order(order)
    return ops.reshape(a, -1)


implements("transpose", "permute_dims")(lambda a, axes=None: a.transpose(axes))
implements("matrix_transpose")(ops.matrix_transpose)
implements("swapaxes")(lambda a, axis1, axis2: ops.swapaxes(a, axis1, axis2))
implements("moveaxis")(lambda a, source, destination: ops.moveaxis(a, source, destination))
implements("expand_dims")(lambda a, axis: ops.expand_dims(a, axis=axis))
implements("squeeze")(lambda a, axis=None: ops.squeeze(a, axis=axis))
implements("broadcast_to")(lambda array, shape: ops.broadcast_to(array, _tuple(shape)))
implements("broadcast_arrays")(lambda *args: tuple(ops.broadcast_arrays(*args)))
implements("flip")(lambda m, axis=None: ops.flip(m, axis=axis))
implements("fliplr")(lambda m: ops.flip(m, axis=1))
implements("flipud")(lambda m: ops.flip(m, axis=0))
implements("roll")(lambda a, shift, axis=None: ops.roll(a, shift, axis=axis))
implements("tile")(lambda A, reps: ops.tile(A, _tuple(reps)))
implements("concatenate")(lambda arrays, axis=0: ops.concat(arrays, axis=axis))
implements("stack")(lambda arrays, axis=0: ops.stack(arrays, axis=axis))
implements("unstack")(lambda x, /, *, axis=0: ops.unstack(x, axis=axis))


def _at_least(x: Any, ndim: int) -> Any:
    x = ops.asarray(x)
    return ops.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape))


@implements("atleast_1d")
def _atleast_1d(*arrays: Any) -> Any:
    out = tuple(_at_least(x, 1) for x in arrays)
    return out[0] if len(out) == 1 else out


@implements("atleast_2d")
def _atleast_2d(*arrays: Any) -> Any:
    out = tuple(_at_least(x, 2) for x in arrays)
    return out[0] if len(out) == 1 else out


implements("vstack")(lambda tup: ops.concat([_at_least(x, 2) for x in tup]))


@implements("hstack")
def _hstack(tup: Any) -> Any:
    parts = [_at_least(x, 1) for x in tup]
    return ops.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


@implements("array_split")
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    n = ary.shape[axis]
    if getattr(indices_or_sections, "ndim", 1) == 0:
        indices_or_sections = operator.index(indices_or_sections)
    if isinstance(indices_or_sections, int):
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
    if getattr(indices_or_sections, "ndim", 1) == 0:
        indices_or_sections = operator.index(indices_or_sections)
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError(
            f"np.split: length {ary.shape[axis]} does not divide into {indices_or_sections} parts"
        )
    return _array_split(ary, indices_or_sections, axis)


# --- elements -----------------------------------------------------------------------

implements("take")(lambda a, indices, axis=None: ops.take(a, indices, axis=axis))


@implements("take_along_axis")
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    if axis is None:
        arr, indices, axis = ops.reshape(arr, -1), indices.reshape(-1), 0
    return ops.take_along_axis(arr, indices, axis=axis)


implements("round", "around")(lambda a, decimals=0: a.round(decimals))


@implements("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return ops.clip(a, a_min if min is None else min, a_max if max is None else max)


@implements("diff")
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    return ops.diff(a, n=n, axis=axis, prepend=prepend, append=append)


# --- reductions ---------------------------------------------------------------------


def _reduction(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis=None, keepdims=False: op(a, axis=axis, keepdims=keepdims)


def _typed_reduction(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis=None, dtype=None, keepdims=False: op(
        a, axis=axis, dtype=dtype, keepdims=keepdims
    )


def _spread(op: Callable[..., Any]) -> Callable[..., Any]:
    def spread(a: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        return op(a, axis=axis, correction=ddof, keepdims=keepdims)

    return spread


@implements("mean")
def _mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    a = ops.asarray(a)
    return ops.mean(a if dtype is None else ops.astype(a, dtype), axis=axis, keepdims=keepdims)


implements("sum")(_typed_reduction(ops.sum))
implements("prod")(_typed_reduction(ops.prod))
implements("max", "amax")(_reduction(ops.max))
implements("min", "amin")(_reduction(ops.min))
implements("all")(_reduction(ops.all))
implements("any")(_reduction(ops.any))
implements("argmax")(_reduction(ops.argmax))
implements("argmin")(_reduction(ops.argmin))
implements("count_nonzero")(_reduction(ops.count_nonzero))
implements("var")(_spread(ops.var))
implements("std")(_spread(ops.std))
implements("cumsum")(lambda a, axis=None, dtype=None: a.cumsum(axis, dtype))
implements("cumprod")(lambda a, axis=None, dtype=None: a.cumprod(axis, dtype))
implements("cumulative_sum")(ops.cumulative_sum)
implements("cumulative_prod")(ops.cumulative_prod)


# --- products -----------------------------------------------------------------------

implements("dot")(ops.dot)
implements("inner")(ops.inner)
implements("outer")(ops.outer)
implements("vdot")(lambda a, b, /: ops.vecdot(ops.reshape(a, -1), ops.reshape(b, -1)))
implements("tensordot")(lambda a, b, axes=2: ops.tensordot(a, b, axes=axes))


@implements("einsum")
def _einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Any:
    return ops.einsum(subscripts, *operands)


@implements("einsum_path")
def _einsum_path(*operands: Any, optimize: Any = "greedy") -> Any:
    """NumPy's own, which looks at nothing but the shapes."""
    alike = [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if hasattr(x, "shape") else x
        for x in operands
    ]
    return np.einsum_path(*alike, optimize=optimize)
