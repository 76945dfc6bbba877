"""Blocks of attention: the scores, sums and means of some queries and some keys."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fdbr.core.routine import Routine
from fdbr.ops.declare.rows import exp_over
from fdbr.ops.philox import random_words

__all__ = ["Blocks", "Settings", "block_sizes"]

_QUERIES = _KEYS = 1 << 12  # of a block, as each kernel launch on a GPU costs time


class Settings(NamedTuple):
    """The settings of an attention call.

    Attributes
    ----------
    scale
        The factor of the scores.
    left, right
        The numbers of keys before and after its position that a query attends to; `None` for all.
    has_mask
        Whether the mask operand is used.
    mask_is_differentiated
        Whether the mask has a cotangent.
    rate
        The dropout rate.
    lead
        The axes of examples and heads of the call, without batch axes of `vmap`.
    size
        The number of queries and keys in a block; `None` for the default.
    """

    scale: float
    left: int | None
    right: int | None
    has_mask: bool
    mask_is_differentiated: bool
    rate: float
    lead: tuple[int, ...]
    size: int | None


@Routine
def block_sizes(query: Any) -> tuple[int, int]:
    """Return the numbers of queries and of keys in a block."""
    return _QUERIES, _KEYS


class Blocks:
    """Attention computed for some queries and some keys at a time."""

    def __init__(
        self, xp: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, settings: Settings
    ):
        self.xp, self.settings = xp, settings
        self.query, self.key, self.value, self.mask, self.seed = query, key, value, mask, seed
        arrays = (query, key, value, mask, seed)
        self.lead = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
        self.queries, self.keys = query.shape[-2], key.shape[-2]
        queries, keys = block_sizes(query)
        self.height, self.width = settings.size or queries, settings.size or keys
        self.block_weights = queries * keys
        if settings.rate:  # random numbers are drawn for whole rows
            self.width = self.keys
            if math.prod(self.lead) * self.queries * self.keys <= self.block_weights:
                self.height = self.queries

    def batch_indices(self) -> Iterator[tuple[int, ...]]:
        """Iterate over indices of leading axes; trailing examples and heads go together."""
        depth, size = len(self.lead), min(self.height, self.queries) * min(self.width, self.keys)
        while depth and size * self.lead[depth - 1] <= self.block_weights:
            depth -= 1
            size *= self.lead[depth]
        if self.settings.rate and (depth or self.height < self.queries):
            depth = len(self.lead)
        return np.ndindex(self.lead[:depth])

    def select(self, x: Any, index: tuple[int, ...]) -> Any:
        """Index the leading axes of an array, which may be missing or have length 1."""
        skipped = len(self.lead) - (x.ndim - 2)
        pairs = zip(x.shape, index[skipped:], strict=False)
        return x[tuple(0 if n == 1 else i for n, i in pairs)]

    def rows(self) -> Iterator[slice]:
        """Iterate over the slices of queries."""
        for i in range(0, self.queries, self.height):
            yield slice(i, min(i + self.height, self.queries))

    def columns(self, rows: slice) -> Iterator[slice]:
        """Iterate over the slices of keys that some of these queries attend to."""
        first, last = 0, self.keys
        if self.settings.left is not None:
            first = max(0, rows.start - self.settings.left)
        if self.settings.right is not None:
            last = min(self.keys, rows.stop + self.settings.right)
        if self.settings.rate:
            first, last = 0, self.keys
        for j in range(first, last, self.width):
            yield slice(j, min(j + self.width, last))

    def attend(self, index: Any, rows: slice) -> tuple[Any, Any]:
        """Compute the result for some queries, and the logarithms of their sums of weights."""
        xp, total, mean, running_max = self.xp, None, None, None
        query = self.select(self.query, index)[..., rows, :] * self.settings.scale
        value = self.select(self.value, index)
        for columns in self.columns(rows):
            scores = self.scores(query, index, rows, columns)
            largest = scores.max(axis=-1, keepdims=True)
            if running_max is not None:
                largest = xp.maximum(largest, running_max)
            shift = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
            scores -= shift
            weights = exp_over(scores)
            part = weights.sum(axis=-1, keepdims=True)
            dropout_factors = self.dropout_factors(index, rows)
            product = (weights if dropout_factors is None else weights * dropout_factors) @ value[
                ..., columns, :
            ]
            if running_max is None:
                total, mean = part, product
            else:
                rescale = xp.exp(running_max - shift)  # 0 where no key was seen in earlier blocks
                total = total * rescale + part
                mean = mean * rescale + product
            running_max = largest
        if running_max is None:
            return xp.zeros((1, 1), query.dtype), xp.full((1, 1), math.inf, query.dtype)
        sees_none = total == 0
        total = xp.where(sees_none, xp.ones_like(total), total)
        logs = shift + xp.log(total)
        return mean / total, xp.where(sees_none, xp.full_like(logs, math.inf), logs)

    def scores(self, query: Any, index: Any, rows: slice, columns: slice) -> Any:
        """Compute the scores of scaled queries and keys; -inf where a key is masked."""
        xp, settings = self.xp, self.settings
        scores = query @ self.select(self.key, index)[..., columns, :].swapaxes(-1, -2)
        minus_infinity = xp.full((1, 1), -math.inf, dtype=scores.dtype)
        if settings.has_mask:
            mask = self.mask_block(self.select(self.mask, index), rows, columns)
            if mask.dtype.kind == "b":
                scores = xp.where(mask, scores, minus_infinity)
            else:
                scores = scores + mask.astype(scores.dtype)
        before = settings.left is not None and columns.start < rows.stop - 1 - settings.left
        behind = settings.right is not None and columns.stop - 1 > rows.start + settings.right
        if before or behind:
            positions = xp.arange(rows.start, rows.stop)[:, None]
            distance = xp.arange(columns.start, columns.stop) - positions
            sees = distance >= (
                -self.keys - self.queries if settings.left is None else -settings.left
            )
            if settings.right is not None:
                sees &= distance <= settings.right
            scores = xp.where(sees, scores, minus_infinity)
        return scores

    def mask_block(self, mask: Any, rows: slice, columns: slice) -> Any:
        """Select a block of a mask, whose axes may have length 1."""
        mask = mask if mask.shape[-2] == 1 else mask[..., rows, :]
        return mask if mask.shape[-1] == 1 else mask[..., columns]

    def dropout_factors(self, index: Any, rows: slice) -> Any:
        """Return the dropout factors of the weights, or `None` without dropout."""
        settings = self.settings
        if not settings.rate:
            return None
        own = index[len(self.lead) - len(settings.lead) :] if len(index) == len(self.lead) else ()
        number = int(np.ravel_multi_index(own, settings.lead)) if own else 0
        first = (number * self.queries + rows.start) * self.keys
        shape = (*settings.lead[len(own) :], rows.stop - rows.start, self.keys)
        keys = self.select(self.seed, index)[..., 0, :]
        is_kept = _kept_bits(self.xp, keys, first, math.prod(shape), 1 - settings.rate)
        lead = keys.shape[: max(0, keys.ndim - 1 - (len(settings.lead) - len(own)))]
        return is_kept.reshape((*lead, *shape)).astype(self.query.dtype) * (1 / (1 - settings.rate))


def _kept_bits(xp: Any, key: Any, first: int, count: int, probability: float) -> Any:
    """Draw which weights dropout keeps, from number ``first`` on, with the bits of `dropout`."""
    start, skipped = first // 8, first % 8  # a Philox block has four words, eight halves
    words = -(-(skipped + count) // 2)
    begin = xp.full(1, start, dtype=xp.uint64)
    words_drawn = random_words.primitive.on(xp)(xp, key, begin, shape=(words,), use=0)
    halves = xp.ascontiguousarray(words_drawn).view(xp.uint32)[..., skipped : skipped + count]
    return halves < xp.asarray(min(round(probability * 2**32), 2**32 - 1), dtype=xp.uint32)
