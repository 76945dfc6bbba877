"""Cases of attention, and of places in a sequence."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import scipy.special as sp

from fdbr import ops
from fdbr.core.array_modules import array_module
from ops.cases import ANY, CASES, _array, case, grid, integers
from ops.cases_networks import KEY, attended, dropped
from ops.seeds import several

_FIRST = len(CASES)

# --- attention ----------------------------------------------------------------------

ALIVE = np.array([[True, False, True], [False, False, False]])


def alive(q: Any, k: Any, v: Any) -> Any:
    return attended(q, k, v, ALIVE | ~ALIVE.any(-1, keepdims=True)) * ALIVE.any(-1, keepdims=True)


LOWER = np.tri(3, dtype=bool)


def extended(q: Any, k: Any, m: Any) -> tuple[Any, Any]:
    """Queries and keys whose product is that of these, and a row of numbers besides."""
    m = m.real * np.sqrt(q.shape[-1])
    q = np.concatenate([q, np.ones((*q.shape[:-1], 1))], axis=-1)
    k = np.broadcast_to(k, (*m.shape[:-2], *k.shape))
    return q, np.concatenate([k, m.swapaxes(-1, -2)], axis=-1)


def dropped_attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return dropped(sp.softmax(scores, axis=-1)) @ v


def _beside(x: Any, params: Any) -> Any:
    xp = array_module(x)
    return {name: xp.asarray(p) if name == "mask" else p for name, p in params.items()}


case(
    "scaled_dot_product_attention",
    several((2, 2), (3, 2), (3, 1)),
    alive,
    lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, array_module(q).asarray(ALIVE)),
    "a query that sees nothing",
)
case(
    "scaled_dot_product_attention",
    several((2, 2), (3, 2), (3, 1), (1, 3)),
    lambda q, k, v, m: attended(*extended(q, k, m), v, scale=2**-0.5),
    lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, ops.real(m)),
    "numbers added",
)
case(
    "scaled_dot_product_attention",
    several((4, 2, 2), (2, 3, 2), (2, 3, 1)),
    lambda q, k, v: attended(q, k.repeat(2, 0), v.repeat(2, 0), scale=0.25),
    lambda q, k, v: ops.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.25),
    "grouped queries",
)
case(
    "scaled_dot_product_attention",
    several((4, 2), (3, 2), (3, 1)),
    lambda q, k, v: attended(q[:3], k, v, np.tri(3, 3, dtype=bool) & ~np.tri(3, 3, -2, dtype=bool)),
    lambda q, k, v: ops.scaled_dot_product_attention(q[:3], k, v, causal=True, local_window_size=1),
    "window",
)

for setting, shapes, params, reference in (
    (
        "blocks, causal",
        ((2, 3, 1), (3, 1), (3, 2)),
        {"causal": True},
        {"seen": np.tri(3, dtype=bool)},
    ),
    ("blocks, half of the keys", ((3, 2), (3, 2), (3, 1)), {"mask": LOWER}, {"seen": LOWER}),
):
    case(
        "scaled_dot_product_attention",
        several(*shapes),
        lambda q, k, v, p=reference: attended(q, k, v, **p),
        lambda q, k, v, p=params: ops.scaled_dot_product_attention(
            q, k, v, block_size=2, **_beside(q, p)
        ),
        setting,
    )
case(
    "scaled_dot_product_attention",
    several((2, 3, 2), (3, 2), (3, 1), (2, 1, 3)),
    lambda q, k, v, m: attended(*extended(q, k, m), v, scale=2**-0.5),
    lambda q, k, v, m: ops.scaled_dot_product_attention(q, k, v, ops.real(m), block_size=2),
    "blocks, numbers added",
)
case(
    "scaled_dot_product_attention",
    several((2, 3, 2), (1, 3, 2), (1, 3, 1)),
    lambda q, k, v: dropped_attention(q, k, v),
    lambda q, k, v: ops.scaled_dot_product_attention(
        q,
        k,
        v,
        enable_gqa=True,
        block_size=2,
        dropout_p=0.25,
        dropout_key=array_module(q).asarray(KEY),
    ),
    "blocks, grouped, dropout",
)

# --- tables -------------------------------------------------------------------------

case(
    "embed",
    st.tuples(_array((3, 2), ANY), integers((4,), -1, 2)),
    lambda w, i: np.where((i == -1)[:, None], 0, w[i]),
    lambda w, i: ops.embed(w, i, ignore_label=-1),
    "a label that is ignored",
)
case(
    "embed",
    st.tuples(_array((3, 2), ANY), integers((4,), 0, 1)),
    lambda w, i: w[i],
    lambda w, i: ops.embed(w, i, padding_idx=2),
    "padding",
)

# --- places -------------------------------------------------------------------------


def waves(p: Any, width: int, base: float) -> Any:
    out = np.zeros((*p.shape, width))
    for i in range(width // 2):
        out[..., 2 * i] = np.sin(p / base ** (2 * i / width))
        out[..., 2 * i + 1] = np.cos(p / base ** (2 * i / width))
    return out


def rotated(x: Any, places: Any, pairs: Any, base: float) -> Any:
    out = x.copy()
    for i, (one, two) in enumerate(pairs):
        iteration = np.exp(1j * places / base ** (i / len(pairs))) * (
            x[..., one] + 1j * x[..., two]
        )
        out[..., one], out[..., two] = iteration.real, iteration.imag
    return out


case(
    "sinusoidal_embedding",
    st.tuples(_array((2, 1), grid(0, 3))),
    lambda p: waves(p, 4, 100.0),
    lambda p: ops.sinusoidal_embedding(p, 4, base=100.0),
)
case(
    "sinusoidal_embedding",
    st.tuples(_array((2,), grid(0, 3))),
    lambda p: waves(p, 4, 1e4)[..., [0, 2, 1, 3]],
    lambda p: ops.sinusoidal_embedding(p, 4, interleaved=False),
    "sines first",
)
case(
    "alibi_bias",
    st.tuples(_array((2, 2), grid(0, 3)), _array((2, 3), grid(5, 8))),
    lambda p, q: (
        np.array([1 / 16, 1 / 256, 1 / 4])[:, None, None]
        * -np.abs(p[:, None, :, None] - q[:, None, None, :])
    ),
    lambda p, q: ops.alibi_bias(p, 3, q),
)
case(
    "rotary_embedding",
    st.tuples(_array((1, 3, 4), ANY)),
    lambda x: rotated(x, np.arange(3) + 2, [(0, 2), (1, 3)], 50.0),
    lambda x: ops.rotary_embedding(x, base=50.0, offset=2),
)
case(
    "rotary_embedding",
    st.tuples(_array((2, 5), ANY)),
    lambda x: rotated(x, np.arange(2), [(0, 1), (2, 3)], 1e4),
    lambda x: ops.rotary_embedding(x, interleaved=True, width=4),
    "neighbours",
)
case(
    "rotary_embedding",
    st.tuples(_array((2, 2), ANY), _array((2,), grid(0, 3))),
    lambda x, p: rotated(x, p, [(0, 1)], 1e4),
    ops.rotary_embedding,
    "positions",
)

OWN = CASES[_FIRST:]
