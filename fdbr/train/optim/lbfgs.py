"""Rules that learn of curvature from the last gradients: L-BFGS, and conjugate gradients."""

from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import keep, lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer, chain, identity
from fdbr.train.optim.fitting import check_params, check_state, in_dtypes_of
from fdbr.train.optim.leafwise import zeros
from fdbr.train.optim.linesearch import dot, scale_by_zoom_linesearch
from fdbr.train.optim.numbers import LearningRate
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.tree import frozen

__all__ = [
    "ScaleByLBFGSState",
    "ScaleByNonlinearCGState",
    "lbfgs",
    "nonlinear_cg",
    "scale_by_lbfgs",
    "scale_by_nonlinear_cg",
]


@public("fdbr.train.optim")
@frozen
class ScaleByLBFGSState:
    """The state of `scale_by_lbfgs`.

    Attributes
    ----------
    count
        The number of updates made.
    params, updates
        The last parameters and gradients.
    diff_params_memory, diff_updates_memory
        Their last differences, tuples of trees, the newest at the end.
    weights_memory
        One over the products of these.
    """

    count: int
    params: Any
    updates: Any
    diff_params_memory: Any
    diff_updates_memory: Any
    weights_memory: Any


def _nothing(params: Any) -> Any:
    return tree.map(lambda p: lock(zeros(p)), tree.trainable(params))


def _kept(grads: Any, params: Any) -> Any:
    """The parameters that have gradients, for good."""
    return tree.map(lambda g, p: keep(p), grads, params)


def _beside(x: Any, y: Any) -> Any:
    """The leaves of ``y`` where ``x`` has any; those of ``x`` where ``y`` has none."""
    return tree.map(lambda a, b: a if b is None else b, x, y)


def _plus(x: Any, factor: Any, y: Any) -> Any:
    """``x + factor * y``, in the dtypes of ``x``."""

    def added(a: Any, b: Any) -> Any:
        total = a + factor * b
        dtype = getattr(a, "dtype", None)
        return total if dtype is None else ops.astype(total, dtype)

    return tree.map(added, x, y)


@public_factory("fdbr.train.optim")
def scale_by_lbfgs(memory_size: int = 10, scale_init_precond: bool = True) -> Optimizer:
    """Multiply gradients by an inverse Hessian out of the last steps (Nocedal 1980).

    Formula: the two loops of Nocedal & Wright (2006), algorithm 7.4, over the differences of the
    last ``memory_size`` parameters and gradients, ``s`` and ``y``, from ``gamma * identity`` with
    ``gamma = s @ y / (y @ y)`` of the newest; at first ``gamma = min(1, 1 / norm(gradient))``.

    Parameters
    ----------
    memory_size
        The number of differences, at least 1.
    scale_init_precond
        Whether ``gamma`` is as above, and not 1.

    Raises
    ------
    ValueError
        If ``memory_size`` is less than 1.
    TypeError
        By ``update``, if it lacks the parameters.

    >>> transformation = scale_by_lbfgs()
    >>> _, state = transformation.update(4.0, transformation.init(2.0), 2.0)
    >>> float(transformation.update(2.0, state, 1.0)[0])
    1.0
    """
    if memory_size < 1:
        raise ValueError(
            f"fdbr.train.optim.scale_by_lbfgs: memory_size must be at least 1, got {memory_size}"
        )

    def init(params: Any) -> ScaleByLBFGSState:
        nothing = _nothing(params)
        zero = dot(nothing, nothing)
        memory = (nothing,) * memory_size
        weights = lock(ops.repeat(ops.reshape(zero, (1,)), memory_size))
        return ScaleByLBFGSState(0, nothing, nothing, memory, memory, weights)

    def update(
        grads: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, ScaleByLBFGSState]:
        check_state("scale_by_lbfgs", state, ScaleByLBFGSState)
        check_params("scale_by_lbfgs", params)
        grads = in_dtypes_of("scale_by_lbfgs", params, grads)
        at = _kept(grads, params)
        begun = ops.where(state.count > 0, 1.0, 0.0)
        s = _scaled(begun, _plus(at, -1.0, _beside(at, state.params)))
        y = _scaled(begun, _plus(grads, -1.0, _beside(grads, state.updates)))
        product = dot(y, s)
        weight = _ratio(1.0, product, 0.0)
        nothing = _nothing(at)
        older = state.diff_params_memory[1:], state.diff_updates_memory[1:]
        steps, derivatives = (tuple(_beside(nothing, one) for one in memory) for memory in older)
        steps, derivatives = (*steps, s), (*derivatives, y)
        weights = ops.concat((state.weights_memory[1:], ops.reshape(weight, (1,))))
        gamma: Any = 1.0
        if scale_init_precond:
            first = ops.minimum(1.0, _ratio(1.0, ops.sqrt(dot(grads, grads)), 1.0))
            gamma = ops.where(state.count > 0, _ratio(product, dot(y, y), 1.0), first)
        found = _preconditioned(grads, steps, derivatives, weights, gamma)
        kept = _kept(grads, grads)
        new = ScaleByLBFGSState(
            state.count + 1, at, kept, _locked(steps), _locked(derivatives), lock(weights)
        )
        return _locked(found), new

    return Optimizer(init, update)


def _locked(found: Any) -> Any:
    return tree.map(lock, found)


def _scaled(factor: Any, x: Any) -> Any:
    return tree.map(
        lambda a: a * (ops.astype(factor, a.dtype) if hasattr(a, "dtype") else factor), x
    )


def _ratio(above: Any, below: Any, otherwise: Any) -> Any:
    some = below != 0
    return ops.where(some, above / ops.where(some, below, 1.0), otherwise)


