"""Sparse matrices: SciPy's and CuPy's as constants and as leaves of trees.

``S @ x`` and ``x @ S`` are differentiated in the dense operand and in the elements of the sparse
one; the gradient by a sparse matrix is a sparse matrix of the same pattern and format.
"""

from fdbr.ops.sparse.arrays import SparseArray, is_sparse, matmul, sparse_array

__all__ = ["SparseArray", "is_sparse", "matmul", "sparse_array"]
__dir__ = __all__.copy  # `dir` shows the public names alone
