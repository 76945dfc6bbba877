"""Dtypes: asking for them and changing them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, own
from fdbr.errors.checks import describe, refusal
from fdbr.ops.declare import aligned, constant, fit, linear
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
    "iinfo",
    "in_single",
    "is_complex",
    "is_number",
    "is_short",
    "is_traced",
    "isdtype",
    "result_type",
]


@linear(x=lambda ct, shape, dtype: fit(ct, (shape, dtype)), batch=aligned, elementwise=True)
def _astype_inexact(xp: Any, x: ArrayLike, *, to: Any) -> Array:
    if getattr(x, "dtype", None) is not None and x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    return kernels.converted(x, to) if type(x) is np.ndarray else xp.asarray(x).astype(to)


@constant(elementwise=True)
def _astype_exact(xp: Any, x: ArrayLike, *, to: Any) -> Array:
    return xp.asarray(x).astype(to)


def astype(x: ArrayLike, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The array in another dtype.

    To a floating or complex dtype it is linear, and its gradient comes back in the dtype of
    ``x``; to any other dtype its derivative is 0.  The real part is taken of a complex array
    that is made real.

    Parameters
    ----------
    x
        An array of any shape.
    dtype
        Anything NumPy understands as a dtype.
    copy
        Whether a new array is made even where the dtype is the same already.
    device
        Where the result shall lie: ``"cpu"`` or the number of a CUDA device; by default where
        ``x`` does.

    Raises
    ------
    TypeError
        If a traced value shall become texts or objects.

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
            f"fdbr.ops.astype: a traced {describe(x)} cannot become {to}: texts and objects have "
            "no derivatives. Return it and convert what the transformation gives, or format it "
            "by f'{{x:.3f}}'"
        )
        raise refusal(error)
    if isinstance(x, Tracer) and dtypes.is_foreign(to):
        raise TypeError(
            f"fdbr.ops.astype: a traced {describe(x)} cannot become {to}, a dtype without a sign, "
            "a zero or a NaN, which can hold no derivative. Cast what the transformation gives, or "
            "fdbr.stop_gradient(x)"
        )
    if getattr(x, "dtype", None) == to and (not copy or isinstance(x, Tracer)):
        if is_number(x):
            return _astype_inexact(x, to=to)
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


def result_type(*operands: Any) -> Any:
    """The dtype to which arrays, dtypes and Python numbers promote together.

    A Python number is weak: with an array it gives what an operation on the two does.  So a
    float beside a dtype that is none of NumPy's own, such as bfloat16, makes float32 of it.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.result_type(np.float32(1), 2.0)
    dtype('float32')
    """
    types = list(map(_type_of, operands))
    if float in map(type, types) and any(map(dtypes.is_added, types)):
        types = [np.dtype(np.float32) if type(kind) is float else kind for kind in types]
    return array_module(*operands).result_type(*types)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion can take a dtype, or an array's dtype, to another.

    >>> from fdbr import ops
    >>> ops.can_cast("float32", "float64")
    True
    """
    return bool(array_module(from_).can_cast(_type_of(from_), to))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind of the Array API: ``"real floating"``, ``"integral"`` ….

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.isdtype(np.dtype("float32"), "real floating")
    True
    """
    if dtypes.is_added(dtype):
        return any(
            one in ("real floating", "numeric") if isinstance(one, str) else dtype == one
            for one in (kind if isinstance(kind, tuple) else (kind,))
        )
    return bool(array_module().isdtype(dtype, kind))


class FloatInfo:
    """The limits of a floating dtype: Python numbers, which are weak; and all that NumPy tells."""

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


def finfo(dtype: Any, /) -> FloatInfo:
    """The limits of a floating dtype, or of an array's dtype.

    >>> from fdbr import ops
    >>> ops.finfo("float64").eps
    2.220446049250313e-16
    """
    return FloatInfo(dtypes.limits(array_module(dtype), np.dtype(_type_of(dtype))))


def iinfo(dtype: Any, /) -> Any:
    """The limits of an integer dtype, or of an array's dtype.

    >>> from fdbr import ops
    >>> ops.iinfo("int8").max
    127
    """
    return array_module(dtype).iinfo(_type_of(dtype))


def is_number(x: Any) -> bool:
    """Whether a value is a Python number, traced or not: weak, and without methods."""
    while isinstance(x, Tracer):
        x = x.value
    return type(x) in (float, int, bool, complex)


def is_traced(x: Any) -> bool:
    """Whether a value is traced."""
    return isinstance(x, Tracer)


def is_complex(x: Any) -> bool:
    """Whether an array or number is complex."""
    return isinstance(x, complex) if not hasattr(x, "dtype") else x.dtype.kind == "c"


def float_dtype(*operands: Any) -> Any:
    """The floating dtype in which fractions of the operands are computed."""
    dtype = result_type(*operands)
    return dtype if dtype_kind(dtype) in "fc" else array_module(*operands).dtype(float)


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function compute in float32 if its first operand is floating of 16 bits.

    What is added up in half precision loses its digits from 2,048 terms on, and overflows at
    65,504.  The result is rounded once, as that of NumPy's mean and variance; or it has the dtype
    that is asked for.

    Settings, which are annotated as `float`, are numbers of Python's: one of NumPy's, as a search
    over settings draws them, would have its own dtype become that of the result.
    """
    places, names = _settings_of(function)

    @functools.wraps(function)
    def widened(x: Any, /, *args: Any, **params: Any) -> Any:
        for place in places:
            if place < len(args) and isinstance(args[place], np.generic):
                args = (*args[:place], args[place].item(), *args[place + 1 :])
        for name in params:
            if name in names and isinstance(params[name], np.generic):
                params[name] = params[name].item()
        if getattr(x, "itemsize", 8) > 2 or not is_short(x):  # the usual case first
            return function(x, *args, **params)
        to = params.get("dtype")
        if to is not None:
            own = dtypes.is_short(array_module(x).dtype(to))  # in which nothing is added up
            out = function(_wide(x), *args, **params | ({"dtype": None} if own else {}))
            return _rounded(out, to) if own else out
        operands = [x, *args, *params.values()]
        to = result_type(*(v.dtype for v in operands if is_short(v) or _is_floating(v)))
        out = function(_wide(x), *map(_wide, args), **{k: _wide(v) for k, v in params.items()})
        return (
            tuple(_rounded(part, to) for part in out) if type(out) is tuple else _rounded(out, to)
        )

    return widened


