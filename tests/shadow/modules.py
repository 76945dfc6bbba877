"""The module's functions, and those of the module beside it: see the package's description."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from shadow import devices, kernels, nccl, places
from shadow.arrays import Array, begin, unwrap, wrap

# Public names that NumPy has and CuPy 14 has not, by submodule.
_ABSENT = {
    "": """asmatrix bmat block busday_count busday_offset datetime_as_string datetime_data
        einsum_path emath errstate fromregex frompyfunc geomspace get_include geterr geterrcall info
        getbufsize histogram_bin_edges insert is_busday isnat longdouble clongdouble ma
        matvec memmap nanpercentile nanquantile ndenumerate nditer nested_iters polyder polydiv
        polyint seterr seterrcall setbufsize show_runtime spacing test unstack
        vecdot vecmat""".split(),
    "linalg": """diagonal matrix_norm multi_dot outer svdvals tensordot trace vecdot
        vector_norm test""".split(),
    "fft": ["test"],
    "lib": ["array_utils", "introspect", "mixins", "npyio", "scimath"],
    "lib.stride_tricks": [],
}
_SUBMODULES = {"linalg", "fft", "lib", "stride_tricks"}

# What SciPy has among its special functions and cupyx 14 has not.
_ABSENT_SPECIAL = set(
    """agm airy airye bdtrik bdtrin bei beip ber berp besselpoly betaincc betainccinv btdtria
    btdtrib chdtriv chndtr comb dawsn ellip_harm ellip_normal ellipe elliprc elliprd
    elliprf elliprg elliprj erfi eval_chebyc eval_chebys eval_chebyt eval_chebyu eval_gegenbauer
    eval_genlaguerre eval_hermite eval_hermitenorm eval_jacobi eval_laguerre eval_legendre
    factorial factorial2 fdtridfd fresnel gdtria gdtrib gdtrix hankel1 hankel1e hankel2 hankel2e
    hyp0f1 hyp1f1 hyp2f1 hyperu iv ive jn jv jve kei keip ker kerp kn kolmogi kolmogorov kv kve
    log_wright_bessel mathieu_a mathieu_b modstruve nbdtrik nbdtrin ncfdtr nctdtr ndtri_exp
    nrdtrimn nrdtrisd owens_t pdtrik perm powm1 smirnov softplus spence spherical_in spherical_jn
    spherical_kn stdtr stdtridf stdtrit stirling2 struve tklmbda voigt_profile wofz wrightomega
    yv yve""".split()
)

# The functions that take host data on purpose; like CuPy's, they copy it.
_CONVERSIONS = {"array", "asarray", "ascontiguousarray"}

_NO_COMPLEX = {"logical_and", "logical_or", "logical_xor", "logical_not"}

_raises: ContextVar[bool] = ContextVar("raises", default=False)


class Module:
    """The functions of a module for NumPy arrays, for shadow arrays only."""

    ndarray = Array

    def __init__(self, numpy_module: Any, path: str = "", absent: Any = None) -> None:
        self._numpy = numpy_module
        self._path = path
        self._absent = _ABSENT[path] if absent is None else absent
        self.__name__ = f"shadow.{path}".rstrip(".")

    def __repr__(self) -> str:
        return f"<array module {self.__name__}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self._absent:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(self._numpy, name)
        if isinstance(value, ModuleType):
            return self._submodule(name, value)
        if isinstance(value, np.ufunc):
            return Ufunc(value)
        if isinstance(value, type) or not callable(value):
            return value  # dtypes and constants are NumPy's own, as in CuPy
        if self._path == "linalg":
            value = _quiet(value)
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
        self.outer = _function(ufunc.outer)
        if ufunc in (np.add, np.multiply):
            self.reduce = _function(ufunc.reduce)
            self.accumulate = _function(ufunc.accumulate)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.__name__ in _NO_COMPLEX and any(_is_complex(arg) for arg in args):
            raise TypeError(f"Wrong type of arguments for cupy_{self.__name__}")
        return self._call(*args, **kwargs)

    def at(self, a: Array, indices: Any, b: Any = None) -> None:
        """Apply the operation in place."""
        begin((a, indices, b) if type(indices) is not tuple else (a, *indices, b))
        places.at(self.__name__, a._data, unwrap(indices), unwrap(b))

    def __repr__(self) -> str:
        return f"<shadow ufunc {self.__name__!r}>"


def _is_complex(value: Any) -> bool:
    return np.result_type(unwrap(value)).kind == "c"


def _function(function: Callable, convert: bool = False) -> Callable:
    """The function with its arguments unwrapped and its results wrapped."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if convert and args:
            if _is_host_data(args[0]):
                return wrap(function(np.array(args[0]), *args[1:], **kwargs), ())
            args = (_moved(args[0]), *args[1:])
        result = function(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})
        sources = (*args, *kwargs.values())
        out = kwargs.get("out")
        if out is not None:
            begin(sources)
        return wrap(result, sources)

    call.__name__ = getattr(function, "__name__", "call")
    return call


