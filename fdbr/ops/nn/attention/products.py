"""Attention: weighted means of values, by how well keys fit queries."""

import math
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, where_it_lies
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, integer, integers
from fdbr.ops.devices import beside
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.nn.attention.blocks import block_attention
from fdbr.ops.nn.attention.pieces import How
from fdbr.ops.nn.attention.weights import attention_weights, checked_mask, times_grouped
from fdbr.ops.nn.noise.dropout import dropout, proper_key, proper_rate
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import expand_dims, reshape
from fdbr.pytrees.typing import Array, ArrayLike, Key

__all__ = ["scaled_dot_product_attention"]

_SHORT, _LONG = 1 << 18, 1 << 22  # weights of one head, from which on blocks are made
_MANY = 1 << 25  # and those of all heads, for the smaller one of these
_NAME = "fdbr.ops.scaled_dot_product_attention"


@where_it_lies
def scaled_dot_product_attention(
    query: ArrayLike,
    key: Key,
    value: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    local_window_size: int | tuple[int, int] | None = None,
    dropout_p: float = 0.0,
    dropout_key: ArrayLike | None = None,
    block_size: int | None = None,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
) -> Array:
    """``softmax(query @ key.T * scale + mask) @ value``.

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
        What broadcasts to ``(..., queries, keys)``: truth values, whether a query sees a key, or
        numbers that are added to the scores, with -inf for a key that is not seen.  A query
        that sees no key gives zeros, and has no derivative.
    causal
        Whether a query sees no later keys: number ``i`` sees those up to ``i``.
    scale
        ``1 / sqrt(width)`` by default.
    enable_gqa
        Whether there may be fewer heads (axis -3) of keys and values than of queries, whose number
        theirs divides: head ``h`` of ``n`` times as many queries sees head ``h // n``.
    local_window_size
        How many keys before and after its own place a query sees; one number for both sides.
    dropout_p
        The rate at which weights are left out, each by itself, in [0, 1); the others are divided
        by ``1 - dropout_p``.
    dropout_key
        A key of `fdbr.random`, for a ``dropout_p`` above 0.
    block_size
        For how many queries and keys at a time weights are made.  By default for all where they
        are few, and for blocks of a good size where they are many: memory then grows with the
        numbers of queries and keys, not with their product, in the backward pass, too.
        (Forward derivatives, and those of a higher order, make all weights.)
    attn_mask, is_causal
        PyTorch's names of ``mask`` and ``causal``.

    Returns
    -------
    array
        Shape ``(..., queries, any)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a mask and PyTorch's name of it are both given.
    TypeError
        If the mask holds integers, or a ``dropout_p`` has no key.

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
            raise ValueError(f"{_NAME}: mask and attn_mask are one, give only one of them")
        mask = attn_mask
    shape = (*_leading(query, key, groups), query.shape[-2], key.shape[-2])
    if mask is not None:
        mask = checked_mask(_NAME, mask, shape)
    dropout_p = proper_rate(_NAME, dropout_p)
    if dropout_p:
        if dropout_key is None:
            raise TypeError(
                f"{_NAME}: dropout_p={dropout_p} needs a key of fdbr.random, give it as dropout_key"
            )
        dropout_key = beside(proper_key(_NAME, dropout_key), query)
    left, right = _sides(causal or is_causal, local_window_size)
    factor = float(1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale)
    if block_size is not None:
        block_size = integer(_NAME, "block_size", block_size, least=1)
    if _by_blocks(query, key, value, shape, block_size):
        how = How(factor, left, right, False, False, float(dropout_p), (), block_size)
        return _blockwise(query, key, value, mask, dropout_key, groups, how)
    weights, alive = attention_weights(
        query, key, mask, factor, left=left, right=right, groups=groups
    )
    if dropout_p:
        weights = dropout(weights, dropout_p, key=dropout_key)
    out = rounded_like(times_grouped(weights, value, groups), query, key, value)
    return out if alive is None else where(alive, out, 0)


def _by_blocks(query: Any, key: Any, value: Any, shape: Any, size: int | None) -> bool:
    """Whether weights are made for some queries and keys at a time."""
    dtypes = {query.dtype, key.dtype, value.dtype}
    if len(dtypes) > 1 or query.dtype.char not in "fd" or not math.prod((*shape, *value.shape)):
        return False
    each = shape[-2] * shape[-1]
    return size is not None or each >= _LONG or (each >= _SHORT and math.prod(shape) >= _MANY)


def _blockwise(
    query: Any, key: Any, value: Any, mask: Any, seed: Any, groups: int, how: How
) -> Any:
    if groups:  # an axis for the heads that share keys
        *lead, heads, rows, width = query.shape
        query = reshape(query, (*lead, heads // groups, groups, rows, width))
        key, value = expand_dims(key, axis=-3), expand_dims(value, axis=-3)
        if mask is not None and mask.ndim > 2:
            *lead, own, rows, columns = mask.shape
            pair = (1, 1) if own == 1 else (own // groups, groups)
            mask = reshape(mask, (*lead, *pair, rows, columns))
    sloped = mask is not None and mask.dtype.kind == "f" and isinstance(mask, Tracer)
    arrays = (query, key, value, *(() if mask is None else (mask,)))
    own = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    how = how._replace(masked=mask is not None, sloped=sloped, lead=own)
    xp = array_module(query)
    mask = xp.ones((1, 1), dtype=bool) if mask is None else mask
    seed = xp.zeros((1, 2), dtype="uint64") if not how.rate else reshape(seed, (1, 2))
    out, _ = block_attention(query, key, value, mask, seed, how=how)
    if not groups:
        return out
    *lead, heads, groups, rows, width = out.shape
    return reshape(out, (*lead, heads * groups, rows, width))


def _groups(query: Any, key: Any, value: Any, enable_gqa: bool) -> int:
    """The number of heads of queries that share a head of keys; 0 if heads are axes as others."""
    one, two, three = query.shape, key.shape, value.shape
    if min(map(len, (one, two, three))) < 2 or one[-1] != two[-1] or two[-2] != three[-2]:
        raise ValueError(
            f"{_NAME}: query, key and value must have shapes "
            f"(…, queries, width), (…, keys, width) and (…, keys, any), not {describe(query)}, "
            f"{describe(key)} and {describe(value)}"
        )
    if not enable_gqa:
        return 0
    if min(map(len, (one, two, three))) < 3 or two[-3] != three[-3] or one[-3] % (two[-3] or 1):
        raise ValueError(
            f"{_NAME}: with enable_gqa, axis -3 must be as many heads of keys as of values, whose "
            f"number divides that of the queries' heads, not {describe(query)}, {describe(key)} "
            f"and {describe(value)}"
        )
    return 0 if one[-3] == two[-3] else one[-3] // two[-3]


def _leading(query: Any, key: Any, groups: int) -> tuple[int, ...]:
    """The axes before those of queries and keys."""
    one, two = query.shape[:-2], key.shape[:-2]
    if groups:
        two = (*two[:-1], one[-1])
    try:
        return np.broadcast_shapes(one, two)
    except ValueError:
        raise ValueError(
            f"{_NAME}: the axes before the last two must broadcast, not those of "
            f"{describe(query)} and {describe(key)}; for fewer heads of keys than of queries, "
            "give enable_gqa=True"
        ) from None


def _sides(causal: Any, window: Any) -> tuple[int | None, int | None]:
    """The numbers of keys that are seen on the left and on the right; `None` for all of them."""
    if window is None:
        return None, 0 if causal else None
    sides = integers(_NAME, "local_window_size", window)
    left, right = sides if isinstance(sides, tuple) and len(sides) == 2 else (sides, sides)
    name = "local_window_size"
    left, right = (integer(_NAME, name, side, least=0) for side in (left, right))
    return left, 0 if causal else right
