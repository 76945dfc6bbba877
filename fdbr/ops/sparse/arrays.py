"""Sparse matrices whose elements are traced, and SciPy's as nodes of trees.

A matrix of `scipy.sparse` (or ``cupyx.scipy.sparse``) is a node whose one leaf is its ``data``.
Inside a transformation it is a `SparseArray`, and what comes out is SciPy's again: the gradient
by a matrix lies on its pattern and is of its format.
"""

import functools
from typing import Any, NoReturn

import optree

from fdbr.core.array_modules import array_module, is_array
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import describe, number_types
from fdbr.ops.elementwise.comparison import where
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import broadcast_to, reshape
from fdbr.ops.sparse.pairs import product_of_patterns
from fdbr.ops.sparse.patterns import FORMATS, Pattern, pattern_of
from fdbr.ops.sparse.products import multiply_sparse
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import settling
from fdbr.pytrees.typing import ArrayLike

__all__ = ["SparseArray", "is_sparse", "matmul", "sparse_array"]

_WHAT = (
    "it has @, .T, * by numbers and dense arrays, / by a number, + and - of the same pattern, "
    "sum and toarray"
)
_LIBRARIES = ("scipy.sparse", "cupyx.scipy.sparse")


class SparseArray:
    """A sparse matrix as `scipy.sparse` has it, whose elements may be traced.

    >>> import fdbr, numpy as np, scipy.sparse
    >>> S = scipy.sparse.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> fdbr.grad(lambda S: (S @ np.array([1.0, 10.0])).sum())(S).toarray()
    array([[ 0., 10.],
           [ 1.,  0.]])
    """

    __slots__ = ("data", "pattern")

    __array_ufunc__ = None  # so that an array to the left of @ leaves the product to this class
    ndim = 2

    def __init__(self, data: Any, pattern: Pattern) -> None:
        self.data = data
        self.pattern = pattern

    shape = property(lambda self: self.pattern.outer_shape, doc="The lengths of the axes.")
    dtype = property(lambda self: self.data.dtype, doc="The type of the elements.")
    format = property(lambda self: self.pattern.format, doc="The format, such as ``'csr'``.")
    T = property(lambda self: SparseArray(self.data, self.pattern.T), doc="The transpose.")

    def transpose(self) -> "SparseArray":
        """The transpose."""
        return self.T

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self)

    def dot(self, other: Any) -> Any:
        """The product with a vector or a matrix, as ``@``."""
        return matmul(self, other)

    def _is_matrix(self) -> bool:
        return "matrix" in getattr(self.pattern.kind, "__name__", "")

    def __mul__(self, other: Any) -> Any:
        if self._is_matrix() and getattr(other, "ndim", False):
            return matmul(self, other)  # as of SciPy's matrices
        return self.multiply(other)

    def __rmul__(self, other: Any) -> Any:
        if self._is_matrix() and getattr(other, "ndim", False):
            return matmul(other, self)
        return self * other

    def __truediv__(self, other: Any) -> Any:
        return SparseArray(self.data / _number("/", self, other), self.pattern)

    def multiply(self, other: Any) -> Any:
        """The product of elements, with a number or a dense array that broadcasts to the shape.

        Of another sparse array the pattern must be the same.
        """
        if type(other) in number_types or (is_array(other) and other.ndim == 0):
            return SparseArray(self.data * other, self.pattern)
        if is_sparse(other):
            return SparseArray(self.data * _same_pattern("*", self, other), self.pattern)
        rows, columns, there = self.pattern.places()
        factors = broadcast_to(asarray(other), self.shape)[rows, columns]
        factors = where(there, factors, 0).reshape(self.pattern.data_shape)
        return SparseArray(self.data * factors, self.pattern)

    def __neg__(self) -> Any:
        return SparseArray(-self.data, self.pattern)

    def __add__(self, other: Any) -> Any:
        return SparseArray(self.data + _same_pattern("+", self, other), self.pattern)

    def __sub__(self, other: Any) -> Any:
        return SparseArray(self.data - _same_pattern("-", self, other), self.pattern)

    def __radd__(self, other: Any) -> Any:
        return SparseArray(_same_pattern("+", self, other) + self.data, self.pattern)

    def __rsub__(self, other: Any) -> Any:
        return SparseArray(_same_pattern("-", self, other) - self.data, self.pattern)

    def sum(self, axis: int | None = None) -> Any:
        """The sum of all elements, or along an axis; of SciPy's matrices with that axis kept."""
        height, width = self.shape
        if axis is None:
            return (self @ self._ones(width)).sum()
        if axis not in (0, 1, -1, -2):
            raise ValueError(f"fdbr: sum of {self!r}: axis must be 0, 1 or None, got {axis!r}")
        first = axis in (0, -2)
        out = self.T @ self._ones(height) if first else self @ self._ones(width)
        if self._is_matrix():
            return reshape(out, (1, width) if first else (height, 1))
        return out

    def _ones(self, count: int) -> Any:
        return array_module(self.data).ones(count, dtype=self.dtype)

    def toarray(self) -> Any:
        """The dense matrix."""
        return self @ array_module(self.data).eye(self.shape[1], dtype=self.dtype)

    todense = toarray

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(
            f"conversion of a traced {self!r} to a NumPy array; use its toarray(), which has a "
            "derivative"
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a traced sparse array has no {name!r}: {_WHAT}")

    def __repr__(self) -> str:
        return f"<sparse {self.format} of {describe(self.data)} on {self.shape}>"


def _number(sign: str, matrix: SparseArray, value: Any) -> Any:
    if type(value) in number_types or (is_array(value) and value.ndim == 0):
        return value
    raise TypeError(
        f"fdbr: {matrix!r} {sign} {describe(value)}: a traced sparse array is divided by numbers "
        "alone; multiply it by an array, or use toarray()"
    )


def _same_pattern(sign: str, matrix: SparseArray, other: Any) -> Any:
    if is_sparse(other):
        other = sparse_array(other)
    if isinstance(other, SparseArray) and other.pattern == matrix.pattern:
        return other.data
    raise TypeError(
        f"fdbr: {matrix!r} {sign} {other!r}: sums and products by elements of traced "
        "sparse arrays need the same pattern and format; use toarray()"
    )


def is_sparse(value: ArrayLike) -> bool:
    """Whether a value is a sparse matrix of SciPy, CuPy or fdbr."""
    if isinstance(value, SparseArray):
        return True
    return type(value).__module__.startswith(_LIBRARIES) and hasattr(value, "format")


def sparse_array(matrix: ArrayLike, /) -> SparseArray:
    """A sparse matrix of SciPy or CuPy as one whose elements may be traced.

    Parameters
    ----------
    matrix
        A csr, csc, bsr, coo or dia array or matrix of two axes.

    Raises
    ------
    TypeError
        If it is of another format, or no sparse matrix.

    >>> import scipy.sparse
    >>> from fdbr.ops import sparse
    >>> sparse.sparse_array(scipy.sparse.eye_array(2, format="csr")).shape
    (2, 2)
    """
    if isinstance(matrix, SparseArray):
        return matrix
    if not is_sparse(matrix) or matrix.format not in FORMATS:
        what = f"a {matrix.format} array" if is_sparse(matrix) else describe(matrix)
        raise TypeError(
            f"fdbr.ops.sparse.sparse_array: a sparse array of the formats {', '.join(FORMATS)} is "
            f"needed, not {what}; convert it with tocsr()"
        )
    return SparseArray(matrix.data, pattern_of(matrix))


def matmul(x: ArrayLike, y: ArrayLike, /) -> Any:
    """The product of a sparse matrix and a matrix or vector, either of them traced or not.

    Parameters
    ----------
    x, y
        One of them sparse: SciPy's, CuPy's, or a `SparseArray`.  The other is sparse, too, or an
        array of one or two axes.

    Returns
    -------
    array or SparseArray
        The product, as ``x @ y`` has it: dense, or of two sparse matrices a csr array, whose
        pattern has the elements to which pairs of elements contribute.

    Raises
    ------
    TypeError
        If neither of them is sparse, or one is of a format without a pattern.
    ValueError
        If the shapes do not fit.

    >>> import fdbr, numpy as np, scipy.sparse
    >>> from fdbr.ops import sparse
    >>> S = scipy.sparse.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> fdbr.grad(lambda x: sparse.matmul(S, x).sum())(np.ones(2))
    array([3., 2.])
    """
    if not is_sparse(x) and not is_sparse(y):
        raise TypeError(
            "fdbr.ops.sparse.matmul: one operand must be sparse, got "
            f"{_text(x)} and {_text(y)}; use ops.matmul"
        )
    if is_sparse(x) and is_sparse(y):
        first, second = sparse_array(x), sparse_array(y)
        if first.shape[1] != second.shape[0]:
            raise ValueError(
                f"fdbr.ops.sparse.matmul: the shapes do not fit: {_text(x)} @ {_text(y)}"
            )
        return SparseArray(
            *product_of_patterns(first.data, first.pattern, second.data, second.pattern)
        )
    if is_sparse(y):
        dense, turned = asarray(x), sparse_array(y).T
        _check(dense.shape[-1:] == turned.shape[1:], dense, x, y)
        return matmul(turned, dense.T).T
    dense, matrix = asarray(y), sparse_array(x)
    _check(dense.shape[:1] == matrix.shape[1:], dense, x, y)
    return multiply_sparse(matrix.data, dense, pattern=matrix.pattern)


def _check(fits: bool, dense: Any, x: Any, y: Any) -> None:
    if dense.ndim not in (1, 2) or not fits:
        raise ValueError(
            f"fdbr.ops.sparse.matmul: the shapes do not fit: {_text(x)} @ {_text(y)}; the dense "
            "operand has one or two axes"
        )


def _text(value: Any) -> str:
    return f"sparse {value.shape}" if is_sparse(value) else describe(value)


# --- as nodes of trees --------------------------------------------------------------


def _parts(matrix: Any) -> tuple[Any, Any]:
    return (matrix.data,), pattern_of(matrix)


def _made(pattern: Any, children: Any) -> Any:
    """SciPy's matrix of plain data that fits, and a `SparseArray` of anything else."""
    (data,) = children
    plain = is_array(data) and not isinstance(data, Tracer)
    if plain and tuple(data.shape) == pattern.data_shape:
        return pattern.matrix(data)
    return SparseArray(data, pattern)


def _register(library: Any) -> None:
    for form in FORMATS:
        for ending in ("array", "matrix"):
            kind = getattr(library, f"{form}_{ending}", None)
            if kind is not None:
                optree.register_pytree_node(kind, _parts, _made, namespace=NAMESPACE)
                _lead_here(kind)


def _lead_here(kind: Any) -> None:
    """Have a class of sparse matrices leave what it does with traced values to `SparseArray`.

    SciPy asks no protocol there: it takes for a plain array what behaves as one.
    """
    for name in _OPERATORS:
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None and not hasattr(vars(owner)[name], "fdbr"):
            setattr(owner, name, _or_traced(vars(owner)[name], getattr(SparseArray, name)))


def _or_traced(theirs: Any, ours: Any) -> Any:
    @functools.wraps(theirs)
    def operator(self: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(other, Tracer | SparseArray):
            return ours(sparse_array(self), other)
        return theirs(self, other, *args, **kwargs)

    operator.fdbr = True  # type: ignore[attr-defined]
    return operator


_OPERATORS = (
    *("__matmul__", "__rmatmul__", "__mul__", "__rmul__", "__truediv__", "multiply", "dot"),
    *("__add__", "__radd__", "__sub__", "__rsub__"),
)


def _own_parts(matrix: Any) -> tuple[Any, Any]:
    return (matrix.data,), matrix.pattern


optree.register_pytree_node(
    SparseArray,
    _own_parts,
    _made,
    namespace=NAMESPACE,
)
for _name in _LIBRARIES:
    settling[_name] = _register
