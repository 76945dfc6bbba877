"""NumPy's linear algebra on traced values: which function of `fdbr.ops.linalg` each of it is.

Every entry takes NumPy's arguments.  Where NumPy's result depends on its values in kind (`eig`
is real if all eigenvalues are), it is here what it can be in general.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops
from fdbr.core.tracer_methods import functions
from fdbr.errors.checks import describe
from fdbr.interop.numpy_basics import in_numpys, in_their_dtype
from fdbr.interop.signatures import implements, refuse, scalars
from fdbr.ops import linalg
from fdbr.ops.linalg.matrices import adjoint, matrices, mirror_triangle, square_matrices
from fdbr.ops.linalg.solving import inverse
from fdbr.ops.linalg.spectral import eigh_upper


def enter(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as what the one of this name in `numpy.linalg` does."""
    return implements(name, module=np.linalg)


# --- by the same arguments ----------------------------------------------------------

for _name in """cholesky cross det diagonal eigvals inv matmul matrix_power matrix_transpose
    solve svdvals trace""".split():
    enter(_name)(getattr(linalg, _name))


@enter("tensordot")
def _tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return functions[np.tensordot](x1, x2, axes)


@enter("vecdot")
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """NumPy counts the axis in each operand by itself."""
    x1, x2 = (ops.moveaxis(ops.asarray(x), axis, -1) for x in (x1, x2))
    return linalg.vecdot(x1, x2)


# NumPy's own named tuples, for programs that ask for their class.
_KINDS: list[Any] = [
    type(function(np.ones((1, 1))))
    for function in (
        *(np.linalg.slogdet, np.linalg.eig, np.linalg.eigh, np.linalg.svd, np.linalg.qr),
    )
]
_SLOGDET, _EIG, _EIGH, _SVD, _QR = _KINDS
enter("slogdet")(lambda a: _SLOGDET(*linalg.slogdet(a)))
enter("eig")(lambda a: _EIG(*linalg.eig(a)))


@enter("outer")
def _outer(x1: Any, x2: Any, /) -> Any:
    return in_their_dtype(linalg.outer(x1, x2), x1, x2)


@enter("multi_dot")
@scalars
def _multi_dot(arrays: Any) -> Any:
    return in_their_dtype(linalg.multi_dot(arrays), *arrays)


@enter("norm")
@scalars
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return linalg.norm(in_numpys(x), ord, axis, keepdims)


@enter("matrix_norm")
def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return linalg.matrix_norm(in_numpys(x), keepdims=keepdims, ord=ord)


@enter("vector_norm")
@scalars
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    return linalg.vector_norm(in_numpys(x), axis=axis, keepdims=keepdims, ord=ord)


# --- factorizations -----------------------------------------------------------------


def _is_upper(name: str, uplo: str) -> bool:
    if uplo.upper() not in ("L", "U"):
        raise ValueError(f"np.linalg.{name}: UPLO must be 'L' or 'U', not {uplo!r}")
    return uplo.upper() == "U"


@enter("eigh")
def _eigh(a: Any, UPLO: str = "L") -> Any:
    return _EIGH(*(eigh_upper(a) if _is_upper("eigh", UPLO) else linalg.eigh(a)))


@enter("eigvalsh")
def _eigvalsh(a: Any, UPLO: str = "L") -> Any:
    return linalg.eigvalsh(adjoint(a) if _is_upper("eigvalsh", UPLO) else a)


@enter("svd")
def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    if hermitian:
        return _hermitian_svd(a) if compute_uv else _hermitian_svdvals(a)
    return _SVD(*linalg.svd(a, full_matrices=full_matrices)) if compute_uv else linalg.svdvals(a)


# Of Hermitian matrices NumPy reads one triangle, and makes singular values of the eigenvalues.


def _hermitian_svd(a: Any) -> Any:
    values, vectors = linalg.eigh(a)
    order = ops.flip(ops.argsort(ops.abs(values)), axis=-1)
    values = ops.take_along_axis(values, order, axis=-1)
    u = ops.take_along_axis(vectors, order[..., None, :], axis=-1)
    signs = ops.where(values < 0, -1.0, 1.0)
    vh = ops.conj(ops.matrix_transpose(u * ops.astype(signs, values.dtype)[..., None, :]))
    return _SVD(u, ops.abs(values), vh)


def _hermitian_svdvals(a: Any) -> Any:
    return ops.flip(ops.sort(ops.abs(linalg.eigvalsh(a))), axis=-1)


@enter("qr")
def _qr(a: Any, mode: Any = "reduced") -> Any:
    if mode == "raw":
        refuse("np.linalg.qr", "mode", "'raw' gives reflectors, which have no derivative here")
    return linalg.qr(a).R if mode == "r" else _QR(*linalg.qr(a, mode=mode))


