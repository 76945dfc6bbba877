"""BERT: a bidirectional transformer encoder."""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdbr import ops
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.embedding import Embed
from fdbr.nn.attention.multi_head import heads_apart, heads_together
from fdbr.nn.composite import Composite
from fdbr.nn.dropout import Dropout, needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.linear import Linear
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import Network
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.tree import frozen, static

__all__ = ["BERT", "BERTAttention", "BERTLayer", "BERTOutputs"]


def _norm_names(field: str, name: str) -> dict[str, Any]:
    """Return the names of a normalisation's arrays, and those of old files."""
    return {
        f"{field}.weight": (f"{name}.weight", f"~{name}.gamma"),
        f"{field}.bias": (f"{name}.bias", f"~{name}.beta"),
    }


@public("fdbr.nn.models")
class BERTOutputs(NamedTuple):
    """The outputs of `BERT`: features of each token, and of the first one through the pooler."""

    last_hidden_state: Any
    pooler_output: Any


@public("fdbr.nn.models")
@frozen
class BERTAttention(Layer):
    """Self-attention of all tokens that the mask allows.

    Attributes
    ----------
    query, key, value
        `Linear`.
    heads, dropout
        The number of heads, and the dropout rate of attention weights in training.
    """

    query: Linear
    key: Linear
    value: Linear
    heads: int = static()
    dropout: float = static(default=0.0)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        """Return the outputs of all heads, side by side."""
        query, keys, values = self._parts(x)
        return heads_together(ops.scaled_dot_product_attention(query, keys, values, mask))

    def train(self, x: Any, mask: Any = None, *, key: Any = None) -> tuple[Any, Self]:
        """Return the outputs with weights left out, and the layer."""
        key = needed_key("models.BERTAttention", key) if self.dropout else None
        query, keys, values = self._parts(x)
        seen = ops.scaled_dot_product_attention(
            query, keys, values, mask, dropout_p=self.dropout, dropout_key=key
        )
        return heads_together(seen), self

    def _parts(self, x: Any) -> list[Any]:
        return [heads_apart(part(x), self.heads) for part in (self.query, self.key, self.value)]


@public("fdbr.nn.models")
@frozen
class BERTLayer(Composite):
    """Attention and a position-wise network, each with a residual and a normalisation after it.

    Attributes
    ----------
    attention, projection, norm
        The attention, the projection of its heads, and the normalisation after it.
    intermediate, output, output_norm
        The network, and the normalisation after it.
    dropout
        Dropout before the residual addition.
    """

    attention: BERTAttention
    projection: Linear
    norm: LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: LayerNorm
    dropout: Dropout

    torch_names: ClassVar[dict[str, Any]] = {
        "attention": "attention.self",
        "projection": "attention.output.dense",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        **_norm_names("norm", "attention.output.LayerNorm"),
        **_norm_names("output_norm", "output.LayerNorm"),
    }

    def _forward(self, of: Any, x: Any, mask: Any = None) -> Any:
        x = of.norm(x + of.dropout(of.projection(of.attention(x, mask))))
        return of.output_norm(x + of.dropout(of.output(ops.gelu(of.intermediate(x)))))


