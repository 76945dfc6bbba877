"""Activation functions with kinks, of whole axes, and with parameters."""

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

PROGRAMS = [*_POINTWISE, *_OF_AXES]
