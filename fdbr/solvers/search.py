"""The search for a solution, and the check whether what was found is one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.backend import array_module
from fdbr.forward import jvp
from fdbr.jacobians import jacfwd
from fdbr.libraries import scipy_of
from fdbr.messages import describe, integer, name_of, named_as
from fdbr.solvers.host import on_host, plain
from fdbr.solvers.implicit import DENSE, depending, symmetric_solution
from fdbr.solvers.unknowns import Unknowns
from fdbr.transforms import stop_gradient

__all__ = ["Problem", "find", "guarded"]

Vector = Any
_STEPS = 8  # of Newton's method, at the most, after the search


class Problem:
    """An equation in a tree of unknowns, and what a user asks of its solution.

    Attributes
    ----------
    name
        Of the function that solves it, for messages.
    residual
        ``residual(vector, args)``, which is 0 at the solution.
    objective
        ``objective(vector, args)``, of which that is the gradient, if a minimum is wanted.
    """

    def __init__(
        self, name: str, f: Any, x0: Any, args: Any, tol: Any, maxiter: Any, throw: Any
    ) -> None:
        if not callable(f):
            raise TypeError(f"fdbr.{name}: f must be a function, not {describe(f)}")
        self.name, self.f, self.x0, self.args, self.throw = name, f, x0, args, throw
        self.unknowns = Unknowns(name, "x0", x0)
        self.tol = float(np.sqrt(self.unknowns.eps))
        if tol is not None:
            if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 < tol < np.inf:
                raise ValueError(f"fdbr.{name}: tol must be a positive number, not {tol!r}")
            self.tol = float(tol)
        self.maxiter = None if maxiter is None else integer(f"fdbr.{name}", "maxiter", maxiter, 1)
        self.residual: Callable[[Vector, Any], Vector]
        self.objective: Callable[[Vector, Any], Any] | None = None

    def at(self, vector: Vector, args: Any) -> Any:
        """The result of the user's function."""
        return self.f(self.unknowns.tree(vector, self.x0), *args)

    def method(self, given: Any, known: tuple[str, ...], small: str, large: str) -> str:
        """The method to search by."""
        if given is None:
            return small if self.unknowns.size <= DENSE else large
        if not isinstance(given, str) or given not in known:
            raise ValueError(
                f"fdbr.{self.name}: method must be one of {', '.join(known)}, not {given!r}"
            )
        return given

    def unsolved(self, iterations: int, error: float) -> RuntimeError:
        """The error for a solution that was not found."""
        return RuntimeError(
            f"fdbr.{self.name}: no solution of {name_of(self.f)} was found in {iterations} "
            f"iterations; the residual is {error:.3g}. Start nearer to it, raise maxiter or tol, "
            "try another method, or say throw=False for what was found, with converged=False and "
            "NaN for its derivative"
        )


def find(problem: Problem, search: Any) -> tuple[Any, Any, Any, Any]:
    """The solution of a problem, whether it is one, the iterations, and the residual's norm.

    ``search(residual, start)`` gives a plain vector and a number of iterations, for a function of
    plain vectors.
    """
    operands, shape = tree.flatten((problem.x0, problem.args))
    operands = [stop_gradient(leaf) for leaf in operands]
    arrays = [i for i, leaf in enumerate(operands) if hasattr(leaf, "dtype")]

    def run(*given: Any) -> tuple[Any, ...]:
        leaves = list(operands)
        for i, leaf in zip(arrays, given, strict=True):
            leaves[i] = leaf
        x0, args = tree.unflatten(shape, leaves)
        start = plain(problem.name, problem.unknowns.vector(x0))
        xp = array_module(*given)
        residual = _Residual(problem, args, xp)
        x, iterations = search(residual, start)
        first = _norm(residual(start))
        x, converged = _judged(problem, residual, first, *_polished(residual, x, first))
        error = _norm(residual(x))
        if problem.throw and not converged:
            raise problem.unsolved(iterations, error)
        numbers = np.bool_(converged), np.int64(iterations), np.float64(error)
        return xp.asarray(x), *(numbers if xp is np else map(xp.asarray, numbers))

    size = problem.unknowns.size
    outs = [((size,), "float64"), ((), "bool"), ((), "int64"), ((), "float64")]
    given = [stop_gradient(operands[i]) for i in arrays]
    x, converged, iterations, error = on_host(run, given, outs)
    return (
        depending(
            *(problem.name, problem.residual, x, converged, problem.args),
            symmetric=problem.objective is not None,
        ),
        converged,
        iterations,
        error,
    )


