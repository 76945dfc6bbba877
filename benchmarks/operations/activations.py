"""Activation functions with kinks, of whole axes, with parameters, and by chance, and lengths."""

from typing import Any

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]

_F = "nn.functional."


def _normal(d: Draw) -> Any:
    return (d.normal(),)


def _rows(d: Draw) -> Any:
    return (d.matrix(),)


def _sloped(d: Draw) -> Any:
    x = d.images()
    return x, d.normal(x.shape[1])


_POINTWISE = [
    *same(
        [
            f"hard_sigmoid:{_F}hardsigmoid",
            f"hard_swish:{_F}hardswish",
            f"hard_silu:{_F}hardswish",
            f"hard_shrink:{_F}hardshrink",
            f"soft_shrink:{_F}softshrink",
            f"tanh_shrink:{_F}tanhshrink",
            f"swish:{_F}silu",
        ],
        _normal,
    ),
    Program(
        "threshold",
        _normal,
        lambda o, x: o.threshold(x, 0.1, 20.0),
        lambda t, x: t.nn.functional.threshold(x, 0.1, 20.0),
    ),
    Program(
        "clipped_relu",
        _normal,
        lambda o, x: o.clipped_relu(x, 1.5),
        lambda t, x: t.nn.functional.hardtanh(x, 0.0, 1.5),
    ),
]

_OF_AXES = [
    *same([f"prelu:{_F}prelu"], _sloped),
    Program(
        "softmin",
        _rows,
        lambda o, x: o.softmin(x),
        lambda t, x: t.nn.functional.softmin(x, dim=-1),
    ),
]


def _key() -> Any:
    from fdbr import random

    return random.key(0)


_RESCALED = [
    Program(
        "local_response_norm",
        lambda d: (d.images(),),
        lambda o, x: o.local_response_norm(x, 5),
        lambda t, x: t.nn.functional.local_response_norm(x, 5),
    ),
    *same(f"normalize:{_F}normalize", _rows),
]

_FORMS = [
    Program(
        "bilinear",
        lambda d: (d.normal(64, d.count // 64), d.normal(64, 8), d.normal(16, d.count // 64, 8)),
        lambda o, x, y, w: o.bilinear(x, y, w),
        lambda t, x, y, w: t.nn.functional.bilinear(x, y, w),
    ),
]

_BY_CHANCE = [
    Program(
        "alpha_dropout",
        _normal,
        lambda o, x: o.alpha_dropout(x, 0.5, key=_key()),
        lambda t, x: t.nn.functional.alpha_dropout(x, 0.5, training=True),
        alike=False,
    ),
    Program(
        "rrelu",
        _normal,
        lambda o, x: o.rrelu(x, key=_key()),
        lambda t, x: t.nn.functional.rrelu(x, training=True),
        alike=False,
    ),
    Program(
        "gumbel_softmax",
        _rows,
        lambda o, x: o.gumbel_softmax(x, key=_key()),
        lambda t, x: t.nn.functional.gumbel_softmax(x),
        alike=False,
    ),
]

PROGRAMS = [*_POINTWISE, *_OF_AXES, *_RESCALED, *_FORMS, *_BY_CHANCE]
