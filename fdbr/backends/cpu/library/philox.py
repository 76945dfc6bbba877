"""The generator Philox: for one key by NumPy's own, which gives the same words."""

import math
from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.philox import in_pieces, random_words


@implement(random_words.primitive, np)
def _random_words(xp: Any, key: Any, start: Any, *, shape: tuple[int, ...], use: int) -> Any:
    if key.ndim != 1 or np.ndim(start) > 1:
        return in_pieces(xp, key, start, shape, use, TUNING.philox_blocks)
    first = start if isinstance(start, int) else int(start[0])
    counter = np.array((first, 0, 0, use), dtype=np.uint64)
    generator = np.random.Philox(key=key, counter=counter)
    return generator.random_raw(math.prod(shape)).reshape(shape)
