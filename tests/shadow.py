"""An array module that behaves as CuPy does and needs no GPU.

On a machine without a GPU, code that takes its array module from its arguments and code that
calls NumPy by name look the same.  Here they do not: a shadow array holds a NumPy array and
refuses every way of mixing with NumPy that CuPy refuses, so an op that passes its tests with
shadow arrays has used nothing but the functions of its arguments' own module.

What is copied from CuPy 14:

- no implicit conversion: ``np.asarray(a)`` raises TypeError, ``a.get()`` converts;
- no NumPy arrays as operands or arguments, not even 0-d ones; Python and NumPy scalars do;
- reductions and element access give 0-d arrays, never scalars;
- no write protection: there is no ``setflags`` and no ``flags.writeable``;
- a 0-d array is no index (``range(a)``, ``[...][a]``): there is no ``__index__``;
- what CuPy does not have is missing here too (see `_ABSENT`).

Stricter than CuPy: NumPy's own functions and ufuncs refuse shadow arrays, where CuPy lets them
through, and index arrays must be shadow arrays.  More lenient: ``__array_namespace__`` answers.
"""

import operator
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

# Public names that NumPy has and CuPy 14 has not, by submodule.
_ABSENT = {
    "": """bmat block einsum_path errstate frompyfunc geomspace geterr getbufsize
        histogram_bin_edges insert isnat longdouble clongdouble ma matvec memmap nanpercentile
        nanquantile ndenumerate nditer nested_iters polyder polydiv polyint seterr setbufsize
        spacing unstack vecdot vecmat""".split(),
    "linalg": """diagonal matrix_norm multi_dot outer svdvals tensordot trace vecdot
        vector_norm""".split(),
    "fft": [],
    "lib": ["introspect", "mixins", "npyio", "scimath"],
    "lib.stride_tricks": [],
}
_SUBMODULES = {"linalg", "fft", "lib", "stride_tricks"}

# The functions that take host data on purpose; like CuPy's, they copy it.
_CONVERSIONS = {"array", "asarray", "ascontiguousarray"}


