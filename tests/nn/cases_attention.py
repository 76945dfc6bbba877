"""Cases of attention, of transformers, and of tables."""

import numpy as np

from fdbr import nn, tree
from nn.layer_cases import KEY, case, numbers

# --- tables -------------------------------------------------------------------------

TOKENS = np.array([[0, 3, 1], [1, 1, -1]])


def _tokens(dtype):
    return (TOKENS % 4,)


case("Embed", lambda d: nn.Embed.init(KEY, 4, 2, dtype=d), _tokens)
case("Embed with padding", lambda d: nn.Embed.init(KEY, 4, 2, padding_idx=2, dtype=d), _tokens)
case(
    "Embed that ignores a label",
    lambda d: nn.Embed.init(KEY, 4, 2, ignore_label=-1, dtype=d),
    lambda d: (TOKENS,),
)
case("PositionalEmbedding", lambda d: nn.PositionalEmbedding.init(KEY, 4, 2, dtype=d), [(2, 3, 2)])
case("SinusoidalEmbedding", lambda d: nn.SinusoidalEmbedding.init(None, 4, 2, dtype=d), [(3, 2)])

# --- attention ----------------------------------------------------------------------

case("MultiHeadAttention", lambda d: nn.MultiHeadAttention.init(KEY, 4, 2, dtype=d), [(2, 3, 4)])
case(
    "MultiHeadAttention of other widths, causal",
    lambda d: nn.MultiHeadAttention.init(KEY, 2, 1, kdim=3, vdim=1, bias=False, dtype=d),
    [(2, 2), (3, 3), (3, 1)],
    call=lambda layer, q, k, v: layer(q, k, v, causal=True),
)
case(
    "MultiHeadAttention with keys of its own",
    lambda d: nn.MultiHeadAttention.init(
        KEY, 2, 2, add_bias_kv=True, add_zero_attn=True, dropout=0.5, dtype=d
    ),
    [(2, 2), (3, 2)],
    key=True,
    call=lambda layer, q, k: layer(
        q, k, mask=np.array([[True, False, True], [False] * 3]), need_weights=True
    ),
)
case(
    "GroupedQueryAttention",
    lambda d: nn.GroupedQueryAttention.init(KEY, 4, 2, 1, bias=True, dtype=d),
    [(2, 3, 4)],
)
case(
    "GroupedQueryAttention with norms and a window",
    lambda d: nn.GroupedQueryAttention.init(
        KEY, 3, 2, head_dim=3, qk_norm=True, rotary_width=2, interleaved=True, window=1,
        dropout=0.5, dtype=d
    ),
    [(3, 3)],
    key=True,
    order=1,
    call=lambda layer, x: layer(x, causal=True, positions=np.array([0, 2, 5])),
)  # fmt: skip

# --- transformers -------------------------------------------------------------------

case(
    "TransformerEncoderLayer",
    lambda d: nn.TransformerEncoderLayer.init(KEY, 4, 2, 3, activation="gelu", dtype=d),
    [(2, 2, 4)],
    key=True,
    order=1,
)
case(
    "TransformerDecoderLayer",
    lambda d: nn.TransformerDecoderLayer.init(
        KEY, 4, 2, 3, norm_first=True, activation="tanh", dtype=d
    ),
    [(2, 4), (3, 4)],
    key=True,
    order=1,
    call=lambda layer, x, memory: layer(x, memory, causal=True),
)
SMALL = {"dropout": 0.0, "activation": "tanh"}
case(
    "TransformerEncoder",
    lambda d: nn.TransformerEncoder.init(KEY, 2, 2, 1, 3, dtype=d, norm=True, **SMALL),
    [(2, 2)],
    order=1,
)
case(
    "TransformerDecoder",
    lambda d: nn.TransformerDecoder.init(KEY, 1, 2, 1, 3, dtype=d, **SMALL),
    [(2, 2), (3, 2)],
    order=1,
)
case(
    "Transformer",
    lambda d: nn.Transformer.init(KEY, 2, 1, 1, 1, 3, dtype=d, **SMALL),
    [(2, 2), (3, 2)],
    order=1,
    call=lambda layer, x, y: layer(x, y, tgt_is_causal=True, src_is_causal=True),
)
case(
    "ViTBlock",
    lambda d: nn.ViTBlock.init(KEY, 4, 2, 3, dropout=0.5, attention_dropout=0.5, dtype=d),
    [(2, 4)],
    key=True,
    order=1,
)
case("GatedMLP", lambda d: nn.GatedMLP.init(KEY, 2, 3, dtype=d), [(3, 2)])
case(
    "DecoderBlock",
    lambda d: nn.DecoderBlock.init(KEY, 4, 2, 1, 3, dtype=d),
    [(2, 4)],
    order=1,
)

# --- experts and adaptation ---------------------------------------------------------

case(
    "MixtureOfExperts",
    lambda d: nn.MixtureOfExperts.init(KEY, 2, 3, 3, dtype=d),
    [(2, 2, 2)],
)
case(
    "MixtureOfExperts with a capacity, and losses",
    lambda d: nn.MixtureOfExperts.init(KEY, 2, 3, 2, k=1, capacity_factor=1.0, dtype=d),
    [(4, 2)],
    call=lambda layer, x: layer(x, need_losses=True),
)
case(
    "LoRA",
    lambda d: moved(nn.lora(nn.MultiHeadAttention.init(KEY, 2, 1, dtype=d), KEY, 1, alpha=2.0)),
    [(3, 2)],
)


def moved(adapted):
    """As after a step: the second matrices are not zeros any more."""
    leaves = {
        path: tree.replace(a, lora_B=numbers(a.lora_B.shape, a.lora_B.dtype))
        for path, a in adapted.adapters.items()
    }
    return tree.replace(adapted, adapters=leaves)
