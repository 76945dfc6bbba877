"""Initial values of parameters.

An initializer is a frozen object that is called as ``init(key, shape, dtype)`` and returns
a read-only array.  The functions here make them.

Weights are laid out as in PyTorch, ``(out, in, *kernel)``: ``fan_in`` is
``in * prod(kernel)`` and ``fan_out`` is ``out * prod(kernel)``.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import random
from fdbr.backend import array_module, lock
from fdbr.nn.bilinear_filters import (
    LinearFilter,
    downsampling_conv_filter,
    upsampling_deconv_filter,
)
from fdbr.tree import frozen, static

__all__ = [
    "Constant",
    "Initializer",
    "LinearFilter",
    "Normal",
    "Orthogonal",
    "Uniform",
    "VarianceScaling",
    "constant",
    "downsampling_conv_filter",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "uniform",
    "upsampling_deconv_filter",
    "zeros",
]
__dir__ = __all__.copy  # `dir` shows the public names alone

Initializer = Callable[..., Any]


@frozen
class Normal:
    """Normally distributed values of mean zero and standard deviation ``stddev``."""

    stddev: float = static()

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """An array of that shape and dtype."""
        return lock(random.normal(key, shape, dtype) * self.stddev)


@frozen
class Uniform:
    """Values distributed uniformly on [-bound, bound)."""

    bound: float = static()

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """An array of that shape and dtype."""
        return random.uniform(key, shape, dtype, -self.bound, self.bound)


@frozen
class VarianceScaling:
    """Values of mean zero and variance ``scale / fan``.

    Attributes
    ----------
    scale
        A positive number.
    mode
        ``"fan_in"``, or ``"fan_avg"`` for the mean of ``fan_in`` and ``fan_out``.
    distribution
        ``"normal"`` or ``"uniform"``.
    """

    scale: float = static()
    mode: str = static()
    distribution: str = static()

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """An array of that shape, ``(out, in, *kernel)``, and dtype.

        Raises
        ------
        ValueError
            If the shape has fewer than two axes or is empty.
        """
        fan_in, fan_out = _fans(shape)
        fan = fan_in if self.mode == "fan_in" else (fan_in + fan_out) / 2
        stddev = math.sqrt(self.scale / fan)
        if self.distribution == "normal":
            return Normal(stddev)(key, shape, dtype)
        return Uniform(math.sqrt(3.0) * stddev)(key, shape, dtype)


@frozen
class Orthogonal:
    """Matrices with orthonormal rows or columns, whichever are fewer, times ``gain``."""

    gain: float = static()

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """An array of that shape, a matrix of ``shape[0]`` rows, and dtype.

        Raises
        ------
        ValueError
            If the shape has fewer than two axes or is empty.
        """
        _fans(shape)
        rows, columns = shape[0], math.prod(shape[1:])
        draws = random.normal(key, (max(rows, columns), min(rows, columns)))
        xp = array_module(draws)
        q, r = xp.linalg.qr(draws)
        # The signs make the factorization unique, and so the distribution uniform.
        q = q * xp.where(xp.diagonal(r) < 0, -1.0, 1.0)
        matrix = q if rows >= columns else q.T
        return lock(xp.array(self.gain * matrix.reshape(shape), dtype=dtype, order="C"))


@frozen
class Constant:
    """One value everywhere."""

    value: float = static()

    def __call__(self, key: Any, shape: Any, dtype: Any = np.float32) -> Any:
        """An array of that shape and dtype; the key is not used and may be `None`."""
        return lock(array_module(key).full(shape, self.value, dtype=dtype))


made = (Normal, Uniform, VarianceScaling, Orthogonal, Constant)
"""An initializer: a function of a key, a shape and a dtype."""


def lecun_normal() -> VarianceScaling:
    """Normal with variance ``1 / fan_in`` (LeCun et al., *Efficient BackProp*, 1998).

    >>> import fdbr
    >>> init = lecun_normal()
    >>> init(fdbr.random.key(0), (100, 784)).dtype
    dtype('float32')
    """
    return VarianceScaling(1.0, "fan_in", "normal")


def lecun_uniform() -> VarianceScaling:
    """Uniform with variance ``1 / fan_in`` (LeCun et al., *Efficient BackProp*, 1998).

    >>> lecun_uniform()
    VarianceScaling(scale=1.0, mode='fan_in', distribution='uniform')
    """
    return VarianceScaling(1.0, "fan_in", "uniform")


def glorot_normal() -> VarianceScaling:
    """Normal with variance ``2 / (fan_in + fan_out)`` (Glorot & Bengio, AISTATS 2010).

    >>> glorot_normal()
    VarianceScaling(scale=1.0, mode='fan_avg', distribution='normal')
    """
    return VarianceScaling(1.0, "fan_avg", "normal")


def glorot_uniform() -> VarianceScaling:
    """Uniform with variance ``2 / (fan_in + fan_out)`` (Glorot & Bengio, AISTATS 2010).

    >>> glorot_uniform()
    VarianceScaling(scale=1.0, mode='fan_avg', distribution='uniform')
    """
    return VarianceScaling(1.0, "fan_avg", "uniform")


def he_normal() -> VarianceScaling:
    """Normal with variance ``2 / fan_in``, for rectifiers (He et al., ICCV 2015).

    >>> he_normal()
    VarianceScaling(scale=2.0, mode='fan_in', distribution='normal')
    """
    return VarianceScaling(2.0, "fan_in", "normal")


def he_uniform() -> VarianceScaling:
    """Uniform with variance ``2 / fan_in``, for rectifiers (He et al., ICCV 2015).

    >>> he_uniform()
    VarianceScaling(scale=2.0, mode='fan_in', distribution='uniform')
    """
    return VarianceScaling(2.0, "fan_in", "uniform")


def normal(stddev: float = 0.05) -> Normal:
    """Normal with a given standard deviation.

    >>> import fdbr
    >>> normal(0.1)(fdbr.random.key(0), (3,)).shape
    (3,)
    """
    return Normal(_positive("normal", "stddev", stddev))


def uniform(bound: float = 0.05) -> Uniform:
    """Uniform on [-bound, bound).

    >>> import fdbr
    >>> bool((abs(uniform(0.1)(fdbr.random.key(0), (3,))) <= 0.1).all())
    True
    """
    return Uniform(_positive("uniform", "bound", bound))


def orthogonal(gain: float = 1.0) -> Orthogonal:
    """Orthogonal matrices (Saxe et al., *Exact solutions …*, ICLR 2014).

    >>> import fdbr
    >>> import numpy as np
    >>> weight = orthogonal()(fdbr.random.key(0), (2, 5))
    >>> bool(np.allclose(weight @ weight.T, np.eye(2), atol=1e-6))
    True
    """
    return Orthogonal(_positive("orthogonal", "gain", gain))


def constant(value: float) -> Constant:
    """One value everywhere.

    >>> constant(0.5)(None, (2,))
    array([0.5, 0.5], dtype=float32)
    """
    return Constant(value)


def zeros() -> Constant:
    """Zeros.

    >>> zeros()(None, (2,))
    array([0., 0.], dtype=float32)
    """
    return Constant(0.0)


def ones() -> Constant:
    """Ones.

    >>> ones()(None, (2,))
    array([1., 1.], dtype=float32)
    """
    return Constant(1.0)


def _fans(shape: Any) -> tuple[int, int]:
    if len(shape) < 2 or not math.prod(shape):
        raise ValueError(
            f"fdbr.nn.initializers: shape {tuple(shape)} has no fan-in; a weight has shape "
            "(out, in, *kernel), for other parameters use normal, uniform, constant, zeros or ones"
        )
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def _positive(function: str, name: str, value: float) -> float:
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError(
            f"fdbr.nn.initializers.{function}: {name} must be a positive number, got {value}"
        )
    return number
