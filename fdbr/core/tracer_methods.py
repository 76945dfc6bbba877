"""Traced values behave as arrays: operators, attributes and protocols.

This module has attributes and conversions.  Operators and methods are functions of `fdbr.ops`, and
NumPy's functions arrive through its protocols; `fdbr.interop` installs both, and fills the tables
below.
"""

import itertools
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from fdbr.core.tracer import Tracer, is_differentiated, own, stop_gradient
from fdbr.errors.checks import describe, refusal

__all__ = [
    "ARRAYS_OF_TRACED",
    "decided",
    "explain",
    "fixed",
    "functions",
    "install",
    "number",
    "refuse_float",
    "refuse_item",
    "refusing",
    "ufunc_methods",
    "ufunc_sources",
    "ufuncs",
]

ufuncs: dict[Any, Callable[..., Any]] = {}
"""The operation for each NumPy ufunc."""

ufunc_sources: list[Callable[[], dict[Any, Callable[..., Any]]]] = []
"""Further tables like `ufuncs`, of libraries that may not be imported yet."""

conversions: list[Callable[[Any], None]] = []
"""Functions that may raise a better error where a traced value is converted to a number or to a
NumPy array, or written to."""

ufunc_methods: dict[tuple[Any, str], Callable[..., Any]] = {}
"""The operation for methods of ufuncs, such as ``np.add.reduce``."""

functions: dict[Any, Callable[..., Any]] = {}
"""Implementations of NumPy's functions that are not ufuncs, with the same arguments."""


def install(name: str, member: Any) -> None:
    """Give traced values a method, an operator or a property."""
    setattr(Tracer, name, member)


def refusing(
    message: str, kind: type[Exception] = TypeError, writes: bool = False
) -> Callable[..., NoReturn]:
    """Return a function that raises an error; ``{}`` in the message describes its first argument.

    With ``writes``, the refused operation writes to an array, which is allowed outside of traces: a
    jitted function that does it runs untraced at every call.
    """

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        error = kind(message.format(*map(_name, args)))
        raise error if writes else _refusal_of(args[0], error)

    return refuse


def explain(value: Any) -> None:
    """Raise the error of a library function that needs plain values, if one is being called."""
    for conversion in conversions:
        try:
            conversion(value)
        except Exception as error:
            raise _refusal_of(value, error)  # noqa: B904


class _Refused:
    """The last error in a run instead of a conversion to a plain value.

    C code that calls Python may discard the error.  It raises another error, which `advise`
    replaces, or continues with a wrong number, as callbacks of ctypes do.  Python hands errors that
    callbacks discard to `sys.unraisablehook`.
    """

    __slots__ = ("error", "is_discarded")

    def __init__(self) -> None:
        self.is_discarded = False

    def keep(self, error: Exception) -> None:
        # A copy, because a traceback keeps the arrays of the run alive.
        self.error = refusal(type(error)(*error.args))

    def check(self) -> None:
        """Raise the error if a callback has discarded it."""
        if self.is_discarded:
            raise refusal(type(self.error)(f"{self.error} {_DISCARDED}"))


_DISCARDED = (
    "A function of C called Python and discarded this error. Give the function a derivative with "
    "fdbr.custom_vjp or fdbr.custom_jvp."
)
_other_hook: Any = None  # for errors of others that C code discards


def _refusal_of(value: Any, error: Exception) -> Exception:
    """Mark the error of a traced value, and keep it until the run of the value's trace ends."""
    global _other_hook
    if isinstance(value, Tracer):
        trace = value._trace
        if not hasattr(trace, "refused"):
            trace.refused = _Refused()
            trace.finishing = [*trace.finishing, trace.refused.check]
        trace.refused.keep(error)
        vars(error)["refused"] = trace.refused
        if _other_hook is None:
            _other_hook, sys.unraisablehook = sys.unraisablehook, _note_discarded
    return refusal(error)


def _note_discarded(unraisable: Any) -> None:
    refused = getattr(unraisable.exc_value, "refused", None)
    if refused is None:
        _other_hook(unraisable)
    else:
        refused.keep(unraisable.exc_value)
        refused.is_discarded = True


def _name(value: Any) -> Any:
    """Describe an argument for messages, a traced value without its numbers."""
    return f"<traced {describe(value)} of {value._trace}>" if isinstance(value, Tracer) else value


# --- attributes ---------------------------------------------------------------------


def fixed(name: str, instead: str) -> Callable[..., NoReturn]:
    """Refuse assignment to an attribute of a traced value."""
    return refusing(
        f"assignment to the {name} of {{}}: traced values are immutable. Write x = {instead}.",
        AttributeError,
        writes=True,
    )


# Attributes of the plain array are read directly; only a Python number has none.
_shape = fixed("shape", "x.reshape(shape)")
_dtype = fixed("dtype", "x.astype(dtype)")
install("shape", property(operator.attrgetter("value.shape"), _shape, doc="The axes' lengths."))
install("dtype", property(operator.attrgetter("value.dtype"), _dtype, doc="The elements' type."))
install("ndim", property(operator.attrgetter("value.ndim"), doc="The number of axes."))
install("size", property(operator.attrgetter("value.size"), doc="The number of elements."))
install("itemsize", property(operator.attrgetter("value.itemsize"), doc="Bytes of one element."))
install("nbytes", property(lambda self: self.size * self.itemsize, doc="Bytes of all elements."))

_OF_NUMBERS = {"shape": (), "ndim": 0, "size": 1, "device": "cpu"}


