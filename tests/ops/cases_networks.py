"""Cases of convolutions, pooling, tables, normalisation, attention and dropout."""

import itertools
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
import scipy.special as sp

import fdbr
from fdbr import ops
from fdbr.core.array_modules import array_module
from ops.cases import (
    ANY,
    CASES,
    POSITIVE,
    _array,
    array,
    arrays,
    case,
    grid,
    integers,
    shapes,
    unary,
)
from ops.seeds import several

_FIRST = len(CASES)

KEY = np.array([3, 5], dtype=np.uint64)


def of_shape(op: str, shape: Any, function: Any, reference: Any, setting: str = "") -> None:
    case(op, several(shape), reference, function, setting)


# --- convolutions, by the sums that define them -------------------------------------


def places(padding: Any, stride: Any, dilation: Any, counts: Any, kernel: Any) -> Any:
    """Every window with every position of the kernel, and the element that is there."""
    for window in itertools.product(*map(range, counts)):
        for position in itertools.product(*map(range, kernel)):
            yield (
                window,
                position,
                tuple(
                    w * s - p[0] + k * d
                    for w, s, p, k, d in zip(
                        window, stride, padding, position, dilation, strict=True
                    )
                ),
            )


def _per_axis(value: Any, rank: int) -> Any:
    return value if isinstance(value, tuple) else (value,) * rank


def _pairs(padding: Any, rank: int) -> Any:
    return tuple(p if isinstance(p, tuple) else (p, p) for p in _per_axis(padding, rank))


def correlated(
    x: Any, w: Any, b: Any = 0.0, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups=1
) -> Any:
    rank = w.ndim - 2
    stride, dilation = _per_axis(stride, rank), _per_axis(dilation, rank)
    padding = _pairs(padding, rank)
    counts = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, w.shape[2:], stride, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *counts))
    for window, position, element in places(padding, stride, dilation, counts, w.shape[2:]):
        if all(0 <= i < n for i, n in zip(element, x.shape[2:], strict=True)):
            for o in range(w.shape[0]):
                group = o // (w.shape[0] // groups)
                for c in range(w.shape[1]):
                    part = x[(slice(None), group * w.shape[1] + c, *element)]
                    out[(slice(None), o, *window)] += w[(o, c, *position)] * part
    return out + np.reshape(b, (-1, *(1,) * rank))


