"""Random words from keys: the counter-based generator Philox4x64-10, on arrays of keys.

Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.  A key is a
pair of 64-bit words.  A block of four words is ten rounds of multiplication and exclusive or of
a counter with it; so every block stands for itself, and a batch of keys is a matter of
arithmetic on arrays.  One key on the CPU goes through NumPy's own generator, of the same words.
"""

import math
from typing import Any

import numpy as np

from fdbr.core.devices import kernel
from fdbr.ops.declare import constant
from fdbr.ops.declare.batches import align
from fdbr.pytrees.typing import Array

__all__ = ["random_words"]

_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # by which the key changes from round to round
_LOW = 0xFFFFFFFF

# The same as `_philox`, for a GPU.
_KERNEL = (
    "raw uint64 key, raw uint64 start, uint64 blocks, uint64 use",
    "raw uint64 words",
    f"""
    typedef unsigned long long word;
    const word lead = i / blocks, number = i % blocks + 1;
    word k0 = key[2 * lead], k1 = key[2 * lead + 1];
    word a = start[lead] + number, b = a < number, c = 0, d = use;
    for (int turn = 0; turn < {_ROUNDS}; ++turn) {{
        const word high_a = __umul64hi(a, {_MULTIPLIERS[0]}ULL), low_a = a * {_MULTIPLIERS[0]}ULL;
        const word high_c = __umul64hi(c, {_MULTIPLIERS[1]}ULL), low_c = c * {_MULTIPLIERS[1]}ULL;
        a = high_c ^ b ^ k0; b = low_c; c = high_a ^ d ^ k1; d = low_a;
        k0 += {_STEPS[0]}ULL; k1 += {_STEPS[1]}ULL;
    }}
    words[4 * i] = a; words[4 * i + 1] = b; words[4 * i + 2] = c; words[4 * i + 3] = d;
    """,
    "fdbr_philox",
)
_AT_ONCE = 1 << 13  # blocks at a time on a CPU, whose caches hold their words
_MANY_AT_ONCE = 1 << 24  # and elsewhere, where launching an operation costs more


def _batch_words(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    # The last axis of keys, and of starts, belongs to each of them.
    return apply(*align(values, batched, 1), **params)


@constant(batch=_batch_words, total=True)
def random_words(xp: Any, key: Any, start: Any, *, shape: tuple[int, ...], use: int) -> Array:
    """The words of Philox under keys ``(..., 2)``, of shape ``(..., *shape)``.

    Blocks are counted from ``start`` on: 0, or an array of shape ``(..., 1)``; ``use`` is the
    last word of the counter.
    """
    count = math.prod(shape)
    if xp is np and key.ndim == 1 and np.ndim(start) <= 1:
        first = start if isinstance(start, int) else int(start[0])
        counter = np.array((first, 0, 0, use), dtype=np.uint64)
        generator = np.random.Philox(key=key, counter=counter)
        return generator.random_raw(count).reshape(shape)
    blocks = -(-count // 4)
    key = xp.asarray(key)
    start = xp.full(1, start, xp.uint64) if isinstance(start, int) else xp.asarray(start)
    lead = np.broadcast_shapes(key.shape[:-1], start.shape[:-1])
    compiled = kernel(xp, *_KERNEL)
    if compiled is not None:
        words = _at_once(xp, compiled, key, start, lead, blocks, use)
        return words[..., :count].reshape((*lead, *shape))
    width = max(1, (_AT_ONCE if xp is np else _MANY_AT_ONCE) // max(1, math.prod(lead)))
    parts = [
        _philox(xp, key, start, xp.arange(i + 1, min(i + width, blocks) + 1, dtype=xp.uint64), use)
        for i in range(0, max(blocks, 1), width)
    ]
    words = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
    return words[..., :count].reshape((*lead, *shape))


def _at_once(
    xp: Any, compiled: Any, key: Any, start: Any, lead: tuple[int, ...], blocks: int, use: int
) -> Any:
    """The words of some blocks after a start, a thread for each block."""
    keys = xp.ascontiguousarray(xp.broadcast_to(key, (*lead, 2)))
    starts = xp.ascontiguousarray(xp.broadcast_to(start, (*lead, 1)))
    words = xp.empty((*lead, 4 * blocks), dtype=xp.uint64)
    if words.size:
        compiled(keys, starts, blocks, use, words, size=words.size // 4)
    return words


def _philox(xp: Any, key: Any, start: Any, numbers: Any, use: int) -> Any:
    """The blocks of some numbers after a start, one after the other along the last axis."""
    counters = start + numbers
    shape = np.broadcast_shapes((*key.shape[:-1], 1), counters.shape)
    word = lambda value: xp.broadcast_to(xp.asarray(value, dtype=xp.uint64), shape)  # noqa: E731
    keys = [key[..., :1], key[..., 1:]]
    a, b, c, d = word(counters), word(counters < start), word(0), word(use)
    for iteration in range(_ROUNDS):
        if iteration:
            keys = [k + xp.asarray([step], xp.uint64) for k, step in zip(keys, _STEPS, strict=True)]
        (high_a, low_a), (high_c, low_c) = (
            _product(xp, value, factor) for value, factor in zip((a, c), _MULTIPLIERS, strict=True)
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
