"""Pre-norm blocks of vision transformers and of language models."""

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import integer, name_of
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.grouped import GroupedQueryAttention
from fdbr.nn.attention.multi_head import MultiHeadAttention
from fdbr.nn.attention.transformer import activation_of
from fdbr.nn.composite import Composite
from fdbr.nn.dropout import Dropout
from fdbr.nn.linear import Linear
from fdbr.nn.normalization.layers import LayerNorm, RMSNorm
from fdbr.nn.sequential import Sequential
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import frozen, static

__all__ = ["DecoderBlock", "GatedMLP", "ViTBlock"]


@public("fdbr.nn")
@frozen
class ViTBlock(Composite):
    """The encoder block of vision transformers.

    Dosovitskiy et al., *An image is worth 16x16 words*, ICLR 2021; names are torchvision's:
    ``x + self_attention(ln_1(x))``, and to that ``mlp(ln_2(...))``.

    Attributes
    ----------
    ln_1, ln_2
        `LayerNorm`.
    self_attention
        `MultiHeadAttention`.
    mlp
        `Sequential` of `Linear`, GELU, `Dropout`, `Linear` and `Dropout`.
    dropout
        The dropout rate after attention.

    >>> import fdbr
    >>> layer = fdbr.nn.ViTBlock.init(fdbr.random.key(0), 8, 2, 16)
    >>> layer(fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")).shape
    (3, 5, 8)
    """

    ln_1: LayerNorm
    self_attention: MultiHeadAttention
    ln_2: LayerNorm
    mlp: Sequential
    dropout: float = static(default=0.0)

    torch_names: ClassVar[dict[str, Any]] = {
        "mlp.layers[0]": ("mlp.0", "~mlp.linear_1"),
        "mlp.layers[3]": ("mlp.3", "~mlp.linear_2"),
    }

    @classmethod
    def init(
        cls,
        key: Any,
        hidden_dim: int,
        num_heads: int,
        mlp_dim: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        eps: float = 1e-6,
        activation: str | Callable[[Any], Any] = ops.gelu,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        hidden_dim
            The width of the input and the output.
        num_heads
            The number of heads; it divides ``hidden_dim``.
        mlp_dim
            The width inside the perceptron.
        dropout, attention_dropout
            The dropout rates of elements and of attention weights in training.
        eps
            A small number that is added to the variance in the norms.
        activation
            A function, or its name.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, ``num_heads`` does not divide ``hidden_dim``, or a
            rate is not in [0, 1).
        """
        where = "fdbr.nn.ViTBlock.init"
        rate, function = check_rate(where, dropout), activation_of(where, activation)
        wide = integer(where, "mlp_dim", mlp_dim, least=1)
        one, two, three = random.split(key, 3)
        attention = MultiHeadAttention.init(
            one, hidden_dim, num_heads, dropout=attention_dropout, dtype=dtype
        )
        mlp = Sequential(
            Linear.init(two, hidden_dim, wide, dtype=dtype),
            function,
            Dropout(rate),
            Linear.init(three, wide, hidden_dim, dtype=dtype),
            Dropout(rate),
        )
        before, behind = (LayerNorm.init(None, hidden_dim, eps=eps, dtype=dtype) for _ in range(2))
        return cls(before, attention, behind, mlp, rate)

    def _forward(self, of: Any, x: Any) -> Any:
        x = x + of._left_out(of.self_attention(of.ln_1(x)), self.dropout)
        return x + of.mlp(of.ln_2(x))


@public("fdbr.nn")
@frozen
class GatedMLP(Composite):
    """``down_proj(activation(gate_proj(x)) * up_proj(x))``: SwiGLU, GEGLU and their kin.

    Shazeer, *GLU variants improve transformer*, 2020; names are Llama's.

    Attributes
    ----------
    gate_proj, up_proj, down_proj
        `Linear`.
    activation
        A function: ``ops.silu`` for SwiGLU.

    >>> import fdbr
    >>> layer = fdbr.nn.GatedMLP.init(fdbr.random.key(0), 8, 16)
    >>> layer(fdbr.random.normal(fdbr.random.key(1), (5, 8), "float32")).shape
    (5, 8)
    """

    gate_proj: Linear
    up_proj: Linear
    down_proj: Linear
    activation: Callable[[Any], Any] = static(default=ops.silu, repr=name_of)

    @classmethod
    def init(
        cls,
        key: Any,
        features: int,
        hidden_features: int,
        *,
        activation: str | Callable[[Any], Any] = ops.silu,
        bias: bool = False,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        features, hidden_features
            The widths of the input and output, and inside.
        activation
            A function, or its name.
        bias
            Whether the linear layers have biases.
        weight_init
            ``init(key, shape, dtype)``, as for `Linear.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        function = activation_of("fdbr.nn.GatedMLP.init", activation)
        keys = random.split(key, 3)
        sizes = ((features, hidden_features),) * 2 + ((hidden_features, features),)
        some: dict[str, Any] = {"bias": bias, "weight_init": weight_init, "dtype": dtype}
        gate, up, down = (
            Linear.init(k, *size, **some) for k, size in zip(keys, sizes, strict=True)
        )
        return cls(gate, up, down, function)

    def _forward(self, of: Any, x: Any) -> Any:
        return of.down_proj(self.activation(of.gate_proj(x)) * of.up_proj(x))


@public("fdbr.nn")
@frozen
class DecoderBlock(Composite):
    """The block of current language models: RMS norms, grouped-query attention, a gated MLP.

    Touvron et al., *LLaMA: open and efficient foundation language models*, 2023; the names are
    Llama's: ``x + self_attn(input_layernorm(x))``, and to that
    ``mlp(post_attention_layernorm(...))``.

    Attributes
    ----------
    input_layernorm, post_attention_layernorm
        `RMSNorm`.
    self_attn
        `GroupedQueryAttention`.
    mlp
        `GatedMLP`, or another layer.

    >>> import fdbr
    >>> layer = fdbr.nn.DecoderBlock.init(fdbr.random.key(0), 8, 4, 2, 16)
    >>> layer(fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")).shape
    (3, 5, 8)
    """

    input_layernorm: RMSNorm
    self_attn: GroupedQueryAttention
    post_attention_layernorm: RMSNorm
    mlp: Any

    @classmethod
    def init(
        cls,
        key: Any,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        hidden_features: int | None = None,
        *,
        activation: str | Callable[[Any], Any] = ops.silu,
        eps: float = 1e-6,
        dtype: Any = np.float32,
        **settings: Any,
    ) -> Self:
        """Return a block with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        embed_dim
            The width of the input and the output.
        num_heads, num_kv_heads
            The numbers of heads of queries, and of keys and values.
        hidden_features
            The width inside the perceptron; by default ``8 / 3`` of ``embed_dim``, rounded up to
            a multiple of 8.
        activation
            A function, or its name.
        eps
            A small number that is added to the mean square in the norms.
        dtype
            The dtype of the parameters.
        settings
            Further settings of `GroupedQueryAttention.init`.

        Raises
        ------
        TypeError, ValueError
            As for `GroupedQueryAttention.init`.
        """
        one, two = random.split(key)
        attention = GroupedQueryAttention.init(
            one, embed_dim, num_heads, num_kv_heads, dtype=dtype, **settings
        )
        wide = -(-embed_dim // 3) * 8 if hidden_features is None else hidden_features
        mlp = GatedMLP.init(two, embed_dim, wide, activation=activation, dtype=dtype)
        before, behind = (RMSNorm.init(None, embed_dim, eps=eps, dtype=dtype) for _ in range(2))
        return cls(before, attention, behind, mlp)

    def __call__(
        self,
        x: Any,
        *,
        mask: Any = None,
        causal: bool = True,
        positions: Any = None,
        cache: KeyValueCache | None = None,
    ) -> Any:
        """Return the output, which has the shape of the input; with a cache, also the next cache.

        Parameters
        ----------
        x
            Shape ``(*batch, length, embed_dim)``.
        mask, causal, positions, cache
            As in `GroupedQueryAttention`.

        Raises
        ------
        ValueError
            If the shapes do not fit, or the cache is full.
        """
        options = {"mask": mask, "causal": causal, "positions": positions}
        if cache is None:
            return self._forward(self, x, **options)
        seen, cache = self.self_attn(self.input_layernorm(x), cache=cache, **options)
        x = x + seen
        return x + self.mlp(self.post_attention_layernorm(x)), cache

    def train(  # type: ignore[override]
        self,
        x: Any,
        *,
        key: Any = None,
        mask: Any = None,
        causal: bool = True,
        positions: Any = None,
    ) -> tuple[Any, Self]:
        """Return the output in training, and the block of the layers' successors.

        Parameters
        ----------
        x, mask, causal, positions
            As in a call.
        key
            A random key; it may be `None` without dropout.
        """
        return self._trained(key, x, mask=mask, causal=causal, positions=positions)

    def _forward(self, of: Any, x: Any, **options: Any) -> Any:
        x = x + of.self_attn(of.input_layernorm(x), **options)
        return x + of.mlp(of.post_attention_layernorm(x))
