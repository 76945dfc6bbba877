"""Random initial values, whose variance is given or follows from the shape."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.errors.public import explaining, public
from fdbr.ops.dtypes import rounded_like
from fdbr.tree import frozen, static

__all__ = [
    "Normal",
    "TruncatedNormal",
    "Uniform",
    "VarianceScaling",
    "calculate_gain",
    "fans",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "one_of",
    "positive",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
]


@public("fdbr.nn.initializers")
@frozen
class Normal:
    """Normally distributed values of mean zero and standard deviation ``stddev``."""

    stddev: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype."""
        draws = random.normal(key, shape, dtype)
        return lock(rounded_like(draws * self.stddev, draws))


@public("fdbr.nn.initializers")
@frozen
class TruncatedNormal:
    """Truncated normal values: standard ones between ``lower`` and ``upper``, times ``stddev``."""

    stddev: float = static()
    lower: float = static()
    upper: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype."""
        draws = random.truncated_normal(key, self.lower, self.upper, shape, dtype)
        return lock(rounded_like(draws * self.stddev, draws))


@public("fdbr.nn.initializers")
@frozen
class Uniform:
    """Values distributed uniformly on [-bound, bound)."""

    bound: float = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape and dtype."""
        return random.uniform(key, shape, dtype, -self.bound, self.bound)


@public("fdbr.nn.initializers")
@frozen
class VarianceScaling:
    """Values of mean zero and variance ``scale / fan``.

    Attributes
    ----------
    scale
        A positive number.
    mode
        ``"fan_in"``, ``"fan_out"``, ``"fan_avg"`` for the mean of both, or ``"fan_geo_avg"`` for
        their geometric mean.
    distribution
        ``"normal"``, ``"truncated_normal"`` (at two standard deviations) or ``"uniform"``.
    """

    scale: float = static()
    mode: str = static()
    distribution: str = static()

    @explaining("fdbr.nn.initializers")
    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """Return an array of that shape, ``(out, in, *kernel)``, and dtype.

        Raises
        ------
        ValueError
            If the shape has fewer than two axes or is empty.
        """
        stddev = math.sqrt(self.scale / _MODES[self.mode](*fans(shape)))
        if self.distribution == "normal":
            return Normal(stddev)(key, shape, dtype)
        if self.distribution == "truncated_normal":
            return TruncatedNormal(stddev / _OF_TRUNCATED, -2.0, 2.0)(key, shape, dtype)
        return Uniform(math.sqrt(3.0) * stddev)(key, shape, dtype)


_MODES: dict[str, Callable[[int, int], float]] = {
    "fan_in": lambda fan_in, fan_out: fan_in,
    "fan_out": lambda fan_in, fan_out: fan_out,
    "fan_avg": lambda fan_in, fan_out: (fan_in + fan_out) / 2,
    "fan_geo_avg": lambda fan_in, fan_out: math.sqrt(fan_in * fan_out),
}
_DISTRIBUTIONS = ("normal", "truncated_normal", "uniform")
_OF_TRUNCATED = 0.8796256610342398  # standard deviation of a standard normal truncated at ±2


@public("fdbr.nn.initializers")
def variance_scaling(scale: float, mode: str, distribution: str) -> VarianceScaling:
    """Return an initializer of mean 0 and variance ``scale / fan``; most others are special cases.

    Parameters
    ----------
    scale
        A positive number.
    mode
        ``"fan_in"``, ``"fan_out"``, ``"fan_avg"`` for the mean of both, or ``"fan_geo_avg"`` for
        their geometric mean.
    distribution
        ``"normal"``, ``"truncated_normal"`` (at two standard deviations) or ``"uniform"``.

    Raises
    ------
    ValueError
        If ``scale`` is not positive, or a name is unknown.

    >>> variance_scaling(2.0, "fan_out", "truncated_normal")
    VarianceScaling(scale=2.0, mode='fan_out', distribution='truncated_normal')
    """
    where = "variance_scaling"
    return VarianceScaling(
        positive(where, "scale", scale),
        one_of(where, "mode", mode, _MODES),
        one_of(where, "distribution", distribution, _DISTRIBUTIONS),
    )


@public("fdbr.nn.initializers")
def lecun_normal(scale: float = 1.0) -> VarianceScaling:
    """Return a normal initializer with variance ``scale**2 / fan_in``.

    LeCun et al., *Efficient BackProp*, 1998.

    >>> import fdbr
    >>> init = lecun_normal()
    >>> init(fdbr.random.key(0), (100, 784)).dtype
    dtype('float32')
    """
    return _scaled("lecun_normal", 1.0, scale, "fan_in", "normal")


