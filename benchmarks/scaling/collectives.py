"""All-reduce in closed form: what it takes on a cluster, by the algorithm.

``P`` ranks reduce ``n`` bytes; messages take ``α + β n`` and additions ``γ`` a byte.  Of ``P``
ranks on ``m`` nodes of ``k`` each:

=====================  =======================================================================
ring                   ``2 (P-1) α + 2 (P-1)/P n β + (P-1)/P n γ``; over several nodes β is that
                       of the slowest link, and of the latencies every k-th is one between nodes
doubling               ``log P (α + n β + n γ)``: each exchanges all with one twice as far away
halving                ``2 log P α + 2 (P-1)/P n β + (P-1)/P n γ``: halves, exchanged with those
                       near, which are gathered again by the same way (Rabenseifner)
tree                   ``2 log P (α + n β) + log P n γ``: a binomial tree, up and down
hierarchical           tree up to one rank of each node, ring over nodes, tree down
two-dimensional        reduce-scatter in rings within nodes, a ring over nodes for each part,
                       all of which share the node's port, and all-gather within nodes
=====================  =======================================================================

Logarithms are to base 2.  Where ``P`` is no power of two, that of a tree is rounded up, and
doubling and halving send what is left over to a neighbour before, and get the result after:
``2 (α + n β) + n γ`` more.  Those near are within the node, and for messages to others the ranks
of a node share its port.  Forms are exact for powers of two of like links, and otherwise bounds,
below which messages one by one (`finish_times`) stay, as those near need not wait for those far.

Thakur, Rabenseifner & Gropp, *Optimization of collective communication operations in MPICH*,
IJHPCA 2005; Patarasuk & Yuan, *Bandwidth optimal all-reduce algorithms for clusters of
workstations*, JPDC 2009; Alexandrov et al., *LogGP*, SPAA 1995.
"""

from collections.abc import Callable

import attrs

from benchmarks.scaling.links import Cluster, Link

__all__ = ["ALGORITHMS", "all_reduce", "fastest", "least"]


def all_reduce(algorithm: str, cluster: Cluster, size: float) -> float:
    """Seconds that an all-reduce of so many bytes takes; nothing on one rank or for no bytes."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if cluster.size == 1 or size == 0:
        return 0.0
    return ALGORITHMS[algorithm](cluster, size)


def fastest(cluster: Cluster, size: float) -> tuple[str, float]:
    """The algorithm that takes least, and what it takes: what a good library chooses."""
    times = {name: all_reduce(name, cluster, size) for name in ALGORITHMS}
    name = min(times, key=lambda name: times[name])
    return name, times[name]


def least(cluster: Cluster, size: float) -> float:
    """What no algorithm goes below.

    Each rank's bytes must reach all others, which takes one latency for each doubling; and the
    nodes together must send ``2 (m-1) n`` bytes, as ranks must, ``2 (P-1) n``.
    """
    if cluster.size == 1 or size == 0:
        return 0.0
    inner, outer = cluster.inner, cluster.outer
    parts = [(cluster.nodes, outer.per_byte)]
    parts.append((cluster.size, min(inner.per_byte, outer.per_byte)))
    bytes_ = max(2 * (count - 1) / count * size * per_byte for count, per_byte in parts)
    return max(_doublings(cluster.size) * min(inner.latency, outer.latency), bytes_)


def _doublings(ranks: int) -> int:
    return (ranks - 1).bit_length()


def _ring(cluster: Cluster, size: float) -> float:
    ranks, inner, outer = cluster.size, cluster.inner, cluster.outer
    hops = 2 * (ranks - 1)
    if cluster.nodes == 1:
        crossings, slowest = 0, inner
    else:
        crossings, slowest = -(-hops // cluster.per_node), _slowest(cluster)
    latencies = crossings * outer.latency + (hops - crossings) * inner.latency
    return latencies + hops * size / ranks * (slowest.per_byte + slowest.reduction / 2)


def _left_over(cluster: Cluster, size: float) -> float:
    """What the ranks beyond a power of two cost."""
    if cluster.size.bit_count() == 1:
        return 0.0
    link = _shared(cluster, _slowest(cluster))
    return 2 * link.seconds(size) + size * link.reduction


def _doubling(cluster: Cluster, size: float) -> float:
    rounds = (link.seconds(size) + size * link.reduction for link in _links(cluster))
    return sum(rounds) + _left_over(cluster, size)


def _halving(cluster: Cluster, size: float) -> float:
    total = _left_over(cluster, size)
    for i, link in enumerate(_links(cluster), 1):
        part = size / 2**i
        total += 2 * link.seconds(part) + part * link.reduction
    return total


def _links(cluster: Cluster) -> list[Link]:
    """The links by which ranks reach those 1, 2, 4… away."""
    rounds = cluster.size.bit_length() - 1
    shared = _shared(cluster, _slowest(cluster))
    if cluster.size.bit_count() > 1 or cluster.per_node.bit_count() > 1:
        return [shared] * rounds
    within = cluster.per_node.bit_length() - 1
    return [cluster.inner] * within + [shared] * (rounds - within)


def _tree(cluster: Cluster, size: float) -> float:
    link = _slowest(cluster)
    if cluster.per_node.bit_count() > 1:  # several ranks of a node have messages for others
        return _binomial(cluster.size, _shared(cluster, link), size)
    within = _binomial(cluster.per_node, cluster.inner, size)
    return within + _binomial(cluster.nodes, cluster.outer, size)


def _binomial(ranks: int, link: Link, size: float) -> float:
    """Up a binomial tree and down again."""
    return _doublings(ranks) * (2 * link.seconds(size) + size * link.reduction)


def _slowest(cluster: Cluster) -> Link:
    """A link that is as slow as the inner one, and as the outer one."""
    inner, outer = cluster.inner, cluster.outer
    if cluster.nodes == 1 or cluster.per_node == 1:
        return inner if cluster.nodes == 1 else outer
    return Link(
        max(inner.latency, outer.latency),
        max(inner.per_byte, outer.per_byte),
        max(inner.reduction, outer.reduction),
    )


def _shared(cluster: Cluster, link: Link) -> Link:
    """A link as a rank sees it if all ranks of its node send at the same time to other nodes."""
    if cluster.nodes == 1:
        return link
    return attrs.evolve(link, per_byte=link.per_byte * cluster.per_node)


def _hierarchical(cluster: Cluster, size: float) -> float:
    within = _binomial(cluster.per_node, cluster.inner, size)
    leaders = Cluster.flat(cluster.nodes, cluster.outer)
    return within + all_reduce("ring", leaders, size)


def _two_dimensional(cluster: Cluster, size: float) -> float:
    ranks, inner = cluster.per_node, cluster.inner
    part = size / ranks
    within = (ranks - 1) * (2 * inner.seconds(part) + part * inner.reduction)
    outer = _shared(cluster, cluster.outer)
    return within + all_reduce("ring", Cluster.flat(cluster.nodes, outer), part)


ALGORITHMS: dict[str, Callable[[Cluster, float], float]] = {
    "ring": _ring,
    "doubling": _doubling,
    "halving": _halving,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "two-dimensional": _two_dimensional,
}