@public("fdbr.nn.models")
@frozen
class BERT(Network):
    """BERT: features of each token of a text, which depend on all its tokens.

    Devlin et al., *BERT: pre-training of deep bidirectional transformers for language
    understanding*, NAACL 2019: 109,482,240 parameters by default.  Weights have the names of
    Hugging Face's ``BertModel``, with or without ``bert.`` before them.

    Attributes
    ----------
    word_embeddings, position_embeddings, token_type_embeddings, norm, dropout
        The tables of tokens, positions and types, whose rows are added, and the layers after them.
    layers
        The tuple of `BERTLayer`.
    pooler
        A fully connected layer for the first token, or `None`.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import nn
    >>> sizes = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    >>> model = nn.models.BERT.init(
    ...     fdbr.random.key(0), vocab_size=20, intermediate_size=16, **sizes)
    >>> tokens, mask = np.array([[3, 1, 4], [1, 5, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
    >>> outputs = model(tokens, mask)
    >>> outputs.last_hidden_state.shape, outputs.pooler_output.shape
    ((2, 3, 8), (2, 8))
    """

    word_embeddings: Embed
    position_embeddings: Embed
    token_type_embeddings: Embed
    norm: LayerNorm
    dropout: Dropout
    layers: tuple[BERTLayer, ...]
    pooler: Linear | None

    torch_ignored: ClassVar[tuple[str, ...]] = (
        "embeddings.position_ids",
        "embeddings.token_type_ids",
    )
    torch_names: ClassVar[dict[str, Any]] = {
        **{
            name: (f"embeddings.{name}", f"~bert.embeddings.{name}")
            for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
        },
        **{
            f"norm.{own}": (
                f"embeddings.LayerNorm.{own}",
                f"~embeddings.LayerNorm.{old}",
                f"~bert.embeddings.LayerNorm.{own}",
                f"~bert.embeddings.LayerNorm.{old}",
            )
            for own, old in (("weight", "gamma"), ("bias", "beta"))
        },
        "layers": ("encoder.layer", "~bert.encoder.layer"),
        "pooler": ("pooler.dense", "~bert.pooler.dense"),
    }

    @classmethod
    def init(
        cls,
        key: Any,
        *,
        vocab_size: int = 30522,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-12,
        add_pooling_layer: bool = True,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        The settings have the names of Hugging Face's configurations.

        Parameters
        ----------
        key
            A random key.
        vocab_size, max_position_embeddings, type_vocab_size
            The number of tokens in the vocabulary, the maximal length of a text, and the number of
            token types.
        hidden_size, num_hidden_layers, num_attention_heads, intermediate_size
            The number of features of a position, of layers, of attention heads, and of features
            inside a layer's network.
        hidden_dropout_prob, attention_probs_dropout_prob
            The dropout rates in `train`: of features, and of attention weights.
        layer_norm_eps
            A small number that normalisations add to the variance.
        add_pooling_layer
            Whether there is a pooler.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers of standard
            deviation 0.02.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or heads do not divide the features.
        """
        width, heads = hidden_size, num_attention_heads
        positive(cls, vocab_size=vocab_size, hidden_size=width, num_attention_heads=heads)
        positive(cls, num_hidden_layers=num_hidden_layers, intermediate_size=intermediate_size)
        positive(
            cls, max_position_embeddings=max_position_embeddings, type_vocab_size=type_vocab_size
        )
        if width % heads:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: num_attention_heads {heads} must divide "
                f"hidden_size {width}"
            )
        of = Builder(key, weight_init, dtype, stddev=0.02)

        def layer() -> BERTLayer:
            query, keys, value = (of.linear(width, width) for _ in range(3))
            return BERTLayer(
                BERTAttention(query, keys, value, heads, attention_probs_dropout_prob),
                of.linear(width, width),
                of.layer_norm(width, layer_norm_eps),
                of.linear(width, intermediate_size),
                of.linear(intermediate_size, width),
                of.layer_norm(width, layer_norm_eps),
                Dropout(hidden_dropout_prob),
            )

        counts = vocab_size, max_position_embeddings, type_vocab_size
        tokens, positions, types = (Embed(of.weight((count, width), 0.02)) for count in counts)
        return cls(
            tokens,
            positions,
            types,
            of.layer_norm(width, layer_norm_eps),
            Dropout(hidden_dropout_prob),
            tuple(layer() for _ in range(num_hidden_layers)),
            of.linear(width, width) if add_pooling_layer else None,
        )

    def __call__(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> BERTOutputs:
        """Return the features of texts.

        Parameters
        ----------
        input_ids
            Integers in ``0 … vocab_size - 1``, shape ``(..., length)``.
        attention_mask
            Of the same shape: 1, or True, for tokens, and 0 for padding.
        token_type_ids
            Of the same shape: the types of the tokens, 0 by default.

        Returns
        -------
        BERTOutputs
            ``last_hidden_state`` of shape ``(..., length, hidden_size)``, and ``pooler_output`` of
            shape ``(..., hidden_size)``, or `None` without a pooler.

        Raises
        ------
        TypeError, ValueError
            If tokens are not integers, are not in the vocabulary, or are more than
            ``max_position_embeddings``.
        """
        return self._forward(self, input_ids, attention_mask, token_type_ids)

    def train(  # type: ignore[override]
        self,
        input_ids: Any,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        *,
        key: Any = None,
    ) -> tuple[BERTOutputs, Self]:
        """Return the features in training, with dropout, and the model.

        Parameters
        ----------
        input_ids, attention_mask, token_type_ids
            As in a call.
        key
            A random key, which is split among the layers; `None` if all rates are 0.
        """
        return self._trained(key, input_ids, attention_mask, token_type_ids)

    def _forward(
        self, of: Any, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> BERTOutputs:
        tokens = ops.asarray(input_ids)
        self._check(tokens)
        positions = ops.arange(tokens.shape[-1])
        types = ops.zeros_like(tokens) if token_type_ids is None else token_type_ids
        x = of.word_embeddings(tokens) + of.token_type_embeddings(types)
        x = of.dropout(of.norm(x + of.position_embeddings(positions)))
        mask = None
        if attention_mask is not None:
            mask = (ops.asarray(attention_mask) != 0)[..., None, None, :]
        for layer in of.layers:
            x = layer(x, mask)
        return BERTOutputs(x, None if of.pooler is None else ops.tanh(of.pooler(x[..., 0, :])))

    def _check(self, tokens: Any) -> None:
        if tokens.ndim < 1 or tokens.dtype.kind not in "iu":
            raise TypeError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: input_ids must be integers of shape "
                    f"(..., length), got {describe(tokens)}"
                )
            )
        most = self.position_embeddings.weight.shape[0]
        if tokens.shape[-1] > most:
            raise ValueError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: {tokens.shape[-1]} tokens are more "
                    f"than the model has positions, {most}; cut the text, or give a larger "
                    "max_position_embeddings to init"
                )
            )
