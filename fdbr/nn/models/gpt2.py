"""GPT-2: a decoder that predicts the next token."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, lock
from fdbr.core.devices import is_host
from fdbr.errors.checks import describe
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn import initializers
from fdbr.nn.attention.caches import KeyValueCache
from fdbr.nn.attention.embedding import Embed
from fdbr.nn.attention.multi_head import heads_apart, heads_together
from fdbr.nn.composite import Composite
from fdbr.nn.dropout import Dropout, needed_key
from fdbr.nn.layer import Layer
from fdbr.nn.models.building import Builder, positive
from fdbr.nn.models.network import Network
from fdbr.nn.normalization.layers import LayerNorm
from fdbr.tree import frozen, static

__all__ = ["GPT2", "Conv1D", "GPT2Attention", "GPT2Block"]


@public("fdbr.nn.models")
@frozen
class Conv1D(Layer):
    """A fully connected layer with a transposed weight: ``y = x @ weight + bias``.

    GPT-2's files store their weights in this layout.

    Attributes
    ----------
    weight
        Shape ``(in_features, out_features)``.
    bias
        Shape ``(out_features,)``.
    """

    weight: Any
    bias: Any

    projections: ClassVar = ("weight",)  # what `nn.lora` adapts

    def __call__(self, x: Any) -> Any:
        """Return the output of shape ``(..., out_features)``."""
        return ops.linear(x, ops.matrix_transpose(self.weight), self.bias)


@public("fdbr.nn.models")
@frozen
class GPT2Attention(Layer):
    """Causal self-attention.

    Attributes
    ----------
    c_attn, c_proj
        `Conv1D`: to queries, keys and values, and from the heads' outputs.
    heads, dropout
        The number of heads, and the dropout rate of attention weights in training.
    """

    c_attn: Conv1D
    c_proj: Conv1D
    heads: int = static()
    dropout: float = static(default=0.0)

    torch_ignored: ClassVar[tuple[str, ...]] = ("attn.bias", "attn.masked_bias")

    def __call__(self, x: Any, cache: KeyValueCache | None = None) -> Any:
        """Return the output; with a cache, also the next cache."""
        query, keys, values = self._parts(x)
        if cache is None:
            seen = ops.scaled_dot_product_attention(query, keys, values, causal=True)
            return self.c_proj(heads_together(seen))
        seen, cache = cache.attend(query, keys, values)
        return self.c_proj(heads_together(seen)), cache

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """Return the output with weights left out, and the layer."""
        key = needed_key("models.GPT2Attention", key) if self.dropout else None
        seen = ops.scaled_dot_product_attention(
            *self._parts(x), causal=True, dropout_p=self.dropout, dropout_key=key
        )
        return self.c_proj(heads_together(seen)), self

    def _parts(self, x: Any) -> list[Any]:
        parts = self.c_attn(x)
        width = parts.shape[-1] // 3
        return [heads_apart(parts[..., i * width : (i + 1) * width], self.heads) for i in range(3)]


@public("fdbr.nn.models")
@frozen
class GPT2Block(Composite):
    """Attention and a position-wise network, each with a residual and a normalisation before it.

    Attributes
    ----------
    ln_1, attn, ln_2, c_fc, c_proj
        The layers; the last two are the network.
    dropout
        Dropout before the residual addition.
    """

    ln_1: LayerNorm
    attn: GPT2Attention
    ln_2: LayerNorm
    c_fc: Conv1D
    c_proj: Conv1D
    dropout: Dropout

    torch_names: ClassVar[dict[str, str]] = {"c_fc": "mlp.c_fc", "c_proj": "mlp.c_proj"}

    def _forward(self, of: Any, x: Any, cache: KeyValueCache | None = None) -> Any:
        if cache is None:
            seen = of.attn(of.ln_1(x))
        else:
            seen, cache = of.attn(of.ln_1(x), cache)
        x = x + of.dropout(seen)
        x = x + of.dropout(of.c_proj(ops.gelu(of.c_fc(of.ln_2(x)), approximate="tanh")))
        return x if cache is None else (x, cache)


@public("fdbr.nn.models")
@frozen
class GPT2(Network):
    """GPT-2: logits of the next token after each token of a text.

    Radford et al., *Language models are unsupervised multitask learners*, 2019: 124,439,808
    parameters by default.  `nn.load_torch_state` loads Hugging Face's files of ``GPT2LMHeadModel``
    and ``GPT2Model``: `Conv1D` has the transposed matrices that they store.  `generate` makes
    texts.

    Attributes
    ----------
    wte, wpe
        The tables of tokens and of positions; the table of tokens is also the last layer.
    drop, h, ln_f
        Dropout, the tuple of `GPT2Block`, and a normalisation.

    >>> import fdbr
    >>> import numpy as np
    >>> from fdbr import nn
    >>> sizes = dict(vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> model = nn.models.GPT2.init(fdbr.random.key(0), **sizes)
    >>> tokens = np.array([[3, 1, 4], [1, 5, 9]])
    >>> model(tokens).shape
    (2, 3, 20)
    >>> logits, caches = model(tokens, cache=model.cache(2, 10))
    >>> logits, caches = model(np.array([[1], [2]]), cache=caches)
    >>> logits.shape
    (2, 1, 20)
    """

    wte: Embed
    wpe: Embed
    drop: Dropout
    h: tuple[GPT2Block, ...]
    ln_f: LayerNorm

    torch_names: ClassVar[dict[str, Any]] = {
        "wte": ("transformer.wte", "lm_head", "~wte"),
        **{name: (f"transformer.{name}", f"~{name}") for name in ("wpe", "h", "ln_f")},
    }

    @classmethod
    def init(
        cls,
        key: Any,
        *,
        vocab_size: int = 50257,
        n_positions: int = 1024,
        n_embd: int = 768,
        n_layer: int = 12,
        n_head: int = 12,
        n_inner: int | None = None,
        resid_pdrop: float = 0.1,
        embd_pdrop: float = 0.1,
        attn_pdrop: float = 0.1,
        layer_norm_epsilon: float = 1e-5,
        weight_init: initializers.Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a model with fresh parameters.

        The settings have the names of Hugging Face's configurations.

        Parameters
        ----------
        key
            A random key.
        vocab_size, n_positions
            The number of tokens in the vocabulary, and the maximal length of a text.
        n_embd, n_layer, n_head
            The number of features of a position, of blocks, and of attention heads (768, 12, 12; of
            medium, large and XL 1024, 24, 16; 1280, 36, 20; 1600, 48, 25).
        n_inner
            The number of features inside a block's network; four times ``n_embd`` by default.
        resid_pdrop, embd_pdrop, attn_pdrop
            The dropout rates in `train`: before residual additions, after the embedding, and of
            attention weights.
        layer_norm_epsilon
            A small number that normalisations add to the variance.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers of standard
            deviation 0.02, divided by ``sqrt(2 * n_layer)`` for the last layers of blocks.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or ``n_head`` does not divide ``n_embd``.
        """
        inner = 4 * n_embd if n_inner is None else n_inner
        positive(cls, vocab_size=vocab_size, n_positions=n_positions, n_embd=n_embd)
        positive(cls, n_layer=n_layer, n_head=n_head, n_inner=inner)
        if n_embd % n_head:
            raise ValueError(
                f"fdbr.nn.models.{cls.__name__}.init: n_head {n_head} must divide n_embd {n_embd}"
            )
        of = Builder(key, weight_init, dtype, stddev=0.02)
        last = 0.02 / (2 * n_layer) ** 0.5

        def dense(inputs: int, outputs: int, stddev: float = 0.02) -> Conv1D:
            bias = initializers.zeros()(of.key(), (outputs,), dtype)
            return Conv1D(of.weight((inputs, outputs), stddev), bias)

        def block() -> GPT2Block:
            return GPT2Block(
                of.layer_norm(n_embd, layer_norm_epsilon),
                GPT2Attention(
                    dense(n_embd, 3 * n_embd), dense(n_embd, n_embd, last), n_head, attn_pdrop
                ),
                of.layer_norm(n_embd, layer_norm_epsilon),
                dense(n_embd, inner),
                dense(inner, n_embd, last),
                Dropout(resid_pdrop),
            )

        return cls(
            Embed(of.weight((vocab_size, n_embd), 0.02)),
            Embed(of.weight((n_positions, n_embd), 0.02)),
            Dropout(embd_pdrop),
            tuple(block() for _ in range(n_layer)),
            of.layer_norm(n_embd, layer_norm_epsilon),
        )

    def __call__(self, tokens: Any, *, cache: Any = None, last: bool = False) -> Any:
        """Return the logits of the token after each given one.

        Parameters
        ----------
        tokens
            Integers in ``0 … vocab_size - 1``, shape ``(..., length)``.
        cache
            The caches that `cache` or the previous call returned: the tokens follow theirs.
        last
            Whether only the logits after the last token are computed, as in generation.

        Returns
        -------
        array or tuple
            Shape ``(..., length, vocab_size)``, or ``(..., 1, vocab_size)`` with ``last``; with a
            cache, a tuple of it and the next caches.

        Raises
        ------
        TypeError, ValueError
            If tokens are not integers, are not in the vocabulary, or are more than ``n_positions``.
        """
        return self._forward(self, tokens, cache, last)

    def train(self, tokens: Any, *, key: Any = None) -> tuple[Any, Self]:  # type: ignore[override]
        """Return the logits in training, with dropout, and the model.

        Parameters
        ----------
        tokens
            As in a call.
        key
            A random key, which is split among the layers; `None` if all rates are 0.
        """
        return self._trained(key, tokens)

    def cache(self, batch: int | tuple[int, ...], length: int) -> tuple[KeyValueCache, ...]:
        """Return empty caches, one for each block.

        Parameters
        ----------
        batch
            The batch size or shape; ``()`` for a single text without a batch axis.
        length
            The number of tokens that the caches can hold.
        """
        heads = self.h[0].attn.heads
        width, dtype = self.wte.weight.shape[-1], self.wte.weight.dtype
        one = KeyValueCache.init(batch, length, heads, width // heads, dtype=dtype)
        xp = array_module(self.wte.weight)
        if not is_host(xp):
            one = tree.map(lambda array: lock(xp.asarray(array)), one)
        return (one,) * len(self.h)

    def _forward(self, of: Any, tokens: Any, cache: Any = None, last: bool = False) -> Any:
        tokens = ops.asarray(tokens)
        known = 0 if cache is None else cache[0].known_position()
        self._check(tokens, known or 0)
        positions = ops.arange(tokens.shape[-1]) + (cache[0].position if known is None else known)
        x = of.drop(of.wte(tokens) + of.wpe(positions))
        caches = []
        for i, block in enumerate(of.h if isinstance(of.h, list) else self.h):
            if cache is None:
                x = block(x)
            else:
                x, one = block(x, cache[i])
                caches.append(one)
        logits = ops.linear(of.ln_f(x[..., -1:, :] if last else x), self.wte.weight)
        return logits if cache is None else (logits, tuple(caches))

    def _check(self, tokens: Any, before: int) -> None:
        if tokens.ndim < 1 or tokens.dtype.kind not in "iu":
            raise TypeError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: tokens must be integers of shape "
                    f"(..., length), got {describe(tokens)}"
                )
            )
        count, most = before + tokens.shape[-1], self.wpe.weight.shape[0]
        if count > most:
            raise ValueError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: {count} tokens are more than the model "
                    f"has positions, {most}; give the last ones, or a larger n_positions to init"
                )
            )
