"""Conversion, promotion and inspection of dtypes."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, own
from fdbr.errors.checks import describe, refusal
from fdbr.errors.public import public
from fdbr.ops.declare import aligned, constant, fit, linear
from fdbr.ops.declare.unbroadcast import converted
from fdbr.ops.devices import to_device
from fdbr.pytrees import dtypes
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = [
    "as_weak",
    "astype",
    "can_cast",
    "finfo",
    "float_dtype",
    "in_bias_dtype",
    "iinfo",
    "in_single",
    "is_complex",
    "is_number",
    "is_scalar",
    "is_short",
    "is_traced",
    "isdtype",
    "result_type",
]


@linear(x=lambda ct, shape, dtype: fit(ct, (shape, dtype)), batch=aligned, elementwise=True)
def _astype_inexact(xp: Any, x: ArrayLike, *, to: Any) -> Array:
    if getattr(x, "dtype", None) is not None and x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    return converted.host(x, to) if type(x) is np.ndarray else xp.asarray(x).astype(to)


@constant(elementwise=True)
def _astype_exact(xp: Any, x: ArrayLike, *, to: Any) -> Array:
    return xp.asarray(x).astype(to)


@public("fdbr.ops")
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """The array in another dtype.

    A cast to a floating or complex dtype is linear, and its gradient has the dtype of ``x``; a cast
    to any other dtype has derivative 0.  A cast from complex to real takes the real part.

    Parameters
    ----------
    x
        An array of any shape.
    dtype
        Anything NumPy accepts as a dtype.
    copy
        Whether to copy even if the dtype is the same.
    device
        The device of the result: ``"cpu"`` or the number of a CUDA device; by default that of
        ``x``.

    Raises
    ------
    TypeError
        If a traced value is cast to strings, objects, or a dtype that cannot hold a derivative.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.astype(np.array([1.7]), np.int64)
    array([1])
    """
    if device is not None:
        x = to_device(x, device)
    to = array_module(x).dtype(dtype)
    if dtype_kind(to) not in "biufcV" and isinstance(x, Tracer):
        error = TypeError(
            f"fdbr.ops.astype: a traced {describe(x)} cannot become {to}: strings and objects have "
            "no derivatives. Return it and convert the result of the transformation, or format it "
            "by f'{{x:.3f}}'"
        )
        raise refusal(error)
    if isinstance(x, Tracer) and dtypes.is_foreign(to):
        raise TypeError(
            f"fdbr.ops.astype: a traced {describe(x)} cannot become {to}, a dtype without a sign, "
            "a zero or a NaN, which can hold no derivative. Cast the result of the transformation, "
            "or fdbr.stop_gradient(x)"
        )
    is_same = getattr(x, "dtype", None) == to and (not copy or isinstance(x, Tracer))
    if is_same and not (is_scalar(x) if copy else is_number(x)):
        return own(x) if copy else x
    return (_astype_inexact if dtype_kind(to) in "fc" else _astype_exact)(x, to=to)


def _type_of(value: Any) -> Any:
    """Represent an operand in promotion: by its dtype, or by a Python number, which is weak."""
    if is_number(value):
        while isinstance(value, Tracer):
            value = value.value
        return value
    if hasattr(value, "dtype") and not isinstance(value, type):  # np.float32 has it too
        return value.dtype
    return value


@public("fdbr.ops")
def result_type(*operands: Any) -> Any:
    """The dtype to which arrays, dtypes and Python numbers promote together.

    A Python number is weakly typed: with an array it gives the dtype of an operation on the two.
    A float with bfloat16, a dtype that NumPy itself lacks, gives float32.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.result_type(np.float32(1), 2.0)
    dtype('float32')
    """
    types = list(map(_type_of, operands))
    if float in map(type, types) and any(map(dtypes.is_added, types)):
        types = [np.dtype(np.float32) if type(kind) is float else kind for kind in types]
    return array_module(*operands).result_type(*types)


@public("fdbr.ops")
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion can convert a dtype, or an array's dtype, to another.

    >>> from fdbr import ops
    >>> ops.can_cast("float32", "float64")
    True
    """
    return bool(array_module(from_).can_cast(_type_of(from_), to))


