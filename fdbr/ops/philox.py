"""Random words from keys: the counter-based generator Philox4x64-10, on arrays of keys.

Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.  A key is a
pair of 64-bit words.  A block of four words is ten rounds of multiplication and exclusive or of
a counter with it; so every block stands for itself, and a batch of keys is a matter of
arithmetic on arrays.
"""

import math
from typing import Any

import numpy as np

from fdbr.ops.declare import constant
from fdbr.ops.declare.batches import align
from fdbr.pytrees.typing import Array

__all__ = ["MULTIPLIERS", "ROUNDS", "STEPS", "in_pieces", "random_words", "started"]

ROUNDS = 10
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # by which the key changes from round to round
_LOW = 0xFFFFFFFF


def _batch_words(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    # The last axis of keys, and of starts, belongs to each of them.
    return apply(*align(values, batched, 1), **params)


@constant(batch=_batch_words, total=True)
def random_words(xp: Any, key: Any, start: Any, *, shape: tuple[int, ...], use: int) -> Array:
    """The words of Philox under keys ``(..., 2)``, of shape ``(..., *shape)``.

    Blocks are counted from ``start`` on: 0, or an array of shape ``(..., 1)``; ``use`` is the
    last word of the counter.
    """
    return in_pieces(xp, key, start, shape, use, _AT_ONCE)


_AT_ONCE = 1 << 24  # blocks at a time, as launching an operation costs more than its memory


def started(xp: Any, key: Any, start: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """Return keys and starts as arrays, and the shape of their batch."""
    key = xp.asarray(key)
    start = xp.full(1, start, xp.uint64) if isinstance(start, int) else xp.asarray(start)
    return key, start, np.broadcast_shapes(key.shape[:-1], start.shape[:-1])


def in_pieces(xp: Any, key: Any, start: Any, shape: tuple[int, ...], use: int, most: int) -> Array:
    """Compute `random_words`, ``most`` blocks at a time."""
    count = math.prod(shape)
    blocks = -(-count // 4)
    key, start, lead = started(xp, key, start)
    width = max(1, most // max(1, math.prod(lead)))
    parts = [
        _philox(xp, key, start, xp.arange(i + 1, min(i + width, blocks) + 1, dtype=xp.uint64), use)
        for i in range(0, max(blocks, 1), width)
    ]
    words = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
    return words[..., :count].reshape((*lead, *shape))


def _philox(xp: Any, key: Any, start: Any, numbers: Any, use: int) -> Any:
    """The blocks of some numbers after a start, one after the other along the last axis."""
    counters = start + numbers
    shape = np.broadcast_shapes((*key.shape[:-1], 1), counters.shape)
    word = lambda value: xp.broadcast_to(xp.asarray(value, dtype=xp.uint64), shape)  # noqa: E731
    keys = [key[..., :1], key[..., 1:]]
    a, b, c, d = word(counters), word(counters < start), word(0), word(use)
    for iteration in range(ROUNDS):
        if iteration:
            keys = [k + xp.asarray([step], xp.uint64) for k, step in zip(keys, STEPS, strict=True)]
        (high_a, low_a), (high_c, low_c) = (
            _product(xp, value, factor) for value, factor in zip((a, c), MULTIPLIERS, strict=True)
        )
        a, b, c, d = high_c ^ b ^ keys[0], low_c, high_a ^ d ^ keys[1], low_a
    return xp.stack([a, b, c, d], axis=-1).reshape((*shape[:-1], 4 * shape[-1]))


def _product(xp: Any, value: Any, factor: int) -> tuple[Any, Any]:
    """The high and the low word of a product of words, by products of their halves."""
    upper, lower, whole, low_bits, half = (
        xp.asarray(n, dtype=xp.uint64) for n in (factor >> 32, factor & _LOW, factor, _LOW, 32)
    )
    high, low = value >> half, value & low_bits
    crossed = low * upper
    middle = ((low * lower) >> half) + (crossed & low_bits) + high * lower
    return high * upper + (crossed >> half) + (middle >> half), value * whole
