"""GPT-2: a decoder that tells of each token the next one."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, lock
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
    """The fully connected layer with its weight the other way round: ``y = x @ weight + bias``.

    So lie the weights of GPT-2 in its files, which therefore load as they are.

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
        """The output of shape ``(..., out_features)``."""
        return ops.linear(x, ops.matrix_transpose(self.weight), self.bias)


@public("fdbr.nn.models")
@frozen
class GPT2Attention(Layer):
    """Attention in which a token sees itself and those before.

    Attributes
    ----------
    c_attn, c_proj
        `Conv1D`: to queries, keys and values, and from what the heads see.
    heads, dropout
        How many heads there are, and the rate at which weights are left out in training.
    """

    c_attn: Conv1D
    c_proj: Conv1D
    heads: int = static()
    dropout: float = static(default=0.0)

    torch_ignored: ClassVar[tuple[str, ...]] = ("attn.bias", "attn.masked_bias")

    def __call__(self, x: Any, cache: KeyValueCache | None = None) -> Any:
        """The output; with a cache, beside the next one."""
        query, keys, values = self._parts(x)
        if cache is None:
            seen = ops.scaled_dot_product_attention(query, keys, values, causal=True)
            return self.c_proj(heads_together(seen))
        seen, cache = cache.attend(query, keys, values)
        return self.c_proj(heads_together(seen)), cache

    def train(self, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """The output with weights left out, and the layer."""
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
    """Attention and a network for each place, each after a normalisation and beside a shortcut.

    Attributes
    ----------
    ln_1, attn, ln_2, c_fc, c_proj
        The layers; the last two are the network.
    dropout
        Dropout before what went in is added.
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
    """GPT-2: of each token of a text, logits of the next one.

    Radford et al., *Language models are unsupervised multitask learners*, 2019: 124,439,808
    parameters by default.  Weights lie as in Hugging Face's files, those of ``GPT2LMHeadModel``
    and of ``GPT2Model``, and load by `nn.load_torch_state` as they are: the matrices, which
    are transposed there, are so in `Conv1D`, too.  `generate` makes texts.

    Attributes
    ----------
    wte, wpe
        The tables of tokens and of positions; the first is the last layer, too.
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
        """A model with fresh parameters.

        The settings have the names of Hugging Face's configurations.

        Parameters
        ----------
        key
            A key.
        vocab_size, n_positions
            How many tokens there are, and how many a text may have.
        n_embd, n_layer, n_head
            How many features a place has, how many blocks there are, and heads of attention
            (768, 12, 12; of medium, large and XL 1024, 24, 16; 1280, 36, 20; 1600, 48, 25).
        n_inner
            How many features a block's network has inside; four times ``n_embd`` by default.
        resid_pdrop, embd_pdrop, attn_pdrop
            The rates of dropout in `train`: before additions, after the embedding, and of the
            weights of attention.
        layer_norm_epsilon
            What normalisations add to the variance.
        weight_init
            ``init(key, shape, dtype)`` for all weights; by default uniform numbers of standard
            deviation 0.02, of the last layers of blocks by ``sqrt(2 * n_layer)`` smaller.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is no positive integer, or ``n_head`` does not divide ``n_embd``.
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
        """The logits of the token after each of those given.

        Parameters
        ----------
        tokens
            Integers in ``0 … vocab_size - 1``, shape ``(..., length)``.
        cache
            What `cache` or the call before gave: the tokens follow those that it has seen.
        last
            Whether only the logits after the last token are computed, as of a text that goes on.

        Returns
        -------
        array or tuple
            Shape ``(..., length, vocab_size)``, or ``(..., 1, vocab_size)`` with ``last``; with a
            cache, beside the next one.

        Raises
        ------
        TypeError, ValueError
            If tokens are no integers, are not in the vocabulary, or are more than ``n_positions``.
        """
        return self._forward(self, tokens, cache, last)

    def train(self, tokens: Any, *, key: Any = None) -> tuple[Any, Self]:  # type: ignore[override]
        """The logits in training, with dropout, and the model.

        Parameters
        ----------
        tokens
            As in a call.
        key
            A key, of which each layer gets its own; `None` if all rates are 0.
        """
        return self._trained(key, tokens)

    def cache(self, batch: int | tuple[int, ...], length: int) -> tuple[KeyValueCache, ...]:
        """Empty caches, one for each block.

        Parameters
        ----------
        batch
            How many texts there are, or the shape of them; ``()`` for one without that axis.
        length
            How many tokens they may take.
        """
        heads = self.h[0].attn.heads
        width, dtype = self.wte.weight.shape[-1], self.wte.weight.dtype
        one = KeyValueCache.init(batch, length, heads, width // heads, dtype=dtype)
        xp = array_module(self.wte.weight)
        if xp is not np:
            one = tree.map(lambda array: lock(xp.asarray(array)), one)
        return (one,) * len(self.h)

    def _forward(self, of: Any, tokens: Any, cache: Any = None, last: bool = False) -> Any:
        tokens = ops.asarray(tokens)
        known = 0 if cache is None else cache[0].known_position()
        self._check(tokens, known or 0)
        places = ops.arange(tokens.shape[-1]) + (cache[0].position if known is None else known)
        x = of.drop(of.wte(tokens) + of.wpe(places))
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
        count, places = before + tokens.shape[-1], self.wpe.weight.shape[0]
        if count > places:
            raise ValueError(
                placed(
                    f"fdbr.nn.models.{type(self).__name__}: {count} tokens are more than the model "
                    f"has positions, {places}; give the last ones, or a larger n_positions to init"
                )
            )