@public("fdbr.ops")
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype has a kind of the Array API: ``"real floating"``, ``"integral"`` ….

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.isdtype(np.dtype("float32"), "real floating")
    True
    """
    if dtypes.is_added(dtype):
        return any(
            name in ("real floating", "numeric") if isinstance(name, str) else dtype == name
            for name in (kind if isinstance(kind, tuple) else (kind,))
        )
    return bool(array_module().isdtype(dtype, kind))


class FloatInfo:
    """The limits of a floating dtype, as Python numbers, and all attributes of NumPy's `finfo`."""

    __slots__ = ("_all", "bits", "dtype", "eps", "max", "min", "smallest_normal")

    def __init__(self, info: Any) -> None:
        self._all = info
        self.bits, self.dtype = int(info.bits), info.dtype
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.smallest_normal = float(info.smallest_normal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def __repr__(self) -> str:
        return repr(self._all)


@public("fdbr.ops")
def finfo(dtype: Any, /) -> FloatInfo:
    """The limits of a floating dtype, or of an array's dtype.

    >>> from fdbr import ops
    >>> ops.finfo("float64").eps
    2.220446049250313e-16
    """
    return FloatInfo(dtypes.limits(array_module(dtype), np.dtype(_type_of(dtype))))


@public("fdbr.ops")
def iinfo(dtype: Any, /) -> Any:
    """The limits of an integer dtype, or of an array's dtype.

    >>> from fdbr import ops
    >>> ops.iinfo("int8").max
    127
    """
    return array_module(dtype).iinfo(_type_of(dtype))


def is_number(x: Any) -> bool:
    """Whether a value is a Python number, traced or not: weakly typed, without array methods."""
    while isinstance(x, Tracer):
        x = x.value
    return type(x) in (float, int, bool, complex)


def is_scalar(x: Any) -> bool:
    """Whether a value is a Python number or a NumPy scalar, traced or not, but no array."""
    while isinstance(x, Tracer):
        x = x.value
    return isinstance(x, float | int | complex | np.generic)


def is_traced(x: Any) -> bool:
    """Whether a value is traced."""
    return isinstance(x, Tracer)


def is_complex(x: Any) -> bool:
    """Whether an array or number is complex."""
    return isinstance(x, complex) if not hasattr(x, "dtype") else x.dtype.kind == "c"


def in_bias_dtype(x: Any, bias: Any) -> Any:
    """Convert integers that are multiplied before a floating bias is added to its dtype.

    Products and sums of small integers wrap, where the result is floating.
    """
    if x.dtype.kind not in "biu" or dtype_kind(bias.dtype) not in "fc":
        return x
    return astype(x, result_type(x, bias))


def float_dtype(*operands: Any) -> Any:
    """The floating dtype of quotients of the operands."""
    dtype = result_type(*operands)
    kind = dtype_kind(dtype)
    if kind in "mMSUV":  # a conversion to numbers would lose the unit of a time
        raise TypeError(
            f"elements of dtype {dtype} are not numbers; divide a time by its unit, "
            "np.timedelta64(1, 's') for example"
        )
    return dtype if kind in "fc" else array_module(*operands).dtype(float)


def in_single(function: Callable[..., Any], *, promotes: bool = True) -> Callable[..., Any]:
    """Make a function compute in float32 if its first operand is a 16-bit float.

    A sum in half precision loses its digits from 2,048 terms on, and overflows at 65,504.  The
    result is rounded once, as in NumPy's mean and variance, or has the requested dtype.  Unless
    the function ``promotes``, the result has the dtype of the first operand, whatever the others'.

    Arguments for parameters annotated as `float` are converted to Python numbers: a NumPy scalar,
    as hyperparameter searches draw them, would promote the result to its own dtype.
    """
    positions, names = _float_parameters(function)

    @functools.wraps(function)
    def in_float32(x: Any, /, *args: Any, **params: Any) -> Any:
        for position in positions:
            if position < len(args) and isinstance(args[position], np.generic):
                args = (*args[:position], args[position].item(), *args[position + 1 :])
        for name in params:
            if name in names and isinstance(params[name], np.generic):
                params[name] = params[name].item()
        if getattr(x, "itemsize", 8) > 2 or not is_short(x):  # the usual case first
            return function(x, *args, **params)
        to = params.get("dtype")
        if to is not None:
            is_short_result = dtypes.is_short(array_module(x).dtype(to))  # too few bits for sums
            out = function(_wide(x), *args, **params | ({"dtype": None} if is_short_result else {}))
            return _rounded(out, to) if is_short_result else out
        operands = [x, *args, *params.values()] if promotes else [x]
        to = result_type(*(v.dtype for v in operands if is_short(v) or _is_floating(v)))
        out = function(_wide(x), *map(_wide, args), **{k: _wide(v) for k, v in params.items()})
        return (
            tuple(_rounded(part, to) for part in out) if type(out) is tuple else _rounded(out, to)
        )

    return in_float32


def _float_parameters(function: Callable[..., Any]) -> tuple[tuple[int, ...], frozenset[str]]:
    """Return the positions after the first operand, and the names, of `float` parameters."""
    given = list(inspect.signature(function).parameters.values())
    kinds = [(p.annotation, *get_args(p.annotation)) for p in given]
    # `ArrayLike` has `bool` among its alternatives, and is no setting.
    found = [i for i, kind in enumerate(kinds) if i and float in kind and bool not in kind]
    positions = tuple(i - 1 for i in found if given[i].kind is not given[i].KEYWORD_ONLY)
    return positions, frozenset(given[i].name for i in found)


def _rounded(x: Any, to: Any) -> Any:
    """Cast an array; a NumPy scalar stays a scalar, traced or not."""
    value = x
    while isinstance(value, Tracer):
        value = value.value
    if not isinstance(value, np.generic):
        return astype(x, to)
    return x.astype(to) if value is x else astype(x, to)[()]


def as_weak(number: Any, x: Any) -> Any:
    """Convert a Python number so that it does not promote the array's dtype.

    Only added dtypes such as bfloat16 need that: NumPy's own are not promoted by Python numbers.
    """
    if type(number) is not float or not hasattr(x, "dtype") or not dtypes.is_added(x.dtype):
        return number
    return x.dtype.type(number)


def rounded_like(out: Any, *operands: Any) -> Any:
    """Round a result to the common dtype of its operands, if that is a 16-bit float.

    Matrix products of bfloat16, and its operations with Python numbers, give float32.
    """
    if out.dtype == operands[0].dtype:
        return out
    to = result_type(*operands)
    return _rounded(out, to) if out.dtype != to and dtypes.is_short(to) else out


def is_short(x: Any) -> bool:
    """Whether an array is a 16-bit float, in which sums lose digits."""
    return getattr(x, "itemsize", 8) <= 2 and hasattr(x, "shape") and dtypes.is_short(x.dtype)


def _is_floating(x: Any) -> bool:
    if not hasattr(x, "dtype") or not hasattr(x, "shape") or is_number(x):
        return False
    return dtype_kind(x.dtype) in "fc"


def _wide(x: Any) -> Any:
    return astype(x, "float32") if is_short(x) else x
