"""Attention block by block: in memory that grows with the length of a sequence, not its square.

Weights are made for some queries and some keys at a time, with a running maximum and sum, and
again in the backward pass, from the logarithms of the sums: Dao et al., *FlashAttention*, NeurIPS
2022; Rabe & Staats, *Self-attention does not need O(n²) memory*, 2021.  Derivatives of a higher
order, and forward ones, are those of the whole product.
"""

from collections.abc import Callable
from typing import Any

from fdbr.ops.declare import constant, fit, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.activations.exponentials import exp_in_place
from fdbr.ops.nn.attention.pieces import Blocks, How
from fdbr.ops.nn.attention.weights import attention_weights
from fdbr.ops.products import matmul
from fdbr.ops.shape.manipulation import matrix_transpose, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["block_attention"]

# --- rules --------------------------------------------------------------------------


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """All operands with all axes, and repeated along the batch: each has a slope of its own."""
    rank = max(value.ndim - flag for value, flag in zip(values, batched, strict=True))
    whole = []
    for value, flag in zip(values, batched, strict=True):
        shape = value.shape[flag:]
        shape = value.shape[:flag] + (1,) * (rank - len(shape)) + shape
        whole.append(spread(reshape(value, shape), flag, size))
    return apply(*whole, **params)


def _slopes_of(
    ct: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, out: Any, how: How
) -> Any:
    out, logs = out
    if ct[0] is None:
        ct = (out * 0, None)
    return _block_slopes(query, key, value, mask, seed, ct[0], out, logs, how=how)


def _pushed(name: str) -> Callable[..., Any]:
    """The forward rule of an operand: of the whole product."""

    def push(t: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, how: How) -> Any:
        return _Whole(query, key, value, mask, seed, how).tangent(**{name: t}), None

    return push


def _slope(place: int) -> Callable[..., Any]:
    return lambda slopes, like: fit(slopes[place], like)


@opaque(
    first=_slopes_of,
    query=(_slope(0), _pushed("query")),
    key=(_slope(1), _pushed("key")),
    value=(_slope(2), _pushed("value")),
    mask=(_slope(3), _pushed("mask")),
    batch=_batch,
    fresh=True,
    total=True,
)
def block_attention(
    xp: Any,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike,
    seed: ArrayLike,
    *,
    how: How,
) -> Any:
    """The means of the values, and the logarithms of the sums of their weights.

    Operands have two axes of their own, before which the others broadcast: ``(queries, width)``,
    ``(keys, width)``, ``(keys, any)``, ``(queries or 1, keys or 1)`` and ``(1, 2)``.
    """
    blocks = Blocks(xp, query, key, value, mask, seed, how)
    out = xp.empty((*blocks.lead, query.shape[-2], value.shape[-1]), dtype=query.dtype)
    logs = xp.empty((*out.shape[:-1], 1), dtype=query.dtype)
    for place in blocks.places():
        for rows in blocks.rows():
            out[place][..., rows, :], logs[place][..., rows, :] = blocks.seen(place, rows)
    return out, logs


# --- and back -----------------------------------------------------------------------


def _slopes_pull(
    ct: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    slope: Any,
    how: How,
) -> Any:
    return _Whole(query, key, value, mask, seed, how).second(slope, *ct)


def _slopes_push(name: str) -> Callable[..., Any]:
    def push(
        t: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        seed: Any,
        slope: Any,
        out: Any,
        how: How,
    ) -> Any:
        moved = _Whole(query, key, value, mask, seed, how).slopes_moved(slope, **{name: t})
        pairs = zip(moved, out, strict=True)
        return tuple(None if m is None else fit(m, (x.shape, x.dtype)) for m, x in pairs)

    return push


