"""Suppression of overlapping boxes in NumPy's arrays: one box is compared with a vector of others.

Boxes are sorted by image, label and score, so that those that may suppress each other are a
*segment*, whose kept boxes are found in order.  Threads take segments.
"""

import functools
import math
from array import array
from typing import Any

import numpy as np

from fdbr.backends.cpu.codegen.eager_kernels import expected
from fdbr.backends.cpu.codegen.kernel_builder import Kernel, Number
from fdbr.backends.cpu.runtime.machine import address_of, vector_bytes
from fdbr.backends.cpu.runtime.pool import data_address, launch, part_count
from fdbr.core.primitive import implement
from fdbr.ops.nn.suppression import float_below, suppress

__all__: list[str] = []

_CODES = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
_SHARE = 1 << 10  # boxes of a part: waking a thread takes as long as comparing fewer
_COLUMNS = ("low0", "low1", "high0", "high1", "area", "chosen")


@functools.cache
def _source(code: str, lanes: int) -> str:
    """Return the kernel, which writes zeros to ``chosen`` for the boxes that are suppressed.

    Columns have a vector more than there are boxes, which is loaded and not used.  After ``limit``
    kept boxes the rest of a segment is left as it is.
    """
    pointers = dict.fromkeys(_COLUMNS, code) | {"bounds": "i8", "threshold": code}
    kernel = Kernel([*pointers, "limit"], pointers)
    word, zero = kernel.word, kernel.constant(0, code, lanes)
    threshold = kernel.load(word["threshold"]).spread(lanes)
    indices = kernel.count_up(lanes)

    def side(axis: int, one: dict[str, Number], many: dict[str, Number]) -> Number:
        low, high = f"low{axis}", f"high{axis}"
        start = kernel.choose(one[low] > many[low], one[low], many[low])
        stop = kernel.choose(one[high] < many[high], one[high], many[high])
        return kernel.choose(stop > start, stop - start, zero)

    with kernel.each(kernel.start, kernel.stop) as segment:
        begin = kernel.load(word["bounds"] + segment)
        end = kernel.load(word["bounds"] + segment + 1)

        def visit(i: Number, count: Number) -> Number:
            is_kept = (kernel.load(word["chosen"] + i) > 0) & (count < word["limit"])
            with kernel.when(is_kept):
                one = {c: kernel.load(word[c] + i).spread(lanes) for c in _COLUMNS[:5]}
                with kernel.each(i + 1, end, lanes) as j:
                    many = {c: kernel.load(word[c] + j, lanes) for c in _COLUMNS[:5]}
                    common = side(0, one, many) * side(1, one, many)
                    overlap = common / (one["area"] + many["area"] - common)
                    inside = indices < (end - j).spread(lanes)
                    kernel.store(word["chosen"] + j, zero, (overlap > threshold) & inside)
            return kernel.choose(is_kept, count + 1, count)

        kernel.repeat(begin, end, visit, kernel.index(0))
    return kernel.text()


@implement(suppress.primitive, np)
def _suppressed(
    xp: Any, boxes: Any, scores: Any, labels: Any, *, threshold: float, limit: int
) -> Any:
    if boxes.dtype not in _CODES or not boxes.size or not limit or not expected():
        return suppress.primitive.value(xp, boxes, scores, labels, threshold=threshold, limit=limit)
    count, shape = boxes.shape[-2], boxes.shape[:-2]
    images, scores, labels = math.prod(shape), scores.reshape(-1), labels.reshape(-1)
    candidates = np.flatnonzero((scores > -np.inf) & (labels != -1))
    ranks, names = -scores[candidates], labels[candidates]
    image = candidates // count
    if images == 1 and (names == names[:1]).all():
        order = candidates[np.argsort(ranks, kind="stable")]
        bounds = np.array([0, len(order)])
    else:
        by = np.lexsort((ranks, names, image))
        order = candidates[by]
        starts = (np.diff(names[by]) != 0) | (np.diff(image[by]) != 0)
        bounds = np.concatenate([[0], np.flatnonzero(starts) + 1, [len(order)]])
    chosen = _chosen(boxes.reshape(-1, 4)[order], bounds, threshold, limit)
    kept = order[chosen]
    if len(bounds) > 2:
        kept = kept[np.lexsort((kept, -scores[kept], kept // count))]
    out = np.full((images, limit), -1, np.int64)
    image = kept // count
    rank = np.arange(len(kept)) - np.searchsorted(image, image)
    used = rank < limit
    out[image[used], rank[used]] = kept[used] % count
    return out.reshape((*shape, limit))


def _chosen(boxes: Any, bounds: Any, threshold: float, limit: int) -> Any:
    """Return which of the sorted boxes are kept."""
    dtype, count = boxes.dtype, len(boxes)
    lanes = vector_bytes() // dtype.itemsize
    columns = np.zeros((len(_COLUMNS), count + lanes), dtype)
    columns[:4, :count] = boxes.T
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    columns[4, :count] = sides[:, 0] * sides[:, 1]
    columns[5, :count] = 1
    bounds = np.ascontiguousarray(bounds, np.int64)
    limits = np.array([float_below(threshold, dtype)], dtype)
    addresses = [data_address(v) for v in (*columns, bounds, limits)]
    table = array("q", [*addresses, limit])
    segments = len(bounds) - 1
    kernel = address_of(_source(_CODES[dtype], lanes))
    launch(kernel, table.buffer_info()[0], segments, 1, part_count(min(segments, count // _SHARE)))
    return columns[5, :count] > 0
