"""Pytrees, and arithmetic on them.

A pytree is a nest of containers (tuples, lists, dicts, named tuples, classes made by
`frozen`) around leaves (arrays, numbers, anything else).  Parameters, gradients and
optimizer states are pytrees of one shape, so one `map` serves them all.

`None` means *nothing here*: it is no leaf.  The gradient of a leaf that is not
differentiated is `None`, and `map` passes a `None` of its first tree by; in sums it counts
as zero.
"""

import typing

from fdbr.errors.names import missing_from
from fdbr.errors.public import public
from fdbr.pytrees import structure as structures
from fdbr.pytrees.classes import FrozenError, buffer, frozen, static
from fdbr.pytrees.structure import (
    Structure,
    broadcast_prefix,
    flatten_up_to,
    is_inexact,
    outside_buffers,
    paths_of,
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
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`

# Pytrees lie below `fdbr.errors`, and the engine takes trees apart without explanations of errors,
# which take time: so their functions are declared public here.
combine = public("fdbr.tree")(structures.combine)
flatten = public("fdbr.tree")(structures.flatten)
leaves = public("fdbr.tree")(structures.leaves)
map = public("fdbr.tree")(structures.map)
partition = public("fdbr.tree")(structures.partition)
paths = public("fdbr.tree")(structures.paths)
replace = public("fdbr.tree")(structures.replace)
size = public("fdbr.tree")(structures.size)
structure = public("fdbr.tree")(structures.structure)
trainable = public("fdbr.tree")(structures.trainable)
unflatten = public("fdbr.tree")(structures.unflatten)
if not typing.TYPE_CHECKING:  # type checkers know what these do to a class by their definitions
    buffer = public("fdbr")(buffer)
    frozen = public("fdbr")(frozen)
    static = public("fdbr")(static)
