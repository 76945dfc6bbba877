"""Cases of losses of sequences, and over many classes: by counting all ways, in plain NumPy."""

import itertools
from typing import Any

import numpy as np
import scipy.special as sp

from fdbr import ops
from ops.cases import case
from ops.cases_losses import on, several, with_integers

# --- connectionist temporal classification ------------------------------------------


def read(symbols: Any, blank: int) -> list[int]:
    """What a sequence of symbols says: repetitions joined, and blanks left out."""
    return [s for s, _ in itertools.groupby(symbols) if s != blank]


def likelihood(log_probs: Any, target: Any, blank: int) -> Any:
    """The logarithm of the probability of all sequences that say the target."""
    ways = [
        sum(log_probs[t, s] for t, s in enumerate(symbols))
        for symbols in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
        if read(symbols, blank) == list(target)
    ]
    return sp.logsumexp(ways)


FRAMES, COUNTS = np.array([3, 2]), np.array([2, 1])
TARGETS = np.array([[1, 1], [2, 0]])  # the last one does not matter


def alignments(x: Any) -> Any:
    sizes = enumerate(zip(FRAMES, COUNTS, strict=True))
    logs = sp.log_softmax(x, axis=-1)
    return -sum(likelihood(logs[:n, i], TARGETS[i][:m], 0) / m for i, (n, m) in sizes) / 2


case(
    "ctc_loss",
    several((3, 2, 3)),
    alignments,
    lambda x: ops.ctc_loss(ops.log_softmax(x), on(x, TARGETS), on(x, FRAMES), on(x, COUNTS)),
)
case(
    "ctc_loss",
    several((2, 2), (1, 2)),
    lambda x, y: np.array(
        [-likelihood(sp.log_softmax(v, axis=-1), t, 0) for v, t in ((x, [1]), (y, []))]
    ),
    lambda x, y: ops.ctc_loss(
        [ops.log_softmax(x), ops.log_softmax(y)],
        [on(x, [1]), on(x, np.zeros(0, int))],
        reduction="none",
    ),
    "lists",
)

# --- conditional random fields ------------------------------------------------------


def paths(cost: Any, x: Any) -> dict[Any, Any]:
    """The score of every sequence of labels."""
    return {
        y: sum(x[t, label] for t, label in enumerate(y))
        + sum(cost[a, b] for a, b in itertools.pairwise(y))
        for y in itertools.product(range(len(cost)), repeat=len(x))
    }


def field(cost: Any, x: Any, y: Any) -> Any:
    scores = paths(cost, x)
    return sp.logsumexp(list(scores.values())) - scores[tuple(y)]


LENGTHS = np.array([1, 2])
case(
    "crf1d",
    with_integers(several((2, 2), (2, 2, 2)), ((2, 2), 0, 2)),
    lambda c, x, y: np.array([field(c, x[:n, i], y[:n, i]) for i, n in enumerate(LENGTHS)]),
    lambda c, x, y: ops.crf1d(c, x, y, on(x, LENGTHS), reduction="none"),
    "lengths",
)
case(
    "crf1d",
    with_integers(several((2, 2), (2, 2)), ((2,), 0, 2)),
    field,
    setting="one sequence",
)
case(
    "crf1d",
    several((2, 2), (2, 2), (1, 2)),
    lambda c, x, z: (field(c, np.stack([x[0], z[0]]), [1, 0]) + field(c, x[1:], [0])) / 2,
    lambda c, x, z: ops.crf1d(c, [x, z], [on(x, [1, 0]), on(x, [0])]),
    "Chainer's lists",
)
_UNEQUAL = several((2, 2), (2, 2, 2)).map(
    lambda a: (a[0] + np.array([[0, 1], [2, 5]]) / 64, a[1] + np.arange(8).reshape(2, 2, 2) / 128)
)
case(
    "argmax_crf1d",
    _UNEQUAL,
    lambda c, x: np.array([max(paths(c, x[:n, i]).values()) for i, n in enumerate(LENGTHS)]),
    lambda c, x: ops.argmax_crf1d(c, x, on(x, LENGTHS))[0],
    "lengths",
)
case(
    "argmax_crf1d",
    _UNEQUAL.map(lambda a: (a[0], a[1][0], a[1][1, :1])),
    lambda c, x, z: np.array(
        [max(paths(c, np.stack([x[0], z[0]])).values()), max(paths(c, x[1:]).values())]
    ),
    lambda c, x, z: ops.argmax_crf1d(c, [x, z])[0],
    "Chainer's lists",
)

# --- many classes -------------------------------------------------------------------

_FEW = with_integers(several((2, 2), (3, 2)), ((2,), -1, 3), ((2, 2), 0, 3))


def negative(x: Any, w: Any, t: Any, samples: Any) -> Any:
    losses = np.zeros(len(x))
    for i, label in enumerate(t):
        if label >= 0:
            drawn = samples if samples.ndim == 1 else samples[i]
            losses[i] = -np.log(sp.expit(x[i] @ w[label]))
            losses[i] -= np.log(sp.expit(-(w[drawn] @ x[i]))).sum()
    return losses


case(
    "negative_sampling",
    _FEW,
    lambda x, w, t, s: negative(x, w, t, s).sum(),
    lambda x, w, t, s: ops.negative_sampling(x, t, w, s),
)
case(
    "negative_sampling",
    _FEW.map(lambda a: a[:3]),
    lambda x, w, t: negative(x, w, t, np.array([0, 2])).sum() / max((t >= 0).sum(), 1),
    lambda x, w, t: ops.negative_sampling(x, t, w, on(x, [0, 2]), reduction="mean"),
    "shared, mean",
)


def blacked_out(x: Any, w: Any, t: Any, samples: Any) -> Any:
    losses = []
    for v, label, drawn in zip(x, t, samples, strict=True):
        p = sp.softmax(w[[label, *drawn]] @ v)
        losses.append(-np.log(p[0]) - np.log(1 - p[1:]).sum())
    return np.mean(losses)


case(
    "black_out",
    with_integers(several((2, 2), (3, 2)), ((2,), 0, 3), ((2, 2), 0, 3)),
    blacked_out,
    lambda x, w, t, s: ops.black_out(x, t, w, s),
)
PATHS = np.array([[0, 1], [0, 1], [0, 0]])
SIGNS = np.array([[1, 1], [1, -1], [-1, 0]])  # of ((0, 1), 2)


def decided(x: Any, w: Any, t: Any) -> Any:
    return np.array(
        [
            -sum(
                np.log(sp.expit(s * (v @ w[n])))
                for n, s in zip(PATHS[i], SIGNS[i], strict=True)
                if s
            )
            for v, i in zip(x, t, strict=True)
        ]
    )


case(
    "binary_hierarchical_softmax",
    with_integers(several((2, 2), (2, 2)), ((2,), 0, 3)),
    decided,
    lambda x, w, t: ops.binary_hierarchical_softmax(
        x, t, w, on(x, PATHS), on(x, SIGNS), reduction="none"
    ),
)
