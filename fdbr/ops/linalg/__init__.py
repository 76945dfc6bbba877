"""Linear algebra: the `linalg` extension of the Python Array API standard, and more functions.

Matrices are the last two axes of arrays; all axes before them are stacks.  Every function accepts
real and complex matrices and is differentiable to any order, in reverse and forward mode.  Where a
factorization is not unique (signs, phases, a basis of equal eigenvalues), a function of it has a
gradient if it does not depend on the choice.

A matrix without a result (the inverse of a singular matrix, the Cholesky factor of an indefinite
one) raises `numpy.linalg.LinAlgError`, as in NumPy.  This holds on a GPU too, where CuPy would
return infinities or an incomplete factorization, so such functions wait for the device.
Derivatives never raise it: where they do not exist they are NaN, for that matrix of a stack alone.

Functions of Hermitian matrices (`eigh`, `eigvalsh`, `cholesky`) read one triangle and the real part
of the diagonal, as in NumPy; elements that are not read have derivative 0.
"""

from typing import Any

from fdbr.errors.names import missing_from
from fdbr.ops.linalg.determinants import det, slogdet
from fdbr.ops.linalg.factorizations import cholesky, qr
from fdbr.ops.linalg.functions import expm, matrix_power
from fdbr.ops.linalg.least_squares import lstsq
from fdbr.ops.linalg.norms import matrix_norm, norm, vector_norm
from fdbr.ops.linalg.products import cross, kron, multi_dot, outer, trace
from fdbr.ops.linalg.roots import logm, sqrtm
from fdbr.ops.linalg.singular_values import matrix_rank, pinv, svd, svdvals
from fdbr.ops.linalg.solving import inv, solve
from fdbr.ops.linalg.spectral import eig, eigh, eigvals, eigvalsh
from fdbr.ops.linalg.triangular import solve_triangular
from fdbr.ops.products import matmul, tensordot, vecdot
from fdbr.ops.shape.manipulation import diagonal, matrix_transpose

cg: Any

__all__ = [
    "cg",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "kron",
    "logm",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
# A solver needs the transformations, which stand above the operations among which it is looked for.
_LATER = {"cg": "fdbr.solvers"}
globals().update(__getattr__=missing_from(__name__, _LATER))  # type checkers see no `__getattr__`