@public("fdbr.nn.initializers")
def lecun_uniform(scale: float = 1.0) -> VarianceScaling:
    """Return a uniform initializer with variance ``scale**2 / fan_in``.

    LeCun et al., *Efficient BackProp*, 1998.

    >>> lecun_uniform()
    VarianceScaling(scale=1.0, mode='fan_in', distribution='uniform')
    """
    return _scaled("lecun_uniform", 1.0, scale, "fan_in", "uniform")


@public("fdbr.nn.initializers")
def glorot_normal(scale: float = 1.0) -> VarianceScaling:
    """Return a normal initializer with variance ``2 * scale**2 / (fan_in + fan_out)``.

    Glorot & Bengio, AISTATS 2010.

    >>> glorot_normal()
    VarianceScaling(scale=1.0, mode='fan_avg', distribution='normal')
    """
    return _scaled("glorot_normal", 1.0, scale, "fan_avg", "normal")


@public("fdbr.nn.initializers")
def glorot_uniform(scale: float = 1.0) -> VarianceScaling:
    """Return a uniform initializer with variance ``2 * scale**2 / (fan_in + fan_out)``.

    Glorot & Bengio, AISTATS 2010.

    >>> glorot_uniform()
    VarianceScaling(scale=1.0, mode='fan_avg', distribution='uniform')
    """
    return _scaled("glorot_uniform", 1.0, scale, "fan_avg", "uniform")


@public("fdbr.nn.initializers")
def xavier_normal(gain: float = 1.0) -> VarianceScaling:
    """Return `glorot_normal`, under PyTorch's name.

    >>> xavier_normal() == glorot_normal()
    True
    """
    return _scaled("xavier_normal", 1.0, gain, "fan_avg", "normal", "gain")


@public("fdbr.nn.initializers")
def xavier_uniform(gain: float = 1.0) -> VarianceScaling:
    """Return `glorot_uniform`, under PyTorch's name.

    >>> xavier_uniform() == glorot_uniform()
    True
    """
    return _scaled("xavier_uniform", 1.0, gain, "fan_avg", "uniform", "gain")


@public("fdbr.nn.initializers")
def he_normal(scale: float = 1.0, *, mode: str = "fan_in") -> VarianceScaling:
    """Return a normal initializer with variance ``2 * scale**2 / fan_in``, for rectifiers.

    He et al., ICCV 2015.

    ``mode`` is ``"fan_in"``, ``"fan_out"`` or another one of `variance_scaling`.

    >>> he_normal()
    VarianceScaling(scale=2.0, mode='fan_in', distribution='normal')
    """
    return _scaled("he_normal", 2.0, scale, mode, "normal")


@public("fdbr.nn.initializers")
def he_uniform(scale: float = 1.0, *, mode: str = "fan_in") -> VarianceScaling:
    """Return a uniform initializer with variance ``2 * scale**2 / fan_in``, for rectifiers.

    He et al., ICCV 2015.

    ``mode`` is ``"fan_in"``, ``"fan_out"`` or another one of `variance_scaling`.

    >>> he_uniform()
    VarianceScaling(scale=2.0, mode='fan_in', distribution='uniform')
    """
    return _scaled("he_uniform", 2.0, scale, mode, "uniform")


