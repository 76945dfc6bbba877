"""Trees of unknowns as real vectors of float64, which is what SciPy's solvers work with."""

from typing import Any

from fdbr import ops, tree
from fdbr.messages import describe
from fdbr.ops.dtypes import is_complex

__all__ = ["Unknowns", "real_vector"]


class Unknowns:
    """The form of a tree of unknowns.

    Those are its floating and complex leaves outside of buffers; what else there is stays as it
    is.  Of a complex number the real and the imaginary part are unknown.

    Attributes
    ----------
    size
        How many real unknowns there are.
    eps
        The distance from 1 to the next number in the coarsest dtype of a leaf.
    """

    def __init__(self, function: str, name: str, values: Any) -> None:
        leaves = tree.leaves(tree.trainable(values))
        if not leaves:
            found = ", ".join(map(describe, tree.leaves(values))) or "no leaf"
            raise TypeError(
                f"fdbr.{function}: {name} must have a floating or complex leaf, and there is "
                f"{found}; write 1.0 for 1"
            )
        self.dtypes = [getattr(leaf, "dtype", None) for leaf in leaves]
        vector, self._unravel = tree.ravel([_parts(leaf) for leaf in leaves])
        self.size = int(vector.shape[0])
        self.eps = max(float(ops.finfo(dtype or float).eps) for dtype in self.dtypes)

    def vector(self, values: Any) -> Any:
        """The unknowns of a tree of this form."""
        return real_vector(values)

    def tree(self, vector: Any, like: Any, *, exact: bool = True) -> Any:
        """The tree ``like`` with the unknowns of a vector in it.

        They are of double precision, or, unless ``exact``, of the dtypes that ``like`` has.
        """
        found = [_whole(part) for part in self._unravel(vector)]
        if not exact:
            found = [
                part if dtype is None or part.dtype == dtype else ops.astype(part, dtype)
                for part, dtype in zip(found, self.dtypes, strict=True)
            ]
        given = iter(found)
        return tree.map(
            lambda leaf, own: leaf if own is None else next(given), like, tree.trainable(like)
        )


def real_vector(values: Any) -> Any:
    """The floating elements of a tree, as a vector of float64; complex ones count twice."""
    return tree.ravel([_parts(leaf) for leaf in tree.leaves(tree.trainable(values))])[0]


def _parts(leaf: Any) -> Any:
    leaf = ops.asarray(leaf)
    if is_complex(leaf):
        leaf = ops.astype(leaf, "complex128")
        return ops.real(leaf), ops.imag(leaf)
    return ops.astype(leaf, "float64")


def _whole(part: Any) -> Any:
    return part[0] + 1j * part[1] if isinstance(part, tuple) else part
