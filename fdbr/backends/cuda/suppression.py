"""Suppression of overlapping boxes by elementwise kernels, with a thread for each box.

Boxes are sorted by image, label and score, so that those that may suppress each other are a
*segment*.  Segments are processed in blocks of 64 boxes, those at one position in all segments at a
time.  Which boxes of a block overlap is a word of bits for each box; every thread finds the block's
kept boxes from these words, and compares its own box, which is in a later block, with them.  So
there is no barrier within a kernel, and memory is proportional to the number of boxes.
"""

import math
from typing import Any

from fdbr.core.devices import kernel
from fdbr.core.primitive import implement
from fdbr.ops.nn.suppression import float_below, suppress

__all__: list[str] = []

_BLOCK = 64
_OPTIONS = ("--fmad=false",)  # overlaps are those of the CPU to the last digit


def _if_overlap(statement: str) -> str:
    """Return CUDA C that executes a statement if the boxes ``j`` and ``i`` overlap too much."""
    return f"""
        T common = 1, area = 1, other = 1;
        for (int axis = 0; axis < 2; ++axis) {{
            const T low = boxes[4 * i + axis], high = boxes[4 * i + axis + 2];
            const T low_j = boxes[4 * j + axis], high_j = boxes[4 * j + axis + 2];
            const T start = low > low_j ? low : low_j, stop = high < high_j ? high : high_j;
            common *= stop > start ? stop - start : T(0);
            area *= high - low <= 0 ? T(0) : high - low;  // NaN stays
            other *= high_j - low_j <= 0 ? T(0) : high_j - low_j;
        }}
        if (common / (other + area - common) > threshold) {{ {statement} }}
    """


_RIVALS = (
    "raw T boxes, raw int64 labels, T threshold, int64 count",
    "raw int64 first, raw uint64 rivals",
    f"""
    long long low = i / count * count, high = i;
    while (low < high) {{
        const long long middle = (low + high) / 2;
        if (labels[middle] < labels[i]) low = middle + 1; else high = middle;
    }}
    first[i] = low;
    const long long start = i - (i - low) % {_BLOCK};
    unsigned long long word = 0;
    for (long long j = start; j < i; ++j) {{
        {_if_overlap("word |= 1ULL << (j - start);")}
    }}
    rivals[i] = word;
    """,
    "fdbr_rivals",
    _OPTIONS,
)
"""Finds the first box of each one's segment, and which boxes before it in its block it overlaps."""

_SUPPRESS = (
    "raw T boxes, raw int64 first, raw uint64 rivals, T threshold, int64 done",
    "raw bool gone, raw bool kept",
    f"""
    const long long start = first[i] + done, rank = i - start;
    if (rank >= 0 && !gone[i]) {{
        unsigned long long chosen = 0;
        for (int k = 0; k < {_BLOCK} && k <= rank; ++k) {{
            if (!gone[start + k] && !(rivals[start + k] & chosen)) chosen |= 1ULL << k;
        }}
        if (rank < {_BLOCK}) {{
            kept[i] = chosen >> rank & 1;
        }} else {{
            for (int k = 0; k < {_BLOCK} && !gone[i]; ++k) {{
                if (!(chosen >> k & 1)) continue;
                const long long j = start + k;
                {_if_overlap("gone[i] = true;")}
            }}
        }}
    }}
    """,
    "fdbr_suppress",
    _OPTIONS,
)
"""Writes to ``kept`` of a block, and to ``gone`` of later ones, so that no thread reads either."""


@implement(suppress.primitive, "cuda")
def _suppressed(
    xp: Any, boxes: Any, scores: Any, labels: Any, *, threshold: float, limit: int
) -> Any:
    if boxes.dtype.char not in "fd" or not boxes.size or not limit:
        return suppress.primitive.value(xp, boxes, scores, labels, threshold=threshold, limit=limit)
    count, shape = boxes.shape[-2], boxes.shape[:-2]
    images = math.prod(shape)
    scores, labels = scores.reshape((images, count)), labels.reshape((images, count))
    real = (scores > -xp.inf) & (labels != -1)
    by_score = xp.argsort(xp.where(real, 0 - scores, xp.inf), axis=1, kind="stable")
    names = xp.take_along_axis(labels, by_score, axis=1)
    by_name = xp.argsort(names, axis=1, kind="stable")
    row = xp.arange(images)[:, None]
    order = (xp.take_along_axis(by_score, by_name, axis=1) + row * count).reshape(-1)
    chosen = xp.zeros(images * count, dtype=bool)
    chosen[order] = _chosen(
        xp,
        boxes.reshape((-1, 4))[order].reshape(-1),
        labels.reshape(-1)[order].astype(xp.int64),
        ~real.reshape(-1)[order],
        count,
        float_below(threshold, boxes.dtype),
    )
    found = xp.take_along_axis(chosen.reshape((images, count)), by_score, axis=1)
    rank = xp.cumsum(found, axis=1) - 1
    out = xp.full((images, limit + 1), -1, dtype=xp.int64)  # the last column is not used
    out[row, xp.where(found & (rank < limit), rank, limit)] = by_score
    return xp.ascontiguousarray(out[:, :limit]).reshape((*shape, limit))


def _chosen(xp: Any, boxes: Any, labels: Any, gone: Any, count: int, threshold: Any) -> Any:
    """Return which of the sorted boxes are kept."""
    size = len(labels)
    first = xp.empty(size, dtype=xp.int64)
    rivals = xp.empty(size, dtype=xp.uint64)
    kernel(xp, *_RIVALS)(boxes, labels, threshold, count, first, rivals, size=size)
    kept = xp.zeros(size, dtype=bool)
    longest = int(xp.where(gone, 0, xp.arange(1, size + 1) - first).max())
    for done in range(0, longest, _BLOCK):
        kernel(xp, *_SUPPRESS)(boxes, first, rivals, threshold, done, gone, kept, size=size)
    return kept
