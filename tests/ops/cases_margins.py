"""Cases of losses of truth values, distributions, margins and distances, in plain NumPy."""

from typing import Any

import numpy as np
import scipy.special as sp
import scipy.stats

from fdbr import ops
from ops.cases import case
from ops.cases_losses import CLASS_WEIGHT, POSITIVE, UNIT, few, on, several, with_integers

ROWS = np.array([[1, -1, 1], [-1, -1, 1]])

# --- truth values -------------------------------------------------------------------


def binary(x: Any, y: Any, weight: Any = 1.0, pos_weight: Any = 1.0) -> Any:
    return weight * -(pos_weight * y * np.log(sp.expit(x)) + (1 - y) * np.log(sp.expit(-x)))


_LOGITS = few(((2, 3), (-2, 2)), ((2, 3), UNIT))
case(
    "binary_cross_entropy",
    few(((2, 3), UNIT), ((2, 3), UNIT)),
    lambda x, y: binary(sp.logit(x), y, CLASS_WEIGHT).mean(),
    lambda x, y: ops.binary_cross_entropy(x, y, weight=on(x, CLASS_WEIGHT)),
    "weight",
)
case(
    "binary_cross_entropy_with_logits",
    _LOGITS,
    lambda x, y: binary(x, y, 0.5, CLASS_WEIGHT).mean(),
    lambda x, y: ops.binary_cross_entropy_with_logits(
        x, y, weight=on(x, [[0.5], [0.5]]), pos_weight=on(x, CLASS_WEIGHT)
    ),
    "weights",
)
for setting, params in (
    ("", {}),
    ("by the batch", {"normalize": False}),
):

    def counted(x: Any, t: Any, p: Any = params) -> Any:
        losses = np.where(t == -1, 0, binary(x, t))
        if p:
            return losses.sum() / 2
        return losses.sum() / max((t != -1).sum(), 1)

    case(
        "sigmoid_cross_entropy",
        with_integers(several((2, 3)), ((2, 3), -1, 2)),
        counted,
        lambda x, t, p=params: ops.sigmoid_cross_entropy(x, t, **p),
        setting,
    )


def focal(x: Any, y: Any, alpha: float, gamma: float) -> Any:
    p = sp.expit(x)
    weight = alpha * y + (1 - alpha) * (1 - y) if alpha >= 0 else 1
    return weight * binary(x, y) * (1 - (p * y + (1 - p) * (1 - y))) ** gamma


for alpha, gamma in ((0.25, 2.0), (-1, 1.5)):
    case(
        "sigmoid_focal_loss",
        _LOGITS,
        lambda x, y, a=alpha, g=gamma: focal(x, y, a, g),
        lambda x, y, a=alpha, g=gamma: ops.sigmoid_focal_loss(x, y, alpha=a, gamma=g),
        f"alpha {alpha}",
    )
case(
    "soft_margin_loss",
    several((2, 3)),
    lambda x: np.log1p(np.exp(-ROWS * x)).mean(),
    lambda x: ops.soft_margin_loss(x, on(x, ROWS)),
)
case(
    "multilabel_soft_margin_loss",
    _LOGITS,
    lambda x, y: binary(x, y, CLASS_WEIGHT).mean(-1).sum(),
    lambda x, y: ops.multilabel_soft_margin_loss(x, y, weight=on(x, CLASS_WEIGHT), reduction="sum"),
)

# --- distributions ------------------------------------------------------------------

case("bernoulli_nll", few(((2, 3), UNIT), ((2, 3), (-2, 2))), lambda x, y: binary(y, x).sum())
case(
    "gaussian_nll",
    several((2, 2), (2, 2), (2, 2)),
    lambda x, m, v: -scipy.stats.norm.logpdf(x, m, np.exp(v / 2)).sum(),
)
case(
    "gaussian_kl_divergence",
    several((2, 3), (2, 3)),
    lambda m, v: -0.5 * (1 + v - m * m - np.exp(v)).sum(),
)
for setting, shape, full in (("", (2, 2), True), ("rows", (2,), False)):
    case(
        "gaussian_nll_loss",
        few(((2, 2), (-2, 2)), ((2, 2), (-2, 2)), (shape, POSITIVE)),
        lambda x, y, v, full=full: (
            -(
                scipy.stats.norm.logpdf(y, x, np.sqrt(v.reshape(2, -1)))
                + 0.5 * np.log(2 * np.pi) * (not full)
            ).mean()
        ),
        lambda x, y, v, full=full: ops.gaussian_nll_loss(x, y, v, full=full),
        setting,
    )


