"""NumPy's ufuncs on traced values: which op each of them is."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.devices import is_host
from fdbr.core.tracer import own
from fdbr.core.tracer_methods import ufuncs
from fdbr.errors.checks import describe
from fdbr.interop.numpy_reductions import fmax, fmin
from fdbr.ops.declare import constant, elementwise
from fdbr.ops.dtypes import is_complex, is_number
from fdbr.pytrees.dtypes import dtype_kind, is_added

__all__ = ["ufuncs"]

# --- those that fdbr has only here --------------------------------------------------


@elementwise(x=None)
def _spacing(xp: Any, x: Any) -> Any:
    if is_host(xp):
        return np.spacing(x)
    size = abs(x * 1.0)
    above = xp.nextafter(size, math.inf) - size
    below = size - xp.nextafter(size, 0.0)  # of the largest number of all
    return xp.copysign(xp.where(xp.isinf(above), below, above), x)


@elementwise(x=None)
def _exponent(xp: Any, x: Any) -> Any:
    return xp.frexp(x)[1]


@elementwise(x=lambda n, dtype: ops.exp2(ops.astype(n, dtype)), n=None)
def _ldexp(xp: Any, x: Any, n: Any) -> Any:
    return xp.ldexp(x, n)


@constant
def _gcd(xp: Any, x: Any, y: Any) -> Any:
    return xp.gcd(x, y)


@constant
def _lcm(xp: Any, x: Any, y: Any) -> Any:
    return xp.lcm(x, y)


@constant
def _bitwise_count(xp: Any, x: Any) -> Any:
    return xp.bitwise_count(x)


def _heaviside(x: Any, at_zero: Any) -> Any:
    dtype = ops.result_type(x, at_zero)
    step = ops.where(ops.isnan(x), math.nan, ops.astype(x > 0, dtype))
    return ops.where(ops.equal(x, 0), at_zero, step)


def _frexp(x: Any) -> Any:
    exponent = _exponent(x)
    return _ldexp(x, -exponent), exponent


def _power(x: Any, y: Any) -> Any:
    if type(y) is int and not is_number(x) and x.dtype.kind == "b":
        x = ops.astype(x, int)  # the operator leaves it at int8
    return ops.power(x, y)


def _float_power(x: Any, y: Any) -> Any:
    dtype = np.complex128 if any(map(is_complex, (x, y))) else np.float64
    x, y = (v if is_number(v) else ops.astype(v, dtype) for v in (x, y))
    return ops.power(x, y)


def _floating(op: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes integers floating, which fdbr's does not."""

    def floating(x: Any) -> Any:
        return op(x if dtype_kind(ops.result_type(x)) in "fc" else ops.astype(x, float))

    return floating


@elementwise(x=lambda x: ops.where(ops.isinf(x), ops.zeros_like(x), ops.ones_like(x)))
def _fraction(xp: Any, x: Any) -> Any:
    finite = xp.where(xp.isinf(x), 0, x)
    return xp.copysign(finite - xp.trunc(finite), x)


def _modf(x: Any) -> Any:
    return _fraction(x), ops.trunc(x)


def _share(x: Any, y: Any) -> Any:
    """The share of ``2**x`` in the sum; 0 where both are -inf, 1/2 where both are inf."""
    same = ops.equal(x, y) & ops.isinf(x)
    share = ops.sigmoid(math.log(2) * (ops.where(same, 0, x) - ops.where(same, 0, y)))
    return ops.where(same & (x < 0), 0, share)


@elementwise(x=_share, y=lambda x, y: _share(y, x), double=True)
def _logaddexp2(xp: Any, x: Any, y: Any) -> Any:
    return xp.logaddexp2(x, y)


def _matvec(x1: Any, x2: Any) -> Any:
    _check_core("matvec", x1, x2, 2, 1)
    return ops.matmul(x1, ops.expand_dims(x2, axis=-1))[..., 0]


