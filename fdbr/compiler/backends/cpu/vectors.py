"""The vectors of this processor: how long they are, and how many of them its registers hold."""

import numpy as np

from fdbr.kernels.machine import vector_bytes

__all__ = ["CORRELATE", "INNER", "TILE", "lanes"]

_BYTES = vector_bytes()

TILE = (8, 2) if _BYTES == 64 else (4, 2)
"""The most rows and vectors of a tile of a matrix product."""

CORRELATE = ((6, 4), (8, 3), (4, 4)) if _BYTES == 64 else ((3, 3), (4, 2), (2, 3))
"""The outputs and vectors of tiles of convolutions: with them and what they are made of, registers
are full."""

INNER = (4, 6) if _BYTES == 64 else (2, 4)
"""The same of tiles of the gradients of their weights."""


def lanes(code: str) -> int:
    """How many numbers of a dtype a vector has."""
    return _BYTES // np.dtype(code).itemsize
