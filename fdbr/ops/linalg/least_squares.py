"""Least-squares solutions of linear equations."""

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import optree

from fdbr.core.array_modules import keep
from fdbr.core.tracer import Tracer
from fdbr.errors.public import public
from fdbr.ops.declare import fit, leading, opaque
from fdbr.ops.elementwise.complex_parts import conj, real
from fdbr.ops.linalg.lapack import lapack
from fdbr.ops.linalg.matrices import adjoint, matrices
from fdbr.ops.linalg.right_sides import batch_equation, equation, same_leading
from fdbr.ops.linalg.singular_values import rank_of, svdvals, tolerance
from fdbr.ops.shape.creation import asarray, zeros_like
from fdbr.ops.shape.manipulation import _matrix_transpose, concat
from fdbr.pytrees.structure import NAMESPACE
from fdbr.pytrees.typing import Array, ArrayLike

__all__ = ["LstsqResult", "lstsq"]


class LstsqResult(Sequence[Any]):
    """The result of `lstsq`, used like a named tuple of its four attributes.

    All attributes but the solution are computed on first access.  Those of traced values are
    computed at the latest when the transformed function returns, if the result still exists.

    Attributes
    ----------
    solution
        The minimizer of least norm.
    residuals
        The sums of squared residuals.
    rank
        The number of singular values above the tolerance.
    singular_values
        The singular values of the matrices.
    """

    _fields = ("solution", "residuals", "rank", "singular_values")
    solution: Any

    def __init__(self, solution: Any, compute: Callable[[str], Any]) -> None:
        self.solution = solution
        self._later = compute
        if isinstance(solution, Tracer):
            trace, found = solution._trace, weakref.ref(self)
            trace.finishing = [*trace.finishing, lambda: tuple(found() or ())]

    @functools.cached_property
    def residuals(self) -> Any:
        """The sums of squared residuals."""
        return self._later("residuals")

    @functools.cached_property
    def rank(self) -> Any:
        """The number of singular values above the tolerance."""
        return self._later("rank")

    @functools.cached_property
    def singular_values(self) -> Any:
        """The singular values of the matrices."""
        return self._later("singular_values")

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple([getattr(self, name) for name in self._fields[index]])
        return getattr(self, self._fields[index])

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._fields)

    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"LstsqResult({', '.join(parts)})"


optree.register_pytree_node(
    LstsqResult,
    lambda result: (tuple(result), None, LstsqResult._fields),
    lambda _, parts: _from_parts(*parts),
    namespace=NAMESPACE,
)


def _from_parts(*parts: Any) -> LstsqResult:
    return LstsqResult(parts[0], dict(zip(LstsqResult._fields, parts, strict=True)).__getitem__)


# --- the solution and its derivatives -----------------------------------------------

# With the pseudoinverse P and w = b - a x, and if the rank does not change, the derivative is
#     dx = P (db - da x) + P P^H da^H w + (1 - P a) da^H P^H x.
# Products with P are solutions for a right side, those with P^H solutions of the equations with
# a^H; P a is a^H P^H.


def _first_vjp(ct: Any, a: Any, out: Any, rtol: Any) -> Any:
    """Return ``P^H ct`` and ``P^H x`` side by side, all conjugated, with ``ct`` below them."""
    solved = _least_squares(_matrix_transpose(a), concat([ct, conj(out)], axis=-1), rtol)
    return concat([solved, concat([ct, zeros_like(ct)], axis=-1)], axis=-2)


def _matrix_vjp(first: Any, a: Any, b: Any, out: Any, rtol: Any, shape: Any, dtype: Any) -> Any:
    m, k = a.shape[-2], out.shape[-1]
    by_ct, by_x, ct = first[..., :m, :k], first[..., :m, k:], first[..., m:, :k]
    a, x = conj(a), conj(out)
    change = (conj(b) - a @ x) @ adjoint(_least_squares(a, by_ct, rtol)) - by_ct @ adjoint(x)
    return fit(change + by_x @ adjoint(ct - adjoint(a) @ by_ct), (shape, dtype))


