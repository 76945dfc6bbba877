"""Operators and methods of traced values: the functions of `fdbr.ops` by other names."""

import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, is_array
from fdbr.core.tape import ReverseTracer
from fdbr.core.tracer import Tracer, own, stop_gradient
from fdbr.core.tracer_methods import fixed, functions, install, number, refuse_item, refusing
from fdbr.errors.checks import describe, number_types
from fdbr.interop import numpy_basics, numpy_linalg, numpy_more, numpy_products, numpy_reductions  # noqa: F401
from fdbr.interop.signatures import bound
from fdbr.ops.devices import to_device
from fdbr.ops.inspection import check_version
from fdbr.ops.shape.creation import holds_array
from fdbr.pytrees.dtypes import dtype_kind

_BINARY: dict[str, Callable[..., Any]] = {
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
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": ops.negative,
    "pos": ops.positive,
    "abs": ops.abs,
    # Python's truth values are integers here, and those of NumPy are not.
    "invert": lambda x: -1 - x if x.__class__ is bool else ops.bitwise_invert(x),
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

    forward.__name__ = forward.__qualname__ = name
    return forward


def _reflected(name: str, op: Callable[..., Any], repeats: bool) -> Callable[..., Any]:
    primitive = getattr(op, "primitive", None)

    def backward(x: Any, y: Any) -> Any:
        kind = type(y)
        if primitive and kind in _numbers and x._trace.running:
            return x._trace.process(primitive, (y, x), _NO_PARAMS)
        if kind not in _known:
            y = NotImplemented if repeats and _repeats(x, y) else operand(x, y)
        return NotImplemented if y is NotImplemented else op(y, x)

    backward.__name__ = backward.__qualname__ = name
    return backward


def _combined(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """The result for an operand of a type that is not known yet, which may be no array."""
    y = operand(x, y)
    return NotImplemented if y is NotImplemented else op(x, y)


def operand(x: Any, y: Any) -> Any:
    """Return the other operand as NumPy converts it next to an array, if it is numeric.

    Next to an array, sequences become arrays.  Next to a Python number they do not.  Other objects
    may have an operator for traced values.
    """
    if isinstance(y, Tracer) or is_array(y):
        _known.add(type(y))
        return y
    number: Any
    for number in (int, float, complex):  # such as members of an IntEnum
        if isinstance(y, number):
            if x.__class__ in number_types:
                return number(y)
            strong = array_module(x).asarray(number(y))[()]  # as one of NumPy's own is
            return strong if dtype_kind(strong.dtype) in "biufc" else number(y)
    if isinstance(y, numbers.Rational) and not issubclass(x.__class__, np.ndarray):
        return float(y)
    if x.__class__ in number_types:
        return NotImplemented
    if hasattr(type(y), "__array_ufunc__") or isinstance(y, str | bytes | type(None)):
        return NotImplemented
    if isinstance(y, list | tuple) and holds_array(y):
        return ops.asarray(y)
    found = array_module(x).asarray(y)
    return found if dtype_kind(found.dtype) in "biufc" else NotImplemented


def _multiplied(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """Return the product, unless Python is to repeat the other operand, which is a sequence."""
    return NotImplemented if _repeats(x, y) else _combined(op, x, y)


def _repeats(x: Any, y: Any) -> bool:
    """Return whether ``x * y`` repeats a sequence, as it does for all scalars but 0-d arrays."""
    return (
        hasattr(y, "__mul__")
        and hasattr(y, "__getitem__")  # which classes of enumerations have, and members do not
        and not hasattr(type(y), "__array_ufunc__")
        and not issubclass(x.__class__, np.ndarray)
    )


def _equated(op: Callable[..., Any], x: Any, y: Any) -> Any:
    """Whether elements equal something of any type, as NumPy has it.

    No number equals a text or `None`; other objects are asked, one element after the other.
    """
    found = operand(x, y)
    if found is not NotImplemented:
        return op(x, found)
    if hasattr(type(y), "__array_ufunc__") or x.__class__ in number_types:
        return NotImplemented
    objects = np.asarray(y)
    if (objects.dtype.kind == "O" and y is not None) or dtype_kind(x.dtype) not in "biufc":
        return op(x, objects)
    xp = array_module(x)
    return xp.full(np.broadcast_shapes(x.shape, objects.shape), op is ops.not_equal)[()]


for name, op in (_BINARY | _COMPARISONS).items():
    other = {"eq": _equated, "ne": _equated, "mul": _multiplied}.get(name, _combined)
    install(f"__{name}__", _operator(f"__{name}__", op, other))
for name, op in _BINARY.items():
    install(f"__r{name}__", _reflected(f"__r{name}__", op, name == "mul"))
for name, op in _UNARY.items():
    install(f"__{name}__", op)
install("__divmod__", lambda x, y: (x // y, x % y))
install("__rdivmod__", lambda x, y: (y // x, y % x))


def _contains(x: Any, y: Any) -> bool:
    if not x.shape and not issubclass(x.__class__, np.ndarray):
        raise TypeError(f"argument of type {x.__class__.__name__!r} is not iterable")
    return bool(ops.any(x == y))


def _round(x: Any, digits: Any = None) -> Any:
    kind = x.__class__
    if kind is complex:
        raise TypeError("type complex doesn't define __round__ method")
    if kind in (int, bool):
        return _round_integer(x, 0 if digits is None else int(operator.index(digits)))
    if digits is None and issubclass(kind, float | np.generic):
        return int(ops.round(x))
    number = stop_gradient(x)  # the derivative is zero
    if kind is float:  # Python rounds the decimal expansion, and NumPy a product
        return round(float(number), digits)
    return functions[np.round](x, digits or 0)


def _round_integer(x: Any, digits: int) -> Any:
    """Round a Python integer as Python does: exactly, and ties to even."""
    if digits >= 0:
        return +x
    power = 10**-digits
    quotient, rest = divmod(x, power)
    return (quotient + (2 * rest + quotient % 2 > power)) * power


install("__contains__", _contains)
install("__round__", _round)
install("__floor__", lambda x: int(ops.floor(x)))
install("__ceil__", lambda x: int(ops.ceil(x)))
install("__trunc__", lambda x: int(x))


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


def _real_part(x: Any) -> Any:
    return +x if x.__class__ is bool else ops.real(x)


def _imaginary_part(x: Any) -> Any:
    kind = x.__class__
    return ops.imag(x) if kind is complex or kind not in number_types else (+kind(0))


_real = fixed("real part", "part + 1j * x.imag")
_imag = fixed("imaginary part", "x.real + 1j * part")
_flat = fixed("elements", "ops.full_like(x, value)")
install("real", property(_real_part, _real, doc="The real part."))
install("imag", property(_imaginary_part, _imag, doc="The imaginary part."))
install("flat", property(lambda x: iter(ops.reshape(x, -1)), _flat, doc="Its elements in a row."))


_KINDS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def _item(x: Any, *place: Any) -> Any:
    """One element as a number of Python, which is a decision as `float` is one."""
    if place:
        x = ops.reshape(x, -1)[place] if len(place) == 1 else x[place]
    if x.size != 1:
        raise ValueError(f"item() needs one element, not {describe(x)}")
    kind = _KINDS[x.dtype.kind]
    return number(x, kind, refuse_item) if isinstance(x, Tracer) else x.item()


install("item", _item)


for name, instead in {
    "sort": "x = ops.sort(x)",
    "partition": "x = ops.sort(x)",
    "fill": "x = ops.full_like(x, value)",
    "put": "x = x.at[key].set(value)",
    "resize": "x = np.resize(x, shape)",
}.items():
    message = f"{name}() of {{}}: traced values are immutable. Write {instead}."
    install(name, refusing(message, writes=True))

# --- methods that are NumPy's functions ---------------------------------------------

for name in """all any argmax argmin argpartition argsort choose cumprod cumsum diagonal dot max
    mean min nonzero prod ravel repeat round searchsorted squeeze std sum swapaxes take trace
    var""".split():
    install(name, functions[getattr(np, name)])


def _method(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Install a method whose arguments are not those of a function."""

    def add(method: Callable[..., Any]) -> Callable[..., Any]:
        theirs = getattr(np.ndarray, name)
        install(name, bound(theirs, method, f"np.ndarray.{name}", {}))
        return method

    return add


def _one_or_more(given: tuple[Any, ...]) -> Any:
    """Arguments that may come as a sequence, or one by one."""
    return given[0] if len(given) == 1 else given


@_method("reshape")
def _reshape(x: Any, /, *shape: Any, order: str = "C", copy: Any = None) -> Any:
    return functions[np.reshape](x, _one_or_more(shape), order)


@_method("transpose")
def _transpose(x: Any, /, *axes: Any) -> Any:
    order = _one_or_more(axes) if axes else None
    return functions[np.transpose](x, (order,) if isinstance(order, int) else order)


@_method("flatten")
def _flatten(x: Any, /, order: str = "C") -> Any:
    return own(functions[np.ravel](x, order))


@_method("astype")
def _astype(
    x: Any,
    /,
    dtype: Any,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> Any:
    if casting != "unsafe" and not np.can_cast(x.dtype, dtype, casting):  # type: ignore[arg-type]
        raise TypeError(
            f"np.ndarray.astype: {x.dtype} cannot become {np.dtype(dtype)} by casting={casting!r}"
        )
    return ops.astype(x, dtype, copy=copy)


@_method("compress")
def _compress(x: Any, /, condition: Any, axis: Any = None) -> Any:
    return functions[np.compress](condition, x, axis)


@_method("clip")
def _clip(x: Any, /, min: Any = None, max: Any = None, **how: Any) -> Any:
    return functions[np.clip](x, min, max, **how)


@_method("copy")
def _copy(x: Any, /, order: str = "C") -> Any:
    return own(x)


@_method("to_device")
def _to_device(x: Any, /, device: Any, *, stream: Any = None) -> Any:
    return to_device(x, device)


install("conj", ops.conj)
install("conjugate", lambda x: +x if x.__class__ is bool else ops.conj(x))