def stirling(y: Any) -> Any:
    return np.where(y > 1, y * np.log(y) - y + 0.5 * np.log(2 * np.pi * y), 0)


_COUNTS = few(((2, 3), POSITIVE), ((2, 3), POSITIVE)).map(lambda a: (a[0], a[1] + 1 / 16))
case(
    "poisson_nll_loss",
    _COUNTS,
    lambda x, y: (np.exp(x) - y * x + stirling(y)).mean(),
    lambda x, y: ops.poisson_nll_loss(x, y, full=True),
    "logarithms, with Stirling's formula",
)
case(
    "poisson_nll_loss",
    _COUNTS,
    lambda x, y: (x - y * np.log(x + 1e-8)).sum(),
    lambda x, y: ops.poisson_nll_loss(x, y, log_input=False, reduction="sum"),
    "counts",
)
for setting, params, whole in (("batchmean", {"reduction": "batchmean"}, 2),):
    case(
        "kl_div_loss",
        few(((2, 3), (-2, 2)), ((2, 3), UNIT)),
        lambda x, t, n=whole: (t * (np.log(t) - x)).sum() / n,
        lambda x, t, p=params: ops.kl_div_loss(x, t, **p),
        setting,
    )
case(
    "kl_div_loss",
    several((2, 3), (2, 3)),
    lambda x, t: np.exp(t) * (t - x),
    lambda x, t: ops.kl_div_loss(x, t, log_target=True, reduction="none"),
    "two logarithms",
)

# --- margins ------------------------------------------------------------------------

_OFF = several((2, 3), (2, 3)).map(lambda a: (a[0] + 1 / 16, a[1] - 1 / 32))
case(
    "margin_ranking_loss",
    _OFF,
    lambda x, y: np.maximum(0, 0.5 - ROWS * (x - y)).mean(),
    lambda x, y: ops.margin_ranking_loss(x, y, on(x, ROWS), margin=0.5),
)
case(
    "hinge_embedding_loss",
    _OFF.map(lambda a: a[:1]),
    lambda x: np.where(ROWS == 1, x, np.maximum(0, 0.75 - x)).mean(),
    lambda x: ops.hinge_embedding_loss(x, on(x, ROWS), margin=0.75),
)


def multi_margin(x: Any, t: Any, p: int, margin: float, weight: Any) -> Any:
    losses = np.zeros(len(x))
    for i, label in enumerate(t):
        for j in range(x.shape[1]):
            if j != label:
                losses[i] += weight[label] * max(0, margin - x[i, label] + x[i, j]) ** p
    return losses / x.shape[1]


_STEPS = several((2, 3)).map(lambda a: (a[0] + np.arange(3) / 64,))
for p, margin in ((2, 0.5),):
    case(
        "multi_margin_loss",
        with_integers(_STEPS, ((2,), 0, 3)),
        lambda x, t, p=p, m=margin: multi_margin(x, t, p, m, CLASS_WEIGHT).mean(),
        lambda x, t, p=p, m=margin: ops.multi_margin_loss(
            x, t, p=p, margin=m, weight=on(x, CLASS_WEIGHT)
        ),
        f"p {p}",
    )


def multilabel_margin(x: Any, labels: Any) -> Any:
    losses = np.zeros(len(x))
    for i, row in enumerate(labels.tolist()):
        named = row[: row.index(-1)] if -1 in row else row
        for label in named:
            for j in set(range(x.shape[1])) - set(named):
                losses[i] += max(0, 1 - x[i, label] + x[i, j])
    return losses / x.shape[1]


case(
    "multilabel_margin_loss",
    with_integers(_STEPS, ((2, 3), -1, 3)),
    lambda x, t: multilabel_margin(x, t).mean(),
)

# --- distances ----------------------------------------------------------------------


def length(x: Any, p: float = 2.0, axis: int = -1) -> Any:
    return (np.abs(x) ** p).sum(axis) ** (1 / p)


def cosine(x: Any, y: Any, axis: int = -1) -> Any:
    return (x * y).sum(axis) / np.maximum(length(x, axis=axis) * length(y, axis=axis), 1e-8)


