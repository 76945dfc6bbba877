"""Reductions over rows, and what networks are made of."""

import math
from typing import Any

import numpy as np

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]

_F = "nn.functional."


def _matrix(d: Draw) -> Any:
    return (d.matrix(),)


def _positive_matrix(d: Draw) -> Any:
    return (d.uniform(0.5, 1.5, *d.shape(2)),)


# --- along axes ---------------------------------------------------------------------


def _along(
    name: str, theirs: str, axis: int | None, draw: Any = _matrix, **more: Any
) -> list[Program]:
    """A reduction along one axis of a matrix, or of all its elements."""
    if axis is None:
        return [
            Program(
                f"{name}/all",
                draw,
                lambda o, x: getattr(o, name)(x),
                lambda t, x: getattr(t, theirs)(x),
                **more,
            )
        ]
    return [
        Program(
            f"{name}/axis {axis}",
            draw,
            lambda o, x: getattr(o, name)(x, axis=axis),
            lambda t, x: getattr(t, theirs)(x, dim=axis),
            **more,
        )
    ]


_REDUCTIONS = [
    program
    for axis in (None, 0, -1)
    for program in (
        *_along("sum", "sum", axis),
        *_along("mean", "mean", axis),
        *(_along("max", "amax", axis) + _along("min", "amin", axis)),
        *_along("prod", "prod", axis, _positive_matrix),
        *_along("argmax", "argmax", axis, gradient=False),
        *_along("argmin", "argmin", axis, gradient=False),
        *_along("count_nonzero", "count_nonzero", axis, gradient=False),
        *_along("all", "all", axis, lambda d: (d.truths(*d.shape(2)),), gradient=False),
        *_along("any", "any", axis, lambda d: (d.truths(*d.shape(2)),), gradient=False),
    )
]

_SPREAD = [
    Program(
        f"{name}/axis {axis}" if axis is not None else f"{name}/all",
        _matrix,
        lambda o, x, name=name, axis=axis: getattr(o, name)(x, axis=axis),
        lambda t, x, name=name, axis=axis: getattr(t, name)(x, dim=axis, correction=0),
    )
    for name in ("var", "std")
    for axis in (None, 0, -1)
]

_NORMALISED = [
    program
    for axis in (0, -1)
    for program in (
        *_along("logsumexp", "logsumexp", axis),
        *_along("softmax", "softmax", axis),
        *_along("log_softmax", "log_softmax", axis),
        *_along("cumulative_sum", "cumsum", axis),
        *_along("cumulative_prod", "cumprod", axis, _positive_matrix),
    )
]

_WHOLE = [  # one row: each step waits for the step before it
    Program(
        f"{name}/whole",
        lambda d: (d.uniform(0.5, 1.5),),
        lambda o, x, name=name: getattr(o, name)(x),
        lambda t, x, theirs=theirs: getattr(t, theirs)(x, dim=0),
        alike=False,  # sums of so many numbers differ by more than the tolerance
    )
    for name, theirs in (("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod"))
]

