"""Stacks of transformer layers."""

from typing import Any, ClassVar, Self, cast

import numpy as np

from fdbr import random, tree
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.attention.memories import DecoderCache
from fdbr.nn.attention.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from fdbr.nn.composite import Composite
from fdbr.nn.layer import Layer
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.tree import frozen

__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]


@public("fdbr.nn")
class _Stack(Layer):
    """A stack of layers of one class, and an optional norm after them."""

    __slots__ = ()

    layers: tuple[Any, ...]
    norm: LayerNorm | None

    _kind: ClassVar[Any]
    """The class of the layers."""

    @classmethod
    def init(
        cls,
        key: Any,
        num_layers: int,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        *,
        norm: bool = False,
        layer_norm_eps: float = 1e-5,
        bias: bool = True,
        dtype: Any = np.float32,
        **settings: Any,
    ) -> Self:
        """Return a stack with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        num_layers
            The number of layers.
        d_model, nhead, dim_feedforward, layer_norm_eps, bias, dtype
            As in `TransformerEncoderLayer.init`.
        norm
            Whether a norm follows the last layer.
        settings
            Further settings of the layers: ``dropout``, ``activation``, ``norm_first``.

        Raises
        ------
        TypeError, ValueError
            As for `TransformerEncoderLayer.init`.
        """
        count = integer("fdbr.nn._Stack.init", "num_layers", num_layers, least=1)
        some = settings | {"layer_norm_eps": layer_norm_eps, "bias": bias, "dtype": dtype}
        layers = tuple(
            cls._kind.init(own, d_model, nhead, dim_feedforward, **some)
            for own in random.split(key, count)
        )
        behind = LayerNorm.init(None, d_model, eps=layer_norm_eps, bias=bias, dtype=dtype)
        made: Any = cls
        return cast(Self, made(layers, behind if norm else None))

    def __call__(self, x: Any, *memory: Any, **options: Any) -> Any:
        """Return the normalised output of the last layer.

        Parameters
        ----------
        x
            Shape ``(*batch, length, d_model)``.
        memory
            Further inputs of each layer.
        options
            The masks, which are passed to each layer.

        Raises
        ------
        ValueError
            If the shapes do not fit.
        """
        for layer in self.layers:
            x = layer(x, *memory, **options)
        return x if self.norm is None else self.norm(x)

    def train(self, x: Any, *memory: Any, key: Any = None, **options: Any) -> tuple[Any, Self]:
        """Return the output in training, and the stack of the layers' successors.

        Parameters
        ----------
        x, memory, options
            As in a call.
        key
            A random key, which is split among the layers; it may be `None` if no layer has dropout.
        """
        count = len(self.layers)
        keys = [None] * count if key is None or not count else random.split(key, count)
        successors = []
        for layer, own in zip(self.layers, keys, strict=True):
            x, layer = layer.train(x, *memory, key=own, **options)
            successors.append(layer)
        if self.norm is not None:
            x = self.norm(x)
        return x, tree.replace(self, layers=tuple(successors))


@public("fdbr.nn")
@frozen
class TransformerEncoder(_Stack):
    """Encoder layers, one after the other.

    Names are those of ``torch.nn.TransformerEncoder``.

    Attributes
    ----------
    layers
        `TransformerEncoderLayer`.
    norm
        A `LayerNorm` after them, or `None`.

    >>> import fdbr
    >>> encoder = fdbr.nn.TransformerEncoder.init(fdbr.random.key(0), 2, 8, 4, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> encoder(x, causal=True).shape, len(encoder.layers)
    ((3, 5, 8), 2)
    """

    layers: tuple[Any, ...]
    norm: LayerNorm | None = None

    _kind: ClassVar[Any] = TransformerEncoderLayer


