"""Distributions of truth values and integers."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module
from fdbr.core.tracer import Tracer, holds, stop_gradient
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.random.arguments import (
    Shape,
    broadcasts,
    check_key,
    check_order,
    drawing,
    give,
    parameter,
    shape_of,
)
from fdbr.random.continuous import gumbel, uniform
from fdbr.random.keys import bits, fold_in

__all__ = ["bernoulli", "categorical", "randint"]


@public("fdbr.random")
@drawing
def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> Any:
    """True with probability ``p``.

    Parameters
    ----------
    key
        A key.
    p
        A number in [0, 1], or an array of them that broadcasts to ``shape``.
    shape
        The shape of the result; by default that of ``p``.

    Returns
    -------
    array
        bool.

    Raises
    ------
    TypeError, ValueError
        If ``p`` does not broadcast, or is no probability.

    >>> import fdbr
    >>> fdbr.random.bernoulli(fdbr.random.key(0), 1.0, (3,))
    array([ True,  True,  True])
    """
    check_key("bernoulli", key)
    p = stop_gradient(p)
    shape = shape_of("bernoulli", getattr(p, "shape", ()) if shape is None else shape)
    p = parameter("bernoulli", "p", p, shape, np.dtype(np.float64))
    if not holds((p >= 0) & (p <= 1) if hasattr(p, "dtype") else 0 <= p <= 1):
        raise ValueError(f"fdbr.random.bernoulli: p must lie in [0, 1], got {p!r}")
    return give(uniform(key, shape) < p, bool)


@public("fdbr.random")
@drawing
def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Indices drawn with probabilities ``softmax(logits, axis)``.

    The index of the largest of ``logits + gumbel`` is so distributed (Gumbel 1954; Maddison,
    Tarlow & Minka, NeurIPS 2014).

    Parameters
    ----------
    key
        A key.
    logits
        Unnormalised log probabilities; ``-inf`` is never drawn.
    axis
        The axis of ``logits`` over which the indices run.
    shape
        The shape of the result; it must end in that of ``logits`` without ``axis``, which
        is the default.

    Returns
    -------
    array
        int64.

    Raises
    ------
    TypeError, ValueError
        If ``logits`` has no such axis, or ``shape`` does not end as it must.

    >>> import fdbr
    >>> import numpy as np
    >>> fdbr.random.categorical(fdbr.random.key(0), np.array([-np.inf, 0.0]), shape=(3,))
    array([1, 1, 1])
    """
    check_key("categorical", key)
    logits = ops.asarray(stop_gradient(logits))
    if not -logits.ndim <= axis < logits.ndim or not logits.shape[axis]:
        raise ValueError(
            f"fdbr.random.categorical: logits {describe(logits)} have no categories on axis {axis}"
        )
    logits = ops.moveaxis(logits, axis, -1)
    batch = tuple(logits.shape[:-1])
    shape = batch if shape is None else shape_of("categorical", shape)
    if shape[len(shape) - len(batch) :] != batch:
        raise ValueError(
            f"fdbr.random.categorical: shape {shape} does not end in {batch}, the shape of the "
            "logits without the axis of categories; put the further draws in front"
        )
    noise = gumbel(key, (*shape, logits.shape[-1]))
    return give(ops.argmax(logits + noise, axis=-1), np.int64)


@public("fdbr.random")
@drawing
def randint(key: Any, shape: Shape, minval: Any, maxval: Any, dtype: Any = np.int64) -> Any:
    """Integers drawn uniformly from [minval, maxval).

    They are 64-bit words modulo ``maxval - minval``.  If that is above 2**32, words that would
    make some integers more probable are drawn anew; below it the probabilities differ by less than
    a factor of ``1 + 2**-32``.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.
    minval, maxval
        Integers, or arrays of integers that broadcast to ``shape``.
    dtype
        An integer dtype that holds ``minval`` and ``maxval - 1``.

    Returns
    -------
    array
        Of that shape and dtype.

    Raises
    ------
    TypeError, ValueError
        If a bound is no integer, does not broadcast or fit the dtype, or if the range is empty.

    >>> import fdbr
    >>> bool((fdbr.random.randint(fdbr.random.key(0), (9,), 3, 6) < 6).all())
    True
    """
    check_key("randint", key)
    shape, dtype = shape_of("randint", shape), np.dtype(dtype)
    if dtype.kind not in "iu":
        raise TypeError(f"fdbr.random.randint: dtype must be an integer dtype, got {dtype}")
    words = bits(key, shape)
    low = _integers("minval", minval, shape, array_module(words))
    high = _integers("maxval", maxval, shape, array_module(words))
    _check_integer_range(low, high, np.iinfo(dtype))
    # Differences wrap around in unsigned arithmetic to what they should be.
    with np.errstate(over="ignore"):
        start = ops.astype(low, np.uint64)
        count = ops.astype(high, np.uint64) - start
        if not holds(count <= _SMALL):
            words = _accepted(key, words, count)
        return give(start + words % count, dtype)


_SMALL = np.uint64(1 << 32)
_ROUNDS = 64  # each rejects less than half of the words


def _accepted(key: Any, words: Any, count: Any) -> Any:
    """Replace the words above the largest multiple of a count by later words of the key."""
    largest = ~((0 - count) % count)  # 2**64 - 1 less the remainder of 2**64
    for i in range(1, _ROUNDS):
        rejected = words > largest
        if not isinstance(rejected, Tracer) and not rejected.any():
            break
        words = ops.where(rejected, bits(fold_in(key, i), words.shape), words)
    return words


def _integers(name: str, value: Any, shape: tuple[int, ...], xp: Any) -> Any:
    try:
        array: Any = value if isinstance(value, Tracer) else xp.asarray(value)
    except OverflowError:
        array = xp.asarray(0.0)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"fdbr.random.randint: {name} must be integers of at most 64 bits, got "
            f"{describe(value)}"
        )
    if not broadcasts(array, shape):
        raise ValueError(
            f"fdbr.random.randint: {name} {describe(array)} does not broadcast to shape {shape}"
        )
    return array


def _check_integer_range(low: Any, high: Any, limits: Any) -> None:
    check_order("randint", "minval", low, "maxval", high)
    least, most = np.iinfo(low.dtype).min, np.iinfo(high.dtype).max
    if (least >= limits.min or holds(low >= limits.min)) and (
        most <= limits.max or holds(high <= limits.max + 1)
    ):
        return
    raise ValueError(
        f"fdbr.random.randint: {limits.dtype} holds {limits.min} .. {limits.max}, but minval is "
        f"{low} and maxval {high}; choose another dtype"
    )