def _settings_of(function: Callable[..., Any]) -> tuple[tuple[int, ...], frozenset[str]]:
    """The places behind the first operand of numbers that are settings, and their names."""
    given = list(inspect.signature(function).parameters.values())
    kinds = [(p.annotation, *get_args(p.annotation)) for p in given]
    found = [i for i, kind in enumerate(kinds) if i and float in kind]
    places = tuple(i - 1 for i in found if given[i].kind is not given[i].KEYWORD_ONLY)
    return places, frozenset(given[i].name for i in found)


def _rounded(x: Any, to: Any) -> Any:
    """An array in another dtype; a scalar stays one, traced or not."""
    value = x
    while isinstance(value, Tracer):
        value = value.value
    if not isinstance(value, np.generic):
        return astype(x, to)
    return x.astype(to) if value is x else astype(x, to)[()]


def as_weak(number: Any, x: Any) -> Any:
    """A Python number as it stands beside an array: it does not change the array's dtype.

    Of NumPy's own dtypes that is so anyway.
    """
    if type(number) is not float or not hasattr(x, "dtype") or not dtypes.is_added(x.dtype):
        return number
    return x.dtype.type(number)


def rounded_like(out: Any, *operands: Any) -> Any:
    """A result in the dtype that its operands have together, if that is of 16 bits.

    Products of matrices of bfloat16, and those with numbers of Python's, are float32.
    """
    if out.dtype == operands[0].dtype:
        return out
    to = result_type(*operands)
    return _rounded(out, to) if out.dtype != to and dtypes.is_short(to) else out


def is_short(x: Any) -> bool:
    """Whether an array is floating and of 16 bits, which are too few to add up in."""
    return getattr(x, "itemsize", 8) <= 2 and hasattr(x, "shape") and dtypes.is_short(x.dtype)


def _is_floating(x: Any) -> bool:
    if not hasattr(x, "dtype") or not hasattr(x, "shape") or is_number(x):
        return False
    return dtype_kind(x.dtype) in "fc"


def _wide(x: Any) -> Any:
    return astype(x, "float32") if is_short(x) else x
