"""Functions that create arrays."""

import numbers
from typing import Any

import numpy as np

from fdbr.core import array_modules
from fdbr.core.devices import is_host
from fdbr.core.routine import Routine
from fdbr.core.tracer import Tracer, own
from fdbr.errors.checks import describe, integer, number_types
from fdbr.errors.public import public
from fdbr.ops.declare import constant, dtype_of
from fdbr.ops.devices import to_device
from fdbr.ops.dtypes import astype, float_dtype, is_number, is_scalar, is_short
from fdbr.ops.elementwise.comparison import where
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike, DTypeLike, Shape

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


@public("fdbr.ops")
def zeros(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of zeros, of dtype float64 by default.

    >>> from fdbr import ops
    >>> ops.zeros(2)
    array([0., 0.])
    """
    return array_modules.module_for(device).zeros(shape, dtype=dtype or float)


@public("fdbr.ops")
def ones(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An array of ones, of dtype float64 by default.

    >>> from fdbr import ops
    >>> ops.ones(2)
    array([1., 1.])
    """
    if device is None:
        return filled.host(np, shape, 1, dtype or float)
    xp = array_modules.module_for(device)
    return filled.on(xp)(xp, shape, 1, dtype or float)


@Routine
def filled(xp: Any, shape: Any, value: Any, dtype: Any) -> Array:
    """Make an array filled with one number."""
    return xp.full(shape, value, dtype=dtype)


@public("fdbr.ops")
def empty(shape: Shape, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An uninitialized array, of dtype float64 by default.

    >>> from fdbr import ops
    >>> ops.empty((2, 3)).shape
    (2, 3)
    """
    return array_modules.module_for(device).empty(shape, dtype=dtype or float)


@public("fdbr.ops")
def full(
    shape: Shape, fill_value: ArrayLike, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """An array filled with one value, by default in its dtype.

    >>> from fdbr import ops
    >>> ops.full(2, 7.0)
    array([7., 7.])
    """
    if isinstance(fill_value, Tracer):
        from fdbr.ops.shape.manipulation import broadcast_to  # manipulation imports this module

        value = fill_value if dtype is None else astype(fill_value, dtype)
        sizes: Any = shape
        single = isinstance(shape, int) or getattr(shape, "ndim", 1) == 0
        return own(broadcast_to(value, (sizes,) if single else tuple(sizes)))
    _check_numbers(fill_value)
    xp = (
        array_modules.array_module(fill_value)
        if device is None
        else array_modules.module_for(device)
    )
    if type(fill_value) in number_types:
        return filled.on(xp)(xp, shape, fill_value, dtype or type(fill_value))
    return xp.full(shape, fill_value, dtype=dtype)


@public("fdbr.ops")
def arange(
    start: ArrayLike,
    /,
    stop: ArrayLike | None = None,
    step: ArrayLike = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Array:
    """The numbers from ``start`` (or 0) up to ``stop`` (exclusive) in steps of ``step``.

    >>> from fdbr import ops
    >>> ops.arange(3)
    array([0, 1, 2])
    """
    if stop is None:
        start, stop = 0, start
    return array_modules.module_for(device).arange(start, stop, step, dtype=dtype)


_PLAIN, _DOUBLE = (int, float), (None, float, "float64")


@Routine
def linspace_of_numbers(xp: Any, start: float, stop: float, num: int, endpoint: bool) -> Array:
    """Compute `linspace` of Python numbers in float64."""
    return xp.linspace(start, stop, num, endpoint=endpoint)


def dtype_of_steps(*ends: Any) -> Any:
    """The dtype of `linspace` between arrays, as in NumPy."""
    try:
        return np.result_type(*(v.dtype for v in ends), 1.0)
    except TypeError:  # bfloat16 and an integer have no common dtype
        return np.dtype(float)


@public("fdbr.ops")
@array_modules.where_it_lies
def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Any:
    """``num`` evenly spaced numbers from ``start`` to ``stop``.

    >>> from fdbr import ops
    >>> ops.linspace(0.0, 1.0, 3)
    array([0. , 0.5, 1. ])
    """
    num = integer("fdbr.ops.linspace", "num", num)
    if isinstance(start, Tracer) or isinstance(stop, Tracer):
        ends = [v for v in (start, stop) if not is_number(v)]
        exact = dtype_of_steps(*ends)
        to = exact if dtype is None else dtype
        if any(map(is_short, ends)):  # 16-bit floats do not represent all steps
            start, stop = (astype(v, "float32") if is_short(v) else v for v in (start, stop))
            return astype(linspace(start, stop, num, endpoint=endpoint), to, device=device)
        if any(
            dtype_kind(v.dtype) in "iub" for v in ends
        ):  # differences of integers could overflow
            start, stop = (v if is_number(v) else astype(v, exact) for v in (start, stop))
        count = num - 1 if endpoint else num
        step = (stop - start) / (count or 1)
        steps = array_modules.array_module(step).arange(num, dtype=step.dtype)
        steps = steps.reshape(num, *(1,) * step.ndim)
        out = steps * step + start
        if endpoint and num > 1:
            out = where(steps == count, stop, out)  # the last number is exactly ``stop``
        return out if dtype is None else astype(out, dtype)
    xp = (
        array_modules.array_module(start, stop)
        if device is None
        else array_modules.module_for(device)
    )
    if type(start) in _PLAIN and type(stop) in _PLAIN and dtype in _DOUBLE:
        return linspace_of_numbers.on(xp)(xp, start, stop, num, endpoint)
    return xp.linspace(start, stop, num, dtype=dtype, endpoint=endpoint)


@public("fdbr.ops")
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Any = None,
) -> Array:
    """A matrix with ones on its ``k``-th diagonal and zeros elsewhere.

    >>> from fdbr import ops
    >>> ops.eye(2)
    array([[1., 0.],
           [0., 1.]])
    """
    return array_modules.module_for(device).eye(n_rows, n_cols, k=k, dtype=dtype or float)


@constant(elementwise=True)
def _full_like(xp: Any, x: ArrayLike, *, value: Any, dtype: Any) -> Array:
    return xp.full_like(x, value, dtype=dtype)


@public("fdbr.ops")
def zeros_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """Zeros in the shape of ``x``, by default in its dtype.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.zeros_like(np.array([1.0, 2.0]))
    array([0., 0.])
    """
    return full_like(x, 0, dtype=dtype, device=device)


@public("fdbr.ops")
def ones_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """Ones in the shape of ``x``, by default in its dtype.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.ones_like(np.array([1.0, 2.0]))
    array([1., 1.])
    """
    return full_like(x, 1, dtype=dtype, device=device)


@public("fdbr.ops")
def empty_like(x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Any = None) -> Array:
    """An uninitialized array of the shape of ``x``, by default in its dtype; zeros if it is traced.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.empty_like(np.ones((2, 3))).shape
    (2, 3)
    """
    if type(x) is np.ndarray and device is None:
        return np.empty_like(x, dtype)
    return full_like(x, 0, dtype=dtype, device=device)


@public("fdbr.ops")
def full_like(
    x: ArrayLike, /, fill_value: ArrayLike, *, dtype: DTypeLike | None = None, device: Any = None
) -> Array:
    """One value in the shape of ``x``, by default in its dtype.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.full_like(np.array([1.0, 2.0]), 7)
    array([7., 7.])
    """
    if isinstance(fill_value, Tracer):
        return full(x.shape, fill_value, dtype=dtype or x.dtype)
    _check_numbers(x)
    _check_numbers(fill_value)
    out = _full_like(x, value=fill_value, dtype=dtype)
    return out if device is None else to_device(out, device)


@public("fdbr.ops")
def asarray(
    obj: ArrayLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    copy: bool | None = None,
) -> Any:
    """Convert a number, nested lists or an array to an array; traced values in it stay traced.

    >>> from fdbr import ops
    >>> ops.asarray([1.0, 2.0])
    array([1., 2.])
    """
    if dtype is device is copy is None and (
        type(obj) in _arrays or (isinstance(obj, Tracer) and obj.shape)
    ):
        return obj
    given = obj
    if _is_nest(obj) and holds_array(obj):
        from fdbr.ops.shape.manipulation import stack  # a cycle: manipulation imports this module

        obj = stack([asarray(p) if _is_nest(p) else p for p in obj])
    if isinstance(obj, Tracer):
        scalar = is_scalar(obj)
        if dtype is None and not scalar:
            obj = obj if device is None else to_device(obj, device)
        else:
            to = dtype_of(obj) if dtype is None else dtype
            obj = astype(obj, to, copy=scalar, device=device)
        if copy is False and obj is not given:
            raise _copy_needed()
        return own(obj) if copy else obj
    _check_numbers(obj)
    xp = array_modules.array_module(obj) if device is None else array_modules.module_for(device)
    if device is not None:
        obj = array_modules.device_put(obj, device)
    out = xp.asarray(obj, dtype=dtype)
    if copy is False and out is not given:
        raise _copy_needed()
    return out.copy() if copy and out is obj else out


def _copy_needed() -> ValueError:
    return ValueError("fdbr.ops.asarray: copy=False, but a copy is needed")


def floating(x: Any) -> Any:
    """Convert to an array of a floating or complex dtype."""
    x = asarray(x)
    return x if dtype_kind(x.dtype) in "fc" else astype(x, float_dtype(x))


def _check_numbers(obj: Any) -> None:
    """Raise for values that NumPy would convert to objects, strings, or NaN, as it does `None`."""
    if type(obj) in number_types or array_modules.is_array(obj):
        return
    plain = np.asarray(obj)
    if plain.dtype.kind not in "SUO":
        return
    for value in plain.reshape(-1).tolist():
        if not isinstance(value, numbers.Number):
            raise TypeError(
                "fdbr.ops.asarray: an array can be made from numbers, arrays, and lists or tuples "
                f"of them, not from {describe(value)}"
            )


_arrays = frozenset({np.ndarray})  # the usual case, returned unchanged


def holds_array(nest: Any) -> bool:
    """Whether nested lists hold arrays: these decide on the module, and numbers are weak then."""
    if _is_nest(nest):
        return any(map(holds_array, nest))
    return isinstance(nest, Tracer) or array_modules.is_array(nest)


def _is_nest(value: Any) -> bool:
    # The test for tracers comes first: their `__class__`, which isinstance reads, is slow.
    return not isinstance(value, Tracer) and isinstance(value, list | tuple)


def arrays(*values: Any) -> list[Any]:
    """Convert values to arrays of the module of those that are arrays already."""
    if set(map(type, values)) == {np.ndarray}:  # the usual case
        return list(values)
    xp = array_modules.array_module(*values)
    return [asarray(v) if holds_array(v) or is_host(xp) else xp.asarray(v) for v in values]