class Array:
    """A NumPy array in disguise."""

    __slots__ = ("_base", "_data")
    __hash__ = None
    __array_ufunc__ = None  # NumPy's scalars and arrays leave operators to this class

    def __init__(self, data: np.ndarray, base: "Array | None" = None) -> None:
        self._data = data
        self._base = base

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("implicit conversion of a shadow array to a NumPy array; use .get()")

    def __array_function__(self, func: Callable, *args: Any) -> Any:
        raise TypeError(f"numpy.{func.__name__} was called by name on a shadow array")

    def __array_namespace__(self, *, api_version: str | None = None) -> "Module":
        return module

    def get(self) -> np.ndarray:
        """A NumPy array with the same elements."""
        return self._data.copy()

    def item(self, *args: int) -> Any:
        """One element as a Python number."""
        return self._data.item(*args)

    def tolist(self) -> Any:
        """The elements as nested lists."""
        return self._data.tolist()

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
        return _wrap(self._data[_index(key)], (self,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._data[_index(key)] = _unwrap(value)

    def __iter__(self) -> Iterator["Array"]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        return len(self._data)

    def __bool__(self) -> bool:
        return bool(self._data)

    def __int__(self) -> int:
        return int(self._data)

    def __float__(self) -> float:
        return float(self._data)

    def __complex__(self) -> complex:
        return complex(self._data)

    def __repr__(self) -> str:
        return f"shadow.{self._data!r}"

    def __copy__(self) -> "Array":
        return self.copy()

    def __deepcopy__(self, memo: Any) -> "Array":
        return self.copy()


class Module:
    """NumPy's functions, for shadow arrays only."""

    ndarray = Array

    def __init__(self, numpy_module: ModuleType, path: str = "") -> None:
        self._numpy = numpy_module
        self._path = path
        self.__name__ = f"shadow.{path}".rstrip(".")

    def __repr__(self) -> str:
        return f"<array module {self.__name__}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _ABSENT[self._path]:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(self._numpy, name)
        if isinstance(value, ModuleType):
            return self._submodule(name, value)
        if isinstance(value, np.ufunc):
            return Ufunc(value)
        if isinstance(value, type) or not callable(value):
            return value  # dtypes and constants are NumPy's own, as in CuPy
        return _function(value, convert=name in _CONVERSIONS)

    def _submodule(self, name: str, value: ModuleType) -> "Module":
        if name not in _SUBMODULES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return Module(value, f"{self._path}.{name}".lstrip("."))


class Ufunc:
    """A ufunc for shadow arrays."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self.__name__ = ufunc.__name__
        self.nin, self.nout, self.nargs = ufunc.nin, ufunc.nout, ufunc.nargs
        self._call = _function(ufunc)
        self.at = _function(ufunc.at)
        self.reduce = _function(ufunc.reduce)
        self.accumulate = _function(ufunc.accumulate)
        self.outer = _function(ufunc.outer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<shadow ufunc {self.__name__!r}>"


def _function(function: Callable, convert: bool = False) -> Callable:
    """The function with its arguments unwrapped and its results wrapped."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if convert and args and _is_host_data(args[0]):
            args = (np.array(args[0]), *args[1:])
            return _wrap(function(*args, **kwargs), ())
        result = function(*map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()})
        return _wrap(result, (*args, *kwargs.values()))

    call.__name__ = getattr(function, "__name__", "call")
    return call


def _is_host_data(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _unwrap(value: Any) -> Any:
    """The NumPy arrays behind an argument, which must not be a NumPy array itself."""
    if type(value) is Array:
        return value._data
    if isinstance(value, np.ndarray):
        raise TypeError(
            f"unsupported type {type(value)}: a NumPy array of shape {value.shape} and dtype "
            f"{value.dtype} was given to the shadow module"
        )
    if type(value) in (list, tuple):
        return type(value)(map(_unwrap, value))
    return value


def _wrap(result: Any, sources: tuple[Any, ...]) -> Any:
    """A result with every NumPy array and scalar in it made a shadow array."""
    if isinstance(result, tuple) and hasattr(result, "_fields"):  # such as linalg.qr's
        return type(result)(*(_wrap(part, sources) for part in result))
    if type(result) in (list, tuple):
        return type(result)(_wrap(part, sources) for part in result)
    if isinstance(result, np.generic):
        return Array(np.asarray(result))
    if not isinstance(result, np.ndarray):
        return result
    for source in _arrays_in(sources):
        if result is source._data:  # an `out` argument, or nothing to do
            return source
        root = source if source._base is None else source._base
        if result.base is not None and np.may_share_memory(result, root._data):
            return Array(result, base=root)
    return Array(result)


def _arrays_in(values: Any) -> Iterator[Array]:
    for value in values:
        if type(value) is Array:
            yield value
        elif type(value) in (list, tuple):
            yield from _arrays_in(value)


def _index(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_index, key))
    if isinstance(key, np.ndarray) and key.ndim == 0:
        return key  # CuPy takes these for scalars
    return _unwrap(key)


# --- the rest of the array class: operators, methods, properties ---------------------


def _binary(function: Callable) -> Callable:
    def operate(self: Array, other: Any) -> Any:
        if isinstance(other, list | tuple):
            raise TypeError(f"unsupported type {type(other)}")
        if not isinstance(other, Array | bool | int | float | complex | np.ndarray | np.generic):
            return NotImplemented
        return _wrap(function(self._data, _unwrap(other)), ())

    return operate


def _reflected(function: Callable) -> Callable:
    return _binary(lambda mine, other: function(other, mine))


def _in_place(function: Callable) -> Callable:
    def operate(self: Array, other: Any) -> Array:
        function(self._data, _unwrap(other), out=self._data)
        return self

    return operate


def _unary(function: Callable) -> Callable:
    return lambda self: _wrap(function(self._data), ())


def _method(name: str) -> Callable:
    def call(self: Array, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._data, name)(
            *map(_unwrap, args), **{k: _unwrap(v) for k, v in kwargs.items()}
        )
        return _wrap(result, (self, *args, *kwargs.values()))

    call.__name__ = name
    return call


def _property(name: str) -> property:
    def read(self: Array) -> Any:
        return _wrap(getattr(self._data, name), (self,))

    def write(self: Array, value: Any) -> None:
        setattr(self._data, name, _unwrap(value))

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
}
for _name, _ufunc in _ARITHMETIC.items():
    _operator = getattr(operator, f"__{_name}__")
    setattr(Array, f"__{_name}__", _binary(_operator))
    setattr(Array, f"__r{_name}__", _reflected(_operator))
    setattr(Array, f"__i{_name}__", _in_place(_ufunc))
Array.__matmul__ = _binary(operator.matmul)
Array.__rmatmul__ = _reflected(operator.matmul)
Array.__divmod__ = _binary(divmod)
Array.__rdivmod__ = _reflected(divmod)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Array, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Array, f"__{_name}__", _unary(getattr(operator, f"__{_name}__")))
for _name in """all any argmax argmin argpartition argsort astype choose clip compress conj
    conjugate copy cumprod cumsum diagonal dot fill flatten max mean min nonzero partition prod
    put ravel repeat reshape round searchsorted sort squeeze std sum swapaxes take tobytes trace
    transpose var view""".split():
    setattr(Array, _name, _method(_name))
for _name in "T mT dtype imag itemsize nbytes ndim real shape size strides".split():
    setattr(Array, _name, _property(_name))


module = Module(np)


def asarray(data: Any) -> Array:
    """A shadow array with the elements of a NumPy array."""
    return Array(np.array(data))


def to_numpy(array: Any) -> Any:
    """A NumPy array with the elements of a shadow array; anything else as it is."""
    return array.get() if isinstance(array, Array) else array
