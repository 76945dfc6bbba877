"""The generator Philox, with a thread for each block of four words."""

import math
from typing import Any

from fdbr.core.devices import kernel
from fdbr.core.primitive import implement
from fdbr.ops.philox import MULTIPLIERS, ROUNDS, STEPS, random_words, started

_KERNEL = (
    "raw uint64 key, raw uint64 start, uint64 blocks, uint64 use",
    "raw uint64 words",
    f"""
    typedef unsigned long long word;
    const word lead = i / blocks, number = i % blocks + 1;
    word k0 = key[2 * lead], k1 = key[2 * lead + 1];
    word a = start[lead] + number, b = a < number, c = 0, d = use;
    for (int round = 0; round < {ROUNDS}; ++round) {{
        const word high_a = __umul64hi(a, {MULTIPLIERS[0]}ULL), low_a = a * {MULTIPLIERS[0]}ULL;
        const word high_c = __umul64hi(c, {MULTIPLIERS[1]}ULL), low_c = c * {MULTIPLIERS[1]}ULL;
        a = high_c ^ b ^ k0; b = low_c; c = high_a ^ d ^ k1; d = low_a;
        k0 += {STEPS[0]}ULL; k1 += {STEPS[1]}ULL;
    }}
    words[4 * i] = a; words[4 * i + 1] = b; words[4 * i + 2] = c; words[4 * i + 3] = d;
    """,
    "fdbr_philox",
)


@implement(random_words.primitive, "cuda")
def _random_words(xp: Any, key: Any, start: Any, *, shape: tuple[int, ...], use: int) -> Any:
    count = math.prod(shape)
    key, start, lead = started(xp, key, start)
    keys = xp.ascontiguousarray(xp.broadcast_to(key, (*lead, 2)))
    starts = xp.ascontiguousarray(xp.broadcast_to(start, (*lead, 1)))
    blocks = -(-count // 4)
    words = xp.empty((*lead, 4 * blocks), dtype=xp.uint64)
    if words.size:
        kernel(xp, *_KERNEL)(keys, starts, blocks, use, words, size=words.size // 4)
    return words[..., :count].reshape((*lead, *shape))