@opaque(
    first=_slopes_pull,
    query=(_slope(0), _slopes_push("query")),
    key=(_slope(1), _slopes_push("key")),
    value=(_slope(2), _slopes_push("value")),
    mask=(_slope(3), _slopes_push("mask")),
    slope=(_slope(4), _slopes_push("slope")),
    batch=_batch,
    fresh=True,
    total=True,
)
def _block_slopes(
    xp: Any,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike,
    seed: ArrayLike,
    slope: ArrayLike,
    out: ArrayLike,
    logs: ArrayLike,
    *,
    how: How,
) -> Any:
    """The gradients by query, key, value and mask, where ``slope`` is that by the result."""
    blocks = Blocks(xp, query, key, value, mask, seed, how)
    operands = (query, key, value, *((mask,) if how.sloped else ()))
    slopes = [xp.zeros(x.shape, dtype=x.dtype) for x in operands]
    for place in blocks.places():
        for rows in blocks.rows():
            _add_slopes(blocks, place, rows, (slope, out, logs), slopes)
    return (*slopes, *(() if how.sloped else (xp.zeros(mask.shape, dtype=query.dtype),)))


def _add_slopes(blocks: Blocks, place: Any, rows: slice, known: Any, slopes: Any) -> None:
    """Add what the queries of a block give."""
    xp, how = blocks.xp, blocks.how
    slope, out, logs = (blocks.at(x, place)[..., rows, :] for x in known)
    query = blocks.at(blocks.query, place)[..., rows, :] * how.scale
    key, value = blocks.at(blocks.key, place), blocks.at(blocks.value, place)
    by_query, by_key, by_value, *by_mask = (blocks.at(x, place) for x in slopes)
    mean = (slope * out).sum(axis=-1, keepdims=True)
    keep = blocks.keep(place, rows)
    for columns in blocks.columns(rows):
        weights = blocks.scores(query, place, rows, columns)
        weights -= logs
        weights = exp_in_place(xp, weights)
        moved = slope @ value[..., columns, :].swapaxes(-1, -2)
        kept = weights
        if keep is not None:
            moved *= keep
            kept = weights * keep
        _add(by_value[..., columns, :], kept.swapaxes(-1, -2) @ slope)
        moved -= mean
        moved *= weights
        _add(by_key[..., columns, :], moved.swapaxes(-1, -2) @ query)
        _add(by_query[..., rows, :], (moved @ key[..., columns, :]) * how.scale)
        if by_mask:
            _add(blocks.part_of(by_mask[0], rows, columns), moved)


def _add(into: Any, term: Any) -> None:
    """Add to an array in its place, and add up where it has fewer axes, or of length 1."""
    if into.shape != term.shape:
        term = term.sum(axis=tuple(range(term.ndim - into.ndim)))
        axes = tuple(i for i, n in enumerate(into.shape) if n != term.shape[i])
        term = term.sum(axis=axes, keepdims=True)
    into += term


# --- all at once, for derivatives of derivatives --------------------------------------


@constant(batch=_batch)
def _kept_weights(xp: Any, seed: ArrayLike, like: ArrayLike, *, how: How) -> Array:
    """The factors by which dropout multiplies all weights, which are like ``like``."""
    blocks = Blocks(xp, like, like.mT, like, like, seed, how)
    out = xp.empty((*blocks.lead, *like.shape[-2:]), dtype=like.dtype)
    blocks.height = blocks.queries
    for place in blocks.places():
        out[place] = blocks.keep(place, slice(0, blocks.queries))
    return out


