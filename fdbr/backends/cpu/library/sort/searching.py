"""Searches: the indices of nonzero elements by rows, those in sorted arrays by threads."""

from typing import Any

import numpy as np

from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.core.util.threads import divide, parts
from fdbr.ops.indexing import searching


@implement(searching.nonzero_raw, np, least=TUNING.extra_pass)
def _nonzero(x: Any) -> tuple[Any, ...]:
    """Compute `numpy.nonzero` by rows: NumPy takes ten times as long for several axes."""
    if x.ndim == 1 or x.size < TUNING.extra_pass or not x.flags.c_contiguous:
        return x.nonzero()
    counts = np.count_nonzero(x, axis=-1).reshape(-1)
    starts = np.arange(0, x.size, x.shape[-1])
    last = x.reshape(-1).nonzero()[0]
    last -= starts.repeat(counts)
    *axes, _ = x.shape
    rows = np.unravel_index(np.arange(len(counts)), axes)
    return *(row.repeat(counts) for row in rows), last


@implement(searching._searchsorted.primitive, np)
def _searchsorted(xp: Any, x: Any, y: Any, *, side: Any) -> Any:
    if y.nbytes < TUNING.kernel_bytes:
        return x.searchsorted(y, side)
    queries = y.reshape(-1)
    x = x.astype(np.result_type(x, queries), copy=False)  # convert once, not for each piece
    out = np.empty(queries.shape, np.intp)

    def work(piece: slice) -> None:
        out[piece] = np.searchsorted(x, queries[piece], side=side)

    divide(work, parts(len(queries), len(queries) >> 15))
    return out.reshape(y.shape)
