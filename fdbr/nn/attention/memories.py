"""Caches of decoder layers: keys and values of their own positions and of the memory."""

from typing import Any

from fdbr import ops
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.heads import heads_apart, heads_together
from fdbr.tree import frozen

__all__ = ["DecoderCache", "decoder_cache", "recalled"]


@public("fdbr.nn")
@frozen
class DecoderCache:
    """The cache of a `TransformerDecoderLayer`, for decoding position by position.

    Its ``cache`` method makes one.  The memory is projected to keys and values only once.

    Attributes
    ----------
    own
        The `KeyValueCache` of the positions so far.
    memory
        The `KeyValueCache` of the memory, which does not change.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.TransformerDecoderLayer.init(fdbr.random.key(0), 8, 2, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (1, 5, 8), "float32")
    >>> cache = layer.cache(x, 10)
    >>> first, cache = layer(x[:, :3], cache=cache)
    >>> rest, cache = layer(x[:, 3:], cache=cache)
    >>> bool(np.allclose(rest, layer(x, x, causal=True)[:, 3:], atol=1e-6))
    True
    """

    own: KeyValueCache
    memory: KeyValueCache


def decoder_cache(layer: Any, memory: Any, length: Any) -> DecoderCache:
    """Return an empty cache of a decoder layer with the memory's keys and values."""
    name = f"fdbr.nn.{type(layer).__name__}"
    positions = integer(f"{name}.cache", "length", length, least=1)
    attention = layer.multihead_attn
    weights, biases = _projections(attention)
    memory = ops.asarray(memory)
    if memory.ndim < 2 or memory.shape[-1] != weights[1].shape[1]:
        raise ValueError(
            placed(
                f"{name}.cache: memory must have shape (*batch, places, {weights[1].shape[1]}), "
                f"got {describe(memory)}"
            )
        )
    keys, values = (
        heads_apart(ops.linear(memory, weights[i], biases[i]), attention.num_heads) for i in (1, 2)
    )
    xp = array_module(keys)
    heads = layer.self_attn.num_heads
    shape = *memory.shape[:-2], heads, positions, weights[0].shape[0] // heads
    own, other = (lock(xp.zeros(shape, weights[0].dtype)) for _ in range(2))
    start, end = (lock(xp.asarray(n, dtype="int64")) for n in (0, memory.shape[-2]))
    return DecoderCache(KeyValueCache(own, other, start), KeyValueCache(keys, values, end))


def recalled(attention: Any, query: Any, memory: KeyValueCache, masks: Any) -> Any:
    """Attend from queries to the keys and values of a cached memory."""
    weights, biases = _projections(attention)
    q = ops.linear(query, weights[0], biases[0])
    masks = masks["mask"], masks["attn_mask"], masks["key_padding_mask"]
    mask = attention._mask(masks, (*q.shape[:-1], memory.keys.shape[-2]), 0)
    q = heads_apart(q, attention.num_heads)
    seen = ops.scaled_dot_product_attention(q, memory.keys, memory.values, mask)
    return attention.out_proj(heads_together(seen))


def _projections(attention: Any) -> tuple[list[Any], list[Any]]:
    """Return the weights and the biases of queries, keys and values."""
    width = attention.out_proj.weight.shape[0]
    thirds = [slice(i * width, (i + 1) * width) for i in range(3)]
    bias, weight = attention.in_proj_bias, attention.in_proj_weight
    biases = [None] * 3 if bias is None else [bias[part] for part in thirds]
    if weight is None:
        return [attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight], biases
    return [weight[part] for part in thirds], biases
