"""Attention block by block, in memory linear in the sequence length instead of quadratic.

Weights are computed for some queries and some keys at a time, with a running maximum and sum, and
recomputed in the backward pass from the logarithms of the sums: Dao et al., *FlashAttention*,
NeurIPS 2022; Rabe & Staats, *Self-attention does not need O(n²) memory*, 2021.  Forward and higher
derivatives compute all weights at once.
"""

from collections.abc import Callable
from typing import Any

from fdbr.ops.declare import constant, fit, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.rows import exp_over
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.attention.pieces import Blocks, Settings
from fdbr.ops.nn.attention.weights import attention_weights
from fdbr.ops.products import matmul
from fdbr.ops.shape.manipulation import matrix_transpose, reshape
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["block_attention"]

# --- rules --------------------------------------------------------------------------


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Broadcast all operands to all axes and the batch, as each example has its own cotangents."""
    rank = max(value.ndim - flag for value, flag in zip(values, batched, strict=True))
    operands = []
    for value, flag in zip(values, batched, strict=True):
        shape = value.shape[flag:]
        shape = value.shape[:flag] + (1,) * (rank - len(shape)) + shape
        operands.append(spread(reshape(value, shape), flag, size))
    return apply(*operands, **params)


def _first_vjp(
    ct: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, out: Any, settings: Settings
) -> Any:
    out, logs = out
    if ct[0] is None:
        ct = (out * 0, None)
    return _block_attention_vjp(query, key, value, mask, seed, ct[0], out, logs, settings=settings)


def _jvp_of(name: str) -> Callable[..., Any]:
    """Make the jvp rule of an operand, which computes all weights at once."""

    def jvp(
        t: Any, query: Any, key: Any, value: Any, mask: Any, seed: Any, settings: Settings
    ) -> Any:
        return _FullAttention(query, key, value, mask, seed, settings).result_jvp(**{name: t}), None

    return jvp


def _cotangent(index: int) -> Callable[..., Any]:
    return lambda cotangents, like: fit(cotangents[index], like)


@opaque(
    first=_first_vjp,
    query=(_cotangent(0), _jvp_of("query")),
    key=(_cotangent(1), _jvp_of("key")),
    value=(_cotangent(2), _jvp_of("value")),
    mask=(_cotangent(3), _jvp_of("mask")),
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
    settings: Settings,
) -> Any:
    """Compute attention, and the logarithms of the sums of weights.

    The last two axes of the operands are ``(queries, width)``, ``(keys, width)``, ``(keys, any)``,
    ``(queries or 1, keys or 1)`` and ``(1, 2)``; all axes before them broadcast.
    """
    blocks = Blocks(xp, query, key, value, mask, seed, settings)
    out = xp.empty((*blocks.lead, query.shape[-2], value.shape[-1]), dtype=query.dtype)
    logs = xp.empty((*out.shape[:-1], 1), dtype=query.dtype)
    for index in blocks.batch_indices():
        for rows in blocks.rows():
            out[index][..., rows, :], logs[index][..., rows, :] = blocks.attend(index, rows)
    return out, logs


# --- the backward pass ----------------------------------------------------------------


def _vjp_first_vjp(
    ct: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    out_ct: Any,
    settings: Settings,
) -> Any:
    return _FullAttention(query, key, value, mask, seed, settings).vjp_vjp(out_ct, *ct)


def _vjp_jvp_of(name: str) -> Callable[..., Any]:
    def jvp(
        t: Any,
        query: Any,
        key: Any,
        value: Any,
        mask: Any,
        seed: Any,
        out_ct: Any,
        out: Any,
        settings: Settings,
    ) -> Any:
        full = _FullAttention(query, key, value, mask, seed, settings)
        pairs = zip(full.vjp_jvp(out_ct, **{name: t}), out, strict=True)
        return tuple(None if m is None else fit(m, (x.shape, x.dtype)) for m, x in pairs)

    return jvp


@opaque(
    first=_vjp_first_vjp,
    query=(_cotangent(0), _vjp_jvp_of("query")),
    key=(_cotangent(1), _vjp_jvp_of("key")),
    value=(_cotangent(2), _vjp_jvp_of("value")),
    mask=(_cotangent(3), _vjp_jvp_of("mask")),
    out_ct=(_cotangent(4), _vjp_jvp_of("out_ct")),
    batch=_batch,
    fresh=True,
    total=True,
)
def _block_attention_vjp(
    xp: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    out_ct: Any,
    out: Any,
    logs: Any,
    *,
    settings: Settings,
) -> Any:
    """Compute the cotangents of query, key, value and mask, where ``out_ct`` is the result's."""
    blocks = Blocks(xp, query, key, value, mask, seed, settings)
    operands = (query, key, value, *((mask,) if settings.mask_is_differentiated else ()))
    cotangents = [xp.zeros(x.shape, dtype=x.dtype) for x in operands]
    for index in blocks.batch_indices():
        for rows in blocks.rows():
            _add_cotangents(blocks, index, rows, (out_ct, out, logs), cotangents)
    return (
        *cotangents,
        *(() if settings.mask_is_differentiated else (xp.zeros(mask.shape, dtype=query.dtype),)),
    )


