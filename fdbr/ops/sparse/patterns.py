"""The pattern of a sparse matrix: the places of its elements, without their values.

A `Pattern` is what SciPy's csr, csc, bsr, coo and dia matrices have beside ``data``.  It makes a
matrix again of other data of the same shape, which is how the gradient by a matrix lies on its
pattern and is of its format.
"""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.core.devices import scipy_of
from fdbr.pytrees.typing import Array

__all__ = ["FORMATS", "Pattern", "pattern_of"]

FORMATS = ("csr", "csc", "bsr", "coo", "dia")


class Pattern:
    """The places of the elements of a sparse matrix, which tells patterns apart by value.

    Attributes
    ----------
    kind
        The class of the matrix, such as ``csr_array``; `None` of several in one, side by side.
    parts
        The arrays of places, as the format has them.
    shape
        The shape of the matrix, before it is turned.
    data_shape
        The shape of its ``data``.
    turned
        Whether rows and columns change places.
    """

    __slots__ = ("_places", "data_shape", "kind", "parts", "shape", "turned")

    def __init__(
        self,
        kind: Any,
        parts: tuple[Any, ...],
        shape: tuple[int, int],
        data_shape: tuple[int, ...],
        turned: bool = False,
    ) -> None:
        self.kind = kind
        self.parts = parts
        self.shape = shape
        self.data_shape = data_shape
        self.turned = turned
        self._places: Any = None

    @property
    def T(self) -> "Pattern":
        """The pattern of the transpose, of the same data."""
        out = Pattern(self.kind, self.parts, self.shape, self.data_shape, not self.turned)
        out._places = self._places
        return out

    @property
    def outer_shape(self) -> tuple[int, int]:
        """The shape of the matrix as it is seen."""
        return self.shape[::-1] if self.turned else self.shape

    @property
    def format(self) -> str:
        """The short name of the format."""
        return self.kind.__name__[:3] if self.kind else "coo"

    def matrix(self, data: Array) -> Any:
        """The sparse matrix of some data, of the library's own class."""
        if self.kind is None:
            rows, columns, there = self.parts
            made = _library(data).coo_matrix(
                (data.reshape(-1)[there], (rows[there], columns[there])), shape=self.shape
            )
            made = made.tocsr()
        elif self.format == "coo":
            made = self.kind((data, self.parts), shape=self.shape)
        else:
            made = self.kind((data, *self.parts), shape=self.shape)
        return made.T if self.turned else made

    def places(self) -> tuple[Any, Any, Any]:
        """Row and column of each element of the data in a row, and whether it is in the matrix."""
        if self._places is None:
            self._places = _places(self)
        rows, columns, there = self._places
        return (columns, rows, there) if self.turned else (rows, columns, there)

    def repeated(self, count: int) -> "Pattern":
        """That of a matrix with ``count`` such matrices along its diagonal."""
        rows, columns, there = self.places()
        xp = array_module(rows)
        height, width = self.outer_shape
        steps = xp.arange(count)[:, None]
        return Pattern(
            None,
            (
                (rows + height * steps).reshape(-1),
                (columns + width * steps).reshape(-1),
                xp.broadcast_to(there, (count, *there.shape)).reshape(-1),
            ),
            (height * count, width * count),
            (count, *self.data_shape),
        )

    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.shape, self.data_shape, self.turned

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Pattern)
            and self._key() == other._key()
            and all(
                a is b or (a.shape == b.shape and bool((a == b).all()))
                for a, b in zip(self.parts, other.parts, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        name = getattr(self.kind, "__name__", "blocks")
        turned = ", transposed" if self.turned else ""
        return f"{name}[{self.shape[0]},{self.shape[1]}] of {self.data_shape}{turned}"


def pattern_of(matrix: Any) -> Pattern:
    """The pattern of a sparse matrix of SciPy or CuPy."""
    if matrix.ndim != 2:
        raise TypeError(
            f"fdbr: sparse arrays have two axes here, not {matrix.ndim}: {type(matrix).__name__} "
            f"of shape {matrix.shape}. Use its toarray()."
        )
    parts: tuple[Any, ...]
    if matrix.format == "coo":
        parts = (matrix.row, matrix.col)
    elif matrix.format == "dia":
        parts = (matrix.offsets,)
    else:
        parts = (matrix.indices, matrix.indptr)
    return Pattern(type(matrix), parts, tuple(matrix.shape), tuple(matrix.data.shape))


def _places(pattern: Pattern) -> tuple[Any, Any, Any]:
    xp = array_module(pattern.parts[0])
    if pattern.kind is None:
        rows, columns, there = pattern.parts
        return rows, columns, there
    if pattern.format == "coo":
        rows, columns = pattern.parts
    elif pattern.format == "dia":
        return _of_diagonals(xp, pattern)
    else:
        indices, indptr = pattern.parts
        rows = xp.repeat(xp.arange(indptr.size - 1), xp.diff(indptr))
        columns = indices
        if pattern.format == "csc":
            rows, columns = columns, rows
        elif pattern.format == "bsr":
            _, height, width = pattern.data_shape
            shape = (indices.size, height, width)
            rows = (rows * height)[:, None, None] + xp.arange(height)[:, None]
            columns = (columns * width)[:, None, None] + xp.arange(width)
            rows = xp.broadcast_to(rows, shape).reshape(-1)
            columns = xp.broadcast_to(columns, shape).reshape(-1)
    return rows, columns, xp.ones(rows.shape, dtype=bool)


def _of_diagonals(xp: Any, pattern: Pattern) -> tuple[Any, Any, Any]:
    """Those outside of the matrix stand at its corner, and are not in it."""
    columns = xp.arange(pattern.data_shape[1])
    rows = columns - pattern.parts[0][:, None]
    columns = xp.broadcast_to(columns, rows.shape)
    height, width = pattern.shape
    there = (rows >= 0) & (rows < height) & (columns < width)
    return (
        xp.where(there, rows, 0).reshape(-1),
        xp.where(there, columns, 0).reshape(-1),
        there.reshape(-1),
    )


def _library(data: Any) -> Any:
    return scipy_of(array_module(data), "sparse")
