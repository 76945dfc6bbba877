"""Grouped-query attention: several heads of queries share keys and values."""

from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.heads import checked_heads, heads_apart, heads_together
from fdbr.nn.composite import Composite
from fdbr.nn.dropout import needed_key
from fdbr.nn.linear import Linear
from fdbr.nn.normalization.layers import RMSNorm
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import frozen, static

__all__ = ["GroupedQueryAttention"]


@public("fdbr.nn")
@frozen
class GroupedQueryAttention(Composite):
    """Self-attention whose heads of keys and values each serve several heads of queries.

    Ainslie et al., *GQA: training generalized multi-query transformer models*, EMNLP 2023; with
    ``num_kv_heads=1`` multi-query attention, Shazeer 2019.  Queries and keys are rotated by their
    positions (`ops.rotary_embedding`).  Names are Llama's.

    Attributes
    ----------
    q_proj, k_proj, v_proj, o_proj
        `Linear`, to ``num_heads * head_dim``, twice to ``num_kv_heads * head_dim``, and back.
    q_norm, k_norm
        `RMSNorm` of each head's queries and keys, before they are rotated; or `None`.
    num_heads, num_kv_heads, head_dim, rotary_base, rotary_width, interleaved, window, dropout
        The settings.

    >>> import fdbr
    >>> layer = fdbr.nn.GroupedQueryAttention.init(fdbr.random.key(0), 8, 4, 2)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> layer(x, causal=True).shape, layer.k_proj.weight.shape
    ((3, 5, 8), (4, 8))
    """

    q_proj: Linear
    k_proj: Linear
    v_proj: Linear
    o_proj: Linear
    q_norm: RMSNorm | None
    k_norm: RMSNorm | None
    num_heads: int = static()
    num_kv_heads: int = static()
    head_dim: int = static()
    rotary_base: float | None = static(default=10_000.0)
    rotary_width: int | None = static(default=None)
    interleaved: bool = static(default=False)
    window: int | None = static(default=None)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        bias: bool = False,
        qk_norm: bool = False,
        rotary_base: float | None = 10_000.0,
        rotary_width: int | None = None,
        interleaved: bool = False,
        window: int | None = None,
        dropout: float = 0.0,
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
            The width of the input and the output.
        num_heads, num_kv_heads
            The number of heads of queries, and of keys and values, which divides it; equal by
            default.
        head_dim
            The width of a head; ``embed_dim / num_heads`` by default.
        bias
            Whether the projections have biases.
        qk_norm
            Whether each head's queries and keys are normalised (`RMSNorm`).
        rotary_base, rotary_width, interleaved
            The settings of `ops.rotary_embedding`; nothing is rotated if the base is `None`.
        window
            How many positions to each side a query sees; all by default.
        dropout
            The dropout rate of attention weights in training, in [0, 1).
        weight_init, bias_init
            ``init(key, shape, dtype)``, as for `Linear.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, a number of heads does not divide its width, or a
            head is of odd width and would have to be turned.
        """
        where = "fdbr.nn.GroupedQueryAttention.init"
        width = integer(where, "embed_dim", embed_dim, least=1)
        heads = integer(where, "num_heads", num_heads, least=1)
        few = heads if num_kv_heads is None else integer(where, "num_kv_heads", num_kv_heads, 1)
        if heads % few:
            raise ValueError(
                f"{where}: num_kv_heads={few} must divide num_heads={heads}, of which each head of "
                "keys serves an equal part"
            )
        if head_dim is None:
            size = width // checked_heads(where, "embed_dim", width, heads)
        else:
            size = integer(where, "head_dim", head_dim, least=1)
        rotated = size if rotary_width is None else integer(where, "rotary_width", rotary_width, 2)
        if rotary_base is not None and (rotated % 2 or rotated > size):
            raise ValueError(
                f"{where}: {rotated} features of heads of width {size} cannot be turned in pairs; "
                "give an even rotary_width, or rotary_base=None to turn nothing"
            )
        keys = random.split(key, 4)
        settings: dict[str, Any] = {"bias": bias, "dtype": dtype}
        settings |= {"weight_init": weight_init, "bias_init": bias_init}
        q_norm, k_norm = (
            RMSNorm.init(None, size, dtype=dtype) if qk_norm else None for _ in range(2)
        )
        return cls(
            Linear.init(keys[0], width, heads * size, **settings),
            Linear.init(keys[1], width, few * size, **settings),
            Linear.init(keys[2], width, few * size, **settings),
            Linear.init(keys[3], heads * size, width, **settings),
            q_norm,
            k_norm,
            heads,
            few,
            size,
            None if rotary_base is None else float(rotary_base),
            rotary_width,
            bool(interleaved),
            None if window is None else integer(where, "window", window, least=0),
            check_rate(where, dropout),
        )

    def __call__(
        self,
        x: Any,
        *,
        mask: Any = None,
        causal: bool = False,
        positions: Any = None,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """Return the attention output of each position.

        Parameters
        ----------
        x
            Shape ``(*batch, length, embed_dim)``.
        mask
            An array that broadcasts to ``(*batch, num_heads, length, length)``; with a cache, the
            last of these is the cache's: as in `ops.scaled_dot_product_attention`.
        causal
            Whether a position sees no later ones; always so with a cache.
        positions
            The positions, shape ``(*batch, length)`` or ``(length,)``; by default they count from
            0, or from the cache's position.
        cache
            The keys and values of the positions before.

        Returns
        -------
        array or tuple
            Shape ``(*batch, length, embed_dim)``; with a cache, a tuple of it and the next cache.

        Raises
        ------
        ValueError
            If the shapes do not fit, or the cache is full.
        """
        return self._forward(self, x, mask=mask, causal=causal, positions=positions, cache=cache)

    def train(  # type: ignore[override]
        self,
        x: Any,
        *,
        key: Any = None,
        mask: Any = None,
        causal: bool = False,
        positions: Any = None,
    ) -> tuple[Any, Self]:
        """Return the output in training, with dropout of attention weights, and the layer.

        Parameters
        ----------
        x, mask, causal, positions
            As in a call.
        key
            A random key; it may be `None` if ``dropout`` is 0.

        Raises
        ------
        TypeError, ValueError
            If there is no key for dropout, or shapes do not fit.
        """
        own = needed_key("GroupedQueryAttention", key) if self.dropout else None
        return self._trained(key, x, mask=mask, causal=causal, positions=positions, key=own)

    def _forward(
        self,
        of: Any,
        x: Any,
        *,
        mask: Any,
        causal: bool,
        positions: Any,
        cache: KeyValueCache | None = None,
        key: Any = None,
    ) -> Any:
        if getattr(x, "ndim", 0) < 2:
            raise ValueError(
                placed(
                    "fdbr.nn.GroupedQueryAttention: x must have shape (..., length, "
                    f"{self.q_proj.weight.shape[1]}), got {describe(x)}"
                )
            )
        q = heads_apart(of.q_proj(x), self.num_heads)
        k = heads_apart(of.k_proj(x), self.num_kv_heads)
        v = heads_apart(of.v_proj(x), self.num_kv_heads)
        if self.q_norm is not None:
            q, k = of.q_norm(q), of.k_norm(k)
        q, k = self._rotated(q, k, positions, 0 if cache is None else cache.position)
        if cache is not None:
            seen, cache = cache.attend(q, k, v, mask=mask, window=self.window)
            return of.o_proj(heads_together(seen)), cache
        seen = ops.scaled_dot_product_attention(
            q,
            k,
            v,
            mask,
            causal=causal,
            enable_gqa=self.num_kv_heads != self.num_heads,
            local_window_size=self.window,
            dropout_p=0.0 if key is None else self.dropout,
            dropout_key=key,
        )
        return of.o_proj(heads_together(seen))

    def _rotated(self, q: Any, k: Any, positions: Any, offset: Any) -> tuple[Any, Any]:
        if self.rotary_base is None:
            return q, k
        settings: dict[str, Any] = {"base": self.rotary_base, "interleaved": self.interleaved}
        settings |= {"width": self.rotary_width, "offset": offset}
        if positions is not None:  # the same for all heads
            positions = ops.expand_dims(ops.asarray(positions), axis=-2)
        one, two = (ops.rotary_embedding(x, positions, **settings) for x in (q, k))
        return one, two