class _Whole:
    """The weights of all queries and keys, and the derivatives that are made of them."""

    def __init__(self, query: Any, key: Any, value: Any, mask: Any, seed: Any, how: How) -> None:
        self.query, self.key, self.value, self.how = query, key, value, how
        own = mask if how.masked else None
        weights, alive = attention_weights(
            query, key, own, how.scale, left=how.left, right=how.right
        )
        self.weights = weights if alive is None else where(alive, weights, 0)
        self.keep = None
        if how.rate:
            self.keep = _kept_weights(seed, self.weights, how=how)

    def kept(self, x: Any) -> Any:
        return x if self.keep is None else x * self.keep

    def centred(self, x: Any) -> Any:
        """The change of the weights where their scores change by ``x``."""
        return self.weights * (x - (self.weights * x).sum(axis=-1, keepdims=True))

    def moved_scores(self, query: Any, key: Any, mask: Any) -> Any:
        """The change of the scores with queries, keys and a mask; `None` if not at all."""
        terms = []
        if query is not None:
            terms.append(matmul(query, matrix_transpose(self.key)) * self.how.scale)
        if key is not None:
            terms.append(matmul(self.query, matrix_transpose(key)) * self.how.scale)
        if mask is not None and self.how.sloped:
            terms.append(mask)
        return sum(terms[1:], terms[0]) if terms else None

    def tangent(
        self, query: Any = None, key: Any = None, value: Any = None, mask: Any = None
    ) -> Any:
        """The change of the result with the operands."""
        moved, terms = self.moved_scores(query, key, mask), []
        if moved is not None:
            terms.append(matmul(self.kept(self.centred(moved)), self.value))
        if value is not None:
            terms.append(matmul(self.kept(self.weights), value))
        return sum(terms[1:], terms[0])

    def pulled_scores(self, slope: Any) -> Any:
        """The gradient by the weights, of one by the result."""
        return self.kept(matmul(slope, matrix_transpose(self.value)))

    def slopes_moved(self, slope: Any, /, **tangents: Any) -> Any:
        """The change of the gradients with the operands, and with the gradient by the result."""
        query, key, value, mask, more = map(
            tangents.get, ("query", "key", "value", "mask", "slope")
        )
        scale, by_weights = self.how.scale, self.pulled_scores(slope)
        by_scores, change, by_value = self.centred(by_weights), 0, None
        moved = self.moved_scores(query, key, mask)
        other = None
        if value is not None:
            other = self.kept(matmul(slope, matrix_transpose(value)))
        if more is not None:
            other = self.pulled_scores(more)
            by_value = matmul(matrix_transpose(self.kept(self.weights)), more)
        if other is not None:
            change = self.centred(other)
        if moved is not None:
            weights = self.centred(moved)
            mean = (self.weights * by_weights).sum(axis=-1, keepdims=True)
            turned = (weights * by_weights).sum(axis=-1, keepdims=True)
            change = change + weights * (by_weights - mean) - self.weights * turned
            by_value = matmul(matrix_transpose(self.kept(weights)), slope)
        by_query = matmul(change, self.key)
        by_key = matmul(matrix_transpose(change), self.query)
        if key is not None:
            by_query = by_query + matmul(by_scores, key)
        if query is not None:
            by_key = by_key + matmul(matrix_transpose(by_scores), query)
        return by_query * scale, by_key * scale, by_value, change if self.how.sloped else None

    def second(self, slope: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """The gradients of the product of the gradients with cotangents of theirs.

        That product is the one of ``slope`` with how the result changes along the cotangents.
        """
        scale, by_weights = self.how.scale, self.pulled_scores(slope)
        moved = self.moved_scores(query, key, mask)
        along = self.tangent(query, key, value, mask)
        by_weight, by_value, by_scores = 0, None, None
        if value is not None:
            by_weight = self.kept(matmul(slope, matrix_transpose(value)))
        if moved is not None:
            mean = (self.weights * by_weights).sum(axis=-1, keepdims=True)
            away = moved - (self.weights * moved).sum(axis=-1, keepdims=True)
            by_weight = by_weight + by_weights * away - mean * moved
            by_scores = self.centred(by_weights)
            by_value = matmul(matrix_transpose(self.kept(self.centred(moved))), slope)
        else:
            by_value = self.value * 0
        change = self.centred(by_weight)
        by_query = matmul(change, self.key)
        by_key = matmul(matrix_transpose(change), self.query)
        if key is not None:
            by_query = by_query + matmul(by_scores, key)
        if query is not None:
            by_key = by_key + matmul(matrix_transpose(by_scores), query)
        return by_query * scale, by_key * scale, by_value, change, along
