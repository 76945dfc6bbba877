"""Derivatives of what an equation defines, by the implicit function theorem.

Where ``residual(x, args) = 0``, the solution ``x`` moves with ``args`` by ``-A^-1 B``, with ``A``
and ``B`` the derivatives of the residual by ``x`` and by ``args``: how the solution was found
does not matter (Griewank & Faure, *Piggyback differentiation and optimization*, 2003; Blondel et
al., *Efficient and modular implicit differentiation*, 2022).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module
from fdbr.core.devices import scipy_of
from fdbr.solvers.host import plain
from fdbr.solvers.running import choose, compute, loop
from fdbr.transforms.custom_rules import custom_vjp
from fdbr.transforms.jacobians import jacfwd
from fdbr.transforms.vjp import stop_gradient, vjp

__all__ = ["DENSE", "LOST", "depending", "lowest", "symmetric_solution"]

DENSE = 500  # unknowns up to which the matrix of an equation is formed
_CONTRACTIONS = 1000  # of the iteration of a derivative, as many as `fixed_point` makes by itself
LOST = 1e150  # a change from which on an iteration does not converge
_EXACT = 1e-8  # the relative error up to which linear equations are solved

Residual = Callable[[Any, Any], Any]


def depending(
    function: str,
    residual: Residual,
    x: Any,
    converged: Any,
    args: Any,
    *,
    symmetric: bool = False,
    contracting: bool = False,
) -> Any:
    """A solution as a function of the arguments on which it depends.

    Parameters
    ----------
    function
        Its name, for messages.
    residual
        ``residual(x, args)``: a vector as long as ``x``, which is 0 at the solution.
    x
        The solution, a real vector: a constant.
    converged
        Whether it is one; its derivative is NaN otherwise.
    args
        A tree.
    symmetric
        Whether the derivative of the residual by ``x`` is, as that of a gradient.
    contracting
        Whether ``x + residual(x, args)`` is expected to be nearer to the solution than ``x``.
    """
    if not tree.leaves(tree.trainable(args)):
        return x

    @custom_vjp
    def solution(x: Any, converged: Any, args: Any) -> Any:
        return x

    def forward(x: Any, converged: Any, args: Any) -> Any:
        # It depends on outer transformations.  Not by the function above, which refers to this one
        # and would not be freed at once.
        x = depending(
            *(function, residual, x, converged, args), symmetric=symmetric, contracting=contracting
        )
        return x, (x, converged, args)

    def backward(kept: Any, ct: Any) -> Any:
        x, converged, args = kept
        side = ops.where(converged, -ct, np.nan)
        weight = _transposed_solve(function, residual, x, args, side, (symmetric, contracting))
        _, pull = vjp(lambda args: residual(x, args), args)
        return None, None, pull(weight)[0]

    solution.defvjp(forward, backward)
    solution.__name__ = function
    return solution(x, converged, args)


def lowest(f: Any, where: Any, converged: Any, args: Any) -> Any:
    """The value of a function at its minimum.

    Of the first order it does not change with ``where``, whose slope is 0 (the envelope theorem):
    so it has a derivative even if there are many minima, and ``where`` has none.

    Parameters
    ----------
    f
        ``f(where, *args)``.
    where
        The minimum, as a tree that depends on ``args``.
    converged
        Whether it is one; the derivative is NaN otherwise.
    args
        A tuple.
    """
    if not tree.leaves(tree.trainable(args)):
        return f(where, *args)

    @custom_vjp
    def value(where: Any, converged: Any, args: Any) -> Any:
        return f(where, *args)

    def forward(where: Any, converged: Any, args: Any) -> Any:
        # Not by the function above, as in `depending`.
        return lowest(f, where, converged, args), (where, converged, args)

    def backward(kept: Any, ct: Any) -> Any:
        where, converged, args = kept
        _, pull = vjp(lambda args: f(where, *args), args)
        return None, None, pull(ops.where(converged, ct, np.nan))[0]

    value.defvjp(forward, backward)
    value.__name__ = "minimize"
    return value(where, converged, args)


def _transposed_solve(
    function: str, residual: Residual, x: Any, args: Any, ct: Any, kind: tuple[bool, bool]
) -> Any:
    """The solution of the transposed equations that are linear in the change of ``x``.

    ``kind`` tells whether they are symmetric, and whether the residual is contracting.
    """
    if x.shape[0] > DENSE or kind[1]:

        def transposed(at: Any, v: Any) -> Any:
            x, args = at
            return vjp(lambda x: residual(x, args), x)[1](v)[0]

        return _iterative_solve(function, transposed, (x, args), ct, kind)
    return _dense_solve(jacfwd(lambda x: residual(x, args))(x).mT, ct)


def _dense_solve(matrix: Any, b: Any) -> Any:
    """The solution of linear equations, NaN where their matrix is singular."""
    singular = ops.linalg.slogdet(stop_gradient(matrix))[0] == 0
    return ops.linalg.solve(ops.where(singular, np.nan, matrix), b)


def _iterative_solve(
    function: str, product: Residual, at: Any, b: Any, kind: tuple[bool, bool]
) -> Any:
    """The solution ``v`` of ``product(at, v) = b``, where the product is linear in ``v``."""

    @custom_vjp
    def solution(at: Any, b: Any) -> Any:
        leaves, shape = tree.flatten((at, b))
        outs = [(b.shape, "float64")]

        def by_host(*leaves: Any) -> tuple[Any]:
            at, b = tree.unflatten(shape, leaves)
            return (_solved(function, lambda v: product(at, v), b, kind[0]),)

        def run(*leaves: Any) -> tuple[Any]:
            at, b = tree.unflatten(shape, leaves)
            v, left = _contracted(lambda v: product(at, v), b, leaves)
            arrays = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]

            def directly(carry: Any, *given: Any) -> Any:
                own = list(leaves)
                for i, leaf in zip(arrays, given, strict=True):
                    own[i] = leaf
                at, b = tree.unflatten(shape, own)
                if b.shape[0] > DENSE:
                    v = compute(by_host, own, outs, False)[0]
                else:
                    v = _dense_solve(jacfwd(lambda v: product(at, v))(ops.zeros_like(b)), b)
                return v, ops.logical_not(carry[1])

            # Hardly ever needed, so it must not be computed before the loop.
            consts = [leaves[i] for i in arrays]
            return (loop(lambda carry: carry[1], directly, (v, left), leaves, consts=consts)[0],)

        return compute(run if kind[1] else by_host, leaves, outs, kind[1])[0]

    def forward(at: Any, b: Any) -> Any:
        v = _iterative_solve(function, product, at, b, kind)
        return v, (v, at)

    def backward(kept: Any, ct: Any) -> Any:
        v, at = kept

        def transposed(at: Any, w: Any) -> Any:
            # Wherever it is taken: it is linear.  At ``v`` it would hold on to a traced value.
            return vjp(lambda v: product(at, v), ops.zeros_like(w))[1](w)[0]

        w = _iterative_solve(function, transposed, at, ct, kind)
        _, pull = vjp(lambda at: product(at, v), at)
        return tree.scale(-1.0, pull(w)[0]), w

    solution.defvjp(forward, backward)
    return solution(at, b)


def _contracted(product: Callable[[Any], Any], b: Any, captured: Any) -> tuple[Any, Any]:
    """The solution of ``product(v) = b`` by the iteration ``v + product(v) - b``.

    It converges as that of the fixed point itself does.  The second result is whether the solution
    is still to be found, because it does not converge.
    """

    def moving(carry: Any) -> Any:
        return carry[-1] == 0.0

    def step(carry: Any) -> Any:
        v, best, count, _ = carry
        change = product(v) - b
        size = ops.max(abs(change))
        ends = (size >= best) & (size <= 1e-12 * ops.max(abs(v)))
        rests = ends | (size == 0.0)
        # NaN, and an iteration that converges too slowly, are left to the direct solution.
        lost = choose(size < LOST, count >= _CONTRACTIONS, True)
        state = choose(rests, 1.0, choose(lost, 2.0, 0.0))
        return choose(rests, v, v + change), ops.minimum(best, size), count + 1.0, state

    if not b.shape[0]:
        return b, np.False_
    v, _, _, state = loop(moving, step, (ops.zeros_like(b), np.inf, 0.0, 0.0), captured)
    return v, state == 2.0


def _solved(function: str, product: Callable[[Any], Any], b: Any, symmetric: bool) -> Any:
    """The solution of linear equations that are known by products, or the error for none."""
    xp, side = array_module(b), plain(function, b)
    if not np.isfinite(side).all():
        return xp.full(b.shape, np.nan)
    found = symmetric_solution(function, product, xp, side) if symmetric else None
    error = None if found is None else _error(function, product, xp, found, side)
    if error is None or not error <= _EXACT:
        found = _general_solution(function, product, xp, side)
        error = _error(function, product, xp, found, side)
    if not error <= _EXACT:
        raise RuntimeError(
            f"fdbr.{function}: the linear {side.size} equations of the derivative are not solved "
            f"by GMRES (relative error {error:.1e}); the solution "
            "may be singular, or the unknowns of very different scale"
        )
    return xp.asarray(found)


def _error(function: str, product: Callable[[Any], Any], xp: Any, found: Any, side: Any) -> float:
    away = np.linalg.norm(plain(function, product(xp.asarray(found))) - side)
    return float(away / (np.linalg.norm(side) or 1.0))


def symmetric_solution(function: str, product: Callable[[Any], Any], xp: Any, side: Any) -> Any:
    """The method of minimal residuals (Paige & Saunders, 1975), of SciPy; of what is singular, too.

    It is the least solution where there are several, and the nearest where there is none.
    """
    solvers = scipy_of(np, "sparse.linalg")
    return solvers.minres(_operator(function, product, xp, side), side, rtol=1e-13)[0]


def _general_solution(function: str, product: Callable[[Any], Any], xp: Any, side: Any) -> Any:
    """The generalized minimal residual method (Saad & Schultz, 1986), of SciPy."""
    solvers = scipy_of(np, "sparse.linalg")
    matrix = _operator(function, product, xp, side)
    return solvers.gmres(matrix, side, rtol=1e-12, atol=0.0, restart=100, maxiter=50)[0]


def _operator(function: str, product: Callable[[Any], Any], xp: Any, side: Any) -> Any:
    return scipy_of(np, "sparse.linalg").LinearOperator(
        (side.size, side.size),
        matvec=lambda v: np.array(plain(function, product(xp.asarray(v.reshape(-1))))),
        dtype=float,
    )
