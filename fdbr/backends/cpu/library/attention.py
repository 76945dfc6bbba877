"""Attention of NumPy's arrays."""

from typing import Any

import numpy as np

from fdbr.core.primitive import implement
from fdbr.ops.nn.attention.pieces import block_sizes

__all__: list[str] = []

_QUERIES, _KEYS = 128, 1024  # of a block, so that its weights stay in a cache


@implement(block_sizes, np)
def _block_sizes(query: Any) -> tuple[int, int]:
    return _QUERIES, _KEYS