def _is_operand(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, int | float | complex)


class _Residual:
    """The residual as a function of plain vectors, and its matrix."""

    def __init__(self, problem: Problem, args: Any, xp: Any) -> None:
        self.problem, self.args, self.xp = problem, args, xp

    def __call__(self, x: Vector) -> Vector:
        problem = self.problem
        return plain(problem.name, problem.residual(self.xp.asarray(x), self.args))

    def matrix(self, x: Vector) -> Any:
        """The derivative of the residual."""
        problem = self.problem
        found = jacfwd(lambda x: problem.residual(x, self.args))(self.xp.asarray(x))
        return plain(problem.name, found)

    def value(self, x: Vector) -> float:
        """The function of which a minimum is sought."""
        problem = self.problem
        assert problem.objective is not None
        return float(plain(problem.name, problem.objective(self.xp.asarray(x), self.args)))

    def step_by_products(self, x: Vector, r: Vector) -> Vector:
        """Newton's step to a minimum, without the matrix."""
        problem, at = self.problem, self.xp.asarray(x)

        def product(v: Any) -> Any:
            return jvp(lambda x: problem.residual(x, self.args), (at,), (v,))[1]

        return symmetric_solution(problem.name, product, self.xp, -r)

    def step(self, x: Vector, r: Vector) -> tuple[Vector, float]:
        """Newton's step, and what of the residual no step explains."""
        matrix = self.matrix(x)
        if not np.isfinite(matrix).all() or not np.isfinite(r).all():
            return np.full(x.shape, np.nan), np.inf
        step = np.linalg.lstsq(matrix, -r, rcond=None)[0]
        return step, _norm(matrix @ step + r)


def _polished(residual: _Residual, x: Vector, first: float) -> tuple[Vector, Vector, Any]:
    """A solution after some steps of Newton's method, its residual, and the next step."""
    r = residual(x)
    if x.size > DENSE:
        return *_approached(residual, x, r, first), None
    step = residual.step(x, r)
    for _ in range(_STEPS):
        after = residual(x + step[0])
        if not _norm(after) < _norm(r):
            break
        x, r = x + step[0], after
        step = residual.step(x, r)
    return x, r, step


def _approached(residual: _Residual, x: Vector, r: Vector, first: float) -> tuple[Vector, Vector]:
    """A minimum of many unknowns, and its gradient, where the search ended a little before it.

    Nearer than the root of its precision no search comes by values of a function alone.
    """
    problem = residual.problem
    if problem.objective is None or not np.isfinite(r).all():
        return x, r
    value = residual.value(x)
    for _ in range(_STEPS):
        if _norm(r) <= problem.tol * max(1.0, first):
            break
        new = x + residual.step_by_products(x, r)
        after, lower = residual(new), residual.value(new)
        if not _norm(after) < _norm(r) or not lower <= value + 1e-12 * (1.0 + abs(value)):
            break
        x, r, value = new, after, lower
    return x, r


def _judged(
    problem: Problem, residual: _Residual, first: float, x: Vector, r: Vector, step: Any
) -> tuple[Vector, bool]:
    """A solution, and whether it is one within the tolerance.

    What is left to go is the length of Newton's step, whatever the units of the residual.
    """
    size = _norm(r)
    if step is None:
        return x, bool(size <= problem.tol * max(1.0, first))
    left, unexplained = _norm(step[0]), step[1]
    near = left <= problem.tol * (1.0 + _norm(x))
    solved = size == 0.0 or (near and unexplained <= problem.tol * first)
    if solved and problem.objective is not None:
        curvatures = np.linalg.eigvalsh(residual.matrix(x))
        solved = (curvatures >= -1e-8 * np.abs(curvatures).max(initial=0.0)).all()
    return x, bool(solved)


def _norm(x: Vector) -> float:
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(x))


def guarded(solve: Callable[..., Any], residual: Callable[[Vector], Any], start: Vector) -> Any:
    """``solve(residual)`` of SciPy's result, or `None` where SciPy itself gave up.

    Errors of the user's function stay what they are.
    """
    raised: list[BaseException] = []

    @named_as(residual)
    def watched(x: Vector) -> Any:
        try:
            return residual(x)
        except BaseException as error:
            raised.append(error)
            raise

    try:
        with np.errstate(all="ignore"):
            return solve(watched)
    except (
        ValueError,
        ArithmeticError,
        np.linalg.LinAlgError,
        scipy_of(np, "optimize").NoConvergence,
    ):
        if raised:
            raise
        return None
