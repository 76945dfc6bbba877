"""Sylvester's equation, whose solutions are the derivatives of matrix square roots."""

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from fdbr.core.array_modules import to_numpy
from fdbr.core.devices import scipy_of
from fdbr.ops.declare import fit, leading, opaque
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.shape.manipulation import _matrix_transpose, broadcast_shapes
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["sylvester"]

_FEW = 8  # rows up to which one linear system for all elements is faster


def _adjoint_solution(ct: Any, a: Any, b: Any) -> Any:
    return sylvester(_matrix_transpose(a), _matrix_transpose(b), ct)


@opaque(
    a=(
        lambda ct, a, b, out, like: fit(
            -_adjoint_solution(ct, a, b) @ _matrix_transpose(out), like
        ),
        lambda t, a, b, out: -sylvester(a, b, t @ out),
    ),
    b=(
        lambda ct, a, b, out, like: fit(
            -_matrix_transpose(out) @ _adjoint_solution(ct, a, b), like
        ),
        lambda t, a, b, out: -sylvester(a, b, out @ t),
    ),
    q=(
        lambda ct, a, b, like: fit(_adjoint_solution(ct, a, b), like),
        lambda t, a, b: sylvester(a, b, t),
    ),
    batch=leading(2),
)
def sylvester(xp: Any, a: ArrayLike, b: ArrayLike, q: ArrayLike) -> Array:
    """The solution ``x`` of ``a @ x + x @ b = q``; NaN where there is none.

    It is unique if no eigenvalue of ``a`` is an eigenvalue of ``-b``.  It is computed in double
    precision: for small matrices as one linear system for all elements, for larger ones by Bartels
    and Stewart's method, one by one in host memory.
    """
    dtype = xp.result_type(a, b, q)
    double = xp.result_type(dtype, xp.float64)
    lead = broadcast_shapes("linalg.sylvester", a.shape[:-2], b.shape[:-2], q.shape[:-2])
    a, b, q = (xp.broadcast_to(y, (*lead, *y.shape[-2:])).astype(double) for y in (a, b, q))
    out = (_by_linear_system if q.shape[-1] <= _FEW else _by_bartels_stewart)(xp, a, b, q)
    return out.astype(dtype, copy=False)


def _by_linear_system(xp: Any, a: Any, b: Any, q: Any) -> Any:
    m, n = q.shape[-2:]
    left = a[..., :, None, :, None] * xp.eye(n, dtype=a.dtype)[:, None, :]
    right = b.swapaxes(-1, -2)[..., None, :, None, :] * xp.eye(m, dtype=a.dtype)[:, None, :, None]
    system = (left + right).reshape(*q.shape[:-2], m * n, m * n)
    return lapack(xp, "solve", system, q.reshape(*q.shape[:-2], m * n, 1), strict=False).reshape(
        q.shape
    )


def _by_bartels_stewart(xp: Any, a: Any, b: Any, q: Any) -> Any:
    solve = scipy_of(np, "linalg").solve_sylvester
    stacks = [to_numpy(y).reshape(-1, *y.shape[-2:]) for y in (a, b, q)]
    out = np.full_like(stacks[2], np.nan)
    for number, equation in enumerate(zip(*stacks, strict=True)):
        try:
            out[number] = solve(*equation)
        except (LinAlgError, ValueError):  # singular, or not finite
            continue
    return xp.asarray(out.reshape(q.shape))
