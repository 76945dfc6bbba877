"""The KDD paper's experiment: what the model says, beside what was measured.

Tokui et al., *Chainer: a deep learning framework for accelerating the research cycle*, KDD 2019,
section 6.4 and appendix A.1: ResNet-50, 32 images a GPU, 128 nodes with 8 Tesla P100 each,
InfiniBand FDR, NCCL 2.0.5, gradients in float16, and reduced after the way back.  At 1,024 GPUs
the efficiency was 70 % of one GPU's and 80 % of one node's; so it was 87.5 % within a node.

Published, and taken as it is (`CLUSTER`, `SIZE`):

- 25.6 million parameters, of two bytes: 51 MB.
- FDR with four lanes: 14.0625 Gb/s each, 64 of 66 bits of which are data: 6.82 GB/s.  One port a
  node is assumed; with two (a talk about the machine says so) the ring is faster by 7 ms.
- PCI Express 3.0 with 16 lanes: 8 Gb/s each, 128 of 130 bits: 15.75 GB/s.
- A ring's latencies: 5.7 µs over PCI Express, 14 µs over a network: the constants by which NCCL
  itself (later versions) chooses among its algorithms.
- 90 epochs of 1,281,167 images took 15 minutes (Akiba, Suzuki & Fukuda, 2017, about the same
  run): 256 ms a step.  That is with the evaluation after each epoch, so a little too much.

Fitted, to that time and to the 87.5 % within a node: the seconds that one GPU computes, and one
number more, for messages alone explain a fourth of what is lost within a node.  The two
hypotheses about the rest are those of `HYPOTHESES`.  Predicted are then the 70 %, and the 80 %,
which is its ratio to the 87.5 %.
"""

from collections.abc import Callable

import attrs
from scipy import optimize

from benchmarks.scaling.collectives import all_reduce
from benchmarks.scaling.delays import expected_normal_maximum
from benchmarks.scaling.links import Cluster, Link

__all__ = ["CLUSTER", "HYPOTHESES", "MEASURED", "SIZE", "STEP", "Fitted", "fit", "report"]

SIZE = 2.0 * 25_557_032
STEP = 15 * 60 / (90 * 1_281_167 / (32 * 1024))
INFINIBAND = Link(14e-6, 1 / (4 * 14.0625e9 * 64 / 66 / 8))
PCI_EXPRESS = Link(5.7e-6, 1 / (16 * 8e9 * 128 / 130 / 8))
CLUSTER = Cluster(128, 8, PCI_EXPRESS, INFINIBAND)

MEASURED = {"node": 0.875, "all": 0.70, "all by node": 0.80}
"""The paper's efficiencies: of a node by one GPU, of 1,024 GPUs by one, and by one node."""

HYPOTHESES: dict[str, Callable[[int], float]] = {
    "stragglers": expected_normal_maximum,
    "overhead": lambda ranks: float(ranks > 1),
}
"""What is lost beside messages, as a multiple of the number that is fitted, by ranks.

stragglers
    The times of GPUs are spread normally, and all wait for the slowest: the mean of the largest of
    so many, times the standard deviation.
overhead
    Something that costs the same on any number of GPUs but one: packing, rounding, a slower
    processor that feeds eight GPUs.
"""


@attrs.frozen
class Fitted:
    """The model with its fitted numbers.

    Attributes
    ----------
    hypothesis
        A name of `HYPOTHESES`.
    compute
        Seconds that one GPU computes in a step.
    lost
        The standard deviation of stragglers, or the overhead, as a part of that.
    """

    hypothesis: str
    compute: float
    lost: float
    cluster: Cluster = CLUSTER

    def seconds(self, ranks: int, algorithm: str = "ring") -> float:
        """Of a step on so many GPUs."""
        waiting = self.lost * HYPOTHESES[self.hypothesis](ranks)
        messages = all_reduce(algorithm, self.cluster.first(ranks), SIZE)
        return self.compute * (1 + waiting) + messages

    def efficiency(self, ranks: int, algorithm: str = "ring") -> float:
        """By one GPU."""
        return self.compute / self.seconds(ranks, algorithm)


def fit(hypothesis: str = "stragglers", cluster: Cluster = CLUSTER, step: float = STEP) -> Fitted:
    """Fit what is not published to the efficiency of a node, and to the time of all GPUs."""
    within = all_reduce("ring", cluster.first(cluster.per_node), SIZE)

    def made(compute: float) -> Fitted:
        beside = 1 / MEASURED["node"] - 1 - within / compute
        return Fitted(
            hypothesis, compute, beside / HYPOTHESES[hypothesis](cluster.per_node), cluster
        )

    found = optimize.brentq(
        lambda compute: made(compute).seconds(cluster.size) - step, step / 10, step
    )
    return made(found)


def report() -> str:
    """The comparison, as text."""
    ranks = CLUSTER.size
    two = attrs.evolve(CLUSTER, outer=attrs.evolve(INFINIBAND, per_byte=INFINIBAND.per_byte / 2))
    within = all_reduce("ring", CLUSTER.first(8), SIZE)
    among = all_reduce("ring", CLUSTER, SIZE)
    lines = [
        "ResNet-50, 32 images a GPU, 128 nodes of 8 P100, gradients of 51 MB in float16",
        f"  a ring's all-reduce by data sheets: {within * 1e3:.1f} ms in a node, "
        f"{among * 1e3:.1f} ms among all",
        f"  a step on {ranks:,} GPUs, published: {STEP * 1e3:.0f} ms or a little less",
        "",
        f"{'':34}{'compute':>9}{'lost':>7}{'8 GPUs':>9}{'1,024':>8}{'of a node':>11}",
    ]

    def row(title: str, *cells: str) -> str:
        widths = (9, 7, 9, 8, 11)
        return f"{title:34}" + "".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))

    shown = [f"{MEASURED[name]:.1%}" for name in ("node", "all", "all by node")]
    lines.append(row("measured", "", "", *shown))
    for hypothesis in HYPOTHESES:
        for title, cluster in (("one port a node", CLUSTER), ("two", two)):
            found = fit(hypothesis, cluster)
            node, all_ = found.efficiency(8), found.efficiency(ranks)
            cells = f"{found.compute * 1e3:.0f} ms", f"{found.lost:.1%}"
            parts = f"{node:.1%}", f"{all_:.1%}", f"{all_ / node:.1%}"
            lines.append(row(f"{hypothesis}, {title}", *cells, *parts))
    alone = Fitted("overhead", fit().compute, 0.0)
    node, all_ = alone.efficiency(8), alone.efficiency(ranks)
    cells = f"{alone.compute * 1e3:.0f} ms", "0.0%"
    lines.append(row("messages alone", *cells, f"{node:.1%}", f"{all_:.1%}", f"{all_ / node:.1%}"))
    lines += ["", "8 GPUs is fitted but in the last row; 1,024 and of a node are predicted."]
    return "\n".join(lines)
