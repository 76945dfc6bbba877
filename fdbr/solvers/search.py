"""The search for a solution, and the check whether what was found is one."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, protect
from fdbr.core.devices import is_host, scipy_of
from fdbr.core.tracer import Tracer
from fdbr.errors.checks import integer, name_of, named_as
from fdbr.solvers.host import checked, plain
from fdbr.solvers.implicit import DENSE, LOST, depending, symmetric_solution
from fdbr.solvers.running import check_captured, choose, compute, loop
from fdbr.solvers.unknowns import Unknowns, real_vector
from fdbr.transforms.jacobians import jacfwd
from fdbr.transforms.jvp import jvp
from fdbr.transforms.vjp import stop_gradient

__all__ = ["Problem", "Residual", "find", "guarded", "iterated"]

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
    start, args
        The vector to start from, and the leaves of the tree that are no unknowns with the
        arguments of the user.
    contracting
        Whether ``x + residual(x)`` is expected to be nearer to the solution than ``x``.
    """

    def __init__(
        self, name: str, f: Any, x0: Any, args: Any, tol: Any, maxiter: Any, throw: Any
    ) -> None:
        self.name, self.f, self.throw = name, f, throw
        self.unknowns = Unknowns(name, "x0", x0)
        self.others: Any = self.unknowns.others(x0)
        self.start = protect(real_vector(x0))
        self.args: Any = (self.others, args)
        self.tol = float(np.sqrt(self.unknowns.eps))
        if tol is not None:
            if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 < tol < np.inf:
                raise ValueError(f"fdbr.{name}: tol must be a positive number, not {tol!r}")
            self.tol = float(tol)
        self.maxiter = None if maxiter is None else integer(f"fdbr.{name}", "maxiter", maxiter, 1)
        self.contracting = False
        self.residual: Callable[[Vector, Any], Vector]
        self.objective: Callable[[Vector, Any], Any] | None = None

    def bare(self) -> "Problem":
        """The problem without values and functions of them, which a program may keep."""
        new = copy.copy(self)
        new.start = new.args = new.others = None
        return new

    def at(self, vector: Vector, args: Any) -> Any:
        """The result of the user's function."""
        others, further = args
        return self.f(self.unknowns.tree(vector, others), *further)

    def method(self, given: Any, known: tuple[str, ...], small: str, large: str) -> str:
        """The method to search by."""
        if given is None:
            return small if self.unknowns.size <= DENSE else large
        if not isinstance(given, str) or given not in known:
            raise ValueError(
                f"fdbr.{self.name}: method must be one of {', '.join(known)}, not {given!r}"
            )
        return given

    def check(self, converged: Any, iterations: Any, error: Any) -> None:
        """Raise the error for what is no solution."""
        if not converged:
            raise self.unsolved(int(iterations), float(error))

    def unsolved(self, iterations: int, error: float) -> RuntimeError:
        """The error for a solution that was not found."""
        return RuntimeError(
            f"fdbr.{self.name}: no solution of {name_of(self.f)} was found in {iterations} "
            f"iterations; the residual is {error:.3g}. Start nearer to it, raise maxiter or tol, "
            "try another method, or say throw=False for what was found, with converged=False and "
            "NaN for its derivative"
        )


def find(problem: Problem, search: Any, *, looped: bool = False) -> tuple[Any, Any, Any, Any]:
    """The solution of a problem, whether it is one, the iterations, and the residual's norm.

    ``search(residual, start)`` gives a vector, a number of iterations, and whether that is known to
    be a solution.  It is a loop of operations if it is ``looped``, and is given NumPy's vectors
    otherwise.
    """
    operands, shape = tree.flatten((problem.start, problem.args))
    operands = [stop_gradient(leaf) for leaf in operands]
    check = problem.bare().check

    def run(*leaves: Any) -> tuple[Any, ...]:
        start, args = tree.unflatten(shape, leaves)
        residual = Residual(problem, args, array_module(start))
        initial = residual.at(start)
        check_captured(problem.name, initial, leaves)
        if looped:
            x, iterations, known = search(residual, start)
        else:
            x, iterations, known = search(residual, plain(problem.name, start))
            x = residual.xp.asarray(x)
        x, error, converged = _polished(residual, x, _norm(initial), known)
        if isinstance(x, Tracer):
            iterations, converged = ops.astype(iterations, "int64"), ops.asarray(converged)
        else:
            numbers = np.bool_(bool(converged)), np.int64(int(iterations)), np.float64(float(error))
            if not is_host(residual.xp):
                numbers = tuple(map(residual.xp.asarray, numbers))
            converged, iterations, error = numbers
        if problem.throw:
            x = checked(check, x, converged, iterations, error)
        return x, converged, iterations, error

    outs = [((problem.unknowns.size,), "float64"), ((), "bool"), ((), "int64"), ((), "float64")]
    x, converged, iterations, error = compute(run, operands, outs, looped)
    return (
        depending(
            *(problem.name, problem.residual, x, converged, problem.args),
            symmetric=problem.objective is not None,
            contracting=problem.contracting,
        ),
        converged,
        iterations,
        error,
    )


