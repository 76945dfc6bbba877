"""The generator Philox: for one key by NumPy's own, which gives the same words."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.philox import in_pieces, random_words

_NOTHING = (0, 0, 0, 0)  # words that are drawn already

# Generators that no call uses: NumPy draws a seed from the system for a new one, even with a key,
# which takes six times as long as setting its state.  A call, also one that interrupts another,
# takes a generator for itself alone.
_idle: list[np.random.Philox] = []


@implement(random_words.primitive, np)
def _random_words(xp: Any, key: Any, start: Any, *, shape: tuple[int, ...], use: int) -> Any:
    if key.ndim != 1 or np.ndim(start) > 1:
        return in_pieces(xp, key, start, shape, use, TUNING.philox_blocks)
    first = start if isinstance(start, int) else int(start[0])
    try:
        generator = _idle.pop()
    except IndexError:
        generator = np.random.Philox(key=0)
    state: Any = {  # tuples take half the time that arrays do
        "bit_generator": "Philox",
        "state": {"counter": (first, 0, 0, use), "key": key},
        "buffer": _NOTHING,
        "buffer_pos": len(_NOTHING),
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator.state = state
    words = generator.random_raw(math.prod(shape)).reshape(shape)
    _idle.append(generator)
    return words