def _check_core(name: str, x1: Any, x2: Any, first: int, second: int) -> None:
    if getattr(x1, "ndim", 0) < first or getattr(x2, "ndim", 0) < second:
        raise ValueError(
            f"np.{name}: x1 must have {first} dimensions or more, and x2 {second}, but they are "
            f"{describe(x1)} and {describe(x2)}"
        )


def _vecmat(x1: Any, x2: Any) -> Any:
    _check_core("vecmat", x1, x2, 1, 2)
    return ops.matmul(ops.expand_dims(ops.conj(x1), axis=-2), x2)[..., 0, :]


def _in_its_dtype(ufunc: np.ufunc, op: Callable[..., Any]) -> Callable[..., Any]:
    """A function of several steps whose result has the dtype of the ufunc.

    NumPy's own floating dtypes are kept by each step; of added ones a Python number makes float32,
    and of integers float64, where NumPy takes the narrowest that holds them.  Of an added one and
    another the ufunc alone knows the dtype in which it computes.
    """

    def composed(*args: Any) -> Any:
        dtypes = [
            type(x) if is_number(x) and type(x) is not bool else ops.result_type(x) for x in args
        ]
        added = any(map(is_added, dtypes))
        if not added and not any(d is complex or getattr(d, "kind", "f") in "biuc" for d in dtypes):
            return op(*args)
        try:
            resolved = ufunc.resolve_dtypes((*dtypes, *(None,) * ufunc.nout))
        except TypeError as error:
            raise TypeError(f"np.{ufunc.__name__}: {error}") from None
        if added:
            args = tuple(
                x if is_number(x) else ops.astype(x, to, copy=False)
                for x, to in zip(args, resolved, strict=False)
            )
        out, outs = op(*args), resolved[-ufunc.nout :]
        if type(out) is not tuple:
            return ops.astype(out, outs[0], copy=False)
        return tuple(ops.astype(part, to, copy=False) for part, to in zip(out, outs, strict=True))

    return composed


# --- the table ----------------------------------------------------------------------

_OWN = {
    "cbrt": lambda x: ops.cbrt(x),  # loaded by its first use
    "arccos": ops.acos,
    "arccosh": ops.acosh,
    "arcsin": ops.asin,
    "arcsinh": ops.asinh,
    "arctan": ops.atan,
    "arctan2": ops.atan2,
    "arctanh": ops.atanh,
    "absolute": ops.abs,
    "bitwise_count": _bitwise_count,
    "conjugate": lambda x: own(ops.conj(x)),
    "deg2rad": lambda x: x * (np.pi / 180),
    "degrees": lambda x: x * (180 / np.pi),
    "divmod": lambda x, y: (ops.floor_divide(x, y), ops.remainder(x, y)),
    "fabs": _floating(ops.abs),
    "float_power": _float_power,
    "fmax": fmax,
    "fmin": fmin,
    "fmod": ops.fmod,
    "frexp": _frexp,
    "gcd": _gcd,
    "heaviside": _heaviside,
    "invert": ops.bitwise_invert,
    "lcm": _lcm,
    "power": _power,
    "ldexp": _ldexp,
    "left_shift": ops.bitwise_left_shift,
    "logaddexp2": _logaddexp2,
    "matvec": _matvec,
    "modf": _floating(_modf),
    "rad2deg": lambda x: x * (180 / np.pi),
    "radians": lambda x: x * (np.pi / 180),
    "right_shift": ops.bitwise_right_shift,
    "rint": _floating(ops.round),
    "spacing": _spacing,
    "true_divide": ops.divide,
    "vecmat": _vecmat,
}

_OF_STEPS = frozenset(
    {
        *("deg2rad", "degrees", "fabs", "fmax", "fmin", "frexp", "heaviside"),
        *("conj", "conjugate", "modf", "rad2deg", "radians", "rint"),
    }
)

for _name, _ufunc in list(vars(np).items()):  # `dir` would import what NumPy imports lazily
    if isinstance(_ufunc, np.ufunc):
        _op: Any = _OWN.get(_name) or vars(ops).get(_name)  # what is loaded
        if _op is not None:
            ufuncs[_ufunc] = _in_its_dtype(_ufunc, _op) if _name in _OF_STEPS else _op
