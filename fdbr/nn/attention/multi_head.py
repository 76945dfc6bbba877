"""Multi-head attention."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.heads import checked_heads, heads_apart, heads_together
from fdbr.nn.dropout import needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.ops.dtypes import rounded_like
from fdbr.ops.nn.attention.weights import attention_weights, combine_masks
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import frozen, static

__all__ = ["MultiHeadAttention"]


@public("fdbr.nn")
@frozen
class MultiHeadAttention(Layer):
    """Multi-head attention.

    Vaswani et al., *Attention is all you need*, NIPS 2017: queries, keys and values are projected,
    each head attends with its part of them, and the heads' outputs are joined and projected.
    Weights have the names and the layout of ``torch.nn.MultiheadAttention``; inputs are of shape
    ``(..., length, features)``, as there with ``batch_first=True``.

    Attributes
    ----------
    in_proj_weight
        Shape ``(3 * embed_dim, embed_dim)``, of queries, keys and values one below the other; or
        `None` if keys or values have other widths.
    q_proj_weight, k_proj_weight, v_proj_weight
        Shapes ``(embed_dim, embed_dim)``, ``(embed_dim, kdim)`` and ``(embed_dim, vdim)``, where
        there is no ``in_proj_weight``.
    in_proj_bias
        Shape ``(3 * embed_dim,)``, or `None`.
    bias_k, bias_v
        A key and a value that are appended to the others, shape ``(1, 1, embed_dim)``, or `None`.
    out_proj
        The projection of the heads' outputs.
    num_heads
        How many heads there are.
    dropout
        The dropout rate of attention weights in training.
    add_zero_attn
        Whether a key and a value of zeros are appended to the others.

    >>> import fdbr
    >>> layer = fdbr.nn.MultiHeadAttention.init(fdbr.random.key(0), 8, 2)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (5, 3, 8), "float32")
    >>> layer(x, causal=True).shape
    (5, 3, 8)
    """

    in_proj_weight: Any
    q_proj_weight: Any
    k_proj_weight: Any
    v_proj_weight: Any
    in_proj_bias: Any
    bias_k: Any
    bias_v: Any
    out_proj: Linear
    num_heads: int = static()
    dropout: float = static(default=0.0)
    add_zero_attn: bool = static(default=False)

    @classmethod
    def init(
        cls,
        key: Any,
        embed_dim: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        weight_init: initializers.Initializer | None = None,
        bias_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        embed_dim
            The width of queries and of the output.
        num_heads
            How many heads there are; it divides ``embed_dim``.
        dropout
            The dropout rate of attention weights in training, in [0, 1).
        bias
            Whether the projections have biases.
        add_bias_kv, add_zero_attn
            Whether a trained key and value, and a key and value of zeros, are appended to the
            others.
        kdim, vdim
            The widths of keys and values; ``embed_dim`` by default.
        weight_init, bias_init
            ``init(key, shape, dtype)``; by default Glorot's uniform distribution, and zeros.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, ``num_heads`` does not divide ``embed_dim``, or
            ``dropout`` is not in [0, 1).
        """
        where = "fdbr.nn.MultiHeadAttention.init"
        width = integer(where, "embed_dim", embed_dim, least=1)
        heads = checked_heads(where, "embed_dim", width, num_heads)
        widths = [
            width if size is None else integer(where, name, size, least=1)
            for name, size in (("kdim", kdim), ("vdim", vdim))
        ]
        make = weight_init or initializers.glorot_uniform()
        fill = bias_init or initializers.zeros()
        keys = random.split(key, 8)
        joint, q_weight, k_weight, v_weight = None, None, None, None
        if widths == [width, width]:
            joint = make(keys[0], (3 * width, width), dtype)
        else:
            q_weight, k_weight, v_weight = (
                make(k, (width, size), dtype)
                for k, size in zip(keys[1:4], (width, *widths), strict=True)
            )
        extra_k, extra_v = (
            initializers.normal(width**-0.5)(k, (1, 1, width), dtype) if add_bias_kv else None
            for k in keys[4:6]
        )
        return cls(
            joint,
            q_weight,
            k_weight,
            v_weight,
            fill(keys[6], (3 * width,), dtype) if bias else None,
            extra_k,
            extra_v,
            Linear.init(
                keys[7], width, width, bias=bias, weight_init=make, bias_init=fill, dtype=dtype
            ),
            heads,
            check_rate(where, dropout),
            bool(add_zero_attn),
        )

    def __call__(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        mask: Any = None,
        causal: bool = False,
        attn_mask: Any = None,
        key_padding_mask: Any = None,
        is_causal: bool = False,
        need_weights: bool = False,
        average_attn_weights: bool = True,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """Return the attention output of each query.

        Parameters
        ----------
        query
            Shape ``(*batch, queries, embed_dim)``.
        key
            Shape ``(*batch, keys, kdim)``; the queries by default.
        value
            Shape ``(*batch, keys, vdim)``; the keys by default.
        mask
            An array that broadcasts to ``(*batch, heads, queries, keys)``: booleans that tell
            whether a query sees a key, or numbers that are added to the scores (as in
            `ops.scaled_dot_product_attention`).
        causal
            Whether a query sees no later keys.
        attn_mask, key_padding_mask
            PyTorch's masks, in which True means that a key is **not** seen: of shape ``(queries,
            keys)`` or ``(batch * heads, queries, keys)``, and of shape ``(*batch, keys)``.
        is_causal
            PyTorch's name of ``causal``.
        need_weights
            Whether the attention weights are also returned.
        average_attn_weights
            Whether the returned weights are averaged over the heads.
        cache
            The keys and values of the positions before, for self-attention position by position:
            queries see them, and the new ones up to their own position.  A ``mask`` then has a
            column for each position of the cache.

        Returns
        -------
        array or tuple
            Shape ``(*batch, queries, embed_dim)``; with ``need_weights`` a tuple of it and the
            weights, of shape ``(*batch, queries, keys)`` or ``(*batch, heads, queries, keys)``;
            with a ``cache`` a tuple of it and the next cache.

        Raises
        ------
        ValueError
            If the shapes do not fit, or the cache is full.
        """
        if cache is not None:
            others = (key, value, attn_mask, key_padding_mask)
            return self._cached(query, cache, mask, others, need_weights)
        return self._attended(
            (query, key, value),
            (mask, attn_mask, key_padding_mask),
            causal or is_causal,
            need_weights,
            average_attn_weights,
            None,
        )

    def train(
        self,
        query: Any,
        keys: Any = None,
        values: Any = None,
        *,
        key: Any = None,
        mask: Any = None,
        causal: bool = False,
        attn_mask: Any = None,
        key_padding_mask: Any = None,
        is_causal: bool = False,
        need_weights: bool = False,
        average_attn_weights: bool = True,
    ) -> tuple[Any, Self]:
        """Return the output in training, with dropout of attention weights, and the layer.

        Parameters
        ----------
        query, keys, values
            The first three arguments of a call.
        key
            A random key; it may be `None` if ``dropout`` is 0.
        mask, causal, attn_mask, key_padding_mask, is_causal, need_weights, average_attn_weights
            As in a call.

        Returns
        -------
        tuple
            The result of a call, and the layer itself.

        Raises
        ------
        TypeError, ValueError
            If there is no key for dropout, or shapes do not fit.
        """
        out = self._attended(
            (query, keys, values),
            (mask, attn_mask, key_padding_mask),
            causal or is_causal,
            need_weights,
            average_attn_weights,
            needed_key("MultiHeadAttention", key) if self.dropout else None,
        )
        return out, self

    def _attended(
        self, inputs: Any, masks: Any, causal: Any, need_weights: Any, average: Any, key: Any
    ) -> Any:
        """Compute the output, with dropout if there is a key."""
        q, k, v = self._projected(*inputs)
        count = k.shape[-2]
        k, v = self._with_more(k, self.bias_k), self._with_more(v, self.bias_v)
        more = k.shape[-2] - count
        if causal and more:  # all queries see these
            masks = (combine_masks(masks[0], _past(q.shape[-2], count)), *masks[1:])
        mask = self._mask(masks, (*q.shape[:-1], count), more)
        causal = causal and not more
        q, k, v = (heads_apart(x, self.num_heads) for x in (q, k, v))
        rate = self.dropout if key is not None else 0.0
        if need_weights:
            return self._with_weights(q, k, v, mask, causal, average, rate, key)
        seen = ops.scaled_dot_product_attention(
            q, k, v, mask, causal=causal, dropout_p=rate, dropout_key=key
        )
        return self.out_proj(heads_together(seen))

    def _cached(
        self, query: Any, cache: KeyValueCache, mask: Any, others: Any, need_weights: bool
    ) -> tuple[Any, KeyValueCache]:
        has_more = self.bias_k is not None or self.add_zero_attn
        if any(other is not None for other in others) or need_weights or has_more:
            raise ValueError(
                placed(
                    "fdbr.nn.MultiHeadAttention: a cache is for self-attention without further "
                    "keys, with mask alone and no weights; give neither key, value, attn_mask, "
                    "key_padding_mask nor need_weights"
                )
            )
        parts = (heads_apart(x, self.num_heads) for x in self._projected(query, None, None))
        seen, cache = cache.attend(*parts, mask=mask)
        return self.out_proj(heads_together(seen)), cache

    def _with_weights(
        self, q: Any, k: Any, v: Any, mask: Any, causal: Any, average: Any, rate: float, key: Any
    ) -> Any:
        weights, alive = attention_weights(
            q, k, mask, q.shape[-1] ** -0.5, right=0 if causal else None
        )
        if alive is not None:
            weights = ops.where(alive, weights, 0)
        if rate:
            weights = ops.dropout(weights, rate, key=key)
        out = self.out_proj(heads_together(rounded_like(weights @ v, q, v)))
        return out, rounded_like(weights.mean(axis=-3) if average else weights, q)

    def _projected(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        width = self.out_proj.weight.shape[0]
        biases: Any = (None,) * 3
        if self.in_proj_bias is not None:
            biases = _thirds(self.in_proj_bias, width)
        for name, x, size in (
            ("query", query, width),
            ("key", key, self._width_of(1)),
            ("value", value, self._width_of(2)),
        ):
            x = query if x is None and name == "key" else x
            x = (query if key is None else key) if x is None else x
            shape: Any = getattr(x, "shape", ())
            if len(shape) < 2 or shape[-1] != size:
                raise ValueError(
                    placed(
                        f"fdbr.nn.MultiHeadAttention: {name} must have shape (..., length, "
                        f"{size}), got {describe(x)}"
                    )
                )
        if self.in_proj_weight is None:
            key = query if key is None else key
            value = key if value is None else value
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif (key is None or key is query) and (value is None or value is query):
            all_three = ops.linear(query, self.in_proj_weight, self.in_proj_bias)
            return _parts(all_three, width)
        else:
            key = query if key is None else key
            value = key if value is None else value
            weights = _thirds(self.in_proj_weight, width)
        triples = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (ops.linear(x, w, b) for x, w, b in triples)
        return q, k, v

    def _width_of(self, which: int) -> Any:
        if self.in_proj_weight is not None:
            return self.in_proj_weight.shape[1]
        return (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[which].shape[1]

    def _with_more(self, x: Any, bias: Any) -> Any:
        """Append the trained and the zero key or value, where the layer has them."""
        more = [] if bias is None else [ops.reshape(bias, (1, -1))]
        if self.add_zero_attn:
            more.append(ops.zeros_like(x[..., :1, :]))
        if not more:
            return x
        shape = (*x.shape[:-2], 1, x.shape[-1])
        return ops.concat([x, *(ops.broadcast_to(part, shape) for part in more)], axis=-2)

    def _mask(self, masks: Any, shape: tuple[int, ...], more: int) -> Any:
        """Join the masks into one; all queries see the ``more`` appended keys."""
        mask, attn_mask, padding = masks
        *batch, queries, keys = shape
        if attn_mask is not None:
            mask = combine_masks(mask, self._of_pytorch(attn_mask, batch, queries, keys))
        if padding is not None:
            hidden = ops.asarray(padding)
            if hidden.ndim < 1 or hidden.shape[-1] != keys:
                raise ValueError(
                    placed(
                        "fdbr.nn.MultiHeadAttention: key_padding_mask must have shape "
                        f"{(*batch, keys)}, got {describe(hidden)}"
                    )
                )
            seen = ~hidden if hidden.dtype.kind == "b" else hidden
            mask = combine_masks(mask, seen[..., None, None, :])
        if mask is None or not more:
            return mask
        fill = ops.ones if mask.dtype.kind == "b" else ops.zeros
        if mask.shape[-1] != keys:
            mask = ops.broadcast_to(mask, (*mask.shape[:-1], keys))
        return ops.concat([mask, fill((*mask.shape[:-1], more), dtype=mask.dtype)], axis=-1)

    def _of_pytorch(self, mask: Any, batch: list[int], queries: int, keys: int) -> Any:
        mask = ops.asarray(mask)
        if mask.ndim == 3 and batch:
            rows = (*batch, self.num_heads, queries, keys)
            if mask.shape != (int(np.prod(rows[:-2])), queries, keys):
                raise ValueError(
                    placed(
                        "fdbr.nn.MultiHeadAttention: attn_mask must have shape "
                        f"{(queries, keys)} or {(int(np.prod(rows[:-2])), queries, keys)}, got "
                        f"{describe(mask)}; give one that broadcasts to {rows} as mask"
                    )
                )
            mask = ops.reshape(mask, rows)
        return ~mask if mask.dtype.kind == "b" else mask


def _past(queries: int, keys: int) -> Any:
    return ops.tril(ops.ones((queries, keys), dtype=bool))


def _thirds(x: Any, width: int) -> list[Any]:
    return [x[i * width : (i + 1) * width] for i in range(3)]


def _parts(x: Any, width: int) -> tuple[Any, Any, Any]:
    q, k, v = (x[..., i * width : (i + 1) * width] for i in range(3))
    return q, k, v
