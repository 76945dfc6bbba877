"""Products of two sparse matrices: sums of products of pairs of their elements.

The pairs, and where each product goes, depend on the patterns alone.  So the product is linear in
the elements of each matrix, by operations that are.
"""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.devices import scipy_of
from fdbr.ops.indexing.reading import take
from fdbr.ops.indexing.segments import segment_sum
from fdbr.ops.shape.manipulation import reshape
from fdbr.ops.sparse.patterns import Pattern
from fdbr.pytrees.typing import Array

__all__ = ["product_of_patterns"]


def product_of_patterns(x: Array, of_x: Pattern, y: Array, of_y: Pattern) -> tuple[Any, Pattern]:
    """The elements and the pattern, which is csr, of the product of two sparse matrices.

    Parameters
    ----------
    x, y
        The elements of the two.
    of_x, of_y
        Their patterns.
    """
    xp = array_module(of_x.parts[0])
    rows, inner, there = of_x.places()
    mine = xp.nonzero(there)[0]
    partners, columns, there = of_y.places()
    theirs = xp.nonzero(there)[0]
    theirs = theirs[xp.argsort(partners[theirs], kind="stable")]  # one row after the other
    counts = xp.bincount(partners[theirs], minlength=of_y.outer_shape[0])
    many = counts[inner[mine]]
    ends = xp.cumsum(many)
    pair = xp.arange(int(ends[-1]) if ends.size else 0)
    left = xp.searchsorted(ends, pair, side="right")
    nth = pair - (ends - many)[left]
    left = mine[left]
    right = theirs[(xp.cumsum(counts) - counts)[inner[left]] + nth]
    shape = (of_x.outer_shape[0], of_y.outer_shape[1])
    places = rows[left].astype("int64") * shape[1] + columns[right]
    places, goal = xp.unique(places, return_inverse=True)
    products = take(reshape(x, -1), left, axis=0) * take(reshape(y, -1), right, axis=0)
    elements = segment_sum(products, goal.reshape(-1), int(places.size))
    return elements, _csr(xp, of_x, places, shape)


def _csr(xp: Any, like: Pattern, places: Any, shape: tuple[int, int]) -> Pattern:
    matrix = "matrix" in getattr(like.kind, "__name__", "")
    kind = getattr(scipy_of(xp, "sparse"), "csr_matrix" if matrix else "csr_array")
    rows, columns = places // shape[1], places % shape[1]
    starts = xp.searchsorted(rows, xp.arange(shape[0] + 1))
    return Pattern(kind, (columns, starts), shape, (int(places.size),))
