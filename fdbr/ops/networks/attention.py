"""Attention: weighted means of values, by how well keys fit queries."""

import math
from typing import Any

from fdbr.backend import Array, array_module
from fdbr.messages import describe
from fdbr.ops.creation import floating
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.networks.activation import softmax
from fdbr.ops.products import matmul
from fdbr.ops.shape import matrix_transpose

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    /,
    *,
    mask: Array = None,
    causal: bool = False,
    scale: float | None = None,
) -> Array:
    """``softmax(query @ key.T * scale) @ value``.

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
        Truth values that broadcast to ``(..., queries, keys)``: whether a query sees a key.
        Each query must see one at least.
    causal
        Whether a query sees no later keys: number ``i`` sees those up to ``i``.
    scale
        ``1 / sqrt(width)`` by default.

    Returns
    -------
    array
        Shape ``(..., queries, any)``.

    Raises
    ------
    ValueError
        If the shapes do not fit, or the mask has other values than truth values.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x = np.eye(2)
    >>> ops.scaled_dot_product_attention(x, x, x, causal=True)[0]
    array([1., 0.])
    """
    query, key, value = floating(query), floating(key), floating(value)
    one, two, three = query.shape, key.shape, value.shape
    if min(map(len, (one, two, three))) < 2 or one[-1] != two[-1] or two[-2] != three[-2]:
        raise ValueError(
            "fdbr.ops.scaled_dot_product_attention: query, key and value must have shapes "
            f"(…, queries, width), (…, keys, width) and (…, keys, any), not {describe(query)}, "
            f"{describe(key)} and {describe(value)}"
        )
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = matmul(query * factor, matrix_transpose(key))
    if mask is not None:
        if mask.dtype.kind != "b":
            raise ValueError(
                "fdbr.ops.scaled_dot_product_attention: mask must be truth values, not "
                f"{describe(mask)}; add other numbers to the scores by hand"
            )
        scores = where(mask, scores, -math.inf)
    if causal:
        xp = array_module(scores)
        queries, keys = scores.shape[-2:]
        future = xp.full((queries, keys), -math.inf, dtype=scores.dtype)
        scores = scores + xp.triu(future, 1)  # a fifth of the time of `where`
    return matmul(softmax(scores), value)