_APART = few(((2, 3), POSITIVE), ((2, 3), (-3, -0.25)))
_THREE = several((2, 2), (2, 2), (2, 2)).map(lambda a: (a[0] + 1 / 16, a[1] - 1 / 32, a[2]))
PAIRS = np.array([1, 0])
case(
    "cosine_similarity",
    few(((2, 3, 2), POSITIVE), ((3, 1), POSITIVE)),
    lambda x, y: cosine(x, np.broadcast_to(y, x.shape), 1),
    ops.cosine_similarity,
    "second axis",
)
for p in (3.0,):
    case(
        "pairwise_distance",
        _APART,
        lambda x, y, p=p: length(x - y + 1e-6, p)[:, None],
        lambda x, y, p=p: ops.pairwise_distance(x, y, p=p, keepdims=True),
        f"p {p}",
    )
for margin in (4.0,):
    case(
        "contrastive",
        _OFF,
        lambda x, y, m=margin: (
            0.5 * np.where(PAIRS, length(x - y) ** 2, np.maximum(m - length(x - y), 0) ** 2)
        ).mean(),
        lambda x, y, m=margin: ops.contrastive(x, y, on(x, PAIRS), margin=m),
        f"margin {margin}",
    )
case(
    "cosine_embedding_loss",
    _OFF,
    lambda x, y: np.where(PAIRS, 1 - cosine(x, y), np.maximum(cosine(x, y) + 0.5, 0)).mean(),
    lambda x, y: ops.cosine_embedding_loss(x, y, on(x, 2 * PAIRS - 1), margin=-0.5),
)


def margins(a: Any, p: Any, n: Any, distance: Any, margin: float, swap: bool = False) -> Any:
    far = np.minimum(distance(a, n), distance(p, n)) if swap else distance(a, n)
    return np.maximum(distance(a, p) - far + margin, 0)


case("triplet", _THREE,
     lambda a, p, n: margins(a, p, n, lambda x, y: length(x - y) ** 2, 0.2).mean())  # fmt: skip
for setting, params in (("swapped", {"swap": True, "p": 3.0, "margin": 0.5}),):
    case(
        "triplet_margin_loss",
        _THREE,
        lambda a, p, n, s=params: margins(
            a, p, n, lambda x, y: length(x - y + 1e-6, s.get("p", 2)),
            s.get("margin", 1.0), s.get("swap", False),
        ).mean(),
        lambda a, p, n, s=params: ops.triplet_margin_loss(a, p, n, **s),
        setting,
    )  # fmt: skip
case(
    "triplet_margin_with_distance_loss",
    _THREE,
    lambda a, p, n: margins(a, p, n, lambda x, y: 2 * length(x - y + 1e-6), 1.0),
    lambda a, p, n: ops.triplet_margin_with_distance_loss(
        a, p, n, distance_function=lambda x, y: 2 * ops.pairwise_distance(x, y), reduction="none"
    ),
)

# --- covariances --------------------------------------------------------------------


def covariance(x: Any, y: Any) -> Any:
    return (x - x.mean(0)).T @ (y - y.mean(0)) / len(x)


case("cross_covariance", several((3, 2), (3, 2)), lambda x, y: (covariance(x, y) ** 2).sum() / 2)
case("decov", several((3, 2)), lambda x: covariance(x, x)[0, 1] ** 2)


def clustering(x: Any, labels: Any, norm: int) -> Any:
    """As Chainer's documentation says it, pixel by pixel, with two instances."""

    def size(v: Any) -> float:
        return np.abs(v).sum() if norm == 1 else np.sqrt((v * v).sum())

    means = np.zeros((2, *x.shape[:2]))
    near = 0.0
    for c in range(2):
        total = 0.0
        for n in range(len(x)):
            own = x[n][:, labels[n] == c + 1]
            means[c, n] = own.sum(1) / max(own.shape[1], 1)
            total += sum(max(size(means[c, n] - v) - 0.25, 0) ** 2 for v in own.T)
        near += total / max((labels == c + 1).sum(), 1)
    apart = [max(3.0 - size(a - b), 0) ** 2 for a, b in zip(*means, strict=True)]
    return near / 2, 0.5 * np.mean(apart), 0.1 * sum(map(size, means)) / (2 * len(x))


for norm in (2,):
    case(
        "discriminative_margin_based_clustering_loss",
        with_integers(
            several((2, 2, 3)).map(lambda a: (a[0] + np.arange(3) / 64,)), ((2, 3), 0, 3)
        ),
        lambda x, t, n=norm: np.array(clustering(x, t, n)),
        lambda x, t, n=norm: ops.stack(
            ops.discriminative_margin_based_clustering_loss(
                x, t, delta_v=0.25, norm=n, beta=0.5, gamma=0.1
            )
        ),
        f"norm {norm}",
    )