# --- solutions ----------------------------------------------------------------------

_NOT_GIVEN = np._NoValue


@enter("pinv")
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NOT_GIVEN) -> Any:
    a = mirror_triangle(a) if hermitian and a.size else a
    if rtol is _NOT_GIVEN:
        return linalg.pinv(a, rtol=1e-15 if rcond is None else rcond)
    if rcond is not None:
        raise ValueError("np.linalg.pinv: rcond and rtol are one argument; give either")
    return linalg.pinv(a, rtol=rtol)


@enter("matrix_rank")
def _matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    if tol is not None and rtol is not None:
        raise ValueError("np.linalg.matrix_rank: tol and rtol exclude each other; give either")
    if A.ndim < 2:
        return int(ops.any(A != 0))
    A = mirror_triangle(A) if hermitian else A
    if tol is None:
        return linalg.matrix_rank(A, rtol=rtol)
    return ops.count_nonzero(linalg.svdvals(A) > ops.asarray(tol)[..., None], axis=-1)


@enter("lstsq")
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = ops.asarray(a), ops.asarray(b)
    for x in (a, b):
        if x.dtype.char == "e":
            raise TypeError(f"np.linalg.lstsq: it takes no {describe(x)}; convert it to float32")
    if a.ndim != 2 or b.ndim > 2:
        raise np.linalg.LinAlgError(
            "np.linalg.lstsq: a must be a matrix, and b a vector or a matrix; "
            "fdbr.ops.linalg.lstsq takes stacks of them"
        )
    if rcond is not None and rcond < 0:
        rcond = float(ops.finfo(ops.result_type(a, np.float32)).eps)
    solution, residuals, rank, values = linalg.lstsq(a, b, rtol=rcond)
    residuals = ops.reshape(residuals, -1)
    if a.shape[0] <= a.shape[1] or rank < a.shape[1]:
        residuals = residuals[:0]
    return solution, residuals, ops.astype(rank, np.int32)[()], values


@enter("cond")
@scalars
def _cond(x: Any, p: Any = None) -> Any:
    """That of a singular matrix is infinite, and NaN only where an element is."""
    x = matrices("cond", x)
    if not x.size:
        raise np.linalg.LinAlgError(f"np.linalg.cond: {describe(x)} has no element")
    # A decomposition of NaN is an error, which NumPy's function does not raise from 2.5 on.
    unknown = ops.any(ops.isnan(x), axis=(-2, -1), keepdims=True)
    x = ops.where(unknown, ops.eye(*x.shape[-2:], dtype=x.dtype), x)
    if p in (None, 2, -2):
        values = linalg.svdvals(x)
        largest, least = values[..., 0], values[..., -1]
        out = least / largest if p == -2 else largest / least
    else:
        inverted = inverse(square_matrices("cond", x))
        out = linalg.matrix_norm(x, ord=p) * linalg.matrix_norm(inverted, ord=p)
    return ops.where(unknown[..., 0, 0], np.nan, ops.where(ops.isnan(out), np.inf, out))


@enter("tensorsolve")
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = ops.asarray(a), ops.asarray(b)
    if axes is not None:
        a = ops.moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    rest = a.shape[b.ndim :]
    flat = linalg.solve(ops.reshape(a, (b.size, math.prod(rest))), ops.reshape(b, -1))
    return ops.reshape(flat, rest)


@enter("tensorinv")
def _tensorinv(a: Any, ind: int = 2) -> Any:
    if ind <= 0:
        raise ValueError(f"np.linalg.tensorinv: ind must be positive, not {ind}")
    flat = ops.reshape(a, (math.prod(a.shape[:ind]), math.prod(a.shape[ind:])))
    return ops.reshape(linalg.inv(flat), (*a.shape[ind:], *a.shape[:ind]))


# --- in NumPy's main namespace ------------------------------------------------------

implements("kron")(linalg.kron)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops.diagonal(ops.moveaxis(a, (axis1, axis2), (-2, -1)), offset=offset)


implements("diagonal")(_diagonal)


@implements("trace")
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return ops.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements("cross")
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = ops.moveaxis(ops.asarray(a), axisa, -1), ops.moveaxis(ops.asarray(b), axisb, -1)
    if 2 in (a.shape[-1], b.shape[-1]):  # vectors of a plane, whose third element is 0
        flat = a.shape[-1] == b.shape[-1]
        a, b = (ops.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3 - x.shape[-1])]) for x in (a, b))
        out = linalg.cross(a, b)
        return out[..., 2] if flat else ops.moveaxis(out, -1, axisc)
    return ops.moveaxis(linalg.cross(a, b), -1, axisc)
