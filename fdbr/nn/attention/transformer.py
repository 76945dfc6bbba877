"""Transformer layers of encoders and decoders, as in PyTorch."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import integer, name_of
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.attention.memories import DecoderCache, decoder_cache, recalled
from fdbr.nn.attention.multi_head import MultiHeadAttention
from fdbr.nn.composite import Composite
from fdbr.nn.linear import Linear
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.ops.nn.noise.dropout import check_rate
from fdbr.tree import frozen, static

__all__ = ["TransformerDecoderLayer", "TransformerEncoderLayer"]

Activation = str | Callable[[Any], Any]


@public("fdbr.nn")
@frozen
class TransformerEncoderLayer(Composite):
    """Self-attention and a perceptron of two layers, each with a residual and a layer norm.

    Vaswani et al., *Attention is all you need*, NIPS 2017.  With ``norm_first`` each part begins
    with its norm, ``x + part(norm(x))``; otherwise a norm follows it, ``norm(x + part(x))``.  The
    names, and the positions of dropout, are those of ``torch.nn.TransformerEncoderLayer``.

    Attributes
    ----------
    self_attn
        `MultiHeadAttention`.
    linear1, linear2
        `Linear`, from ``d_model`` to ``dim_feedforward`` and back.
    norm1, norm2
        `LayerNorm`.
    activation, norm_first, dropout
        The settings.

    >>> import fdbr
    >>> layer = fdbr.nn.TransformerEncoderLayer.init(fdbr.random.key(0), 8, 2, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> layer(x).shape
    (3, 5, 8)
    >>> y, layer = layer.train(x, key=fdbr.random.key(2), causal=True)
    """

    self_attn: MultiHeadAttention
    linear1: Linear
    linear2: Linear
    norm1: LayerNorm
    norm2: LayerNorm
    activation: Callable[[Any], Any] = static(default=ops.relu, repr=name_of)
    norm_first: bool = static(default=False)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        *,
        dropout: float = 0.1,
        activation: Activation = ops.relu,
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        d_model
            The width of the input and the output.
        nhead
            The number of heads; it divides ``d_model``.
        dim_feedforward
            The width inside the perceptron.
        dropout
            The dropout rate in training, in [0, 1).
        activation
            A function, ``"relu"`` or ``"gelu"``.
        layer_norm_eps
            A small number that is added to the variance in the layer norms.
        norm_first
            Whether the norms come before attention and perceptron.
        bias
            Whether linear layers and norms have biases.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, ``nhead`` does not divide ``d_model``, ``dropout``
            is not in [0, 1), or the activation is unknown.
        """
        where = "fdbr.nn.TransformerEncoderLayer.init"
        wide = integer(where, "dim_feedforward", dim_feedforward, least=1)
        function = activation_of(where, activation)
        keys = random.split(key, 3)
        some: dict[str, Any] = {"bias": bias, "dtype": dtype}
        attention = MultiHeadAttention.init(keys[0], d_model, nhead, dropout=dropout, **some)
        norm1, norm2 = (
            LayerNorm.init(None, d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
            for _ in range(2)
        )
        first = Linear.init(keys[1], d_model, wide, **some)
        second = Linear.init(keys[2], wide, d_model, **some)
        rate = check_rate(where, dropout)
        return cls(attention, first, second, norm1, norm2, function, bool(norm_first), rate)

    def __call__(
        self,
        src: Any,
        *,
        mask: Any = None,
        causal: bool = False,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        """Return the output, which has the shape of the input.

        Parameters
        ----------
        src
            Shape ``(*batch, length, d_model)``.
        mask, causal
            Which positions see which, as in `MultiHeadAttention`.
        src_mask, src_key_padding_mask, is_causal
            The same in PyTorch's terms, as its ``attn_mask`` and ``key_padding_mask``.

        Raises
        ------
        ValueError
            If the shapes do not fit.
        """
        return self._forward(
            self, src, _masks(mask, causal or is_causal, src_mask, src_key_padding_mask)
        )

    def train(  # type: ignore[override]
        self,
        src: Any,
        *,
        key: Any = None,
        mask: Any = None,
        causal: bool = False,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> tuple[Any, Self]:
        """Return the output in training, with dropout, and the layer.

        Parameters
        ----------
        src, mask, causal, src_mask, src_key_padding_mask, is_causal
            As in a call.
        key
            A random key; it may be `None` if ``dropout`` is 0.

        Raises
        ------
        TypeError, ValueError
            If there is no key for dropout, or shapes do not fit.
        """
        masks = _masks(mask, causal or is_causal, src_mask, src_key_padding_mask)
        return self._trained(key, src, masks)

    def _forward(self, of: Any, x: Any, masks: Any = None) -> Any:
        def attended(x: Any) -> Any:
            return of._left_out(of.self_attn(x, **(masks or {})), self.dropout)

        if self.norm_first:
            x = x + attended(of.norm1(x))
            return x + perceptron(self, of, of.norm2(x))
        x = of.norm1(x + attended(x))
        return of.norm2(x + perceptron(self, of, x))


@public("fdbr.nn")
@frozen
class TransformerDecoderLayer(Composite):
    """Self-attention, attention to a memory, and a perceptron, each with residual and norm.

    Vaswani et al., *Attention is all you need*, NIPS 2017; the names, and the positions of dropout,
    are those of ``torch.nn.TransformerDecoderLayer``.

    Attributes
    ----------
    self_attn, multihead_attn
        `MultiHeadAttention`, to the input itself and to the memory.
    linear1, linear2
        `Linear`, from ``d_model`` to ``dim_feedforward`` and back.
    norm1, norm2, norm3
        `LayerNorm`.
    activation, norm_first, dropout
        The settings.

    >>> import fdbr
    >>> layer = fdbr.nn.TransformerDecoderLayer.init(fdbr.random.key(0), 8, 2, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> layer(x, x[:, :2], causal=True).shape
    (3, 5, 8)
    """

    self_attn: MultiHeadAttention
    multihead_attn: MultiHeadAttention
    linear1: Linear
    linear2: Linear
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    activation: Callable[[Any], Any] = static(default=ops.relu, repr=name_of)
    norm_first: bool = static(default=False)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        *,
        dropout: float = 0.1,
        activation: Activation = ops.relu,
        layer_norm_eps: float = 1e-5,
        norm_first: bool = False,
        bias: bool = True,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a layer with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias
            As in `TransformerEncoderLayer.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            As for `TransformerEncoderLayer.init`.
        """
        where = "fdbr.nn.TransformerDecoderLayer.init"
        wide = integer(where, "dim_feedforward", dim_feedforward, least=1)
        function = activation_of(where, activation)
        keys = random.split(key, 4)
        some: dict[str, Any] = {"bias": bias, "dtype": dtype}
        one, two = (
            MultiHeadAttention.init(k, d_model, nhead, dropout=dropout, **some) for k in keys[:2]
        )
        norm1, norm2, norm3 = (
            LayerNorm.init(None, d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
            for _ in range(3)
        )
        first = Linear.init(keys[2], d_model, wide, **some)
        second = Linear.init(keys[3], wide, d_model, **some)
        rate = check_rate(where, dropout)
        return cls(one, two, first, second, norm1, norm2, norm3, function, bool(norm_first), rate)

    def __call__(
        self,
        tgt: Any,
        memory: Any = None,
        *,
        mask: Any = None,
        causal: bool = False,
        cross_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        cache: DecoderCache | None = None,
    ) -> Any:
        """Return the output, which has the shape of ``tgt``; with a cache, also the next cache.

        Parameters
        ----------
        tgt
            Shape ``(*batch, length, d_model)``.
        memory
            Shape ``(*batch, positions, d_model)``; it is omitted with a cache, which holds it.
        mask, causal
            Which positions see which, as in `MultiHeadAttention`; with a cache always causal.
        cross_mask
            Which positions of the memory are seen.
        tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
            PyTorch's masks, in which True means **not** seen.
        tgt_is_causal, memory_is_causal
            PyTorch's names of ``causal``, and the same for the memory.
        cache
            The cache that `cache` or the previous call returned; ``tgt`` are the positions after
            it.

        Raises
        ------
        ValueError
            If the shapes do not fit, a cache is full, or not exactly one of memory and cache is
            given.
        """
        own = _masks(mask, causal or tgt_is_causal, tgt_mask, tgt_key_padding_mask)
        cross = _masks(cross_mask, memory_is_causal, memory_mask, memory_key_padding_mask)
        if cache is None and memory is not None:
            return self._forward(self, tgt, memory, own, cross)
        kept = tgt_mask is None and tgt_key_padding_mask is None and not memory_is_causal
        if cache is None or memory is not None or not kept:
            raise ValueError(
                placed(
                    "fdbr.nn.TransformerDecoderLayer: give a memory, or a cache, which has it; "
                    "beside a cache mask and the memory's masks alone"
                )
            )
        steps = _Steps(self, cache, mask)
        out = self._forward(steps, tgt, cache.memory, {}, cross)
        return out, DecoderCache(steps.own, cache.memory)

    def cache(self, memory: Any, length: int) -> DecoderCache:
        """Return an empty cache for a number of positions, with the keys and values of a memory.

        Parameters
        ----------
        memory
            Shape ``(*batch, positions, d_model)``.
        length
            The number of positions that the cache can hold.

        Raises
        ------
        TypeError, ValueError
            If the memory has another width, or ``length`` is not a positive integer.
        """
        return decoder_cache(self, memory, length)

    def train(  # type: ignore[override]
        self,
        tgt: Any,
        memory: Any,
        *,
        key: Any = None,
        mask: Any = None,
        causal: bool = False,
        cross_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> tuple[Any, Self]:
        """Return the output in training, with dropout, and the layer.

        Parameters
        ----------
        tgt, memory, mask, causal, cross_mask
            As in a call.
        tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
            As in a call.
        tgt_is_causal, memory_is_causal
            As in a call.
        key
            A random key; it may be `None` if ``dropout`` is 0.

        Raises
        ------
        TypeError, ValueError
            If there is no key for dropout, or shapes do not fit.
        """
        own = _masks(mask, causal or tgt_is_causal, tgt_mask, tgt_key_padding_mask)
        cross = _masks(cross_mask, memory_is_causal, memory_mask, memory_key_padding_mask)
        return self._trained(key, tgt, memory, own, cross)

    def _forward(self, of: Any, x: Any, memory: Any, own: Any, cross: Any) -> Any:
        def attended(x: Any) -> Any:
            return of._left_out(of.self_attn(x, **own), self.dropout)

        def recalled(x: Any) -> Any:
            return of._left_out(of.multihead_attn(x, memory, memory, **cross), self.dropout)

        if self.norm_first:
            x = x + attended(of.norm1(x))
            x = x + recalled(of.norm2(x))
            return x + perceptron(self, of, of.norm3(x))
        x = of.norm1(x + attended(x))
        x = of.norm2(x + recalled(x))
        return of.norm3(x + perceptron(self, of, x))


class _Steps:
    """The parts of a decoder layer with a cache: self-attention updates it."""

    def __init__(self, layer: Any, cache: DecoderCache, mask: Any) -> None:
        self._layer, self.own, self._mask = layer, cache.own, mask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def self_attn(self, x: Any) -> Any:
        seen, self.own = self._layer.self_attn(x, cache=self.own, mask=self._mask)
        return seen

    def multihead_attn(self, x: Any, memory: Any, _: Any, **masks: Any) -> Any:
        return recalled(self._layer.multihead_attn, x, memory, masks)


def perceptron(layer: Any, of: Any, x: Any) -> Any:
    """Apply the two linear layers, with dropout after each."""
    inside = of._left_out(layer.activation(of.linear1(x)), layer.dropout)
    return of._left_out(of.linear2(inside), layer.dropout)


def activation_of(where: str, given: Any) -> Callable[[Any], Any]:
    """Return an activation function, which may be given by its name."""
    if callable(given):
        function: Callable[[Any], Any] = given
        return function
    if not isinstance(given, str) or given not in ("relu", "gelu", "silu", "tanh"):
        raise ValueError(
            f"{where}: activation must be a function, 'relu', 'gelu', 'silu' or 'tanh', got "
            f"{given!r}"
        )
    named: Callable[[Any], Any] = getattr(ops, given)
    return named


def _masks(mask: Any, causal: bool, attn_mask: Any, padding: Any) -> dict[str, Any]:
    return {"mask": mask, "causal": causal, "attn_mask": attn_mask, "key_padding_mask": padding}
