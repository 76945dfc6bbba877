"""Trees as vectors, for what knows no trees: SciPy's optimizers, samplers, linear algebra."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import is_array, lock, protect
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.pytrees.structure import Structure, flatten, is_inexact, outside_buffers, unflatten

__all__ = ["ravel"]


@public("fdbr.tree")
def ravel(tree: Any, /) -> tuple[Any, Callable[[Any], Any]]:
    """The elements of a tree in one vector, and the function that takes such a vector back.

    What is not differentiated stays out of the vector: leaves that are not floating or complex,
    leaves in a `buffer` field, and `None`.  So the vector of a model and that of its gradient
    have one length, and an optimizer moves nothing but what is trained.

    Parameters
    ----------
    tree
        A tree.

    Returns
    -------
    vector
        Shape ``(n,)``, read-only.  Its dtype is what the leaves' dtypes promote to, Python's
        numbers counting as float64 or complex128, so it holds every leaf exactly.
    unravel
        ``unravel(vector)``: the tree of the elements of a vector of shape ``(n,)``, real where
        ``vector`` is.  Each leaf has the dtype that it had, whatever the vector's, as SciPy works
        in float64; a Python number is one again.  What is not in the vector is put back as it
        was.  The tree shares no memory with the vector, which SciPy writes to.

    Notes
    -----
    Both ways are differentiable.

    >>> import numpy as np, scipy
    >>> import fdbr
    >>> start = {"x": np.zeros(2, "float32"), "y": 0.0, "name": "well"}
    >>> vector, unravel = fdbr.tree.ravel(start)
    >>> vector
    array([0., 0., 0.])
    >>> def loss(p):
    ...     return np.sum((p["x"] - 1) ** 2) + (p["y"] + 2) ** 2
    >>> def value_and_slope(vector):
    ...     value, gradient = fdbr.value_and_grad(loss)(unravel(vector))
    ...     return value, fdbr.tree.ravel(gradient)[0]
    >>> found = scipy.optimize.minimize(value_and_slope, vector, jac=True)
    >>> {name: np.round(part, 4) for name, part in unravel(found.x).items() if name != "name"}
    {'x': array([1., 1.], dtype=float32), 'y': np.float64(-2.0)}
    """
    leaves, shape = flatten(tree)
    inside = [
        differentiated and is_inexact(leaf)
        for differentiated, leaf in zip(outside_buffers(shape), leaves, strict=True)
    ]
    chosen = [leaf for leaf, own in zip(leaves, inside, strict=True) if own]
    places = _Places(leaves, inside, shape)
    if not chosen:
        return lock(np.zeros(0)), places.tree
    parts = [ops.reshape(ops.asarray(leaf), (-1,)) for leaf in chosen]
    dtype = ops.result_type(*(part.dtype for part in parts))
    vector = ops.concat([ops.astype(part, dtype, copy=False) for part in parts])
    return lock(vector), places.tree


class _Places:
    """The places of a tree's leaves in its vector, and the leaves that are not in it."""

    def __init__(self, leaves: list[Any], inside: list[bool], shape: Structure) -> None:
        self.shape = shape
        self.others = [None if own else leaf for leaf, own in zip(leaves, inside, strict=True)]
        self.indices = [index for index, own in enumerate(inside) if own]
        chosen = [leaves[index] for index in self.indices]
        self.kinds = [(getattr(x, "shape", ()), getattr(x, "dtype", type(x))) for x in chosen]
        self.stops = [0, *itertools.accumulate(int(getattr(x, "size", 1)) for x in chosen)]
        self.real = all(dtype_kind(np.dtype(dtype)) == "f" for _, dtype in self.kinds)

    def tree(self, vector: Any, /) -> Any:
        """The tree of the elements of a vector."""
        if isinstance(vector, list | tuple):
            vector = ops.asarray(vector)
        size, kinds = self.stops[-1], "biuf" if self.real else "biufc"
        if (
            getattr(vector, "shape", None) != (size,)
            or not (isinstance(vector, Tracer) or is_array(vector))
            or dtype_kind(vector.dtype) not in kinds
        ):
            raise ValueError(
                f"fdbr.tree.ravel: unravel takes a {'real ' * self.real}vector of shape ({size},), "
                f"not {describe(vector)}"
            )
        vector = protect(vector)
        leaves = list(self.others)
        for index, kind, ends in zip(
            self.indices, self.kinds, itertools.pairwise(self.stops), strict=True
        ):
            leaves[index] = _leaf(vector[slice(*ends)], *kind)
        return unflatten(self.shape, leaves)


def _leaf(part: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The elements of a leaf, in its shape and dtype."""
    if dtype_kind(np.dtype(dtype)) == "f" and part.dtype.kind == "c":
        part = ops.real(part)
    if isinstance(dtype, type):  # of a Python number
        number = part[0]
        return number if isinstance(number, Tracer) else dtype(number)
    part = ops.reshape(part, shape) if shape else part[0]
    return lock(ops.astype(part, dtype, copy=False))
