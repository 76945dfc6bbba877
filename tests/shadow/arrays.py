"""The array class: see the package's description."""

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from shadow import devices, places

_SCALARS = (bool, int, float, complex, np.generic)
_METHODS = ("__call__", "outer", "at", "reduce", "accumulate", "reduceat")


class Array:
    """A NumPy array in disguise."""

    __slots__ = ("__weakref__", "_base", "_data", "_number")
    __hash__ = None
    namespace: Any = None  # the module, which enters itself here

    def __init__(
        self, data: np.ndarray, base: "Array | None" = None, number: int | None = None
    ) -> None:
        self._data = data
        self._base = base
        self._number = devices.current() if number is None else number

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion of a shadow array to a NumPy array; use .get()")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outs = kwargs.get("out", ())
        if outs:
            if len(outs) != 1:
                raise ValueError("The 'out' parameter must have exactly one array value")
            kwargs["out"] = outs[0]
        function = getattr(self.namespace, ufunc.__name__, None)
        if method != "__call__":
            function = getattr(function, method, None) if method in _METHODS else None
        if function is None:
            return NotImplemented
        if not all(issubclass(type(x), (Array, np.ndarray, *_SCALARS)) for x in (*inputs, *outs)):
            return NotImplemented  # what only says that it is a float is none
        return function(*inputs, **kwargs)

    def __array_function__(self, func: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(kind, Array | np.ndarray) for kind in types):
            return NotImplemented
        raise TypeError(f"numpy.{func.__name__} was called by name on a shadow array")

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return self.namespace

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._number

    @property
    def device(self) -> devices.Device:
        """Where the array lies."""
        return devices.Device(self._number)

    def get(self) -> np.ndarray:
        """A NumPy array with the same elements."""
        devices.wait()
        return self._data.copy()

    def item(self, *args: int) -> Any:
        """One element as a Python number."""
        devices.wait()
        return self._data.item(*args)

    def tolist(self) -> Any:
        """The elements as nested lists."""
        devices.wait()
        return self._data.tolist()

    def copy(self, order: str = "C") -> "Array":
        """A copy on the current device, of an array on any."""
        devices.launch()
        return Array(self._data.copy(order))

    def nonzero(self) -> tuple["Array", ...]:
        """The places of what is not zero, whose number must be known before they are."""
        devices.wait()
        return wrap(self._data.nonzero(), (self,))

    def take(self, indices: Any, axis: int | None = None, out: Any = None) -> "Array":
        """The elements at some places, which wrap around."""
        return wrap(places.take(self._data, unwrap(indices), axis), (self, indices))

    @property
    def data(self) -> SimpleNamespace:
        """The memory, by its address."""
        return SimpleNamespace(ptr=self._data.ctypes.data, device_id=self._number)

    @property
    def base(self) -> "Array | None":
        """The array whose memory this one shows."""
        return self._base

    @property
    def flags(self) -> SimpleNamespace:
        """The memory layout: all that CuPy's flags tell."""
        flags = self._data.flags
        return SimpleNamespace(
            c_contiguous=flags.c_contiguous,
            f_contiguous=flags.f_contiguous,
            owndata=self._base is None,
        )

    def __getitem__(self, key: Any) -> "Array":
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, Array) and part.dtype == bool for part in parts):
            devices.wait()
        key = places.wrapped(_index(key), self._data.shape)
        if not any(part is Ellipsis for part in key):
            key = (*key, Ellipsis)  # so that one element is a view as well
        return wrap(self._data[key], (self, *parts))

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = key if isinstance(key, tuple) else (key,)
        begin((self, value, *parts))
        places.write(self._data, _index(key), unwrap(value))

    def __iter__(self) -> Iterator["Array"]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._data)

    def __bool__(self) -> bool:
        devices.wait()
        return bool(self._data)

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return f"shadow.{self._data!r}"

    def __copy__(self) -> "Array":
        return self.copy()

    def __deepcopy__(self, memo: Any) -> "Array":
        return self.copy()


# --- from arrays to what they hold, and back ------------------------------------------


def begin(values: Any) -> None:
    """A kernel starts, on arrays that lie on the current device."""
    for array in arrays_in(values):
        devices.check(array._number)
    devices.launch()


def unwrap(value: Any) -> Any:
    """The NumPy arrays behind an argument, which must not be a NumPy array itself."""
    if type(value) is Array:
        return value._data
    if isinstance(value, np.ndarray):
        raise TypeError(
            f"unsupported type {type(value)}: a NumPy array of shape {value.shape} and dtype "
            f"{value.dtype} was given to the shadow module"
        )
    if hasattr(type(value), "__array_ufunc__") and not isinstance(value, np.generic):
        raise TypeError(f"unsupported type {type(value)}")
    if type(value) in (list, tuple):
        return type(value)(map(unwrap, value))
    return value