@public("fdbr.nn.initializers")
def kaiming_normal(
    a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> VarianceScaling:
    """Return a normal initializer with standard deviation ``gain / sqrt(fan)``, as PyTorch's.

    The gain is that of `calculate_gain`, where ``a`` is the factor of ``leaky_relu`` for negative
    inputs: with 0 it is `he_normal`.

    >>> kaiming_normal(mode="fan_out", nonlinearity="relu") == he_normal(mode="fan_out")
    True
    """
    gain = _gain("kaiming_normal", nonlinearity, a)
    return VarianceScaling(gain, one_of("kaiming_normal", "mode", mode, _MODES), "normal")


@public("fdbr.nn.initializers")
def kaiming_uniform(
    a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> VarianceScaling:
    """Return a uniform initializer with standard deviation ``gain / sqrt(fan)``, as PyTorch's.

    The gain is that of `calculate_gain`, where ``a`` is the factor of ``leaky_relu`` for negative
    inputs: with 0 it is `he_uniform`; with ``5**0.5`` what PyTorch's own layers begin with.

    >>> kaiming_uniform(1.0)
    VarianceScaling(scale=1.0, mode='fan_in', distribution='uniform')
    """
    gain = _gain("kaiming_uniform", nonlinearity, a)
    return VarianceScaling(gain, one_of("kaiming_uniform", "mode", mode, _MODES), "uniform")


_SQUARED_GAINS: dict[str, Callable[[float], float]] = {
    "linear": lambda slope: 1.0,
    "identity": lambda slope: 1.0,
    "conv": lambda slope: 1.0,
    "sigmoid": lambda slope: 1.0,
    "tanh": lambda slope: 25 / 9,
    "relu": lambda slope: 2.0,
    "leaky_relu": lambda slope: 2 / (1 + slope**2),
    "selu": lambda slope: 9 / 16,
}


@public("fdbr.nn.initializers")
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before an activation function are larger, as in PyTorch.

    Parameters
    ----------
    nonlinearity
        ``"linear"``, ``"sigmoid"`` (1), ``"tanh"`` (5/3), ``"relu"`` (the root of 2),
        ``"leaky_relu"`` (the root of ``2 / (1 + param**2)``) or ``"selu"`` (3/4).
    param
        The factor of ``leaky_relu`` for negative inputs; 0.01 by default.

    Raises
    ------
    ValueError
        If the name is unknown.

    >>> calculate_gain("leaky_relu", 0.0) == calculate_gain("relu")
    True
    """
    return math.sqrt(_gain("calculate_gain", nonlinearity, 0.01 if param is None else param))


def _gain(function: str, nonlinearity: str, slope: float) -> float:
    """Return the square of a gain."""
    number = float(slope)
    if not math.isfinite(number):
        raise ValueError(
            f"fdbr.nn.initializers.{function}: the slope must be a number, got {slope}"
        )
    name = one_of(function, "nonlinearity", nonlinearity, _SQUARED_GAINS)
    return _SQUARED_GAINS[name](number)


@public("fdbr.nn.initializers")
def truncated_normal(
    stddev: float = 0.01, lower: float = -2.0, upper: float = 2.0
) -> TruncatedNormal:
    """Return a truncated normal initializer, as in JAX.

    The bounds count standard deviations (PyTorch's count the values themselves).

    >>> import fdbr
    >>> bool((abs(truncated_normal(0.1)(fdbr.random.key(0), (9,))) <= 0.2).all())
    True
    """
    low, high = float(lower), float(upper)
    if not low < high:
        raise ValueError(
            "fdbr.nn.initializers.truncated_normal: lower must be less than upper, got "
            f"{lower} and {upper}"
        )
    return TruncatedNormal(positive("truncated_normal", "stddev", stddev), low, high)


@public("fdbr.nn.initializers")
def normal(stddev: float = 0.05) -> Normal:
    """Return a normal initializer with the given standard deviation.

    >>> import fdbr
    >>> normal(0.1)(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    return Normal(positive("normal", "stddev", stddev))


@public("fdbr.nn.initializers")
def uniform(bound: float = 0.05) -> Uniform:
    """Return a uniform initializer on [-bound, bound).

    >>> import fdbr
    >>> bool((abs(uniform(0.1)(fdbr.random.key(0), (3,))) <= 0.1).all())
    True
    """
    return Uniform(positive("uniform", "bound", bound))


def fans(shape: Any) -> tuple[int, int]:
    """Return the numbers of inputs and outputs that a weight of a shape connects."""
    if len(shape) < 2 or not math.prod(shape):
        raise ValueError(
            f"fdbr.nn.initializers: shape {tuple(shape)} has no fan-in; a weight has shape "
            "(out, in, *kernel), for other parameters use normal, uniform, constant, zeros or ones"
        )
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def _scaled(
    function: str, base: float, scale: float, mode: str, distribution: str, name: str = "scale"
) -> VarianceScaling:
    """Return the initializer whose standard deviation is ``scale`` times that of a base."""
    factor = positive(function, name, scale)
    return VarianceScaling(base * factor**2, one_of(function, "mode", mode, _MODES), distribution)


def one_of(function: str, name: str, value: Any, known: Iterable[str]) -> str:
    """Check that a name is one of the known ones."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"fdbr.nn.initializers.{function}: {name} must be one of {', '.join(known)}, not "
            f"{value!r}"
        )
    return value


def positive(function: str, name: str, value: float) -> float:
    """Check that a number is positive and finite."""
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(
            f"fdbr.nn.initializers.{function}: {name} must be a positive number, got {value}"
        )
    return number
