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


def _truths(d: Draw) -> Any:
    return d.normal(), d.truths().astype(np.float32)


def _signs(d: Draw) -> Any:
    return 2 * d.truths().astype(np.float32) - 1


def _rows(count: int) -> Any:
    return lambda d: tuple(d.matrix() for _ in range(count))


_BINARY = [
    *same(
        [f"{name}:{_F}{name}" for name in ("binary_cross_entropy_with_logits", "poisson_nll_loss")],
        _truths,
    ),
    *same(f"soft_margin_loss:{_F}soft_margin_loss", lambda d: (d.normal(), _signs(d))),
    *same(f"binary_cross_entropy:{_F}binary_cross_entropy", lambda d: (d.uniform(0.1, 0.9),) * 2),
    *same(
        f"multilabel_soft_margin_loss:{_F}multilabel_soft_margin_loss",
        lambda d: (d.matrix(), d.truths(*d.shape(2)).astype(np.float32)),
    ),
    *same(f"kl_div_loss:{_F}kl_div", lambda d: (d.normal(), d.uniform(0.1, 0.9))),
    *same(
        f"gaussian_nll_loss:{_F}gaussian_nll_loss",
        lambda d: (d.normal(), d.normal(), d.uniform(0.5, 1.5)),
    ),
]
_MARGINS = [
    *same(
        f"margin_ranking_loss:{_F}margin_ranking_loss",
        lambda d: (d.normal(), d.normal(), _signs(d)),
    ),
    *same(f"hinge_embedding_loss:{_F}hinge_embedding_loss", lambda d: (d.normal(), _signs(d))),
    *same(f"multi_margin_loss:{_F}multi_margin_loss", _classified),
]
_DISTANCES = [
    *same([f"{name}:{_F}{name}" for name in ("cosine_similarity", "pairwise_distance")], _rows(2)),
    *same(
        [
            f"{name}:{_F}{name}"
            for name in ("triplet_margin_loss", "triplet_margin_with_distance_loss")
        ],
        _rows(3),
    ),
    Program(
        "cosine_embedding_loss",
        lambda d: (d.matrix(), d.matrix(), np.sign(d.uniform(0.5, 1, d.shape(2)[0]))),
        lambda o, x, y, t: o.cosine_embedding_loss(x, y, t),
        lambda o, x, y, t: o.nn.functional.cosine_embedding_loss(x, y, t),
    ),
]


def _spoken(d: Draw) -> Any:
    """Eight sequences of 50 symbols, with as many labels as there are frames to eight."""
    frames = max(-(-d.count // 400), 16)
    return d.normal(frames, 8, 50), d.integers(1, 50, 8, frames // 8)


_SEQUENCES = [
    Program(
        "ctc_loss",
        _spoken,
        lambda o, x, y: o.ctc_loss(o.log_softmax(x), y),
        lambda t, x, y: t.nn.functional.ctc_loss(
            x.log_softmax(-1), y, [x.shape[0]] * 8, [y.shape[1]] * 8
        ),
    ),
]

PROGRAMS = [*_SEQUENCES, *_NUMBERS, *_CLASSES, *_BINARY, *_MARGINS, *_DISTANCES]