def _of_number(self: Any, name: str) -> Any:
    """Return an attribute of a traced Python number, or raise the error for an unknown one."""
    if name in _OF_NUMBERS:
        return _OF_NUMBERS[name]
    if name == "dtype":
        return np.dtype(type(self.value))
    if name == "itemsize":
        return self.dtype.itemsize
    raise AttributeError(
        f"a traced value has no attribute {name!r}; the functions of fdbr.ops and NumPy take it"
    )


install("__getattr__", _of_number)
install("device", property(operator.attrgetter("value.device"), doc="Its device."))


def _length(self: Any) -> int:
    if not self.shape:
        raise TypeError("len() of a traced value without dimensions")
    return int(self.shape[0])


def _iterate(self: Any) -> Iterator[Any]:
    if not self.shape:
        raise TypeError("iteration over a traced value without dimensions")
    return (self[i] for i in range(self.shape[0]))


install("__len__", _length)
install("__iter__", _iterate)
install("__hash__", None)  # arrays have no hash either: == compares element by element
install("__dir__", lambda self: dir(type(self)))  # `__class__` is that of the plain value


# --- conversions --------------------------------------------------------------------


def _truth(self: Any) -> bool:
    if self.size != 1:
        raise ValueError(
            f"the truth value of a traced {describe(self)} is ambiguous; use ops.any or ops.all"
        )
    return self._trace.decide(self, bool)


def _integer(self: Any) -> int:
    if self.size != 1:
        raise TypeError(f"int() needs one element, not {describe(self)}")
    return self._trace.decide(self, int)


def _index(self: Any) -> int:
    # NumPy's truth values are not indices, and Python's are.
    if self.dtype.kind not in ("iu" if self.__class__ is not bool else "b"):
        raise TypeError(f"a traced {describe(self)} is no index; convert it with int() first")
    if self.shape:  # NumPy would take it for an integer array index, which keeps its axes
        raise TypeError(f"a traced {describe(self)} is an array, and no single index; say x[0]")
    return _integer(self)


_ADVICE = (
    "that would cut it off from its derivative. Use the functions of fdbr.ops or NumPy on it; "
    "return it (or pass it out with has_aux=True) to have its value after the transformation; or "
    "say fdbr.stop_gradient(x) where a constant is meant"
)


install("__bool__", _truth)
install("__int__", _integer)
install("__index__", _index)
refuse_float = refusing(
    f"float() of {{}}: {_ADVICE}. math.sin and the like: use ops.sin. To put it into an array "
    "B, write B = ops.at(B)[key].set(x); to print it, f'{{x:.3f}}'."
)
_refuse_complex = refusing(
    f"complex() of {{}}: {_ADVICE}. To put it into an array B, write B = ops.at(B)[key].set(x)."
)


refuse_item = refusing(f"item() of {{}}: {_ADVICE}.")


def number(self: Any, kind: type, refuse: Callable[..., NoReturn]) -> Any:
    """Convert to a floating number if that loses no derivative; it is a guard then."""
    if not self._trace.is_staged and (self.size != 1 or is_differentiated(self)):
        explain(self)
        refuse(self)
    return self._trace.decide(self, kind)


install("__complex__", lambda self: number(self, complex, _refuse_complex))
ARRAYS_OF_TRACED = (
    "Write ops.asarray([x, y]) for np.array([x, y]), ops.full(shape, x) for np.full(shape, x), and "
    "fdbr.vmap(f)(x) for np.vectorize(f)(x) and np.apply_along_axis(f, axis, x)"
)
_refuse_array = refusing(
    f"conversion of {{}} to a NumPy array. {ARRAYS_OF_TRACED}. NumPy calls no other library there, "
    f"and {_ADVICE}. To put it into an array B, write B = ops.at(B)[key].set(x); to join values, "
    "ops.stack or ops.concat; for np.float32(x), x.astype(np.float32)."
)


_MANY = 256  # elements, each of which may be a guard


def decided(self: Any, dtype: Any = None) -> Any:
    """Return traced integers or truth values as a plain array, or `None` for other dtypes.

    NumPy needs them in an index, in ``arange`` and in ``np.int64(x)``.  Their derivative is zero:
    under transformations that differentiate they are plain values.  Under others each element is a
    guard, up to a number of elements.
    """
    wanted = self.dtype if dtype is None else np.dtype(dtype)
    if not {self.dtype.kind, wanted.kind} & set("iub"):
        return None
    kind = bool if "b" in (self.dtype.kind, wanted.kind) else int
    if not self.shape:
        return np.array(self._trace.decide(self, kind), dtype=wanted)
    values = stop_gradient(self)
    if type(values) is np.ndarray:
        return np.array(values, dtype=wanted)
    if self.size > _MANY:
        return None
    places = itertools.product(*map(range, self.shape))
    each = [x._trace.decide(x, kind) for x in (self[place] for place in places)]
    return np.array(each, dtype=wanted).reshape(self.shape)


def _array(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    found = decided(self, dtype)
    if found is None:
        explain(self)
        _refuse_array(self)
    return found


install("__array__", _array)
install("tolist", refusing(f"tolist() of {{}}: {_ADVICE}."))
install("__copy__", own)
install("__deepcopy__", lambda self, memo: own(self))
for name in ("__reduce__", "__reduce_ex__", "__getstate__"):
    install(
        name,
        refusing(
            "pickling of {}: where it comes from cannot be stored, nor sent to another process. "
            "Return it from the transformed function, and pickle the array that comes out."
        ),
    )
_refuse_to_change = refusing(
    "assignment into {}: traced values are immutable. Write x = x.at[key].set(value), or "
    "x.at[key].add(value) for +=.",
    writes=True,
)


def _set_item(self: Any, key: Any, value: Any) -> NoReturn:
    explain(self)
    _refuse_to_change(self)


install("__setitem__", _set_item)