@public("fdbr.nn")
@frozen
class TransformerDecoder(_Stack):
    """Decoder layers, one after the other, which all attend to one memory.

    Names are those of ``torch.nn.TransformerDecoder``.

    Attributes
    ----------
    layers
        `TransformerDecoderLayer`.
    norm
        A `LayerNorm` after them, or `None`.

    >>> import fdbr
    >>> decoder = fdbr.nn.TransformerDecoder.init(fdbr.random.key(0), 2, 8, 4, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> decoder(x, x[:, :2], causal=True).shape
    (3, 5, 8)
    """

    layers: tuple[Any, ...]
    norm: LayerNorm | None = None

    _kind: ClassVar[Any] = TransformerDecoderLayer

    def __call__(
        self,
        x: Any,
        memory: Any = None,
        *,
        cache: tuple[DecoderCache, ...] | None = None,
        **options: Any,
    ) -> Any:
        """Return the normalised output of the last layer; with a cache, also the next cache.

        Parameters
        ----------
        x
            Shape ``(*batch, length, d_model)``.
        memory
            The memory that each layer attends to; it is omitted with a cache, which holds it.
        cache
            The caches that `cache` or the previous call returned.
        options
            The masks, which are passed to each layer.

        Raises
        ------
        ValueError
            If the shapes do not fit, or not exactly one of memory and cache is given.
        """
        if cache is None:
            return _Stack.__call__(self, x, memory, **options)
        caches = []
        for layer, seen in zip(self.layers, cache, strict=True):
            x, seen = layer(x, memory, cache=seen, **options)
            caches.append(seen)
        return x if self.norm is None else self.norm(x), tuple(caches)

    def cache(self, memory: Any, length: int) -> tuple[DecoderCache, ...]:
        """Return empty caches, one for each layer, with the layer's keys and values of a memory.

        Parameters
        ----------
        memory
            Shape ``(*batch, positions, d_model)``.
        length
            The number of positions that the caches can hold.

        Raises
        ------
        TypeError, ValueError
            If the memory has another width, or ``length`` is not a positive integer.
        """
        return tuple(layer.cache(memory, length) for layer in self.layers)


@public("fdbr.nn")
@frozen
class Transformer(Composite):
    """An encoder, and a decoder that attends to the encoder's output.

    Names and defaults are those of ``torch.nn.Transformer``, with ``batch_first=True``.

    Attributes
    ----------
    encoder
        `TransformerEncoder`, with a norm.
    decoder
        `TransformerDecoder`, with a norm.

    >>> import fdbr
    >>> model = fdbr.nn.Transformer.init(fdbr.random.key(0), 8, 2, 1, 1, 16)
    >>> x = fdbr.random.normal(fdbr.random.key(1), (3, 5, 8), "float32")
    >>> model(x, x[:, :2], tgt_is_causal=True).shape
    (3, 2, 8)
    """

    encoder: TransformerEncoder
    decoder: TransformerDecoder

    @classmethod
    def init(
        cls,
        key: Any,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        **settings: Any,
    ) -> Self:
        """Return a model with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        d_model, nhead, dim_feedforward
            As in `TransformerEncoderLayer.init`.
        num_encoder_layers, num_decoder_layers
            The number of layers.
        settings
            Further settings of `TransformerEncoderLayer.init`.

        Raises
        ------
        TypeError, ValueError
            As for `TransformerEncoderLayer.init`.
        """
        one, two = random.split(key)
        sizes = d_model, nhead, dim_feedforward
        return cls(
            TransformerEncoder.init(one, num_encoder_layers, *sizes, norm=True, **settings),
            TransformerDecoder.init(two, num_decoder_layers, *sizes, norm=True, **settings),
        )

    def __call__(self, src: Any, tgt: Any, **options: Any) -> Any:
        """Return the output, which has the shape of ``tgt``.

        Parameters
        ----------
        src, tgt
            Shapes ``(*batch, positions, d_model)`` and ``(*batch, length, d_model)``.
        options
            The decoder's masks, under the names of `TransformerDecoderLayer`; and the encoder's
            ``src_mask``, ``src_key_padding_mask`` and ``src_is_causal``.

        Raises
        ------
        ValueError
            If the shapes do not fit.
        """
        return self._forward(self, src, tgt, **options)

    def train(self, src: Any, tgt: Any, *, key: Any = None, **options: Any) -> tuple[Any, Self]:  # type: ignore[override]
        """Return the output in training, and the model of the layers' successors.

        Parameters
        ----------
        src, tgt, options
            As in a call.
        key
            A random key; it may be `None` if ``dropout`` is 0.
        """
        return self._trained(key, src, tgt, **options)

    def _forward(self, of: Any, src: Any, tgt: Any, **options: Any) -> Any:
        names = {"src_mask": "src_mask", "src_key_padding_mask": "src_key_padding_mask"}
        names["src_is_causal"] = "causal"
        own = {new: options.pop(name) for name, new in names.items() if name in options}
        return of.decoder(tgt, of.encoder(src, **own), **options)
