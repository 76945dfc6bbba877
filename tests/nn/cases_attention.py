"""Cases of attention, of transformers, and of tables."""

import numpy as np

from fdbr import nn
from nn.layer_cases import KEY, case

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