def spread(
    y: Any,
    w: Any,
    b: Any = 0.0,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    rank = w.ndim - 2
    stride, dilation = _per_axis(stride, rank), _per_axis(dilation, rank)
    padding, more = _pairs(padding, rank), _per_axis(output_padding, rank)
    size = [
        (n - 1) * s - sum(p) + d * (k - 1) + 1 + m
        for n, s, p, d, k, m in zip(
            y.shape[2:], stride, padding, dilation, w.shape[2:], more, strict=True
        )
    ]
    out = np.zeros((y.shape[0], w.shape[1] * groups, *size))
    for window, position, element in places(padding, stride, dilation, y.shape[2:], w.shape[2:]):
        if all(0 <= i < n for i, n in zip(element, size, strict=True)):
            for o in range(w.shape[0]):
                group = o // (w.shape[0] // groups)
                for c in range(w.shape[1]):
                    part = y[(slice(None), o, *window)]
                    place = (slice(None), group * w.shape[1] + c, *element)
                    out[place] += w[(o, c, *position)] * part
    return out + np.reshape(b, (-1, *(1,) * rank))


for setting, x, w, params in (
    ("", (2, 2, 4), (2, 2, 2), {}),
    ("stride and padding", (1, 1, 4), (2, 1, 3), {"stride": 2, "padding": 1}),
    ("dilation", (1, 2, 4), (1, 2, 2), {"dilation": 2, "padding": ((2, 0),)}),
    ("groups", (1, 2, 3), (4, 1, 2), {"groups": 2}),
    ("two dimensions", (1, 1, 3, 3), (2, 1, 2, 2), {"padding": (1, 0), "stride": (2, 1)}),
    ("three dimensions", (1, 1, 2, 2, 2), (1, 1, 2, 1, 2), {"padding": (0, 1, 0)}),
    ("one position", (2, 2, 2), (3, 2, 1), {}),
    ("no example", (0, 2, 3), (2, 2, 2), {}),
):
    case(
        "conv",
        several(x, w),
        lambda x, w, p=params: correlated(x, w, **p),
        lambda x, w, p=params: ops.conv(x, w, **p),
        setting,
    )
for setting, x, w, params in (
    ("bias", (2, 1, 4), (2, 1, 2), {"padding": 1}),
    ("bias and groups", (1, 2, 3), (2, 1, 2), {"groups": 2}),
):
    case(
        "conv",
        several(x, w, w[:1]),
        lambda x, w, b, p=params: correlated(x, w, b, **p),
        lambda x, w, b, p=params: ops.conv(x, w, b, **p),
        setting,
    )
case(
    "conv",
    several((1, 3, 2), (2, 1, 2, 2)),
    lambda x, w: correlated(x[None], w, padding=((0, 1), (0, 1)))[0],
    lambda x, w: ops.conv(x, w, padding="same"),
    "one example, same",
)
for setting, x, w, params in (
    ("", (2, 2, 3), (2, 2, 2), {}),
    ("stride", (1, 1, 3), (1, 2, 2), {"stride": 3, "output_padding": 2}),
    ("padding", (1, 2, 4), (2, 1, 3), {"padding": ((1, 2),), "dilation": 1}),
    ("groups", (1, 2, 3), (2, 2, 2), {"groups": 2, "dilation": 2}),
    ("two dimensions", (1, 1, 2, 2), (1, 2, 2, 2), {"stride": (2, 1), "padding": 1}),
):
    case(
        "conv_transpose",
        several(x, w, (w[1] * params.get("groups", 1),)),
        lambda x, w, b, p=params: spread(x, w, b, **p),
        lambda x, w, b, p=params: ops.conv_transpose(x, w, b, **p),
        setting,
    )
case(
    "conv_transpose",
    several((1, 2, 2), (2, 1, 3)),
    lambda x, w: spread(x, w, stride=2, padding=((0, 1),)),
    lambda x, w: ops.conv_transpose(x, w, stride=2, padding="same"),
    "same",
)


# --- pooling ------------------------------------------------------------------------


def pooled(reduce: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Each window of an array of one leading axis by itself; padding is left out of it."""
    counts = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[1:], padding, dilation, kernel, stride, strict=True)
    ]
    out = np.zeros((x.shape[0], *counts))
    found: dict[Any, list[Any]] = {}
    for window, _, element in places(padding, stride, dilation, counts, kernel):
        if all(0 <= i < n for i, n in zip(element, x.shape[1:], strict=True)):
            found.setdefault(window, []).append(x[(slice(None), *element)])
    for window, parts in found.items():
        out[(slice(None), *window)] = reduce(np.stack(parts), axis=0)
    return out


for setting, shape, kernel, params, full in (
    ("", (1, 6), (2,), {}, {}),
    ("overlapping", (2, 5), (3,), {"stride": 2, "padding": 1}, {"stride": (2,), "padding": 1}),
    ("two dimensions", (1, 3, 3), (2, 2), {"stride": 1}, {"stride": (1, 1)}),
    (
        "partial windows",
        (1, 4, 3),
        (2, 2),
        {"stride": (3, 2), "ceil_mode": True},
        {"stride": (3, 2), "padding": ((0, 1), (0, 1))},
    ),
):
    rank = len(kernel)
    stride = full.get("stride", kernel)
    padding = _pairs(full.get("padding", 0), rank)
    case(
        "max_pool",
        array(shape, grid(-4, 4), unique=True).map(lambda x: (x,)),
        lambda x, k=kernel, s=stride, p=padding: pooled(np.max, x, k, s, p, (1,) * len(k)),
        lambda x, k=kernel, p=params: ops.max_pool(x, k, **p),
        setting,
    )
    of_shape(
        "avg_pool",
        shape,
        lambda x, k=kernel, p=params: ops.avg_pool(x, k, count_include_pad=False, **p),
        lambda x, k=kernel, s=stride, p=padding: pooled(np.mean, x, k, s, p, (1,) * len(k)),
        setting,
    )
case(
    "max_pool",
    array((2, 1, 5), grid(-4, 4), unique=True).map(lambda x: (x,)),
    lambda x: pooled(np.max, x[:, 0], (2,), (1,), ((0, 0),), (2,))[:, None],
    lambda x: ops.max_pool(x, 2, stride=1, dilation=2),
    "dilation",
)


def _at_largest(x: Any) -> Any:
    """The squares of the largest, as the forward derivative along the squares."""
    return fdbr.jvp(lambda x: ops.max_pool(x, (2,)), (x,), (x * x,))[1]


case(
    "max_pool",
    array((2, 4), grid(-4, 4), unique=True).map(lambda x: (x,)),
    lambda x: np.max(x.reshape(2, 2, 2), axis=-1) ** 2,
    _at_largest,
    "forward derivative",
)
of_shape(
    "avg_pool",
    (2, 4),
    lambda x: ops.avg_pool(x, (3,), stride=2, padding=1),
    lambda x: np.stack([x[:, :2].sum(1), x[:, 1:].sum(1)], axis=1) / 3,
    "padding counts",
)
of_shape(
    "adaptive_avg_pool",
    (1, 2, 5),
    lambda x: ops.adaptive_avg_pool(x, 3),
    lambda x: np.stack([x[..., :2].mean(-1), x[..., 1:4].mean(-1), x[..., 3:].mean(-1)], axis=-1),
)
of_shape(
    "adaptive_avg_pool",
    (4, 3),
    lambda x: ops.adaptive_avg_pool(x, (2, None)),
    lambda x: x.reshape(2, 2, 3).mean(1),
    "dividing",
)

# --- tables, normalisation, attention, dropout --------------------------------------

for setting, shape, index_shape in (("", (3, 2), (4,)), ("two axes", (3, 1, 2), (2, 2))):
    case(
        "embed",
        st.tuples(_array(shape, ANY), integers(index_shape, 0, 2)),
        lambda w, i: w[i],
        ops.embed,
        setting,
    )
case(
    "embed",
    st.tuples(_array((3,), ANY), integers((), 0, 2)),
    lambda w, i: w[i],
    ops.embed,
    "one number",
)


def normal(x: Any, axes: Any, eps: float = 1e-2) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def rms(x: Any, axes: Any, eps: float = 1e-2) -> Any:
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + eps)


for op, reference in (("layer_norm", normal), ("rms_norm", rms)):
    f = getattr(ops, op)
    of_shape(op, (2, 4), partial(f, eps=1e-2), partial(reference, axes=-1))
    of_shape(
        op,
        (2, 1, 3),
        partial(f, axis=(0, 2), eps=1e-2),
        partial(reference, axes=(0, 2)),
        "two axes",
    )
    case(
        op,
        several((3, 2), (3,)),
        lambda x, w, g=reference: g(x, 0) * w[:, None],
        lambda x, w, f=f: f(x, w, axis=0, eps=1e-2),
        "weight",
    )
case(
    "layer_norm",
    several((2, 3), (3,), (3,)),
    lambda x, w, b: normal(x, -1) * w + b,
    lambda x, w, b: ops.layer_norm(x, w, b, eps=1e-2),
    "weight and bias",
)
case(
    "group_norm",
    several((1, 4, 2), (4,), (4,)),
    lambda x, w, b: normal(x.reshape(1, 2, 4), -1).reshape(1, 4, 2) * w[:, None] + b[:, None],
    lambda x, w, b: ops.group_norm(x, 2, w, b, eps=1e-2),
)
of_shape("instance_norm", (2, 2, 3), partial(ops.instance_norm, eps=1e-2), partial(normal, axes=-1))
case(
    "batch_norm",
    several((3, 2, 2), (2,), (2,)),
    lambda x, w, b: normal(x, (0, 2)) * w[:, None] + b[:, None],
    lambda x, w, b: ops.batch_norm(x, w, b, eps=1e-2)[0],
)
of_shape(
    "batch_norm",
    (3, 2),
    lambda x: ops.concat(ops.batch_norm(x, eps=1e-2)[1:]),
    lambda x: np.concatenate([x.mean(0), x.var(0)]),
    "statistics",
)
case(
    "batch_norm",
    arrays(((3, 2), ANY), ((2,), ANY), ((2,), POSITIVE)),
    lambda x, m, v: (x - m) / np.sqrt(v + 1e-5),
    lambda x, m, v: ops.batch_norm(x, mean=m, variance=v)[0],
    "known statistics",
)
of_shape(
    "batch_norm",
    (2, 3),
    lambda x: ops.batch_norm(x, axis=0, eps=1e-2)[0] + ops.batch_norm(x, eps=1e-2)[1],
    lambda x: normal(x, 1) + x.mean(0),
    "mean alone",
)
of_shape(
    "rms_norm",
    (2, 3),
    lambda x: ops.batch_norm(x, eps=1e-2)[2] * ops.rms_norm(x, eps=1e-2),
    lambda x: x.var(0) * rms(x, -1),
    "times a variance",
)


def attended(q: Any, k: Any, v: Any, seen: Any = True, scale: Any = None) -> Any:
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.where(seen, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    return sp.softmax(scores, axis=-1) @ v


for setting, params, seen in (
    ("", {}, True),
    ("causal", {"causal": True}, np.tri(2, 3, dtype=bool)),
):
    case(
        "scaled_dot_product_attention",
        several((2, 2), (3, 2), (3, 1)),
        lambda q, k, v, seen=seen: attended(q, k, v, seen),
        lambda q, k, v, p=params: ops.scaled_dot_product_attention(q, k, v, **p),
        setting,
    )
case(
    "scaled_dot_product_attention",
    several((2, 2, 1), (2, 2, 1), (2, 2, 1)),
    lambda q, k, v: attended(q, k, v, [[True, False], [True, True]]),
    lambda q, k, v: ops.scaled_dot_product_attention(
        q, k, v, mask=array_module(q).asarray(np.array([[True, False], [True, True]]))
    ),
    "mask",
)


def dropped(x: Any) -> Any:
    words = np.random.Philox(key=KEY).random_raw((x.size + 1) // 2)
    halves = np.stack([words & 0xFFFFFFFF, words >> 32], axis=-1).reshape(-1)[: x.size]
    return np.where(halves.reshape(x.shape) < 0.75 * 2**32, x / 0.75, 0)


case(
    "dropout",
    array(shapes()).map(lambda x: (x,)),
    dropped,
    lambda x: ops.dropout(x, 0.25, key=array_module(x).asarray(KEY)),
)
unary("dropout", ANY, lambda x: x, function=lambda x: ops.dropout(x, 0, key=KEY), setting="none")

OWN = CASES[_FIRST:]