class Residual:
    """The residual of a problem with given arguments: on vectors, or for SciPy on NumPy's."""

    def __init__(self, problem: Problem, args: Any, xp: Any) -> None:
        self.problem, self.args, self.xp = problem, args, xp

    def at(self, x: Vector) -> Vector:
        """The residual."""
        return self.problem.residual(x, self.args)

    def slope(self, x: Vector) -> Any:
        """Its derivative, a matrix."""
        return jacfwd(lambda x: self.problem.residual(x, self.args))(x)

    def __call__(self, x: Vector) -> Vector:
        return plain(self.problem.name, self.at(self.xp.asarray(x.copy())))

    def matrix(self, x: Vector) -> Any:
        """The derivative for SciPy."""
        return plain(self.problem.name, self.slope(self.xp.asarray(x.copy())))

    def value(self, x: Vector) -> float:
        """The function of which a minimum is sought."""
        problem = self.problem
        assert problem.objective is not None
        return float(plain(problem.name, problem.objective(self.xp.asarray(x.copy()), self.args)))

    def step_by_products(self, x: Vector, r: Vector) -> Vector:
        """Newton's step to a minimum, without the matrix."""
        problem, at = self.problem, self.xp.asarray(x)

        def product(v: Any) -> Any:
            return jvp(lambda x: problem.residual(x, self.args), (at,), (v,))[1]

        return symmetric_solution(problem.name, product, self.xp, -r)

    def step(self, x: Vector, r: Vector) -> tuple[Vector, Any]:
        """Newton's step, and the norm of what of the residual no step explains."""
        matrix = self.slope(x)
        finite = ops.all(ops.isfinite(matrix)) & ops.all(ops.isfinite(r))
        matrix, r = ops.where(finite, matrix, 0.0), ops.where(finite, r, 0.0)
        step = ops.linalg.lstsq(matrix, -r).solution
        unexplained = _norm(matrix @ step + r)
        return ops.where(finite, step, np.nan), choose(finite, unexplained, np.inf)


def iterated(residual: Residual, x: Vector, most: int, tol: float) -> tuple[Vector, Any, Any]:
    """Apply ``x + residual(x)`` until ``x`` is within a tolerance, or only rounding changes it.

    The error is estimated from the rate at which changes become smaller.  With a tolerance of 0
    the iteration continues until only rounding changes ``x``.

    The results are a vector, the number of iterations, and whether it is a solution.  If it is
    not, the vector is the one with the least residual.
    """
    if not x.shape[0]:
        return x, 0, True

    def moving(carry: Any) -> Any:
        *_, count, state = carry
        return (state == 0.0) & (count < most)

    def step(carry: Any) -> Any:
        x, least, first, best, before, ratio, count, _ = carry
        change = residual.at(x)
        size = ops.max(abs(change))
        scale = 1.0 + ops.max(abs(x))
        ends = (size >= best) & (size <= 1e-12 * scale)
        first = choose(count == 0.0, size, first)
        # What does not become smaller from the first iteration on is no contraction.
        rests = (ends & (best < first)) | (size == 0.0)
        least = choose(size < best, x, least)
        best = ops.minimum(best, size)
        fine = size < LOST
        slower, ratio = ratio, size / before
        slower = ops.maximum(slower, ratio)
        near = fine & (slower < 1.0) & (slower * size <= tol * scale * (1.0 - slower))
        x = choose(rests | ends, x, choose(fine, x + change, x))
        found = rests | near
        state = choose(found, 1.0, choose(ends, 2.0, choose(fine, 0.0, 2.0)))
        least = choose(found, x, least)
        return x, least, first, best, size, ratio, count + 1.0, state

    # The ratio of two changes is not known before the second iteration.
    carry = x, x, 0.0, np.inf, np.nan, np.inf, 0.0, 0.0
    _, least, *_, count, state = loop(moving, step, carry, residual.args)
    return least, count, state == 1.0


def _polished(residual: Residual, x: Vector, first: Any, known: Any) -> tuple[Vector, Any, Any]:
    """A solution after some steps of Newton's method.

    The results are that, the norm of its residual, and whether it is one within the tolerance.
    What is left is the length of Newton's next step, whatever the units of the residual.  Nothing
    is done for what is ``known`` to be a solution.
    """
    problem = residual.problem
    r = residual.at(x)
    if x.shape[0] > DENSE:
        if problem.objective is not None:
            x, r = map(residual.xp.asarray, _approached(residual, x, r, first))
        error = _norm(r)
        return x, error, error <= problem.tol * ops.maximum(first, 1.0)

    def improving(carry: Any) -> Any:
        return carry[-1]

    def improve(carry: Any) -> Any:
        x, r, _, _, count, _ = carry
        step, unexplained = residual.step(x, r)
        new = x + step
        after = residual.at(new)
        better = (_norm(after) < _norm(r)) & (count < _STEPS)
        x, r = choose(better, new, x), choose(better, after, r)
        return x, r, step, unexplained, count + 1.0, better

    carry = x, r, 0.0 * x, 0.0, 0.0, choose(known, False, True)
    x, r, step, unexplained, *_ = loop(improving, improve, carry, (residual.args, known))
    near = _norm(step) <= problem.tol * (1.0 + _norm(x))
    error = _norm(r)
    solved = (error == 0.0) | (near & (unexplained <= problem.tol * first))
    solved = solved & ops.all(ops.isfinite(r))
    if problem.objective is not None and x.shape[0]:
        curvatures = ops.linalg.eigvalsh(ops.where(solved, residual.slope(x), 0.0))
        solved = solved & ops.all(curvatures >= -1e-8 * ops.max(abs(curvatures)))
    return x, error, solved


def _approached(residual: Residual, x: Vector, r: Vector, first: float) -> tuple[Vector, Vector]:
    """A minimum of many unknowns, and its gradient, where the search ended a little before it.

    Nearer than the root of its precision no search comes by values of a function alone.
    """
    problem = residual.problem
    x, r = plain(problem.name, x), plain(problem.name, r)
    if not np.isfinite(r).all():
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


def _norm(x: Vector) -> Any:
    with np.errstate(over="ignore"):
        return ops.sqrt(ops.sum(x * x))


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
