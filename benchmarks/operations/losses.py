"""Losses, beside those of PyTorch."""

from typing import Any

import numpy as np

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]

_F = "nn.functional."


def _pair(d: Draw) -> Any:
    return d.normal(), d.normal()


def _classified(d: Draw) -> Any:
    x = d.matrix()
    return x, d.integers(0, x.shape[1], x.shape[0])


_NUMBERS = same(
    [f"{name}:{_F}{name}" for name in ("huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss")]
    + [f"mean_absolute_error:{_F}l1_loss"],
    _pair,
)
_CLASSES = [
    *same([f"{name}:{_F}{name}" for name in ("cross_entropy", "nll_loss")], _classified),
    Program(
        "cross_entropy/weight and smoothing",
        lambda d: (*_classified(d), np.full(d.shape(2)[1], 0.5, np.float32)),
        lambda o, x, t, w: o.cross_entropy(x, t, weight=w, label_smoothing=0.1),
        lambda t, x, y, w: t.nn.functional.cross_entropy(x, y, weight=w, label_smoothing=0.1),
    ),
]

PROGRAMS = [*_NUMBERS, *_CLASSES]
