"""The point of a backward pass from which on gradients are complete."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from fdbr.core.tape import Node

__all__ = ["complete"]


def complete(
    roots: Sequence[tuple[Node, Any]], inputs: Sequence[Sequence[int]], ready: Callable[[int], None]
) -> list[tuple[Node, Any]]:
    """Roots for a backward pass that have ``ready(i)`` called when nothing more comes to inputs.

    An input is complete when the entry that used it first in the forward pass has been visited,
    because entries are visited from the last to the first.

    Parameters
    ----------
    roots
        Those of the backward pass.
    inputs
        Groups of inputs, by their nodes' numbers.
    ready
        Called with the number of each group, in that order.
    """
    oldest = _first_uses([node for node, _ in roots])
    newest = min((node[0] for node, _ in roots), default=0) - 1
    made: list[tuple[Node, Any]] = []
    last = newest
    for i, numbers in enumerate(inputs):
        last = max([last, *(oldest.get(number, newest) for number in numbers)])
        # After the entry of that number, before the next: numbers are counted downward.
        number: Any = last + (i + 1) / (len(inputs) + 1)
        edges = [(_NOWHERE, _called, (ready, i))]
        made.append(((number, edges, "average_gradients"), True))
    return made


_NOWHERE: Node = (1, (), "nowhere")


def _called(_: Any, ready: Callable[[int], None], i: int) -> None:
    ready(i)


def _first_uses(nodes: list[Node]) -> dict[int, int]:
    """The number of the earliest entry that uses each input, by the input's number."""
    oldest: dict[int, int] = {}
    seen = set()
    while nodes:
        number, edges, _ = nodes.pop()
        if number in seen:
            continue
        seen.add(number)
        for edge in edges:
            parent = edge[0]
            if parent[1]:
                if parent[0] not in seen:
                    nodes.append(parent)
            elif oldest.get(parent[0], -math.inf) < number:
                oldest[parent[0]] = number
    return oldest
