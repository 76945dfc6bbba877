"""What messages take: links with a latency and a bandwidth, and clusters of nodes with them."""

import attrs

__all__ = ["Cluster", "Link"]


def _not_negative(instance: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{attribute.name} must be at least 0, got {value}")


@attrs.frozen
class Link:
    """A message of n bytes takes ``latency + n * per_byte`` seconds.

    Attributes
    ----------
    latency
        α, in seconds: LogGP's ``L + 2 o``.
    per_byte
        β, in seconds: LogGP's ``G``, for as long as the sender's port is busy.
    reduction
        Seconds for adding a received byte to one's own.  What is fitted has it within β.
    """

    latency: float = attrs.field(validator=_not_negative)
    per_byte: float = attrs.field(validator=_not_negative)
    reduction: float = attrs.field(default=0.0, validator=_not_negative)

    def seconds(self, size: float) -> float:
        """What a message of so many bytes takes."""
        return self.latency + size * self.per_byte


@attrs.frozen
class Cluster:
    """Nodes with as many ranks each; ranks are numbered node by node.

    Attributes
    ----------
    nodes, per_node
        How many nodes there are, and ranks on each.
    inner
        Between ranks of a node, each of which has a port of its own.
    outer
        Between nodes; the ranks of a node share its port.
    """

    nodes: int = attrs.field(validator=attrs.validators.ge(1))
    per_node: int = attrs.field(validator=attrs.validators.ge(1))
    inner: Link
    outer: Link

    @classmethod
    def flat(cls, size: int, link: Link) -> "Cluster":
        """So many nodes with one rank each."""
        return cls(size, 1, link, link)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.nodes * self.per_node

    def first(self, ranks: int) -> "Cluster":
        """The cluster of the first ranks, which fill nodes one after the other."""
        if ranks <= self.per_node:
            return attrs.evolve(self, nodes=1, per_node=ranks)
        if ranks % self.per_node or ranks > self.size:
            raise ValueError(
                f"{ranks} ranks fill no whole nodes of {self.per_node}, or more than {self.nodes}"
            )
        return attrs.evolve(self, nodes=ranks // self.per_node)

    def link(self, source: int, target: int) -> Link:
        """The link that joins two ranks."""
        same = source // self.per_node == target // self.per_node
        return self.inner if same else self.outer

    def port(self, source: int, target: int) -> tuple[str, int]:
        """What a message occupies while it is sent."""
        node = source // self.per_node
        if node == target // self.per_node:
            return "rank", source
        return "node", node
