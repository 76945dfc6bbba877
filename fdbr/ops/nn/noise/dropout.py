"""Dropout, with an explicit random key."""

import math
from typing import Any

import numpy as np

from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import constant, leading
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.philox import random_words
from fdbr.ops.shape.creation import floating
from fdbr.pytrees.typing import Array, ArrayLike, Key

__all__ = ["drop_path", "dropout", "spatial_dropout"]


@constant(batch=leading(1), total=True)
def _kept(xp: Any, key: Any, *, shape: tuple[int, ...], keep_probability: float) -> Array:
    """Draw which elements are kept: those whose 32 random bits, half a word, are below a limit."""
    count = math.prod(shape)
    words = random_words.primitive.on(xp)(xp, key, 0, shape=(-(-count // 2),), use=0)
    halves = xp.ascontiguousarray(words).view(xp.uint32)[..., :count]
    limit = xp.asarray(min(round(keep_probability * 2**32), 2**32 - 1), dtype=xp.uint32)
    return (halves < limit).reshape((*key.shape[:-1], *shape))


def check_rate(function: str, given: Any) -> float:
    """Check a rate in [0, 1) and return it as a Python float."""
    rate: Any = given
    if isinstance(rate, Tracer):
        rate = float(given)  # a traced number becomes a guard, or raises an error that says why
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number):
        raise TypeError(
            f"{function}: rate must be a number in [0, 1), the probability of dropping, got "
            f"{describe(rate)}"
        )
    if not 0 <= rate < 1:
        raise ValueError(
            f"{function}: rate must be in [0, 1), the probability of dropping, not {rate!r}"
        )
    return float(rate)


def check_key(function: str, key: Any) -> Any:
    """Check that a value is a single key."""
    if getattr(key, "shape", None) != (2,) or key.dtype != np.uint64:
        raise TypeError(
            f"{function}: key must be one key, uint64[2], got {describe(key)}; make one with "
            "fdbr.random.key(seed)"
        )
    return key


def kept(function: str, x: Any, rate: float, key: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Draw which elements are kept, as booleans of the shape of ``x``, or of ``shape``."""
    key = beside(check_key(function, key), x)
    return _kept(key, shape=x.shape if shape is None else shape, keep_probability=1.0 - rate)


@public("fdbr.ops")
def dropout(x: ArrayLike, rate: float = 0.5, *, p: float | None = None, key: Key) -> Array:
    """Set each element to 0 with probability ``rate``, and divide the others by ``1 - rate``.

    The expectation does not change: Srivastava et al., *Dropout: a simple way to prevent neural
    networks from overfitting*, JMLR 2014.

    Parameters
    ----------
    x
        An array.
    rate
        A number in [0, 1); ``p`` is another name for it.
    key
        A key of `fdbr.random`; the same key drops the same elements.

    Raises
    ------
    ValueError
        If ``rate`` is not in [0, 1).
    TypeError
        If ``key`` is not a key, or ``rate`` not a number.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> out = ops.dropout(np.ones(1000), 0.5, key=fdbr.random.key(0))
    >>> set(out.tolist()) == {0.0, 2.0}
    True
    """
    rate = check_rate("fdbr.ops.dropout", rate if p is None else p)
    return _drop("dropout", x, rate, key, None)


@public("fdbr.ops")
def spatial_dropout(x: ArrayLike, rate: float = 0.5, *, p: float | None = None, key: Key) -> Array:
    """Set each channel of each example to 0 with probability ``rate``, and rescale the others.

    They are divided by ``1 - rate``.  Neighbouring pixels are correlated, so that dropping single
    pixels has little effect: Tompson et al., *Efficient object localization using convolutional
    networks*, CVPR 2015.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``.
    rate, p, key
        As for `dropout`.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`, or if ``x`` has fewer than two axes.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.spatial_dropout(np.ones((1, 3, 2)), 0.5, key=fdbr.random.key(0)).tolist()
    [[[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]]
    """
    rate = check_rate("fdbr.ops.spatial_dropout", rate if p is None else p)
    x = floating(x)
    if x.ndim < 2:
        raise ValueError(
            f"fdbr.ops.spatial_dropout: x must have shape (N, C, ...), got {describe(x)}"
        )
    return _drop("spatial_dropout", x, rate, key, (*x.shape[:2], *(1,) * (x.ndim - 2)))


@public("fdbr.ops")
def drop_path(x: ArrayLike, rate: float = 0.5, *, mode: str = "row", key: Key) -> Array:
    """Set each example to 0 with probability ``rate``, and divide the others by ``1 - rate``.

    It drops residual branches, ``x + drop_path(branch(x), 0.1, key=key)``, and is also called
    stochastic depth: Huang et al., *Deep networks with stochastic depth*, ECCV 2016.

    Parameters
    ----------
    x
        Shape ``(N, ...)``.
    rate, key
        As for `dropout`.
    mode
        ``"row"`` drops each example independently; ``"batch"`` drops all or none, and ``x`` may
        have any shape.

    Raises
    ------
    TypeError, ValueError
        As for `dropout`, or if the mode is neither of these, or ``x`` has no axis of examples.

    >>> import fdbr, numpy as np
    >>> from fdbr import ops
    >>> ops.drop_path(np.ones((4, 2)), 0.5, key=fdbr.random.key(1)).tolist()
    [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    """
    rate = check_rate("fdbr.ops.drop_path", rate)
    x = floating(x)
    if mode not in ("row", "batch"):
        raise ValueError(f"fdbr.ops.drop_path: mode must be 'row' or 'batch', got {mode!r}")
    if mode == "batch":
        return _drop("drop_path", x, rate, key, (1,) * x.ndim)
    if not x.ndim:
        raise ValueError(
            "fdbr.ops.drop_path: x has no axis of examples; give (N, ...), or mode='batch'"
        )
    return _drop("drop_path", x, rate, key, (x.shape[0], *(1,) * (x.ndim - 1)))


def _drop(function: str, x: Any, rate: float, key: Any, shape: tuple[int, ...] | None) -> Any:
    x = floating(x)
    stay = kept(f"fdbr.ops.{function}", x, rate, key, shape)
    return x if rate == 0 else rounded_like(x * stay * (1 / (1 - rate)), x)
