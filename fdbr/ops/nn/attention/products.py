"""Scaled dot-product attention."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import Array, array_module, where_it_lies
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, integer, integers
from fdbr.errors.public import public
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.attention.blocks import block_attention
from fdbr.ops.nn.attention.pieces import Settings
from fdbr.ops.nn.attention.weights import attention_weights, checked_mask, grouped_matmul
from fdbr.ops.nn.noise.dropout import check_key, check_rate, dropout
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import expand_dims, reshape

__all__ = ["scaled_dot_product_attention"]

# Attention is computed by blocks if one head has `_LONG` weights, or if it has `_SHORT` and all
# heads together have `_MANY`: fewer weights are faster all at once.
_SHORT, _LONG = 1 << 18, 1 << 22
_MANY = 1 << 25
_NAME = "fdbr.ops.scaled_dot_product_attention"


@public("fdbr.ops")
@where_it_lies
def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    mask: Array = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    local_window_size: int | tuple[int, int] | None = None,
    dropout_p: float = 0.0,
    dropout_key: Any = None,
    block_size: int | None = None,
    attn_mask: Array = None,
    is_causal: bool = False,
) -> Array:
    """Scaled dot-product attention, ``softmax(query @ key.T * scale + mask) @ value``.

    Vaswani et al., *Attention is all you need*, NIPS 2017.

    Parameters
    ----------
    query
        Shape ``(..., queries, width)``.
    key
        Shape ``(..., keys, width)``.
    value
        Shape ``(..., keys, any)``; the leading axes of all three broadcast.
    mask
        An array that broadcasts to ``(..., queries, keys)``: booleans, whether a query attends to
        a key; or numbers that are added to the scores, -inf for a masked key.  A query that
        attends to no key gives zeros with derivative 0.
    causal
        Whether query ``i`` attends only to keys up to ``i``.
    scale
        ``1 / sqrt(width)`` by default.
    enable_gqa
        Whether keys and values may have fewer heads (axis -3) than queries, by an integer factor
        ``n`` (grouped-query attention): query head ``h`` attends to head ``h // n``.
    local_window_size
        The number of keys before and after its own position that a query attends to; a pair, or
        one number for both sides.
    dropout_p
        The probability in [0, 1) of dropping each weight; the others are divided by
        ``1 - dropout_p``.
    dropout_key
        A key of `fdbr.random`, required if ``dropout_p`` is above 0.
    block_size
        The number of queries and keys for which weights are computed at a time.  By default all
        at once if they are few, otherwise in blocks: memory then is linear in the numbers of
        queries and keys, in the backward pass too.  (Forward and higher derivatives compute all
        weights.)
    attn_mask, is_causal
        PyTorch's names for ``mask`` and ``causal``.

    Returns
    -------
    array
        Shape ``(..., queries, any)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or both ``mask`` and ``attn_mask`` are given.
    TypeError
        If the mask has integers, or ``dropout_p`` has no key.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.eye(2)
    >>> ops.scaled_dot_product_attention(x, x, x, causal=True)[0]
    array([1., 0.])
    >>> ops.scaled_dot_product_attention(x, x, x, np.zeros((2, 2), bool))[0]
    array([0., 0.])
    """
    query, key, value = floating(query), floating(key), floating(value)
    groups = _groups(query, key, value, enable_gqa)
    if attn_mask is not None:
        if mask is not None:
            raise ValueError(f"{_NAME}: mask and attn_mask are one argument; give only one of them")
        mask = attn_mask
    shape = (*_leading(query, key, groups), query.shape[-2], key.shape[-2])
    if mask is not None:
        mask = checked_mask(_NAME, mask, shape)
    dropout_p = check_rate(_NAME, dropout_p)
    if dropout_p:
        if dropout_key is None:
            raise TypeError(
                f"{_NAME}: dropout_p={dropout_p} needs a key of fdbr.random, give it as dropout_key"
            )
        dropout_key = beside(check_key(_NAME, dropout_key), query)
    left, right = _sides(causal or is_causal, local_window_size)
    factor = float(1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale)
    if block_size is not None:
        block_size = integer(_NAME, "block_size", block_size, least=1)
    if _uses_blocks(query, key, value, shape, block_size):
        settings = Settings(factor, left, right, False, False, float(dropout_p), (), block_size)
        return _blockwise(query, key, value, mask, dropout_key, groups, settings)
    weights, alive = attention_weights(
        query, key, mask, factor, left=left, right=right, groups=groups
    )
    if dropout_p:
        weights = dropout(weights, dropout_p, key=dropout_key)
    out = rounded_like(grouped_matmul(weights, value, groups), query, key, value)
    return out if alive is None else where(alive, out, 0)


def _uses_blocks(query: Any, key: Any, value: Any, shape: Any, size: int | None) -> bool:
    """Whether weights are computed for some queries and keys at a time."""
    dtypes = {query.dtype, key.dtype, value.dtype}
    if len(dtypes) > 1 or query.dtype.char not in "fd" or not math.prod((*shape, *value.shape)):
        return False
    each = shape[-2] * shape[-1]
    return size is not None or each >= _LONG or (each >= _SHORT and math.prod(shape) >= _MANY)


def _blockwise(
    query: Any, key: Any, value: Any, mask: Any, seed: Any, groups: int, settings: Settings
) -> Any:
    if groups:  # insert an axis for the query heads that share keys
        *lead, heads, rows, width = query.shape
        query = reshape(query, (*lead, heads // groups, groups, rows, width))
        key, value = expand_dims(key, axis=-3), expand_dims(value, axis=-3)
        if mask is not None and mask.ndim > 2:
            *lead, lead_shape, rows, columns = mask.shape
            pair = (1, 1) if lead_shape == 1 else (lead_shape // groups, groups)
            mask = reshape(mask, (*lead, *pair, rows, columns))
    mask_is_differentiated = (
        mask is not None and mask.dtype.kind == "f" and isinstance(mask, Tracer)
    )
    arrays = (query, key, value, *(() if mask is None else (mask,)))
    lead_shape = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    settings = settings._replace(
        has_mask=mask is not None, mask_is_differentiated=mask_is_differentiated, lead=lead_shape
    )
    xp = array_module(query)
    mask = xp.ones((1, 1), dtype=bool) if mask is None else mask
    seed = xp.zeros((1, 2), dtype="uint64") if not settings.rate else reshape(seed, (1, 2))
    out, _ = block_attention(query, key, value, mask, seed, settings=settings)
    if not groups:
        return out
    *lead, heads, groups, rows, width = out.shape
    return reshape(out, (*lead, heads * groups, rows, width))


def _groups(query: Any, key: Any, value: Any, enable_gqa: bool) -> int:
    """Return the number of query heads that share a key head; 0 without grouping."""
    query_shape, key_shape, value_shape = query.shape, key.shape, value.shape
    if (
        min(map(len, (query_shape, key_shape, value_shape))) < 2
        or query_shape[-1] != key_shape[-1]
        or key_shape[-2] != value_shape[-2]
    ):
        raise ValueError(
            f"{_NAME}: query, key and value must have shapes "
            f"(…, queries, width), (…, keys, width) and (…, keys, any), not {describe(query)}, "
            f"{describe(key)} and {describe(value)}"
        )
    if not enable_gqa:
        return 0
    if (
        min(map(len, (query_shape, key_shape, value_shape))) < 3
        or key_shape[-3] != value_shape[-3]
        or query_shape[-3] % (key_shape[-3] or 1)
    ):
        raise ValueError(
            f"{_NAME}: with enable_gqa, axis -3 must be as many heads of keys as of values, whose "
            f"number divides that of the queries' heads, not {describe(query)}, {describe(key)} "
            f"and {describe(value)}"
        )
    return 0 if query_shape[-3] == key_shape[-3] else query_shape[-3] // key_shape[-3]


def _leading(query: Any, key: Any, groups: int) -> tuple[int, ...]:
    """Broadcast the axes before those of queries and keys."""
    query_shape, key_shape = query.shape[:-2], key.shape[:-2]
    if groups:
        key_shape = (*key_shape[:-1], query_shape[-1])
    try:
        return np.broadcast_shapes(query_shape, key_shape)
    except ValueError:
        raise ValueError(
            f"{_NAME}: the axes before the last two must broadcast, not those of "
            f"{describe(query)} and {describe(key)}; for fewer heads of keys than of queries, "
            "give enable_gqa=True"
        ) from None


def _sides(causal: Any, window: Any) -> tuple[int | None, int | None]:
    """Return the numbers of keys attended to before and after a query; `None` for all."""
    if window is None:
        return None, 0 if causal else None
    sides = integers(_NAME, "local_window_size", window)
    left, right = sides if isinstance(sides, tuple) and len(sides) == 2 else (sides, sides)
    name = "local_window_size"
    left, right = (integer(_NAME, name, side, least=0) for side in (left, right))
    return left, 0 if causal else right
