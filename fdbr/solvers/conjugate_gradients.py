"""Linear equations with positive definite operators, by the method of conjugate gradients."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from fdbr import ops, tree
from fdbr.control_flow.body_tracing import Body, StageTrace, Step, evaluate, stage
from fdbr.control_flow.operands import examples
from fdbr.core.higher_order import HigherOrder
from fdbr.core.tracer import Trace, Tracer, innermost, replaying, stop_gradient
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public
from fdbr.ops.declare.batches import spread
from fdbr.pytrees.structure import paths_of
from fdbr.solvers.running import loop
from fdbr.transforms.vmap import BatchTrace, BatchTracer

__all__ = ["cg"]

_NAME = "fdbr.ops.linalg.cg"

Leaves = list[Any]
Operator = Callable[[Leaves], Leaves]


@public("fdbr.ops.linalg")
def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, Any]:
    """The solution ``x`` of ``A(x) = b`` for a positive definite ``A``, by conjugate gradients.

    The names are those of ``jax.scipy.sparse.linalg.cg``.  The solution is differentiable, in
    every mode and to any order, in ``b`` and in all traced values that ``A`` uses, as arguments or
    from around it: a derivative is the solution of one more such equation, ``A(dx) = db - dA(x)``,
    however many iterations were made (Christianson, "Reverse accumulation and implicit functions",
    1998).  It is as precise as ``tol``.  Under `vmap` all examples are iterated together, until
    the last has converged.

    Parameters
    ----------
    A
        A function of trees which is linear, and Hermitian and positive definite as a matrix of
        all elements; or such a matrix, which is multiplied from the left.
    b
        The right side: an array, or a tree of arrays.
    x0
        Where to start, a tree in the form of ``b``; zeros by default.  The solution does not
        depend on it.
    tol, atol
        It is converged when ``norm(b - A(x)) <= max(tol * norm(b), atol)``.
    maxiter
        How many iterations there may be; by default ten for each unknown.
    M
        A preconditioner: like ``A``, but near its inverse, and as positive definite.

    Returns
    -------
    x
        A tree in the form of ``b``.
    info
        As of `scipy.sparse.linalg.cg`: 0 if it is converged, else the number of iterations.  Under
        `vmap` each example has its own.

    Raises
    ------
    TypeError, ValueError
        If ``A`` or ``M`` is neither a function nor a square matrix or gives another tree than
        ``b``, or an argument is none of its kind.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> x, info = ops.linalg.cg(lambda v: 2.0 * v, np.array([2.0, 4.0]))
    >>> x, int(info)
    (array([1., 2.]), 0)
    """
    leaves, structure = tree.flatten(b)
    side = [_floating(leaf, "b", path) for leaf, path in _with_paths(leaves, structure)]
    if not side:
        raise ValueError(f"{_NAME}: b has no leaves; give an array, or a tree of arrays")
    start = [ops.zeros_like(leaf) for leaf in side] if x0 is None else _start(x0, side, structure)
    least = 10 * sum(math.prod(leaf.shape) for leaf in side)
    steps = least if maxiter is None else integer(_NAME, "maxiter", maxiter, least=0)
    limits = _tolerance("tol", tol), _tolerance("atol", atol), steps
    precondition = None if M is None else _operator("M", M, structure)
    problem = _Problem(_operator("A", A, structure), precondition, side, start, limits, 0)
    found, info = _solved(problem)
    return tree.unflatten(structure, found), info


# --- arguments ----------------------------------------------------------------------


def _with_paths(leaves: Leaves, structure: Any) -> Any:
    return zip(leaves, paths_of(structure), strict=True)


def _floating(leaf: Any, name: str, path: str) -> Any:
    where = f"{name}{path and ' at ' + path}"
    try:
        leaf = ops.asarray(leaf)
        kind = leaf.dtype.kind
    except (TypeError, ValueError, AttributeError):
        kind = ""
    if kind not in ("f", "c", "i", "u", "b"):
        raise TypeError(f"{_NAME}: {where} must be an array of numbers, not {describe(leaf)}")
    return leaf if kind in "fc" else ops.astype(leaf, float)


def _start(x0: Any, side: Leaves, structure: Any) -> Leaves:
    leaves, own = tree.flatten(x0)
    if own != structure:
        raise ValueError(f"{_NAME}: x0 must have the structure of b, {structure}, not {own}")
    start = [_floating(leaf, "x0", path) for leaf, path in _with_paths(leaves, structure)]
    for leaf, like, path in zip(start, side, paths_of(structure), strict=True):
        if leaf.shape != like.shape:
            where = f"x0{path and ' at ' + path}"
            raise ValueError(f"{_NAME}: {where} is {describe(leaf)}, but b is {describe(like)}")
    return [stop_gradient(leaf) for leaf in start]


def _tolerance(name: str, value: Any) -> Any:
    if not isinstance(value, Tracer):
        try:
            value = float(value)
        except (TypeError, ValueError):
            value = math.nan
        if not value >= 0:
            raise ValueError(f"{_NAME}: {name} must be a number that is not negative")
    return stop_gradient(value)


def _operator(name: str, given: Any, structure: Any) -> Operator:
    """A function of leaves for a function of trees, or a matrix."""
    function = given
    if not callable(given):
        shape = getattr(given, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != shape[1]:
            raise TypeError(
                f"{_NAME}: {name} must be a function of trees or a square matrix, not "
                f"{describe(given)}"
            )

        def function(x: Any) -> Any:
            return tree.map(lambda leaf: given @ leaf, x)

    def apply(leaves: Leaves) -> Leaves:
        out = function(tree.unflatten(structure, leaves))
        found, own = tree.flatten(out)
        if own != structure:
            raise ValueError(
                f"{_NAME}: {name} must return a tree of the structure of b, {structure}, not {own}"
            )
        for leaf, like, path in zip(found, leaves, paths_of(structure), strict=True):
            if getattr(leaf, "shape", ()) != like.shape:
                raise ValueError(
                    f"{_NAME}: {name} must return what has the shapes of b, but gives "
                    f"{describe(leaf)}{path and ' at ' + path} for {describe(like)}"
                )
        return [ops.asarray(leaf) for leaf in found]

    return apply


# --- transformations ------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Problem:
    """An equation ``A(x) = b``, and how it is solved.

    Attributes
    ----------
    A, M
        The operator, and the preconditioner or `None`.
    b, x
        The leaves of the right side, and those to start from.
    limits
        Tolerances and number of iterations.
    lead
        How many axes of examples leaves have before their own.
    """

    A: Operator
    M: Operator | None
    b: Leaves
    x: Leaves
    limits: Any
    lead: int

    def mapped(self, f: Operator) -> "_Problem":
        """The problem with a function of leaves applied to its leaves and to its operators."""
        A, M = self.A, self.M
        precondition = None if M is None else (lambda v: f(M(v)))
        return attrs.evolve(self, A=lambda v: f(A(v)), M=precondition, b=f(self.b), x=f(self.x))


def _solved(problem: _Problem) -> tuple[Leaves, Any]:
    """The solution, and ``info``."""
    away = _minus(problem.b, problem.A(problem.x))
    *found, info = _CG.apply(*away, *problem.x, problem=problem)
    return found, info


def _without(trace: Trace, leaves: Leaves) -> Leaves:
    """Leaves without a trace, also where it is below a batch, as in a vectorised pullback."""

    def lowered(leaf: Any) -> Any:
        if not isinstance(leaf, Tracer):
            return leaf
        if leaf._trace is trace:
            return trace.lower(leaf)
        return BatchTracer(leaf._trace, lowered(leaf.value)) if type(leaf) is BatchTracer else leaf

    return list(map(lowered, leaves))


def _differentiated(trace: Trace, problem: _Problem) -> Leaves:
    """The solution for a trace that differentiates, and ``info``.

    The solution is a constant for the trace.  Its residual ``b - A(x)``, which is zero, depends on
    traced values: the derivative of the residual is ``db - dA(x)``, and the solution for that is
    the derivative of the solution.
    """
    below = problem.mapped(functools.partial(_without, trace))
    found, info = _solved(below)
    away = _minus(problem.b, problem.A(found))
    if not any(isinstance(leaf, Tracer) and leaf._trace is trace for leaf in away):
        return [*found, info]

    def solve(side: Leaves) -> Leaves:
        full = [
            ops.zeros_like(value) if part is None else part
            for part, value in zip(side, found, strict=True)
        ]
        start = [ops.zeros_like(part) for part in full]
        return _solved(attrs.evolve(below, b=full, x=start))[0]

    return [*_SOLUTION.apply(*away, found=found, solve=solve), info]


def _reverse_solution(
    trace: Trace, away: Leaves, mine: Sequence[bool], found: Leaves, solve: Operator
) -> Any:
    def vjp(cotangents: Leaves) -> Leaves:
        # The transpose of a Hermitian operator is its conjugate.
        with replaying():
            given = solve([None if ct is None else ops.conj(ct) for ct in cotangents])
        return [ops.conj(ct) for ct, own in zip(given, mine, strict=True) if own]

    return found, vjp


def _forward_solution(
    trace: Trace, away: Leaves, tangents: Leaves, found: Leaves, solve: Operator
) -> Any:
    return found, solve(tangents)


_SOLUTION = HigherOrder(
    "cg",
    lambda xp, *away, found, solve: tuple(found),
    reverse=_reverse_solution,
    forward=_forward_solution,
)
"""A known solution as a function of its residual."""


def _reverse(trace: Trace, values: Leaves, mine: Sequence[bool], problem: _Problem) -> Any:
    return _differentiated(trace, problem), None


def _forward(trace: Trace, values: Leaves, tangents: Leaves, problem: _Problem) -> Any:
    outs = _differentiated(trace, problem)
    return outs, [None] * len(outs)


def _batch(trace: BatchTrace, values: Leaves, batched: Sequence[bool], problem: _Problem) -> Any:
    """Solve for all examples, which are along one more axis before those of the leaves."""

    def whole(leaves: Leaves) -> Leaves:
        return [spread(v, own, trace.size) for v, own in zip(*trace.unwrap(leaves), strict=True)]

    def of_all(operator: Operator) -> Operator:
        return lambda v: whole(operator([BatchTracer(trace, leaf) for leaf in v]))

    A, M = of_all(problem.A), problem.M and of_all(problem.M)
    sides = {"b": whole(problem.b), "x": whole(problem.x)}
    found, info = _solved(attrs.evolve(problem, A=A, M=M, **sides, lead=problem.lead + 1))
    return [*found, info], [True] * (len(found) + 1)


def _capture(trace: Trace, operands: Leaves, problem: _Problem) -> tuple[Any, ...]:
    if isinstance(trace, StageTrace):
        return _staged(trace, problem)
    return _iterated(problem, operands)


_CG = HigherOrder(
    "cg",
    lambda xp, *operands, problem: _iterated(problem, operands),
    reverse=_reverse,
    forward=_forward,
    batch=_batch,
    capture=_capture,
)
"""The solution of a problem, and ``info``.  Its operands are the residual and where to start."""


# --- in the body of a loop ------------------------------------------------------------


@attrs.frozen(eq=False)
class _Equation:
    """A problem whose traced values are operands: ``(*b, *x, tol, atol, *found)``.

    Attributes
    ----------
    A, M
        The programs of the operators.  Values that they capture are the operands ``found``.
    steps, lead
        As in `_Problem`.
    """

    A: Body
    M: Body | None
    steps: int
    lead: int

    def problem(self, operands: Leaves) -> _Problem:
        given = iter(operands)

        def take(count: int) -> Leaves:
            return [next(given) for _ in range(count)]

        def operator(body: Body) -> Operator:
            found = take(len(body.found))
            return lambda v: evaluate(body.program, [*v, *found])

        count = len(self.A.outs)
        b, x, (tol, atol) = take(count), take(count), take(2)
        A = operator(self.A)
        M = None if self.M is None else operator(self.M)
        return _Problem(A, M, b, x, (tol, atol, self.steps), self.lead)

    def __repr__(self) -> str:
        return f"<operator of {len(self.A.program.steps)} steps>"


class _StagedCG(Step):
    """`cg` in the body of a loop, which is solved when the loop has been transformed."""

    __slots__ = ()

    def apply(self, *operands: Any, equation: _Equation) -> Any:
        if isinstance(innermost(operands), StageTrace):
            return super().apply(*operands, equation=equation)
        return _solve_equation(None, *operands, equation=equation)


def _solve_equation(xp: Any, *operands: Any, equation: _Equation) -> tuple[Any, ...]:
    found, info = _solved(equation.problem(list(operands)))
    return *found, info


_STAGED = _StagedCG("cg", _solve_equation)


def _staged(trace: Trace, problem: _Problem) -> tuple[Any, ...]:
    """Record the equation as a step, because the rules of `_CG` are applied later."""
    shown = examples(problem.x)
    bodies = [stage(f, shown) for f in (problem.A, problem.M) if f]
    # The traces inside of the body have been taken off already: `_differentiated` has the rest.
    found = [_lowered_to(trace, leaf) for body in bodies for leaf in body.found]
    for body in bodies:
        body.forget()
    tol, atol, steps = problem.limits
    equation = _Equation(bodies[0], bodies[1] if problem.M else None, steps, problem.lead)
    outs: tuple[Any, ...] = _STAGED.apply(
        *problem.b, *problem.x, tol, atol, *found, equation=equation
    )
    return outs


def _lowered_to(trace: Trace, leaf: Any) -> Any:
    while isinstance(leaf, Tracer) and leaf._trace.level > trace.level:
        leaf = leaf._trace.lower(leaf)
    return leaf


# --- the method ---------------------------------------------------------------------


def _minus(x: Leaves, y: Leaves) -> Leaves:
    return [u - v for u, v in zip(x, y, strict=True)]


def _dot(x: Leaves, y: Leaves, lead: int) -> Any:
    """The inner products, one for each example."""
    total: Any = 0
    for u, v in zip(x, y, strict=True):
        total = total + ops.sum(ops.real(ops.conj(u) * v), axis=tuple(range(lead, u.ndim)))
    return total


def _step(x: Leaves, factor: Any, y: Leaves) -> Leaves:
    """``x + factor * y``, in the dtype of ``x``."""

    def moved(u: Any, v: Any) -> Any:
        each = ops.reshape(factor, factor.shape + (1,) * (v.ndim - factor.ndim))
        return u + ops.astype(each, u.dtype) * v

    return list(map(moved, x, y))


def _iterated(problem: _Problem, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Hestenes and Stiefel's method (1952), for all examples at once; see Saad, 2003, chapter 9.

    ``operands`` begin with the residual of ``problem.x``.
    """
    A, M, b, x, lead = problem.A, problem.M, problem.b, problem.x, problem.lead
    away = list(operands[: len(b)])
    tol, atol, most = problem.limits
    x = [ops.astype(leaf, like.dtype) for leaf, like in zip(x, away, strict=True)]
    enough = ops.maximum(tol**2 * _dot(b, b, lead), atol**2)
    z = M(away) if M else away
    size, gamma = _dot(away, away, lead), _dot(away, z, lead)

    def unfinished(carry: Any) -> Any:
        *_, size, count = carry
        return (count < most) & ops.any(size > enough)

    def iterate(carry: Any) -> Any:
        x, away, p, gamma, size, count = carry
        active = size > enough
        q = A(p)
        curvature = _dot(p, q, lead)
        step = ops.where(active, gamma / ops.where(active, curvature, 1), 0)
        x, away = _step(x, step, p), _step(away, -step, q)
        z = M(away) if M else away
        before, gamma = gamma, _dot(away, z, lead)
        p = _step(z, ops.where(active, gamma / ops.where(active, before, 1), 0), p)
        # An example that has converged stays as it is.
        size = ops.where(active, _dot(away, away, lead), size)
        return x, away, p, gamma, size, count + 1.0

    carry = x, away, z, gamma, size, 0.0
    # The functions may capture what is differentiated, whose derivative is stated above.
    x, _, _, _, size, count = loop(unfinished, iterate, carry, enough, constant=True)
    count = max(int(count), 1) if type(count) is float else ops.astype(count, "int64")
    return *x, ops.where(size <= enough, 0, ops.maximum(count, 1))
