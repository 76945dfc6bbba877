"""Pytrees, and arithmetic on them.

A pytree is a nest of containers (tuples, lists, dicts, named tuples, classes made by
`frozen`) around leaves (arrays, numbers, anything else).  Parameters, gradients and
optimizer states are pytrees of one shape, so one `map` serves them all.

`None` means *nothing here*: it is no leaf.  The gradient of a leaf that is not
differentiated is `None`, and `map` passes a `None` of its first tree by; in sums it counts
as zero.
"""

from fdbr.pytrees.classes import FrozenError, buffer, frozen, static
from fdbr.pytrees.structure import (
    Structure,
    broadcast_prefix,
    combine,
    flatten,
    flatten_up_to,
    is_inexact,
    leaves,
    map,
    outside_buffers,
    partition,
    paths,
    paths_of,
    replace,
    size,
    structure,
    trainable,
    unflatten,
)
from fdbr.tree.arithmetic import (
    add,
    axpy,
    divide,
    dot,
    full_like,
    multiply,
    norm,
    ones_like,
    scale,
    subtract,
    zeros_like,
)
from fdbr.tree.vectors import ravel

__all__ = [
    "FrozenError",
    "add",
    "axpy",
    "buffer",
    "combine",
    "divide",
    "dot",
    "flatten",
    "frozen",
    "full_like",
    "leaves",
    "map",
    "multiply",
    "norm",
    "ones_like",
    "partition",
    "paths",
    "ravel",
    "replace",
    "scale",
    "size",
    "static",
    "structure",
    "subtract",
    "trainable",
    "unflatten",
    "zeros_like",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
