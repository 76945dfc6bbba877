"""Binary trees over classes: Huffman trees, and the paths to their leaves."""

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.public import public

__all__ = ["huffman_tree", "tree_paths"]


@public("fdbr.nn")
def huffman_tree(counts: Any) -> Any:
    """Return the binary tree in which frequent classes lie near the root.

    Huffman, *A method for the construction of minimum-redundancy codes*, 1952.

    Parameters
    ----------
    counts
        The number of occurrences of each class: a sequence, or a dict by class.

    Returns
    -------
    tuple
        Nested pairs, whose leaves are the classes: what `BinaryHierarchicalSoftmax` takes.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two classes, or a count is negative or infinite.

    >>> import fdbr
    >>> fdbr.nn.huffman_tree([8, 5, 6, 4])
    ((3, 1), (2, 0))
    """
    where = "fdbr.nn.huffman_tree"
    pairs = counts.items() if isinstance(counts, Mapping) else enumerate(counts)
    heap: list[tuple[float, int, Any]] = []
    for position, (label, count) in enumerate(pairs):
        number = float(count)
        if not 0 <= number < float("inf"):
            raise ValueError(f"{where}: the count of {label!r} must be at least 0, got {count!r}")
        heap.append((number, position, label))
    if len(heap) < 2:
        raise ValueError(f"{where}: a tree needs at least two classes, got {len(heap)}")
    heapq.heapify(heap)
    while len(heap) > 1:
        rarest, next_one = heapq.heappop(heap), heapq.heappop(heap)
        number = rarest[0] + next_one[0]
        heapq.heappush(heap, (number, min(rarest[1], next_one[1]), (rarest[2], next_one[2])))
    return heap[0][2]


@public("fdbr.nn")
def tree_paths(tree: Any) -> tuple[Any, Any]:
    """Return the nodes from the root of a binary tree to each leaf, and the branches taken there.

    Parameters
    ----------
    tree
        Nested pairs, whose leaves are the numbers from 0 on, each once: ``((0, 1), 2)``.

    Returns
    -------
    tuple
        Two read-only arrays of shape ``(leaves, depth)``: the numbers of nodes, int64, in
        depth-first order from the left; and 1 for a left branch, -1 for a right one and 0 after the
        leaf, int8.

    Raises
    ------
    TypeError
        If a leaf is no integer.
    ValueError
        If a node does not have two children, or a leaf is missing or duplicate.

    >>> import fdbr
    >>> paths, signs = fdbr.nn.tree_paths(((0, 1), 2))
    >>> paths.tolist(), signs.tolist()
    ([[0, 1], [0, 1], [0, 0]], [[1, 1], [1, -1], [-1, 0]])
    """
    found = _leaves(tree)
    missing = [leaf for leaf in range(len(found)) if leaf not in found][:5]
    if missing or len(found) < 2:
        what = f"it lacks {', '.join(map(str, missing))}" if missing else "it has no inner node"
        raise ValueError(
            f"fdbr.nn.tree_paths: the leaves of a tree must be the numbers from 0 on, each once, "
            f"and two at the least; the largest is {max(found)}, and {what}"
        )
    depth = max(len(way) for way in found.values())
    paths = np.zeros((len(found), depth), dtype=np.int64)
    signs = np.zeros((len(found), depth), dtype=np.int8)
    for leaf, way in found.items():
        for step, (node, sign) in enumerate(way):
            paths[leaf, step], signs[leaf, step] = node, sign
    return lock(paths), lock(signs)


def _leaves(tree: Any) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the path to each leaf: its nodes, and the branches taken."""
    where = "fdbr.nn.tree_paths"
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    waiting: list[tuple[Any, tuple[tuple[int, int], ...]]] = [(tree, ())]
    nodes = 0
    while waiting:
        node, way = waiting.pop()
        if isinstance(node, tuple | list):
            if len(node) != 2:
                raise ValueError(
                    f"{where}: an inner node must be a pair of two children, got one of {len(node)}"
                )
            waiting += [(node[1], (*way, (nodes, -1))), (node[0], (*way, (nodes, 1)))]
            nodes += 1
            continue
        if isinstance(node, bool) or not hasattr(node, "__index__"):
            raise TypeError(f"{where}: a leaf must be an integer, got {node!r}")
        leaf = int(node)
        if leaf < 0 or leaf in found:
            what = "is negative" if leaf < 0 else "is there twice"
            raise ValueError(f"{where}: the leaf {leaf} {what}; leaves are the numbers from 0 on")
        found[leaf] = way
    return found