_ORDERS = [
    Program(
        "quantile",
        _matrix,
        lambda o, x: o.quantile(x, 0.3, axis=-1),
        lambda t, x: t.quantile(x, 0.3, dim=-1),
    ),
    Program(
        "median",
        lambda d: (d.normal(d.shape(2)[0], d.shape(2)[1] // 2 * 2 - 1),),  # the middle one exists
        lambda o, x: o.median(x, axis=-1),
        lambda t, x: t.median(x, dim=-1).values,
    ),
]

# --- normalisation and losses -------------------------------------------------------


def _scaled_rows(d: Draw) -> Any:
    x = d.matrix()
    return x, d.uniform(0.5, 1.5, x.shape[1]), d.normal(x.shape[1])


def _scaled_channels(d: Draw) -> Any:
    x = d.images()
    return x, d.uniform(0.5, 1.5, x.shape[1]), d.normal(x.shape[1])


def _classified(d: Draw) -> Any:
    x = d.matrix()
    return x, d.integers(0, x.shape[1], x.shape[0])


def _channels_first(d: Draw) -> Any:
    n, c, h, w = d.shape(4)
    return n, c, max(h, 2), max(w, 2)


_NORMS = [
    Program(
        "layer_norm",
        _scaled_rows,
        lambda o, x, w, b: o.layer_norm(x, w, b),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, w.shape, w, b),
    ),
    Program(
        "layer_norm/alone",
        _matrix,
        lambda o, x: o.layer_norm(x),
        lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]),
    ),
    Program(
        "rms_norm",
        lambda d: _scaled_rows(d)[:2],
        lambda o, x, w: o.rms_norm(x, w),
        lambda t, x, w: t.nn.functional.rms_norm(x, w.shape, w, eps=1e-5),
    ),
    Program(
        "group_norm",
        _scaled_channels,
        lambda o, x, w, b: o.group_norm(x, 1, w, b),
        lambda t, x, w, b: t.nn.functional.group_norm(x, 1, w, b),
    ),
    Program(
        "instance_norm",
        _scaled_channels,
        lambda o, x, w, b: o.instance_norm(x, w, b),
        lambda t, x, w, b: t.nn.functional.instance_norm(x, weight=w, bias=b),
    ),
    Program(
        "batch_norm",
        _scaled_channels,
        lambda o, x, w, b: o.batch_norm(x, w, b)[0],
        lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, training=True),
    ),
    Program(
        "softmax_cross_entropy",
        _classified,
        lambda o, x, labels: o.softmax_cross_entropy(x, labels),
        lambda t, x, labels: t.nn.functional.cross_entropy(x, labels),
    ),
    Program(
        "softmax_cross_entropy/10 classes",
        lambda d: (d.normal(-(-d.count // 10), 10), d.integers(0, 10, -(-d.count // 10))),
        lambda o, x, labels: o.softmax_cross_entropy(x, labels),
        lambda t, x, labels: t.nn.functional.cross_entropy(x, labels),
    ),
    Program(
        "softmax_cross_entropy/probabilities",
        lambda d: (d.matrix(), np.full(d.shape(2), 1 / d.shape(2)[1], np.float32)),
        lambda o, x, p: o.softmax_cross_entropy(x, p),
        lambda t, x, p: t.nn.functional.cross_entropy(x, p),
    ),
    *same(f"mean_squared_error:{_F}mse_loss", lambda d: (d.normal(), d.normal())),
    Program(
        "dropout",
        lambda d: (d.normal(),),
        lambda o, x: o.dropout(x, 0.5, key=_key()),
        lambda t, x: t.nn.functional.dropout(x, 0.5),
        alike=False,
    ),
]


def _key() -> Any:
    from fdbr import random

    return random.key(0)


# --- products of patches ------------------------------------------------------------


def _convolved(kernel: int, groups: int = 1) -> Any:
    def draw(d: Draw) -> Any:
        x = d.normal(*_channels_first(d))
        channels = x.shape[1]
        each = 1 if groups == 0 else channels
        return x, d.normal(channels, each, kernel, kernel), d.normal(channels)

    return draw


def _windows(d: Draw) -> Any:
    n, c, h, _ = _channels_first(d)
    return (d.normal(n, 9 * c, h * h),)


def _convolution(name: str, kernel: int = 3, depthwise: bool = False, **more: Any) -> Program:
    settings = {"padding": kernel // 2, **more}

    def groups(x: Any) -> int:
        return x.shape[1] if depthwise else 1

    return Program(
        name,
        _convolved(kernel, groups=0 if depthwise else 1),
        lambda o, x, w, b: o.conv(x, w, b, groups=groups(x), **settings),
        lambda t, x, w, b: t.nn.functional.conv2d(x, w, b, groups=groups(x), **settings),
    )


def _attention(d: Draw) -> Any:
    shape = d.shape(4)
    return d.normal(*shape), d.normal(*shape), d.normal(*shape)


def _turned_by_torch(t: Any, x: Any) -> Any:
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-t.arange(half) / half)
    angles = t.arange(x.shape[-2])[:, None] * rates
    cosine, sine = t.cos(angles).to(x.dtype), t.sin(angles).to(x.dtype)
    one, two = x[..., :half], x[..., half:]
    return t.cat([one * cosine - two * sine, two * cosine + one * sine], -1)


def _pooled(d: Draw) -> Any:
    x = d.normal(*_channels_first(d))
    n, c, h, w = x.shape
    places = 2 * np.arange(h * w).reshape(h, w)
    return x, np.ascontiguousarray(np.broadcast_to(places, (n, c, h, w)))


def _placed(d: Draw) -> Any:
    x = d.normal(*_channels_first(d))
    return x, d.uniform(-1.0, 1.0, x.shape[0], *x.shape[2:], 2)


_RESAMPLING = [
    *(
        Program(
            f"interpolate/{mode}",
            lambda d: (d.normal(*_channels_first(d)),),
            lambda o, x, mode=mode: o.interpolate(x, scale_factor=2, mode=mode),
            lambda t, x, mode=mode: t.nn.functional.interpolate(x, scale_factor=2, mode=mode),
        )
        for mode in ("nearest", "bilinear", "bicubic")
    ),
    Program(
        "grid_sample",
        _placed,
        lambda o, x, grid: o.grid_sample(x, grid),
        lambda t, x, grid: t.nn.functional.grid_sample(x, grid, align_corners=False),
    ),
    Program(
        "affine_grid",
        lambda d: (d.normal(4, 2, 3),),
        lambda o, x: o.affine_grid(x, (4, 1, 64, 64)),
        lambda t, x: t.nn.functional.affine_grid(x, (4, 1, 64, 64), align_corners=False),
    ),
    Program(
        "max_unpool",
        _pooled,
        lambda o, x, at: o.max_unpool(x, at, 2),
        lambda t, x, at: t.nn.functional.max_unpool2d(x, at, 2),
    ),
    Program(
        "lp_pool",
        lambda d: (d.uniform(0.5, 1.5, *_channels_first(d)),),
        lambda o, x: o.lp_pool(x, 2, 2),
        lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2),
    ),
    Program(
        "pixel_shuffle",
        lambda d: (d.normal(-(-d.count // 256), 4, 8, 8),),
        lambda o, x: o.pixel_shuffle(x, 2),
        lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
    ),
    Program(
        "pixel_unshuffle",
        lambda d: (d.normal(-(-d.count // 256), 1, 16, 16),),
        lambda o, x: o.pixel_unshuffle(x, 2),
        lambda t, x: t.nn.functional.pixel_unshuffle(x, 2),
    ),
    Program(
        "channel_shuffle",
        lambda d: (d.normal(-(-d.count // 256), 4, 8, 8),),
        lambda o, x: o.channel_shuffle(x, 2),
        lambda t, x: t.nn.functional.channel_shuffle(x, 2),
    ),
]

_PATCHES = [
    _convolution("conv"),
    _convolution("conv/1 by 1", kernel=1),
    _convolution("conv/strided", stride=2),
    _convolution("conv/dilated", dilation=2, padding=2),
    _convolution("conv/depthwise", depthwise=True),
    Program(
        "conv_transpose",
        _convolved(3),
        lambda o, x, w, b: o.conv_transpose(x, w, b, stride=2),
        lambda t, x, w, b: t.nn.functional.conv_transpose2d(x, w, b, stride=2),
    ),
    Program(
        "depthwise_conv",
        _convolved(3, groups=0),
        lambda o, x, w, b: o.depthwise_conv(x, w, b, padding=1),
        lambda t, x, w, b: t.nn.functional.conv2d(x, w, b, padding=1, groups=x.shape[1]),
    ),
    Program(
        "unfold",
        lambda d: (d.normal(*_channels_first(d)),),
        lambda o, x: o.unfold(x, (3, 3), padding=1),
        lambda t, x: t.nn.functional.unfold(x, 3, padding=1),
    ),
    Program(
        "fold",
        _windows,
        lambda o, x: o.fold(x, math.isqrt(x.shape[-1]), (3, 3), padding=1),
        lambda t, x: t.nn.functional.fold(x, (math.isqrt(x.shape[-1]),) * 2, 3, padding=1),
    ),
    Program(
        "max_pool",
        lambda d: (d.normal(*_channels_first(d)),),
        lambda o, x: o.max_pool(x, 2),
        lambda t, x: t.nn.functional.max_pool2d(x, 2),
    ),
    Program(
        "avg_pool",
        lambda d: (d.normal(*_channels_first(d)),),
        lambda o, x: o.avg_pool(x, 2),
        lambda t, x: t.nn.functional.avg_pool2d(x, 2),
    ),
    Program(
        "adaptive_avg_pool",
        lambda d: (d.normal(*_channels_first(d)),),
        lambda o, x: o.adaptive_avg_pool(x, 1),
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1),
    ),
    Program(
        "adaptive_max_pool",
        lambda d: (d.normal(*_channels_first(d)),),
        lambda o, x: o.adaptive_max_pool(x, 1),
        lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 1),
    ),
    *_RESAMPLING,
    *same(f"scaled_dot_product_attention:{_F}scaled_dot_product_attention", _attention),
    Program(
        "rotary_embedding",
        lambda d: (d.normal(*d.shape(4)[:3], 64),),
        lambda o, x: o.rotary_embedding(x),
        _turned_by_torch,
    ),
    Program(
        "embed",
        lambda d: (d.matrix(), d.integers(0, d.shape(2)[0], d.shape(2)[0])),
        lambda o, weight, indices: o.embed(weight, indices),
        lambda t, weight, indices: t.nn.functional.embedding(indices, weight),
    ),
    Program(
        "one_hot",
        lambda d: (d.integers(0, d.shape(2)[0], d.shape(2)[0]),),
        lambda o, i: o.one_hot(i, len(i), dtype="int64"),
        lambda t, i: t.nn.functional.one_hot(i, len(i)),
        gradient=False,
    ),
]

PROGRAMS = [*_REDUCTIONS, *_SPREAD, *_NORMALISED, *_WHOLE, *_ORDERS, *_NORMS, *_PATCHES]