def _is_host_data(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _moved(value: Any) -> Any:
    """An array on the current device, copied if it lies on another."""
    return value.copy() if type(value) is Array and value._number != devices.current() else value


# --- what CuPy computes in another way --------------------------------------------------


def _quiet(function: Callable) -> Callable:
    """A function of linear algebra that gives NaN where it cannot be computed."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except np.linalg.LinAlgError as error:
            if _raises.get() or "must be" in str(error) or "dimension" in str(error):
                raise
            matrices, *others = (np.asarray(arg) for arg in args)
            if matrices.ndim > 2:
                lead = matrices.shape[:-2]
                others = [np.broadcast_to(o, (*lead, *o.shape[-2:])) for o in others]
                parts = [
                    call(*(a.reshape(-1, *a.shape[-2:])[i] for a in (matrices, *others)), **kwargs)
                    for i in range(int(np.prod(lead)))
                ]
                return _each_part(lambda *ps: np.stack(ps).reshape(*lead, *ps[0].shape), *parts)
            unit = np.eye(*matrices.shape, dtype=matrices.dtype)
            return _each_part(lambda part: part * np.nan, function(unit, *others, **kwargs))

    call.__name__ = function.__name__
    return call


def _each_part(function: Callable, *results: Any) -> Any:
    """A function of results, or of each part of those that have several."""
    if not isinstance(results[0], tuple):
        return function(*results)
    return type(results[0])(*map(function, *results))


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """As NumPy's, but floating numbers go through the Fourier transform."""
    dtype = np.result_type(a, v)
    if dtype.kind not in "fc":
        return np.convolve(a, v, mode)
    n = a.size + v.size - 1
    full = np.fft.ifft(np.fft.fft(a, n) * np.fft.fft(v, n))
    full = (full if dtype.kind == "c" else full.real).astype(dtype)
    short, long = sorted((a.size, v.size))
    starts = {"full": (0, n), "valid": (short - 1, long), "same": ((short - 1) // 2, None)}
    start, stop = starts[mode]
    return full[start : start + long if stop is None else stop]


def _from_dlpack(x: Any, *, device: Any = None, copy: bool | None = None) -> Array:
    if device is not None:
        raise NotImplementedError("from_dlpack() does not support device yet.")
    if x.__dlpack_device__()[0] != 2:
        raise TypeError(
            "CPU arrays cannot be directly imported to CuPy. Use "
            "`cupy.array(numpy.from_dlpack(input))` instead."
        )
    return x.copy() if copy else x


def _solve_triangular(a: Array, b: Array, **options: Any) -> Array:
    options.pop("check_finite", None)
    solve = importlib.import_module("scipy.linalg").solve_triangular
    begin((a, b))
    with contextlib.suppress(np.linalg.LinAlgError), np.errstate(all="ignore"):
        cast = b._data.astype(np.result_type(a.dtype, np.float32))
        return Array(solve(a._data, cast, check_finite=False, **options))
    return Array(np.full(b.shape, np.nan, np.result_type(a.dtype, np.float32)))


@contextlib.contextmanager
def _errstate(*, linalg: str | None = None) -> Iterator[None]:
    token = _raises.set(_raises.get() if linalg is None else linalg == "raise")
    try:
        yield
    finally:
        _raises.reset(token)


module = Module(np)
module.convolve = _function(_convolve)
module.take = _function(places.take)
module.take_along_axis = _function(places.take_along_axis)
module.from_dlpack = _from_dlpack
module.nonzero = lambda a: a.nonzero()
if kernels.COMPILER:
    module.ElementwiseKernel = kernels.ElementwiseKernel
module.cuda = SimpleNamespace(
    Device=devices.Device,
    runtime=SimpleNamespace(getDeviceCount=lambda: devices.COUNT, getDevice=devices.current),
    get_current_stream=nccl.get_current_stream,
    Event=nccl.Event,
    Stream=nccl.Stream,
    nccl=SimpleNamespace(available=False),  # tests of it put an `nccl.NCCL` there
)
Array.namespace = module

beside = SimpleNamespace(
    errstate=_errstate,
    scipy=SimpleNamespace(
        special=Module(importlib.import_module("scipy.special"), "special", _ABSENT_SPECIAL),
        linalg=SimpleNamespace(solve_triangular=_solve_triangular),
    ),
)
"""The module that is to the shadow module what ``cupyx`` is to CuPy."""
