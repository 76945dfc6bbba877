"""Some queries and some keys at a time: the scores, sums and means of a block of attention."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fdbr.ops.nn.activations.exponentials import exp_in_place
from fdbr.ops.philox import random_words

__all__ = ["Blocks", "How"]

_QUERIES, _KEYS = 128, 1024  # of a block, whose weights lie in a cache then
_MANY = 1 << 12  # where launching an operation costs more


class How(NamedTuple):
    """The settings of a call.

    Attributes
    ----------
    scale
        The factor of the scores.
    left, right
        How far a query sees; `None` for all.
    masked
        Whether the mask is one; and whether it has a derivative.
    rate
        The rate of dropout.
    lead
        The axes of one call's examples and heads, without those of batches around it.
    size
        How many queries and keys a block has; `None` for as many as is good.
    """

    scale: float
    left: int | None
    right: int | None
    masked: bool
    sloped: bool
    rate: float
    lead: tuple[int, ...]
    size: int | None


class Blocks:
    """Attention, some queries and some keys at a time."""

    def __init__(self, xp: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, how: How):
        self.xp, self.how = xp, how
        self.query, self.key, self.value, self.mask, self.seed = query, key, value, mask, seed
        arrays = (query, key, value, mask, seed)
        self.lead = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
        self.queries, self.keys = query.shape[-2], key.shape[-2]
        few, many = (_QUERIES, _KEYS) if xp is np else (_MANY, _MANY)
        self.height, self.width = how.size or few, how.size or many
        self.most = few * many
        if how.rate:  # whose random numbers are in order of whole rows
            self.width = self.keys
            if math.prod(self.lead) * self.queries * self.keys <= self.most:
                self.height = self.queries

    def places(self) -> Iterator[tuple[int, ...]]:
        """The beginnings of the places of examples and heads, of which those behind go together."""
        depth, size = len(self.lead), min(self.height, self.queries) * min(self.width, self.keys)
        while depth and size * self.lead[depth - 1] <= self.most:
            depth -= 1
            size *= self.lead[depth]
        if self.how.rate and (depth or self.height < self.queries):
            depth = len(self.lead)
        return np.ndindex(self.lead[:depth])

    def at(self, x: Any, place: tuple[int, ...]) -> Any:
        """A part of an array, whose axes may be lacking, or of length 1."""
        skipped = len(self.lead) - (x.ndim - 2)
        pairs = zip(x.shape, place[skipped:], strict=False)
        return x[tuple(0 if n == 1 else i for n, i in pairs)]

    def rows(self) -> Iterator[slice]:
        """The queries of each block."""
        for i in range(0, self.queries, self.height):
            yield slice(i, min(i + self.height, self.queries))

    def columns(self, rows: slice) -> Iterator[slice]:
        """The keys of each block, as far as some of these queries see them."""
        first, last = 0, self.keys
        if self.how.left is not None:
            first = max(0, rows.start - self.how.left)
        if self.how.right is not None:
            last = min(self.keys, rows.stop + self.how.right)
        if self.how.rate:
            first, last = 0, self.keys
        for j in range(first, last, self.width):
            yield slice(j, min(j + self.width, last))

    def seen(self, place: Any, rows: slice) -> tuple[Any, Any]:
        """The means that some queries see, and the logarithms of the sums of weights."""
        xp, total, mean, most = self.xp, None, None, None
        query = self.at(self.query, place)[..., rows, :] * self.how.scale
        value = self.at(self.value, place)
        for columns in self.columns(rows):
            scores = self.scores(query, place, rows, columns)
            largest = scores.max(axis=-1, keepdims=True)
            if most is not None:
                largest = xp.maximum(largest, most)
            shift = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
            scores -= shift
            weights = exp_in_place(xp, scores)
            part = weights.sum(axis=-1, keepdims=True)
            keep = self.keep(place, rows)
            product = (weights if keep is None else weights * keep) @ value[..., columns, :]
            if most is None:
                total, mean = part, product
            else:
                fade = xp.exp(most - shift)  # 0 where nothing was seen before
                total = total * fade + part
                mean = mean * fade + product
            most = largest
        if most is None:
            return xp.zeros((1, 1), query.dtype), xp.full((1, 1), math.inf, query.dtype)
        blind = total == 0
        total = xp.where(blind, xp.ones_like(total), total)
        logs = shift + xp.log(total)
        return mean / total, xp.where(blind, xp.full_like(logs, math.inf), logs)

    def scores(self, query: Any, place: Any, rows: slice, columns: slice) -> Any:
        """The scores by which keys fit queries that are scaled; -inf where a key is not seen."""
        xp, how = self.xp, self.how
        scores = query @ self.at(self.key, place)[..., columns, :].swapaxes(-1, -2)
        hidden = xp.full((1, 1), -math.inf, dtype=scores.dtype)
        if how.masked:
            mask = self.part_of(self.at(self.mask, place), rows, columns)
            if mask.dtype.kind == "b":
                scores = xp.where(mask, scores, hidden)
            else:
                scores = scores + mask.astype(scores.dtype)
        before = how.left is not None and columns.start < rows.stop - 1 - how.left
        behind = how.right is not None and columns.stop - 1 > rows.start + how.right
        if before or behind:
            places = xp.arange(rows.start, rows.stop)[:, None]
            away = xp.arange(columns.start, columns.stop) - places
            seen = away >= (-self.keys - self.queries if how.left is None else -how.left)
            if how.right is not None:
                seen &= away <= how.right
            scores = xp.where(seen, scores, hidden)
        return scores

    def part_of(self, mask: Any, rows: slice, columns: slice) -> Any:
        """A block of a mask, whose axes may be of length 1."""
        mask = mask if mask.shape[-2] == 1 else mask[..., rows, :]
        return mask if mask.shape[-1] == 1 else mask[..., columns]

    def keep(self, place: Any, rows: slice) -> Any:
        """The factors of weights that stay, and zeros; `None` if all stay."""
        how = self.how
        if not how.rate:
            return None
        own = place[len(self.lead) - len(how.lead) :] if len(place) == len(self.lead) else ()
        number = int(np.ravel_multi_index(own, how.lead)) if own else 0
        first = (number * self.queries + rows.start) * self.keys
        shape = (*how.lead[len(own) :], rows.stop - rows.start, self.keys)
        keys = self.at(self.seed, place)[..., 0, :]
        stay = _stay(self.xp, keys, first, math.prod(shape), 1 - how.rate)
        lead = keys.shape[: max(0, keys.ndim - 1 - (len(how.lead) - len(own)))]
        return stay.reshape((*lead, *shape)).astype(self.query.dtype) * (1 / (1 - how.rate))


def _stay(xp: Any, key: Any, first: int, count: int, share: float) -> Any:
    """Whether weights stay, those of the numbers from ``first`` on: as `dropout` has it."""
    start, skipped = first // 8, first % 8  # a block is of four words, eight halves
    words = -(-(skipped + count) // 2)
    begin = xp.full(1, start, dtype=xp.uint64)
    drawn = random_words.primitive.value(xp, key, begin, shape=(words,), use=0)
    halves = xp.ascontiguousarray(drawn).view(xp.uint32)[..., skipped : skipped + count]
    return halves < xp.asarray(min(round(share * 2**32), 2**32 - 1), dtype=xp.uint32)