def wrap(result: Any, sources: tuple[Any, ...]) -> Any:
    """A result with every NumPy array and scalar in it made a shadow array.

    What is no view of an array was computed, by a kernel.
    """
    if isinstance(result, tuple) and hasattr(result, "_fields"):  # such as linalg.qr's
        return type(result)(*(wrap(part, sources) for part in result))
    if type(result) in (list, tuple):
        return type(result)(wrap(part, sources) for part in result)
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    for source in arrays_in(sources):
        if result is source._data:  # an `out` argument, or nothing to do
            return source
        root = source if source._base is None else source._base
        if result.base is not None and np.may_share_memory(result, root._data):
            return Array(result, base=root, number=source._number)
    begin(sources)
    return Array(result)


def arrays_in(values: Any) -> Iterator[Array]:
    """The arrays in a nest of lists."""
    for value in values:
        if type(value) is Array:
            yield value
        elif type(value) in (list, tuple):
            yield from arrays_in(value)


def _index(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_index, key))
    if isinstance(key, np.ndarray) and key.ndim == 0:
        return key  # CuPy takes these for scalars
    return unwrap(key)


# --- operators, methods, properties ----------------------------------------------------


def _defers(mine: Any, other: Any) -> bool:
    """Whether an operator is left to the other operand, as CuPy decides it."""
    if hasattr(other, "__array_ufunc__"):
        return other.__array_ufunc__ is None
    return getattr(mine, "__array_priority__", 0) < getattr(other, "__array_priority__", 0)


def _binary(function: Callable, ufunc: Any, reflected: bool = False) -> Callable:
    def operate(self: Array, other: Any) -> Any:
        ours = (other, self) if reflected else (self, other)
        if isinstance(other, Array):
            return wrap(function(*(x._data for x in ours)), ours)
        if _defers(self, other):
            return NotImplemented
        return ufunc(*ours)

    return operate


def _comparison(function: Callable, ufunc: Any) -> Callable:
    def operate(self: Array, other: Any) -> Any:
        if isinstance(other, Array):
            return wrap(function(self._data, other._data), (self, other))
        if _defers(self, other):
            return NotImplemented
        if ufunc in (np.equal, np.not_equal) and (
            other is None or type(other).__eq__ is object.__eq__
        ):
            return wrap(np.full(self.shape, ufunc is np.not_equal), (self,))
        return ufunc(self, other)

    return operate


def _in_place(ufunc: Any) -> Callable:
    def operate(self: Array, other: Any) -> Array:
        begin((self, other))
        ufunc(self._data, unwrap(other), out=self._data)
        return self

    return operate


def _unary(function: Callable) -> Callable:
    return lambda self: wrap(function(self._data), (self,))


def _method(name: str) -> Callable:
    def call(self: Array, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._data, name)(
            *map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()}
        )
        return wrap(result, (self, *args, *kwargs.values()))

    call.__name__ = name
    return call


def _property(name: str) -> property:
    def read(self: Array) -> Any:
        return wrap(getattr(self._data, name), (self,))

    def write(self: Array, value: Any) -> None:
        setattr(self._data, name, unwrap(value))

    return property(read, write)


_ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "matmul": np.matmul,
    "divmod": np.divmod,
}
for _name, _ufunc in _ARITHMETIC.items():
    _operator = divmod if _name == "divmod" else getattr(operator, f"__{_name}__")
    setattr(Array, f"__{_name}__", _binary(_operator, _ufunc))
    setattr(Array, f"__r{_name}__", _binary(_operator, _ufunc, reflected=True))
    if _name not in ("matmul", "divmod"):
        setattr(Array, f"__i{_name}__", _in_place(_ufunc))
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _ufunc in _COMPARISONS.items():
    setattr(Array, f"__{_name}__", _comparison(getattr(operator, _name), _ufunc))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Array, f"__{_name}__", _unary(getattr(operator, f"__{_name}__")))
for _name in """all any argmax argmin argpartition argsort astype choose clip compress conj
    conjugate cumprod cumsum diagonal dot fill flatten max mean min partition prod put ravel
    repeat reshape round searchsorted sort squeeze std sum swapaxes tobytes trace transpose var
    view""".split():
    setattr(Array, _name, _method(_name))
for _name in "T mT dtype imag itemsize nbytes ndim real shape size strides".split():
    setattr(Array, _name, _property(_name))