def _add_cotangents(
    blocks: Blocks, index: Any, rows: slice, per_query: Any, cotangents: Any
) -> None:
    """Add the cotangents from the queries of a block."""
    settings = blocks.settings
    ct, out, logs = (blocks.select(x, index)[..., rows, :] for x in per_query)
    query = blocks.select(blocks.query, index)[..., rows, :] * settings.scale
    key, value = blocks.select(blocks.key, index), blocks.select(blocks.value, index)
    ct_query, ct_key, ct_value, *ct_mask = (blocks.select(x, index) for x in cotangents)
    mean = (ct * out).sum(axis=-1, keepdims=True)
    dropout_factors = blocks.dropout_factors(index, rows)
    for columns in blocks.columns(rows):
        weights = blocks.scores(query, index, rows, columns)
        weights -= logs
        weights = exp_over(weights)
        d_scores = ct @ value[..., columns, :].swapaxes(-1, -2)
        with_dropout = weights
        if dropout_factors is not None:
            d_scores *= dropout_factors
            with_dropout = weights * dropout_factors
        _add(ct_value[..., columns, :], with_dropout.swapaxes(-1, -2) @ ct)
        d_scores -= mean
        d_scores *= weights
        _add(ct_key[..., columns, :], d_scores.swapaxes(-1, -2) @ query)
        _add(ct_query[..., rows, :], (d_scores @ key[..., columns, :]) * settings.scale)
        if ct_mask:
            _add(blocks.mask_block(ct_mask[0], rows, columns), d_scores)


def _add(target: Any, term: Any) -> None:
    """Add to an array in place, after summing over axes that it lacks or that have length 1."""
    if target.shape != term.shape:
        term = term.sum(axis=tuple(range(term.ndim - target.ndim)))
        axes = tuple(i for i, n in enumerate(target.shape) if n != term.shape[i])
        term = term.sum(axis=axes, keepdims=True)
    target += term


# --- all weights at once, for forward and higher derivatives --------------------------


@constant(batch=_batch)
def _kept_weights(xp: Any, seed: ArrayLike, like: ArrayLike, *, settings: Settings) -> Array:
    """Compute the dropout factors of all weights, whose shape is that of ``like``."""
    blocks = Blocks(xp, like, like.mT, like, like, seed, settings)
    out = xp.empty((*blocks.lead, *like.shape[-2:]), dtype=like.dtype)
    blocks.height = blocks.queries
    for index in blocks.batch_indices():
        out[index] = blocks.dropout_factors(index, slice(0, blocks.queries))
    return out


