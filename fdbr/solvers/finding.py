"""Roots, fixed points and minima of functions of trees."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr.core.devices import scipy_of
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.pytrees.dtypes import dtype_kind
from fdbr.solvers.host import plain
from fdbr.solvers.implicit import DENSE, lowest
from fdbr.solvers.search import Problem, find, guarded, iterated
from fdbr.solvers.unknowns import real_vector
from fdbr.transforms.jacobians import hvp
from fdbr.transforms.vjp import grad, value_and_grad
from fdbr.tree import frozen

__all__ = ["Minimum", "Solution", "fixed_point", "minimize", "root"]

_ROOT = tuple("hybr lm broyden1 broyden2 anderson diagbroyden krylov df-sane".split())
_MINIMIZE = tuple(
    """BFGS L-BFGS-B CG TNC Nelder-Mead Powell Newton-CG trust-ncg trust-krylov
    trust-exact""".split()
)
_PRODUCTS = ("Newton-CG", "trust-ncg", "trust-krylov")  # use products with the Hessian


@public("fdbr")
@frozen
class Solution:
    """The result of `root` and `fixed_point`.

    Attributes
    ----------
    x
        The solution, a tree in the form of ``x0``.
    converged
        Whether it is one, within the tolerance.
    iterations
        How many steps the search took (how many evaluations, for the methods that count these).
    residual
        The Euclidean norm of what should be 0.
    """

    x: Any
    converged: Any
    iterations: Any
    residual: Any


@public("fdbr")
@frozen
class Minimum:
    """The result of `minimize`.

    Attributes
    ----------
    x
        Where the minimum is, a tree in the form of ``x0``.
    value
        The function there.
    converged
        Whether it is one, within the tolerance.
    iterations
        How many steps the search took.
    residual
        The Euclidean norm of the gradient there.
    """

    x: Any
    value: Any
    converged: Any
    iterations: Any
    residual: Any


@public("fdbr")
def root(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    tol: float | None = None,
    maxiter: int | None = None,
    method: str | None = None,
    throw: bool = True,
) -> Solution:
    """A solution of the equations ``f(x, *args) = 0``, which is differentiable in ``args``.

    SciPy searches it with exact Jacobians, and Newton's method has the last word.  The derivative
    is that of the implicit function theorem, of any order: it costs one linear solve, however
    long the search was, and does not depend on the start.

    Parameters
    ----------
    f
        A pure function, which returns a tree of as many numbers as there are unknowns.
    x0
        Where to start: a tree.  Its floating and complex leaves are the unknowns.
    args
        Further arguments, trees.  What the solution is to be differentiated by must be among
        them.
    tol
        How far ``x`` may be from the solution, relative to ``1 + norm(x)``; by default the root of
        the precision of ``x0``.  Beyond 500 unknowns it bounds the residual instead, relative to
        that at the start.
    maxiter
        How many iterations there may be; by default what SciPy allows.
    method
        One of ``scipy.optimize.root``; by default ``"hybr"``, and ``"krylov"`` beyond 500
        unknowns.
    throw
        Whether it is an error if no solution is found.  Otherwise ``converged`` tells, under
        `vmap` of each example, and the derivative is NaN where there is none.

    Returns
    -------
    Solution
        With the solution ``x``, of the shapes and dtypes of ``x0``.  The search computes in
        double precision.

    Raises
    ------
    RuntimeError
        If no solution is found.
    TypeError, ValueError
        If an argument is no good; the message names it.

    >>> import fdbr
    >>> fdbr.root(lambda x, a: x**2 - a, 1.0, 4.0).x
    np.float64(2.0)
    >>> fdbr.grad(lambda a: fdbr.root(lambda x, a: x**2 - a, 1.0, a).x)(4.0)
    np.float64(0.25)
    """
    problem = Problem("root", f, x0, args, tol, maxiter, throw)
    method = problem.method(method, _ROOT, "hybr", "krylov")

    asked = problem.bare()  # which does not refer to the function below

    def residual(x: Any, args: Any) -> Any:
        return _as_many(asked, asked.at(x, args))

    problem.residual = residual
    return _solution(problem, lambda r, start: _search(problem, r, start, method), False)


@public("fdbr")
def fixed_point(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    tol: float | None = None,
    maxiter: int | None = None,
    method: str | None = None,
    throw: bool = True,
) -> Solution:
    """A solution of ``f(x, *args) = x``, which is differentiable in ``args``.

    Parameters
    ----------
    f
        A pure function, which returns a tree in the form of ``x0``.
    method
        ``"iteration"``, the default, which applies ``f`` until ``x`` is within ``tol``.  If that
        does not happen, Newton's method continues from the vector with the least ``f(x) - x`` (up
        to 500 unknowns).  Or a method of `root`, for ``f(x) - x``.
    tol
        How far ``x`` may be from the solution, relative to ``1 + norm(x)``.  The distance is
        estimated from the rate of convergence.  By default the iteration continues until only
        rounding changes ``x``.
    maxiter
        How many iterations there may be; 1000 by default.
    x0, args, throw
        As for `root`, as are result and errors.

    >>> import fdbr, numpy as np
    >>> np.round(fdbr.fixed_point(np.cos, 1.0).x, 12)
    np.float64(0.739085133215)
    """
    problem = Problem("fixed_point", f, x0, args, tol, maxiter, throw)
    method = problem.method(method, ("iteration", *_ROOT), "iteration", "iteration")

    asked = problem.bare()  # which does not refer to the function below

    def residual(x: Any, args: Any) -> Any:
        return _as_many(asked, asked.at(x, args)) - x

    def search(r: Any, start: Any) -> tuple[Any, Any, Any]:
        if method != "iteration":
            return _search(problem, r, start, method)
        most = 1000 if problem.maxiter is None else problem.maxiter
        return iterated(r, start, most, 0.0 if tol is None else problem.tol)

    problem.residual = residual
    problem.contracting = True
    return _solution(problem, search, method == "iteration")


@public("fdbr")
def minimize(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    tol: float | None = None,
    maxiter: int | None = None,
    method: str | None = None,
    throw: bool = True,
) -> Minimum:
    """A local minimum of ``f(x, *args)``, which is differentiable in ``args``.

    SciPy searches it with exact gradients (and Hessians, for the methods that use them), and
    Newton's method has the last word.  The derivative is that of the implicit function theorem,
    applied to the gradient.

    Parameters
    ----------
    f
        A pure function, which returns a real number.
    method
        One of ``scipy.optimize.minimize`` that know no bounds and constraints; by default
        ``"BFGS"``, and ``"L-BFGS-B"`` beyond 500 unknowns.
    x0, args, tol, maxiter, throw
        As for `root`; up to 500 unknowns, what is a saddle or a maximum counts as not found.

    Returns
    -------
    Minimum
        With where it is, ``x``, and the ``value`` there.

    >>> import fdbr, numpy as np
    >>> found = fdbr.minimize(lambda x, a: np.sum((x - a) ** 2) + 1, np.zeros(2), np.arange(2.0))
    >>> found.x, found.value
    (array([0., 1.]), np.float64(1.0))
    """
    problem = Problem("minimize", f, x0, args, tol, maxiter, throw)
    method = problem.method(method, _MINIMIZE, "BFGS", "L-BFGS-B")

    asked = problem.bare()  # which does not refer to the function below

    def objective(x: Any, args: Any) -> Any:
        value = asked.at(x, args)
        if getattr(value, "shape", None) != () or dtype_kind(value.dtype) != "f":
            raise TypeError(
                f"fdbr.minimize: f must return one real floating number, not {describe(value)}"
            )
        return value

    problem.objective = objective
    problem.residual = grad(objective)
    x, *report = find(problem, lambda r, start: _descend(problem, objective, r, start, method))
    where = problem.unknowns.tree(x, problem.others, exact=False)
    return Minimum(where, lowest(f, where, report[0], args), *report)


def _solution(problem: Problem, search: Any, looped: bool) -> Solution:
    x, *report = find(problem, search, looped=looped)
    return Solution(problem.unknowns.tree(x, problem.others, exact=False), *report)


def _as_many(problem: Problem, found: Any) -> Any:
    """Convert a function's result to a vector of as many numbers as there are unknowns."""
    vector = real_vector(found)
    if vector.shape[0] != problem.unknowns.size:
        raise ValueError(
            f"fdbr.{problem.name}: f must return as many floating numbers as there are unknowns in "
            f"x0, {problem.unknowns.size}, and it returns {vector.shape[0]}"
        )
    return vector