def _preconditioned(vector: Any, steps: Any, derivatives: Any, weights: Any, gamma: Any) -> Any:
    alphas: list[Any] = []
    for i in reversed(range(len(steps))):
        alphas.append(weights[i] * dot(steps[i], vector))
        vector = _plus(vector, -alphas[-1], derivatives[i])
    vector = _scaled(gamma, vector)
    for i, step in enumerate(steps):
        vector = _plus(vector, alphas.pop() - weights[i] * dot(derivatives[i], vector), step)
    return vector


_ZOOM = scale_by_zoom_linesearch(20, initial_guess_strategy="one")


@public_factory("fdbr.train.optim")
def lbfgs(
    learning_rate: LearningRate | None = None,
    memory_size: int = 10,
    scale_init_precond: bool = True,
    linesearch: Optimizer | None = _ZOOM,
) -> Optimizer:
    """L-BFGS (Nocedal 1980; Liu & Nocedal 1989) with a line search, for whole gradients.

    It is `scale_by_lbfgs`, the change of sign (or the learning rate) and the line search.

    Parameters
    ----------
    learning_rate
        A number ≥ 0 or a schedule, by which steps are multiplied before the search.
    memory_size, scale_init_precond
        As those of `scale_by_lbfgs`.
    linesearch
        What finds the length of steps: `scale_by_zoom_linesearch` of 20 points by default, or
        `scale_by_backtracking_linesearch`.  With `None`, give a learning rate.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if it lacks what the line search needs:
        ``update(grads, state, params, value=value, grad=grads, value_fn=loss)``.

    >>> import fdbr
    >>> from fdbr.train import optim
    >>> loss = lambda x: (x - 1.0) ** 2 * (x**2 + 1.0)
    >>> optimizer, x = optim.lbfgs(), 3.0
    >>> state = optimizer.init(x)
    >>> for _ in range(10):
    ...     value, slope = fdbr.value_and_grad(loss)(x)
    ...     extra = {"value": value, "grad": slope, "value_fn": loss}
    ...     updates, state = optimizer.update(slope, state, x, **extra)
    ...     x = optim.apply_updates(x, updates)
    >>> round(float(x), 6)
    1.0
    """
    sign = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    search = identity() if linesearch is None else linesearch
    return chain(scale_by_lbfgs(memory_size, scale_init_precond), sign, search)


@public("fdbr.train.optim")
@frozen
class ScaleByNonlinearCGState:
    """The state of `scale_by_nonlinear_cg`: a count, the last gradient and the last direction."""

    count: int
    gradient: Any
    direction: Any


@public_factory("fdbr.train.optim")
def scale_by_nonlinear_cg(method: str = "polak-ribiere") -> Optimizer:
    """Directions that are conjugate to the last one (Fletcher & Reeves 1964).

    Formula, with products over all parameters together::

        beta = max(0, g @ (g - last_g) / (last_g @ last_g))      ("polak-ribiere")
        beta = g @ g / (last_g @ last_g)                         ("fletcher-reeves")
        direction = g + beta * direction

    Parameters
    ----------
    method
        ``"polak-ribiere"`` (1969, which begins anew where ``beta`` would be negative) or
        ``"fletcher-reeves"``.

    Raises
    ------
    ValueError
        If there is no such method.

    >>> transformation = scale_by_nonlinear_cg("fletcher-reeves")
    >>> _, state = transformation.update(4.0, transformation.init(0.0))
    >>> float(transformation.update(2.0, state)[0])
    3.0
    """
    if method not in ("polak-ribiere", "fletcher-reeves"):
        raise ValueError(
            "fdbr.train.optim.scale_by_nonlinear_cg: method must be 'polak-ribiere' or "
            f"'fletcher-reeves', not {method!r}"
        )

    def init(params: Any) -> ScaleByNonlinearCGState:
        return ScaleByNonlinearCGState(0, _nothing(params), _nothing(params))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("scale_by_nonlinear_cg", state, ScaleByNonlinearCGState)
        grads = in_dtypes_of("scale_by_nonlinear_cg", params, grads)
        last = _beside(grads, state.gradient)
        before = _beside(grads, state.direction)
        change = grads if method == "fletcher-reeves" else _plus(grads, -1.0, last)
        beta = ops.maximum(_ratio(dot(grads, change), dot(last, last), 0.0), 0.0)
        direction = _locked(_plus(grads, beta, before))
        return direction, ScaleByNonlinearCGState(state.count + 1, _kept(grads, grads), direction)

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def nonlinear_cg(
    learning_rate: LearningRate | None = None,
    method: str = "polak-ribiere",
    linesearch: Optimizer | None = None,
) -> Optimizer:
    """Nonlinear conjugate gradients with a line search, for whole gradients.

    It is `scale_by_nonlinear_cg`, the change of sign (or the learning rate) and the line search.

    Parameters
    ----------
    learning_rate
        A number ≥ 0 or a schedule, by which steps are multiplied before the search.
    method
        That of `scale_by_nonlinear_cg`.
    linesearch
        By default `scale_by_zoom_linesearch` of 20 points with ``curv_rtol=0.1``; `identity` for
        none.

    >>> from fdbr.train import optim
    >>> optimizer = optim.nonlinear_cg()
    >>> extra = {"value": 9.0, "grad": 6.0, "value_fn": lambda x: x**2}
    >>> round(float(optimizer.update(6.0, optimizer.init(3.0), 3.0, **extra)[0]), 6)
    -3.0
    """
    sign = scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate)
    search = linesearch or scale_by_zoom_linesearch(20, curv_rtol=0.1)
    return chain(scale_by_nonlinear_cg(method), sign, search)