def _right_vjp(first: Any, a: Any, out: Any, shape: Any, dtype: Any) -> Any:
    return fit(first[..., : a.shape[-2], : out.shape[-1]], (shape, dtype))


def _matrix_jvp(t: Any, a: Any, b: Any, out: Any, rtol: Any) -> Any:
    k, t_adjoint = out.shape[-1], adjoint(t)
    solved = _least_squares(adjoint(a), concat([out, t_adjoint @ (b - a @ out)], axis=-1), rtol)
    null_space_part = t_adjoint @ solved[..., :k]
    solutions = _least_squares(
        a, concat([solved[..., k:] - t @ out, a @ null_space_part], axis=-1), rtol
    )
    return solutions[..., :k] + null_space_part - solutions[..., k:]


def _batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    a, b, rtol = values
    if batched[2] or getattr(rtol, "ndim", 0):
        return leading(2)(apply, values, batched, size, params)

    def solve(a: Any, b: Any, **params: Any) -> Any:
        return apply(a, b, rtol, **params)

    return batch_equation(solve, (a, b), batched[:2], size, params)


@opaque(
    first=_first_vjp,
    a=(_matrix_vjp, _matrix_jvp),
    b=(_right_vjp, lambda t, a, rtol: _least_squares(a, t, rtol)),
    batch=_batch,
)
def _least_squares(
    xp: Any, a: ArrayLike, b: ArrayLike, rtol: Any, *, strict: bool = False
) -> Array:
    dtype = xp.result_type(a, b)
    a, b = same_leading(xp, "lstsq", a.astype(dtype, copy=False), b.astype(dtype, copy=False))
    u, s, vh = lapack(xp, "svd", a, strict=strict)
    s = s[..., None]
    is_kept = s > rtol * s[..., :1, :]
    rotated = u.swapaxes(-1, -2).conj() @ b
    return vh.swapaxes(-1, -2).conj() @ (
        rotated * xp.where(is_kept, 1 / xp.where(is_kept, s, 1), 0)
    )


@public("fdbr.ops.linalg")
def lstsq(a: ArrayLike, b: ArrayLike, /, *, rtol: ArrayLike | None = None) -> LstsqResult:
    """The least-squares solution of ``a @ x = b``: the minimizer of least norm.

    It is ``pinv(a) @ b``, computed by a Householder QR factorization if the rank is full, and
    otherwise by singular values.  The derivative is that of Golub and Pereyra (see `pinv`), which
    holds as long as the rank does not change.

    Parameters
    ----------
    a
        Shape ``(..., m, n)``, of any rank.
    b
        Shape ``(m,)``: one vector; or ``(..., m, k)``: matrices.  Leading axes broadcast.
    rtol
        Singular values up to this fraction of the largest count as 0; ``max(m, n) * eps`` by
        default.  It is not differentiated.

    Returns
    -------
    solution
        Shape ``(n,)`` or ``(..., n, k)``.
    residuals
        The sums of squares of ``b - a @ x``: shape ``()`` or ``(..., k)``.
    rank
        The rank of ``a``, shape ``(...)``.
    singular_values
        The singular values of ``a``, shape ``(..., min(m, n))``.

    All but the solution are computed on first access.

    Raises
    ------
    numpy.linalg.LinAlgError
        If shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> a = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> ops.linalg.lstsq(a, np.array([1.0, 3.0, 5.0])).solution.round(12)
    array([1., 2.])
    """
    a, b = matrices("lstsq", a, "a"), asarray(b)
    share = tolerance(a, rtol)
    solution = equation("lstsq", a, b, lambda a, b: _least_squares(a, b, share, strict=True))
    a, b = (
        x if isinstance(x, Tracer) else keep(x) for x in (a, b)
    )  # unchanged until attributes are computed
    values = functools.cache(lambda: svdvals(a))

    def compute(name: str) -> Any:
        if name != "residuals":
            return values() if name == "singular_values" else rank_of(values(), share)
        residual = b - ((a @ solution[..., None])[..., 0] if b.ndim == 1 else a @ solution)
        return real(residual * conj(residual)).sum(axis=-1 if b.ndim == 1 else -2)

    return LstsqResult(solution, compute)