# --- by SciPy, on plain vectors -----------------------------------------------------


def _search(problem: Problem, residual: Any, start: Any, method: str) -> tuple[Any, int, bool]:
    exact = {"jac": residual.matrix} if method in ("hybr", "lm") else {}
    counter = {"hybr": "maxfev", "df-sane": "maxfev"}.get(method, "maxiter")
    options = {} if problem.maxiter is None else {counter: problem.maxiter}

    def solve(f: Any) -> Any:
        return scipy_of(np, "optimize").root(
            f, start, method=method, tol=problem.tol, options=options, **exact
        )

    return _found(guarded(solve, residual, start), start)


def _descend(
    problem: Problem, objective: Any, gradient: Any, start: Any, method: str
) -> tuple[Any, int, bool]:
    options = {} if problem.maxiter is None else {"maxiter": problem.maxiter}
    xp, args = gradient.xp, gradient.args
    exact: dict[str, Any] = {}
    if method in _PRODUCTS:
        exact["hessp"] = lambda x, p: plain(
            "minimize",
            hvp(lambda x: objective(x, args), (xp.asarray(x.copy()),), (xp.asarray(p.copy()),)),
        )
    elif method == "trust-exact":
        exact["hess"] = gradient.matrix

    def value_and_derivative(x: Any) -> tuple[float, Any]:
        value, slope = value_and_grad(objective)(xp.asarray(x.copy()), args)
        return float(plain("minimize", value)), plain("minimize", slope)

    def value_alone(x: Any) -> float:
        return float(plain("minimize", objective(xp.asarray(x.copy()), args)))

    direct = method in ("Nelder-Mead", "Powell")
    if not direct:
        exact["jac"] = True

    # Newton's method makes the rest of the way, up to as many unknowns as it can take.
    tol = min(problem.tol, 1e-6) if start.size <= DENSE else 1e-14

    def solve(f: Any) -> Any:
        return scipy_of(np, "optimize").minimize(
            f, start, method=method, tol=tol, options=options, **exact
        )

    return _found(guarded(solve, value_alone if direct else value_and_derivative, start), start)


def _found(result: Any, start: Any) -> tuple[Any, int, bool]:
    """The vector of a result of SciPy, and how many iterations it took."""
    if result is None:
        return start, 0, False
    count = result.get("nit", result.get("nfev", 0))
    return np.asarray(result.x, dtype=float).reshape(start.shape), int(count), False
