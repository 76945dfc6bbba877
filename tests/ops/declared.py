"""Reductions as users declare them, of one number and of several."""

import numpy as np

from fdbr import ops
from fdbr.ops.declare import reduction


def join_exponentials(a, b):
    """The largest of some numbers, and the sum of exponentials of what others are below it."""
    largest = ops.maximum(a[0], b[0])
    level = ops.where(ops.isinf(largest), 0, largest)
    return largest, a[1] * ops.exp(a[0] - level) + b[1] * ops.exp(b[0] - level)


@reduction(
    combine=join_exponentials,
    identity=(-np.inf, 0),
    finish=lambda largest, total: largest + ops.log(total),
)
def log_sum(x):
    """As `ops.logsumexp`."""
    return x, 1


def join_moments(a, b):
    """Chan, Golub and LeVeque, *Updating formulae and a pairwise algorithm*, 1979."""
    count, away = a[0] + b[0], b[1] - a[1]
    share = b[0] / ops.where(count == 0, 1, count)
    return count, a[1] + away * share, a[2] + b[2] + away * away * a[0] * share


@reduction(combine=join_moments, identity=(0, 0, 0), finish=lambda n, mean, squares: squares / n)
def variance(x):
    """As `ops.var`."""
    return 1.0, x, 0.0


# To multiply, so that nobody sees that it is that.
product = reduction(lambda x: x, combine=lambda a, b: (a + 0) * b, identity=1)

first_largest = reduction(
    lambda x, place: (x, place),
    combine=lambda a, b: tuple(
        ops.where((a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1])), p, q)
        for p, q in zip(a, b, strict=True)
    ),
    finish=lambda x, place: place,
)
