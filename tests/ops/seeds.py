"""Arguments of which a few are as good as many: arrays of given shapes from a handful of seeds."""

from typing import Any

import hypothesis.strategies as st
import numpy as np


def seeded(*pairs: Any, count: int = 3) -> Any:
    """A few tuples of arrays, for what any numbers test as well as any others.

    Each pair is a shape and the bounds of the elements, which lie on the grid of eighths.
    """

    def make(seed: int) -> Any:
        draw = np.random.Generator(np.random.Philox(seed)).integers
        return tuple(
            draw(round(8 * low), round(8 * high) + 1, shape) / 8 for shape, (low, high) in pairs
        )

    return st.integers(0, count - 1).map(make)


def several(*shapes: Any) -> Any:
    return seeded(*((shape, (-2, 2)) for shape in shapes))
