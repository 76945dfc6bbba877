"""Keys, what is derived from them, and their words."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import lock
from fdbr.core.tracer import Tracer, holds
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.philox import random_words
from fdbr.random.arguments import Shape, check_key, drawing, shape_of

__all__ = ["bits", "fold_in", "key", "split"]

# The last word of Philox's counter, one value per use, so that a key's draws, its
# children by `split` and those by `fold_in` have no word in common.
_DRAW, _SPLIT, _FOLD = 0, 1, 2


@public("fdbr.random")
def key(seed: int) -> Any:
    """A key made from a seed.

    Parameters
    ----------
    seed
        An integer from 0 to 2**128 - 1.  Different seeds give independent keys.  Under `vmap` it
        may be batched, and is then of at most 64 bits.

    Returns
    -------
    array
        uint64, shape ``(2,)``, read-only.

    Raises
    ------
    TypeError
        If the seed is no integer.
    ValueError
        If it is out of range.

    >>> import fdbr
    >>> fdbr.random.key(7)
    array([7, 0], dtype=uint64)
    """
    if isinstance(seed, Tracer):
        low = _words_of("key", "seed", seed)
        return ops.stack([low, ops.zeros_like(low)])
    number = integer("fdbr.random.key", "seed", seed)
    if not 0 <= number < 2**128:
        raise ValueError(f"fdbr.random.key: seed must lie in 0 .. 2**128 - 1, got {number}")
    return lock(np.array([number & (2**64 - 1), number >> 64], dtype=np.uint64))


@public("fdbr.random")
def split(key: Any, num: int = 2) -> Any:
    """Independent keys made from one.

    Parameters
    ----------
    key
        A key; do not use it for anything else afterwards.
    num
        How many.

    Returns
    -------
    array
        uint64, shape ``(num, 2)``: it unpacks into keys.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``num`` is no positive integer.

    >>> import fdbr
    >>> weight_key, bias_key = fdbr.random.split(fdbr.random.key(0))
    >>> fdbr.random.split(weight_key, 5).shape
    (5, 2)
    """
    check_key("split", key)
    count = integer("fdbr.random.split", "num", num, least=1)
    return lock(random_words(key, 0, shape=(count, 2), use=_SPLIT))


@public("fdbr.random")
def fold_in(key: Any, data: int) -> Any:
    """The key that belongs to a number: the keys of different numbers are independent.

    Use it where keys are counted: one per step, epoch or layer.

    Parameters
    ----------
    key
        A key; it may serve for any number of `fold_in`.
    data
        An integer from 0 to 2**64 - 1.

    Returns
    -------
    array
        uint64, shape ``(2,)``.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``data`` no integer of that range.

    >>> import fdbr
    >>> key = fdbr.random.key(0)
    >>> bool((fdbr.random.fold_in(key, 1) == fdbr.random.fold_in(key, 1)).all())
    True
    """
    check_key("fold_in", key)
    if isinstance(data, Tracer):
        start = ops.reshape(_words_of("fold_in", "data", data), (1,))
    else:
        start = integer("fdbr.random.fold_in", "data", data)
        if not 0 <= start < 2**64:
            raise ValueError(f"fdbr.random.fold_in: data must lie in 0 .. 2**64 - 1, got {start}")
    return lock(random_words(key, start, shape=(2,), use=_FOLD))


def _words_of(function: str, name: str, value: Any) -> Any:
    """A traced integer as a 64-bit word."""
    if value.dtype.kind not in "iu" or value.ndim:
        raise TypeError(f"fdbr.random.{function}: {name} must be an integer, got {describe(value)}")
    if not holds(value >= 0):
        raise ValueError(f"fdbr.random.{function}: {name} must be at least 0")
    return ops.astype(value, np.uint64)


@public("fdbr.random")
@drawing
def bits(key: Any, shape: Shape = ()) -> Any:
    """Uniformly distributed 64-bit words, from which all other draws are made.

    Parameters
    ----------
    key
        A key.
    shape
        The shape of the result.

    Returns
    -------
    array
        uint64, of that shape, in the memory where the key lies.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key, or ``shape`` no shape.

    >>> import fdbr
    >>> fdbr.random.bits(fdbr.random.key(0), (2, 3)).dtype
    dtype('uint64')
    """
    check_key("bits", key)
    return lock(random_words(key, 0, shape=shape_of("bits", shape), use=_DRAW))
