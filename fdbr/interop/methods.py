"""Operators and methods of traced values: the functions of `fdbr.ops` by other names."""

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import core, ops
from fdbr.array import install, number, refuse_item, refusing
from fdbr.backend import array_module, is_array
from fdbr.core import Tracer
from fdbr.ops.creation import holds_array
from fdbr.ops.devices import to_device
from fdbr.ops.inspection import check_version
from fdbr.reverse import ReverseTracer

_BINARY = {
    "add": ops.add,
    "sub": ops.subtract,
    "mul": ops.multiply,
    "truediv": ops.divide,
    "floordiv": ops.floor_divide,
    "mod": ops.remainder,
    "pow": ops.power,
    "matmul": ops.matmul,
    "and": ops.bitwise_and,
    "or": ops.bitwise_or,
    "xor": ops.bitwise_xor,
    "lshift": ops.bitwise_left_shift,
    "rshift": ops.bitwise_right_shift,
}
_COMPARISONS = {
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
_UNARY = {
    "neg": ops.negative,
    "pos": ops.positive,
    "abs": ops.abs,
    "invert": ops.bitwise_invert,
}


_NO_PARAMS: dict[str, Any] = {}
_numbers = frozenset({float, int})
_known: set[type] = {bool, int, float, complex, np.ndarray, ReverseTracer}


def _operator(name: str, op: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    primitive = getattr(op, "primitive", None)

    def forward(x: Any, y: Any) -> Any:
        kind = type(y)
        trace = x._trace
        if (
            primitive
            and trace.running
            and (kind in _numbers or (kind is type(x) and y._trace is trace))
        ):
            return trace.process(primitive, (x, y), _NO_PARAMS)  # no need to look for the trace
        return op(x, y) if kind in _known else other(op, x, y)

    forward.__name__ = name
    return forward


def _reflected(name: str, op: Callable[..., Any]) -> Callable[..., Any]:
    primitive = getattr(op, "primitive", None)

    def backward(x: Any, y: Any) -> Any:
        kind = type(y)
        if primitive and kind in _numbers and x._trace.running:
            return x._trace.process(primitive, (y, x), _NO_PARAMS)
        if kind not in _known:
            y = operand(x, y)
        return NotImplemented if y is NotImplemented else op(y, x)

    backward.__name__ = name
    return backward


def _combined(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """The result for an operand of a type that is not known yet, which may be no array."""
    y = operand(x, y)
    return NotImplemented if y is NotImplemented else op(x, y)


def operand(x: Any, y: Any) -> Any:
    """What NumPy makes of the other operand beside an array, if that is numeric.

    Sequences become arrays.  What is no array may itself know what to do with us.
    """
    if isinstance(y, Tracer) or is_array(y):
        _known.add(type(y))
        return y
    number: Any
    for number in (int, float, complex):  # such as members of an IntEnum
        if isinstance(y, number):
            return number(y)
    if isinstance(y, numbers.Rational) and not issubclass(x.__class__, np.ndarray):
        return float(y)
    if hasattr(type(y), "__array_ufunc__") or isinstance(y, str | bytes | type(None)):
        return NotImplemented
    if isinstance(y, list | tuple) and holds_array(y):
        return ops.asarray(y)
    found = array_module(x).asarray(y)
    return found if found.dtype.kind in "biufc" else NotImplemented


def _equated(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """Whether elements equal something of any type, as NumPy has it.

    No number equals a text or `None`; other objects are asked, one element after the other.
    """
    found = operand(x, y)
    if found is not NotImplemented:
        return op(x, found)
    if hasattr(type(y), "__array_ufunc__") or x.__class__ in core.number_types:
        return NotImplemented
    objects = np.asarray(y)
    if objects.dtype.kind == "O" and y is not None:
        return op(x, objects)
    xp = array_module(x)
    return xp.full(np.broadcast_shapes(x.shape, objects.shape), op is ops.not_equal)[()]


for name, op in (_BINARY | _COMPARISONS).items():
    other = _equated if name in ("eq", "ne") else _combined
    install(f"__{name}__", _operator(f"__{name}__", op, other))
for name, op in _BINARY.items():
    install(f"__r{name}__", _reflected(f"__r{name}__", op))
for name, op in _UNARY.items():
    install(f"__{name}__", op)
install("__divmod__", lambda x, y: (x // y, x % y))
install("__rdivmod__", lambda x, y: (y // x, y % x))


def _contains(x: Any, y: Any) -> bool:
    if not x.shape and not issubclass(x.__class__, np.ndarray):
        raise TypeError(f"argument of type {x.__class__.__name__!r} is not iterable")
    return bool(ops.any(x == y))


def _round(x: Any, digits: int | None = None) -> Any:
    if digits is None and issubclass(x.__class__, float | np.generic):
        return int(ops.round(x))
    number = core.stop_gradient(x)  # the derivative is zero
    if type(number) is float:
        return round(number, digits)
    return _round_to(x, digits or 0)


def _round_to(x: Any, decimals: int = 0) -> Any:
    """As NumPy does it."""
    return ops.round(x * 10**decimals) / 10**decimals if decimals else ops.round(x)


install("__contains__", _contains)
install("__round__", _round)
install("__floor__", lambda x: int(ops.floor(x)))
install("__ceil__", lambda x: int(ops.ceil(x)))
install("__trunc__", lambda x: int(x))
install("__getitem__", ops.getitem)


def _namespace(x: Any, /, *, api_version: str | None = None) -> Any:
    check_version(api_version)
    return ops


_refuse_dlpack = refusing(
    "DLPack of {}: another library would cut it off from its derivative. Return it and hand over "
    "what the transformation gives, say fdbr.stop_gradient(x) where a constant is meant, or wrap "
    "what the other library does in fdbr.custom_vjp."
)
install("__array_namespace__", _namespace)
install("__dlpack__", _refuse_dlpack)
install("__dlpack_device__", _refuse_dlpack)
install("at", property(ops.at, doc="Functional updates: ``x.at[key].set(y)``; see `ops.at`."))

install(
    "T", property(lambda x: ops.permute_dims(x, tuple(reversed(range(x.ndim)))), doc="Transposed.")
)
install("mT", property(ops.matrix_transpose, doc="With the last two axes exchanged."))
install("real", property(ops.real, doc="The real part."))
install("imag", property(ops.imag, doc="The imaginary part."))
install("flat", property(lambda x: iter(ops.reshape(x, -1)), doc="Its elements, one by one."))


_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def _item(x: Any, *place: Any) -> Any:
    """One element as a number of Python, which is a decision as `float` is one."""
    if place:
        x = ops.reshape(x, -1)[place] if len(place) == 1 else x[place]
    if x.size != 1:
        raise ValueError(f"item() needs one element, not {core.describe(x)}")
    kind = _KINDS[x.dtype.kind]
    return number(x, kind, refuse_item) if isinstance(x, Tracer) else x.item()


install("item", _item)


def _axes(axes: tuple[Any, ...], ndim: int) -> Any:
    if not axes or axes == (None,):
        return tuple(reversed(range(ndim)))
    return axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes


def _shape(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 else shape


def _sum(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return ops.sum(x, axis=axis, dtype=dtype, keepdims=keepdims)


def _prod(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return ops.prod(x, axis=axis, dtype=dtype, keepdims=keepdims)


def _cumulative(op: Callable[..., Any]) -> Callable[..., Any]:
    def method(x: Any, axis: Any = None, dtype: Any = None) -> Any:
        x = ops.reshape(x, -1) if axis is None else x
        return op(x, axis=0 if axis is None else axis, dtype=dtype)

    return method


def _reduction(op: Callable[..., Any]) -> Callable[..., Any]:
    def method(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return op(x, axis=axis, keepdims=keepdims)

    return method


def _spread(op: Callable[..., Any]) -> Callable[..., Any]:
    def method(x: Any, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
        return op(x, axis=axis, correction=ddof, keepdims=keepdims)

    return method


def _diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.diagonal(ops.moveaxis(x, (axis1, axis2), (-2, -1)), offset=offset)


def _trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return ops.sum(_diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)


def _last_or_all(op: Callable[..., Any]) -> Callable[..., Any]:
    """A method along the last axis, or along the flattened array if it is `None`."""

    def method(x: Any, axis: Any = -1) -> Any:
        return op(ops.reshape(x, -1) if axis is None else x, axis=-1 if axis is None else axis)

    return method


for name, instead in {
    "sort": "x = ops.sort(x)",
    "partition": "x = ops.sort(x)",
    "fill": "x = ops.full_like(x, value)",
    "put": "x = x.at[key].set(value)",
    "resize": "x = np.resize(x, shape)",
}.items():
    install(name, refusing(f"{name}() of {{}}: traced values are immutable. Write {instead}."))

_METHODS = {
    "sum": _sum,
    "prod": _prod,
    "mean": _reduction(ops.mean),
    "max": _reduction(ops.max),
    "min": _reduction(ops.min),
    "all": _reduction(ops.all),
    "any": _reduction(ops.any),
    "argmax": _reduction(ops.argmax),
    "argmin": _reduction(ops.argmin),
    "var": _spread(ops.var),
    "std": _spread(ops.std),
    "cumsum": _cumulative(ops.cumulative_sum),
    "cumprod": _cumulative(ops.cumulative_prod),
    "reshape": lambda x, *shape: ops.reshape(x, _shape(shape)),
    "transpose": lambda x, *axes: ops.permute_dims(x, _axes(axes, x.ndim)),
    "swapaxes": ops.swapaxes,
    "squeeze": ops.squeeze,
    "ravel": lambda x: ops.reshape(x, -1),
    "flatten": lambda x: ops.reshape(x, -1),
    "astype": lambda x, dtype, copy=True: ops.astype(x, dtype, copy=copy),
    "copy": lambda x: x,
    "conj": ops.conj,
    "conjugate": ops.conj,
    "dot": ops.dot,
    "round": _round_to,
    "take": lambda x, indices, axis=None: ops.take(x, indices, axis=axis),
    "diagonal": _diagonal,
    "trace": _trace,
    "clip": lambda x, min=None, max=None: ops.clip(x, min, max),
    "to_device": lambda x, device, /, *, stream=None: to_device(x, device),
    "argsort": _last_or_all(ops.argsort),
    "argpartition": lambda x, kth, axis=-1: x.argsort(axis),
    "nonzero": ops.nonzero,
    "repeat": lambda x, repeats, axis=None: ops.repeat(x, repeats, axis=axis),
    "searchsorted": lambda x, v, side="left", sorter=None: ops.searchsorted(
        x, v, side=side, sorter=sorter
    ),
}
for name, method in _METHODS.items():
    install(name, method)
