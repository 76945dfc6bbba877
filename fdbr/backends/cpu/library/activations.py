"""Activation functions of NumPy's arrays that are too small for a kernel."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.math.normal import TAIL, TAIL_RATE
from fdbr.backends.cpu.library.elementwise import with_kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import Primitive, implement, registry
from fdbr.ops.elementwise.arithmetic import clipped
from fdbr.ops.elementwise.exponential import gaussian
from fdbr.ops.nn.activations.exponentials import relu
from fdbr.ops.nn.activations.nonlinearities import indicator

__all__: list[str] = []

_TAIL_END = 40.0  # the tail is 0 in float32 from here on


def _of_small(primitive: Primitive) -> Any:
    """Return a decorator that registers a function of arrays for which there is no kernel."""

    def register(function: Any) -> Any:
        implement(primitive, np)(with_kernels(primitive, function))
        return function

    return register


_relu = relu.primitive


@_of_small(_relu)
def _relu_of_small(xp: Any, x: Any) -> Any:
    if getattr(x, "size", TUNING.extra_pass) < TUNING.extra_pass and x.itemsize > 2:
        # `maximum` with a number is slower.  Of zeros of both signs it returns the second operand,
        # as `clipped` does.
        return np.maximum(np.zeros(x.shape, x.dtype), x)
    return _relu.value(np, x)


@implement(indicator, np)
def _indicator(x: Any) -> Any:
    return (x > 0).astype(x.dtype)


# --- logarithms of sigmoids ---------------------------------------------------------------


_softplus, _log_sigmoid = registry["softplus"], registry["log_sigmoid"]


def _is_small(x: Any) -> bool:
    return type(x) is np.ndarray and x.size < TUNING.formula_elements and x.dtype.kind not in "biuc"


@_of_small(_softplus)
def _softplus_of_small(xp: Any, x: Any, *, beta: float) -> Any:
    if beta == 1 and _is_small(x):  # for many elements it takes ten times as long
        return np.logaddexp(x, 0)
    return _softplus.value(np, x, beta=beta)


@_of_small(_log_sigmoid)
def _log_sigmoid_of_small(xp: Any, x: Any) -> Any:
    if _is_small(x):
        return 0 - np.logaddexp(-x, 0)  # +0 for large numbers, as by the definition
    return _log_sigmoid.value(np, x)


# --- the normal distribution --------------------------------------------------------------


_normal_cdf, _gelu = registry["normal_cdf"], registry["gelu"]


def _normal_tail(t: Any) -> Any:
    """Return ``1 - ndtr(t)`` of float32 arrays ``t >= 0``, by the polynomial that kernels use."""
    share = TAIL_RATE * t
    share += 1
    np.reciprocal(share, out=share)
    variable = 1 - 2 * share
    total = TAIL[-1] * variable
    for term in reversed(TAIL[1:-1]):
        total += term
        total *= variable
    total += TAIL[0]
    total *= share
    total *= gaussian.primitive.host(np, t, rate=0.5)
    total *= 0.5
    return total


def _is_single(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype == np.float32 and x.size >= TUNING.ndtr_elements


def _cdf_of_single(x: Any) -> Any:
    return np.abs((x > 0) - _normal_tail(clipped(np, np.abs(x), 0, _TAIL_END)))


@_of_small(_normal_cdf)
def _normal_cdf_of_small(xp: Any, x: Any) -> Any:
    return _cdf_of_single(x) if _is_single(x) else _normal_cdf.value(np, x)


@_of_small(_gelu)
def _gelu_of_small(xp: Any, x: Any) -> Any:
    return x * _cdf_of_single(x) if _is_single(x) else _gelu.value(np, x)
