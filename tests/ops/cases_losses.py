"""Cases of losses, written once more in plain NumPy."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import scipy.special as sp

from fdbr import ops
from fdbr.core.array_modules import array_module
from ops.cases import CASES, case
from ops.seeds import seeded

_FIRST = len(CASES)

POSITIVE = (0.25, 3)


def few(*pairs: Any) -> Any:
    """Arguments from two seeds: there are many losses."""
    return seeded(*pairs, count=2)


def several(*shapes: Any) -> Any:
    return few(*((shape, (-2, 2)) for shape in shapes))


UNIT = (0.125, 0.875)


def with_integers(floats: Any, *integers: Any) -> Any:
    """Arguments of which the last ones are integers: each a shape and the number of classes."""

    def make(pair: Any) -> Any:
        arrays, seed = pair
        draw = np.random.default_rng(seed).integers
        return (*arrays, *(draw(low, high, shape) for shape, low, high in integers))

    return st.tuples(floats, st.integers(0, 1)).map(make)


def summed(losses: Any, reduction: str = "mean") -> Any:
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)


def on(x: Any, values: Any) -> Any:
    """An array of settings beside an argument."""
    return array_module(x).asarray(np.asarray(values))


# --- numbers ------------------------------------------------------------------------


def huber(x: Any, y: Any, delta: float = 1.0) -> Any:
    a = np.abs(x - y)
    return np.where(a <= delta, a * a / 2, delta * (a - delta / 2))


_OFF = few(((2, 2), (-2, 2)), ((2, 2), (-2, 2))).map(lambda pair: (pair[0], pair[1] + 1 / 16))
W = np.array([[1.0, 2.0], [0.25, 1.5]])

for op, loss in (
    ("absolute_error", lambda x, y: np.abs(x - y)),
    ("squared_error", lambda x, y: (x - y) ** 2),
    ("squared_difference", lambda x, y: (x - y) ** 2),
    ("log_cosh", lambda x, y: np.log(np.cosh(x - y))),
):
    case(op, _OFF, loss)
for op, loss in (
    ("mean_absolute_error", lambda x, y: np.abs(x - y)),
    ("l1_loss", lambda x, y: np.abs(x - y)),
    ("mean_squared_error", lambda x, y: (x - y) ** 2),
    ("mse_loss", lambda x, y: (x - y) ** 2),
    ("huber_loss", huber),
    ("smooth_l1_loss", huber),
):
    case(op, _OFF, lambda x, y, f=loss: f(x, y).mean(), setting="of few")
case(
    "huber_loss",
    _OFF,
    lambda x, y: (W * huber(x, y)).mean(),
    lambda x, y: ops.huber_loss(x, y, weight=on(x, W)),
    "weighted",
)
case(
    "huber_loss",
    _OFF,
    lambda x, y: huber(x, y, 0.75).sum(1),
    lambda x, y: ops.huber_loss(x, y, delta=0.75, reduction="sum_along_second_axis"),
    "Chainer's",
)
for beta in (0.75,):
    case(
        "smooth_l1_loss",
        _OFF,
        lambda x, y, b=beta: (huber(x, y, b) / b if b else np.abs(x - y)).mean(),
        lambda x, y, b=beta: ops.smooth_l1_loss(x, y, beta=b),
        f"beta {beta}",
    )

# --- classes ------------------------------------------------------------------------

CLASS_WEIGHT = np.array([0.5, 2.0, 1.25])


def by_classes(
    x: Any, t: Any, weight: Any = None, ignored: Any = None, smoothing: float = 0.0,
    reduction: str = "mean", whole: Any = None,
) -> Any:  # fmt: skip
    """The cross entropy of logits along the last axis, example by example."""
    weight = np.ones(x.shape[-1]) if weight is None else weight
    logs = sp.log_softmax(x, axis=-1)
    losses, total = np.zeros(t.shape), 0.0
    for place in np.ndindex(*t.shape):
        if t[place] != ignored:
            w = weight[t[place]]
            rest = -(weight * logs[place]).sum() / x.shape[-1]
            losses[place] = (1 - smoothing) * -w * logs[place][t[place]] + smoothing * rest
            total += w
    if reduction != "mean":
        return summed(losses, reduction)
    whole = total if whole is None else whole(t)
    return losses.sum() / whole if whole else 0.0


for setting, params, theirs in (
    (
        "weight, smoothing and a label to ignore",
        {"weight": CLASS_WEIGHT, "label_smoothing": 0.25, "ignore_index": 1},
        {"weight": CLASS_WEIGHT, "smoothing": 0.25, "ignored": 1},
    ),
    (
        "Chainer's mean",
        {"weight": CLASS_WEIGHT, "ignore_label": 1, "normalize": True},
        {"weight": CLASS_WEIGHT, "ignored": 1, "whole": lambda t: (t != 1).sum()},
    ),
):
    for op, axis, shape in (("softmax_cross_entropy", -1, (2, 2, 3)), ("cross_entropy", 1, (2, 3))):
        mine = {k: v for k, v in params.items() if k != "ignore_label" or axis == -1}
        if op == "cross_entropy" and ("normalize" in params):
            continue

        def call(x: Any, t: Any, op: str = op, p: Any = mine) -> Any:
            p = p | ({"weight": on(x, p["weight"])} if "weight" in p else {})
            return getattr(ops, op)(x, t, **p)

        case(
            op,
            with_integers(several(shape), (shape[:-1], 0, 3)),
            lambda x, t, p=theirs: by_classes(x, t, **p),
            call,
            setting,
        )
for reduction in ("mean",):
    case(
        "nll_loss",
        with_integers(several((3, 3)), ((3,), 0, 3)),
        lambda x, t, r=reduction: by_classes(x, t, CLASS_WEIGHT, 2, reduction=r),
        lambda x, t, r=reduction: ops.nll_loss(
            ops.log_softmax(x), t, weight=on(x, CLASS_WEIGHT), ignore_index=2, reduction=r
        ),
        reduction,
    )
case(
    "softmax_cross_entropy",
    few(((2, 3), (-2, 2)), ((2, 3), POSITIVE)),
    lambda x, t: -(CLASS_WEIGHT * (0.75 * t + 0.25 / 3) * sp.log_softmax(x, axis=-1)).sum() / 2,
    lambda x, t: ops.softmax_cross_entropy(x, t, weight=on(x, CLASS_WEIGHT), label_smoothing=0.25),
    "probabilities, weight and smoothing",
)
case(
    "cross_entropy",
    few(((2, 3, 2), (-2, 2)), ((2, 3, 2), POSITIVE)),
    lambda x, t: -(t * sp.log_softmax(x, axis=1)).sum() / 4,
    ops.cross_entropy,
    "probabilities of images",
)


def one_against_all(x: Any, t: Any, p: int = 1) -> Any:
    signs = np.where(np.arange(x.shape[-1]) == t[..., None], 1, -1)
    return np.maximum(0, 1 - signs * x) ** p


_OFF_ONE = with_integers(few(((2, 3), (-2, 2))).map(lambda a: (a[0] + 1 / 16,)), ((2,), 0, 3))
for norm, p in (("L1", 1), ("L2", 2)):
    for reduction in ("mean" if p == 1 else "none",):
        case(
            "hinge",
            _OFF_ONE,
            lambda x, t, p=p, r=reduction: (
                summed(one_against_all(x, t, p), r) * (3 if r == "mean" else 1)
            ),
            lambda x, t, n=norm, r=reduction: ops.hinge(x, t, norm=n, reduction=r),
            f"{norm}, {reduction}",
        )

# --- measures -----------------------------------------------------------------------

for setting, weight in (("", None), ("weighted", np.array([1.0, 2.0, 0.5]))):

    def determination(x: Any, y: Any, w: Any = weight) -> Any:
        w = np.ones(len(x)) if w is None else w
        mean = np.average(y, axis=0, weights=w)
        return 1 - (w @ (y - x) ** 2) / (w @ (y - mean) ** 2)

    case(
        "r2_score",
        few(((3, 2), (-2, 2)), ((3, 2), (-2, 2))).map(lambda a: (a[0], a[1] + np.eye(3, 2))),
        lambda x, y, f=determination: f(x, y).mean(),
        lambda x, y, w=weight: ops.r2_score(x, y, sample_weight=None if w is None else on(x, w)),
        setting,
    )
OWN = CASES[_FIRST:]