class _FullAttention:
    """The weights of all queries and keys, and the derivatives computed from them.

    A method ``…_jvp`` maps tangents of its operands, ``…_vjp`` cotangents of its result.
    """

    def __init__(
        self, query: Any, key: Any, value: Any, mask: Any, seed: Any, settings: Settings
    ) -> None:
        self.query, self.key, self.value, self.settings = query, key, value, settings
        used_mask = mask if settings.has_mask else None
        weights, alive = attention_weights(
            query, key, used_mask, settings.scale, left=settings.left, right=settings.right
        )
        self.weights = weights if alive is None else where(alive, weights, 0)
        self.dropout_factors = None
        if settings.rate:
            self.dropout_factors = _kept_weights(seed, self.weights, settings=settings)

    def with_dropout(self, x: Any) -> Any:
        return x if self.dropout_factors is None else x * self.dropout_factors

    def softmax_jvp(self, x: Any) -> Any:
        """Compute the tangent of the weights for the tangent ``x`` of the scores."""
        return self.weights * (x - (self.weights * x).sum(axis=-1, keepdims=True))

    def scores_jvp(self, query: Any, key: Any, mask: Any) -> Any:
        """Compute the tangent of the scores for those of query, key and mask; `None` if zero."""
        terms = []
        if query is not None:
            terms.append(matmul(query, matrix_transpose(self.key)) * self.settings.scale)
        if key is not None:
            terms.append(matmul(self.query, matrix_transpose(key)) * self.settings.scale)
        if mask is not None and self.settings.mask_is_differentiated:
            terms.append(mask)
        return sum(terms[1:], terms[0]) if terms else None

    def result_jvp(
        self, query: Any = None, key: Any = None, value: Any = None, mask: Any = None
    ) -> Any:
        """Compute the tangent of the result for tangents of the operands."""
        d_scores, terms = self.scores_jvp(query, key, mask), []
        if d_scores is not None:
            terms.append(matmul(self.with_dropout(self.softmax_jvp(d_scores)), self.value))
        if value is not None:
            terms.append(matmul(self.with_dropout(self.weights), value))
        return sum(terms[1:], terms[0])

    def weights_vjp(self, ct: Any) -> Any:
        """Compute the cotangent of the weights from that of the result."""
        return self.with_dropout(matmul(ct, matrix_transpose(self.value)))

    def vjp_jvp(self, ct: Any, /, **tangents: Any) -> Any:
        """Compute the tangents of the cotangents, for tangents of the operands and of ``ct``."""
        query, key, value, mask, d_ct = map(
            tangents.get, ("query", "key", "value", "mask", "out_ct")
        )
        scale, ct_weights = self.settings.scale, self.weights_vjp(ct)
        ct_scores, change, ct_value = self.softmax_jvp(ct_weights), 0, None
        d_scores = self.scores_jvp(query, key, mask)
        other = None
        if value is not None:
            other = self.with_dropout(matmul(ct, matrix_transpose(value)))
        if d_ct is not None:
            other = self.weights_vjp(d_ct)
            ct_value = matmul(matrix_transpose(self.with_dropout(self.weights)), d_ct)
        if other is not None:
            change = self.softmax_jvp(other)
        if d_scores is not None:
            weights = self.softmax_jvp(d_scores)
            mean = (self.weights * ct_weights).sum(axis=-1, keepdims=True)
            d_mean = (weights * ct_weights).sum(axis=-1, keepdims=True)
            change = change + weights * (ct_weights - mean) - self.weights * d_mean
            ct_value = matmul(matrix_transpose(self.with_dropout(weights)), ct)
        ct_query = matmul(change, self.key)
        ct_key = matmul(matrix_transpose(change), self.query)
        if key is not None:
            ct_query = ct_query + matmul(ct_scores, key)
        if query is not None:
            ct_key = ct_key + matmul(matrix_transpose(ct_scores), query)
        return (
            ct_query * scale,
            ct_key * scale,
            ct_value,
            change if self.settings.mask_is_differentiated else None,
        )

    def vjp_vjp(self, ct: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """Compute the vjp of the backward pass for cotangents of its results.

        The inner product of the backward pass with these cotangents is that of ``ct`` with the
        jvp of attention along them.
        """
        scale, ct_weights = self.settings.scale, self.weights_vjp(ct)
        d_scores = self.scores_jvp(query, key, mask)
        d_out = self.result_jvp(query, key, value, mask)
        ct_scores: Any = None
        d_weights, ct_value = 0, None
        if value is not None:
            d_weights = self.with_dropout(matmul(ct, matrix_transpose(value)))
        if d_scores is not None:
            mean = (self.weights * ct_weights).sum(axis=-1, keepdims=True)
            centered = d_scores - (self.weights * d_scores).sum(axis=-1, keepdims=True)
            d_weights = d_weights + ct_weights * centered - mean * d_scores
            ct_scores = self.softmax_jvp(ct_weights)
            ct_value = matmul(matrix_transpose(self.with_dropout(self.softmax_jvp(d_scores))), ct)
        else:
            ct_value = self.value * 0
        change = self.softmax_jvp(d_weights)
        ct_query = matmul(change, self.key)
        ct_key = matmul(matrix_transpose(change), self.query)
        if key is not None:
            ct_query = ct_query + matmul(ct_scores, key)
        if query is not None:
            ct_key = ct_key + matmul(matrix_transpose(ct_scores), query)
        return ct_query * scale, ct_key * scale, ct_value, change, d_out
