"""The parameters of a link, from times of all-reduces."""

from collections.abc import Sequence

import attrs
import numpy as np
from scipy import optimize

from benchmarks.scaling.collectives import ALGORITHMS, all_reduce
from benchmarks.scaling.links import Cluster, Link

__all__ = ["FittedLink", "Sample", "fit_link"]


@attrs.frozen
class Sample:
    """An all-reduce of so many bytes among so many ranks took so many seconds."""

    ranks: int
    size: float
    seconds: float


@attrs.frozen
class FittedLink:
    """A link, the algorithm for which it was fitted, and how far it is from the samples.

    Attributes
    ----------
    error
        The root of the mean square of relative errors.
    """

    link: Link
    algorithm: str
    error: float


def fit_link(samples: Sequence[Sample], algorithm: str | None = None) -> FittedLink:
    """The latency and the time for a byte with the least relative errors, neither negative.

    Times are linear in both, by factors that follow from the algorithm.  Without ``algorithm``,
    that which fits best.  At least two sizes are needed, and samples of two ranks or more.
    """
    if algorithm is None:
        flat = [name for name in ALGORITHMS if name not in ("hierarchical", "two-dimensional")]
        return min((fit_link(samples, name) for name in flat), key=lambda fitted: fitted.error)
    used = [one for one in samples if one.ranks > 1 and one.size > 0]
    if len({one.size for one in used}) < 2:
        raise ValueError("samples of two sizes or more, on two ranks or more, are needed")
    taken = np.array([one.seconds for one in used])
    rows = np.array(
        [
            [
                all_reduce(algorithm, Cluster.flat(one.ranks, unit), one.size)
                for unit in (Link(1.0, 0.0), Link(0.0, 1.0))
            ]
            for one in used
        ]
    )
    rows /= taken[:, None]
    scale = rows.max(axis=0)  # latencies and bytes are of very different sizes
    found, residual = optimize.nnls(rows / scale, np.ones(len(used)))
    latency, per_byte = (float(value) for value in found / scale)
    return FittedLink(Link(latency, per_byte), algorithm, residual / len(used) ** 0.5)
