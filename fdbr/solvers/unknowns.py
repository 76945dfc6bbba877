"""Trees of unknowns as real vectors of float64."""

import itertools
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import describe
from fdbr.ops.dtypes import is_complex
from fdbr.pytrees.structure import is_inexact, outside_buffers

__all__ = ["Unknowns", "inexact", "real_vector"]


class Unknowns:
    """The form of a tree of unknowns.

    Those are its floating and complex leaves outside of buffers; its other leaves stay as they
    are.  The real and the imaginary part of a complex number are two unknowns.

    Attributes
    ----------
    size
        How many real unknowns there are.
    eps
        The distance from 1 to the next number in the coarsest dtype of a leaf.
    """

    def __init__(self, function: str, name: str, values: Any) -> None:
        leaves, structure = tree.flatten(values)
        self._inside = inexact(values)
        chosen = list(itertools.compress(leaves, self._inside))
        if not chosen:
            found = ", ".join(map(describe, leaves)) or "no leaf"
            raise TypeError(
                f"fdbr.{function}: {name} must have a floating or complex leaf, and there is "
                f"{found}; write 1.0 for 1"
            )
        self._set(structure, chosen)

    def _set(self, structure: Any, chosen: list[Any]) -> None:
        self.dtypes = [getattr(leaf, "dtype", None) for leaf in chosen]
        self._structure = structure
        self._shapes = [getattr(leaf, "shape", ()) for leaf in chosen]
        self._complex = [is_complex(ops.asarray(leaf)) for leaf in chosen]
        counts = [
            (1 + both) * int(np.prod(shape, dtype=int))
            for shape, both in zip(self._shapes, self._complex, strict=True)
        ]
        self._stops = [0, *itertools.accumulate(counts)]
        self.size = self._stops[-1]
        self.eps = max((float(ops.finfo(dtype or float).eps) for dtype in self.dtypes), default=0.0)
        self._moves_alone = all(self._inside)

    def others(self, values: Any) -> list[Any]:
        """The leaves of a tree of this form that are no unknowns."""
        return [
            leaf for leaf, own in zip(tree.leaves(values), self._inside, strict=True) if not own
        ]

    def tree(self, vector: Any, others: Any = (), *, exact: bool = True) -> Any:
        """The tree with the unknowns of a vector, or of the rows of a matrix, and other leaves.

        They are of double precision, or, unless ``exact``, of the dtypes that the tree has.
        """
        lead, stops = vector.shape[:-1], self._stops
        lock(vector)  # the user's function gets views of it
        leaves = []
        for i, (shape, dtype, both) in enumerate(
            zip(self._shapes, self.dtypes, self._complex, strict=True)
        ):
            start, stop = stops[i], stops[i + 1]
            if both:
                middle = (start + stop) // 2
                part = vector[..., start:middle] + 1j * vector[..., middle:stop]
            else:
                part = vector if stop - start == self.size else vector[..., start:stop]
            part = ops.reshape(part, (*lead, *shape)) if shape or lead else part[0]
            if not exact and dtype is not None and part.dtype != dtype:
                part = ops.astype(part, dtype)
            leaves.append(part)
        if self._moves_alone:
            return tree.unflatten(self._structure, leaves)
        mine, rest = iter(leaves), iter(others)
        return tree.unflatten(
            self._structure, [next(mine) if own else next(rest) for own in self._inside]
        )


def inexact(values: Any) -> list[bool]:
    """For each leaf of a tree, whether it is floating or complex and outside of buffers."""
    leaves, structure = tree.flatten(values)
    return [
        outside and is_inexact(leaf)
        for outside, leaf in zip(outside_buffers(structure), leaves, strict=True)
    ]


def real_vector(values: Any) -> Any:
    """The floating elements of a tree, as a vector of float64; complex ones count twice."""
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values.copy().reshape(-1)  # as below, for a tenth of the time in every step
    leaves = itertools.compress(tree.leaves(values), inexact(values))
    parts = [part for leaf in leaves for part in _parts(leaf)]
    if not parts:
        return np.zeros(0)
    return parts[0] if len(parts) == 1 else ops.concat(parts)


def _parts(leaf: Any) -> list[Any]:
    if is_complex(leaf):
        return [*_parts(ops.real(leaf)), *_parts(ops.imag(leaf))]
    # A copy: the user's function may write to its array again.
    return [ops.reshape(ops.astype(leaf, "float64"), (-1,))]
