"""Line searches: how far to go along an update."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.control_flow import while_loop
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_complex
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_params, check_state
from fdbr.train.optim.leafwise import zeros
from fdbr.train.optim.numbers import check_positive
from fdbr.train.optim.scale import scale
from fdbr.train.optim.wrappers.states import tree_get
from fdbr.transforms.vjp import value_and_grad
from fdbr.tree import frozen

__all__ = [
    "LinesearchInfo",
    "ScaleByBacktrackingLinesearchState",
    "ScaleByZoomLinesearchState",
    "scale_by_backtracking_linesearch",
    "scale_by_zoom_linesearch",
    "value_and_grad_from_state",
]


@public("fdbr.train.optim")
@frozen
class LinesearchInfo:
    """The course of a line search.

    Attributes
    ----------
    num_linesearch_steps
        The number of points at which the function was computed.
    decrease_error, curvature_error
        By how much the conditions are missed at the last, zero if they hold.
    """

    num_linesearch_steps: Any
    decrease_error: Any
    curvature_error: Any


@public("fdbr.train.optim")
@frozen
class ScaleByZoomLinesearchState:
    """The state of `scale_by_zoom_linesearch`.

    Attributes
    ----------
    learning_rate
        The factor that was found.
    value, grad
        The value and the gradient at the new parameters; the conjugate of that by complex ones,
        which is what ``update`` takes.
    info
        A `LinesearchInfo`.
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: Any


@public("fdbr.train.optim")
@frozen
class ScaleByBacktrackingLinesearchState:
    """The state of `scale_by_backtracking_linesearch`.

    Attributes
    ----------
    learning_rate
        The factor that was found.
    value, grad
        The value at the new parameters, and the gradient, or `None` if it is not stored.
    info
        A `LinesearchInfo`.
    """

    learning_rate: Any
    value: Any
    grad: Any
    info: Any


def dot(a: Any, b: Any) -> Any:
    """The sum of products of two trees' elements, real; of 16 bits in float32."""
    total: Any = None
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        if getattr(x, "itemsize", 8) <= 2:
            x, y = ops.astype(x, "float32"), ops.astype(y, "float32")
        part = ops.real(ops.sum(x * ops.conj(y)))
        total = part if total is None else total + part
    return ops.asarray(0.0)[()] if total is None else total


def conjugated(gradient: Any) -> Any:
    """The direction in which a real function grows fastest, of its gradient; and the reverse."""

    def conjugate(leaf: Any) -> Any:
        return ops.conj(leaf) if is_complex(leaf) else leaf

    return tree.map(conjugate, gradient)


def along(params: Any, stepsize: Any, updates: Any) -> Any:
    """``params + stepsize * updates``, where there are updates."""

    def moved(u: Any, p: Any) -> Any:
        new = p + stepsize * u
        dtype = getattr(p, "dtype", None)
        return new if dtype is None else ops.astype(new, dtype)

    return tree.combine(tree.map(moved, updates, params), params)


def _checked(function: str, params: Any, value: Any, grad: Any, value_fn: Any) -> None:
    check_params(function, params)
    if value is None or grad is None or value_fn is None:
        raise TypeError(
            f"fdbr.train.optim.{function}: it needs the value and the gradient of a function, and "
            "the function; call update(grads, state, params, value=value, grad=grads, "
            "value_fn=loss)"
        )


def _bound(value_fn: Any, extra: dict[str, Any]) -> Any:
    """The function of parameters alone, with those of the further keywords that it takes."""
    try:
        parameters = inspect.signature(value_fn).parameters
    except (TypeError, ValueError):
        return value_fn
    known = {key: extra[key] for key in extra if key in parameters}
    return (lambda params: value_fn(params, **known)) if known else value_fn


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    return tree.map(lambda a, b: ops.where(condition, a, b), x, y)


@frozen
class _Point:
    """A place on the line: how far, and the function's value and slope."""

    at: Any
    value: Any
    slope: Any


@frozen
class _Search:
    """A line search on its way (Nocedal & Wright 2006, algorithms 3.5 and 3.6)."""

    count: Any
    last: _Point
    low: _Point
    high: _Point
    reference: _Point
    safe: _Point
    grad: Any
    safe_grad: Any
    errors: Any
    found: Any
    done: Any
    failed: Any


@public_factory("fdbr.train.optim")
def scale_by_zoom_linesearch(
    max_linesearch_steps: int,
    max_learning_rate: float | None = None,
    tol: float = 0.0,
    increase_factor: float = 2.0,
    slope_rtol: float = 1e-4,
    curv_rtol: float = 0.9,
    approx_dec_rtol: float | None = 1e-6,
    stepsize_precision: float = 1e-5,
    initial_guess_strategy: str = "keep",
) -> Optimizer:
    """Rescale updates so that Wolfe's conditions hold (Nocedal & Wright 2006, section 3.5).

    With ``f(s)`` the function at ``params + s * updates``, a factor ``s`` is sought for which::

        f(s) <= f(0) + slope_rtol * s * f'(0)       (or nearly, Hager & Zhang 2006)
        abs(f'(s)) <= curv_rtol * abs(f'(0))

    first by growing steps until there is an interval that has one, then within it, by cubic and
    quadratic interpolation.

    Parameters
    ----------
    max_linesearch_steps
        The most points at which the function is computed.
    max_learning_rate
        The greatest factor; by default there is none.
    tol
        By how much conditions may be missed.
    increase_factor
        The factor by which steps grow.
    slope_rtol, curv_rtol
        Numbers of the conditions, in (0, 1).
    approx_dec_rtol
        Relative to ``f(0)``, how near is nearly; `None` for the first condition alone.
    stepsize_precision
        The length of an interval that is divided no more.
    initial_guess_strategy
        ``"keep"``, to begin with the last factor; or ``"one"``.

    Raises
    ------
    ValueError
        If an argument is out of range.
    TypeError
        By ``update``, if it lacks ``params``, ``value``, ``grad`` or ``value_fn``.

    >>> from fdbr.train import optim
    >>> search = optim.scale_by_zoom_linesearch(10, initial_guess_strategy="one")
    >>> extra = {"value": 9.0, "grad": 6.0, "value_fn": lambda x: x**2}
    >>> updates, state = search.update(-6.0, search.init(3.0), 3.0, **extra)
    >>> round(float(updates), 6), round(float(state.value), 6)
    (-3.0, 0.0)
    """
    function = "scale_by_zoom_linesearch"
    check_positive(function, max_linesearch_steps=max_linesearch_steps, factor=increase_factor)
    if initial_guess_strategy not in ("keep", "one"):
        raise ValueError(
            f"fdbr.train.optim.{function}: initial_guess_strategy must be 'keep' or 'one', not "
            f"{initial_guess_strategy!r}"
        )

    def errors(point: _Point, start: _Point) -> Any:
        """By how much the two conditions are missed."""
        rise = point.value - start.value
        decrease = rise - slope_rtol * point.at * start.slope
        if approx_dec_rtol is not None:
            nearly = point.slope - (2 * slope_rtol - 1.0) * start.slope
            near = rise - approx_dec_rtol * ops.abs(start.value)
            decrease = ops.minimum(ops.maximum(nearly, near), decrease)
        curvature = ops.abs(point.slope) - curv_rtol * ops.abs(start.slope)
        return tuple(
            ops.where(ops.isnan(e), float("inf"), ops.maximum(e, 0.0))
            for e in (decrease, curvature)
        )

    def init(params: Any) -> ScaleByZoomLinesearchState:
        grad = tree.map(lambda p: lock(zeros(p)), tree.trainable(params))
        zero = dot(grad, grad)
        far = zero + float("inf")
        info = LinesearchInfo(0, far, far)
        return ScaleByZoomLinesearchState(zero + 1, far, grad, info)

    def iteration(s: _Search, look: Any, start: _Point, guess: Any) -> _Search:
        """One more point, and what follows from it."""
        larger = ops.where(s.count == 0, guess, increase_factor * s.last.at)
        reached = larger < larger if max_learning_rate is None else larger >= max_learning_rate
        if max_learning_rate is not None:
            larger = ops.minimum(larger, max_learning_rate)
        at = ops.where(s.found, _middle(s.low, s.high, s.reference), larger)
        point, grad = look(at)
        decrease, curvature = missed = errors(point, start)
        met = ops.maximum(decrease, curvature) <= tol
        safer = (decrease <= tol) & (~s.found | (point.value < s.safe.value))
        beyond = ops.where(s.found, point.value >= s.low.value, point.value >= s.last.value)
        up = (decrease > 0) | (beyond & (s.found | (s.count > 0)))
        back = ~up & ops.where(s.found, point.slope * (s.high.at - s.low.at) >= 0, point.slope >= 0)
        low = _chosen(s.found, _chosen(up, s.low, point), _chosen(back, point, s.last))
        inside = _chosen(up, point, _chosen(back, s.low, s.high))
        high = _chosen(s.found, inside, _chosen(back, s.last, point))
        reference = _chosen(s.found, _chosen(up | back, s.high, s.low), low)
        found = s.found | up | back | met
        done = met | (~s.found & reached & ~found)
        safe = _chosen(safer, point, s.safe)
        short = ops.abs(s.high.at - s.low.at) <= stepsize_precision
        ended = (s.count + 1 >= max_linesearch_steps) | (s.found & short & (safe.at > 0))
        safe_grad = _chosen(safer, grad, s.safe_grad)
        count, failed = s.count + 1, ended & ~done
        ends = point, low, high, reference, safe
        return _Search(count, *ends, grad, safe_grad, missed, found, done, failed)

    def update(
        updates: Any,
        state: Any,
        params: Any = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Callable[..., Any] | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        check_state(function, state, ScaleByZoomLinesearchState)
        _checked(function, params, value, grad, value_fn)
        derivative_of = value_and_grad(_bound(value_fn, extra))

        def look(at: Any) -> tuple[_Point, Any]:
            value, grad = derivative_of(along(params, at, updates))
            grad = tree.map(lambda u, g: g, updates, conjugated(grad))
            return _Point(at, value + 0 * zero, dot(grad, updates)), grad

        slope = dot(grad, updates)
        zero = 0 * slope
        guess = state.learning_rate if initial_guess_strategy == "keep" else zero + 1
        start = _Point(zero, value + zero, slope)
        grad = tree.map(lambda u, g: g, updates, grad)
        far, no = zero + float("inf"), slope != slope
        s = _Search(0, *(start,) * 5, grad, grad, (far, far), no, no, no)
        with np.errstate(all="ignore"):
            s = while_loop(
                lambda s: ~(s.done | s.failed), lambda s: iteration(s, look, start, guess), s
            )
        retreat = s.failed & ((s.safe.at > 0) | ops.isinf(s.errors[0]))
        end, grad = _chosen(retreat, (s.safe, s.safe_grad), (s.last, s.grad))
        info = LinesearchInfo(s.count, *s.errors)
        new = ScaleByZoomLinesearchState(end.at, end.value, tree.map(lock, grad), info)
        return scale(end.at).update(updates, scale(1.0).init(params), params)[0], new

    return Optimizer(init, update)


def _middle(low: _Point, high: _Point, third: _Point) -> Any:
    """A point between two others: by a cubic, else by a parabola, else half way."""
    length = ops.abs(high.at - low.at)
    left, right = ops.minimum(high.at, low.at), ops.maximum(high.at, low.at)
    db, dc = high.at - low.at, third.at - low.at
    rb, rc = (p.value - low.value - low.slope * (p.at - low.at) for p in (high, third))
    below = (db * dc) ** 2 * (db - dc)
    a = (dc**2 * rb - db**2 * rc) / below
    b = (-(dc**3) * rb + db**3 * rc) / below
    cubic = low.at + (-b + ops.sqrt(b * b - 3.0 * a * low.slope)) / (3.0 * a)
    parabola = low.at - low.slope / (2.0 * (rb / db**2))

    def within(x: Any, part: float) -> Any:
        return (x > left + part * length) & (x < right - part * length)

    half = ops.where(within(parabola, 0.1), parabola, (low.at + high.at) / 2.0)
    return ops.where(within(cubic, 0.2), cubic, half)


@public_factory("fdbr.train.optim")
def scale_by_backtracking_linesearch(
    max_backtracking_steps: int,
    slope_rtol: float = 1e-4,
    decrease_factor: float = 0.8,
    increase_factor: float = 1.5,
    max_learning_rate: float = 1.0,
    atol: float = 0.0,
    rtol: float = 0.0,
    store_grad: bool = False,
) -> Optimizer:
    """Shorten updates until the function decreases enough (Armijo 1966).

    A factor ``s`` is sought, from ``increase_factor`` times the last one down by
    ``decrease_factor``, with ``f(s) <= (1 + rtol) * f(0) + slope_rtol * s * f'(0) + atol``.

    Parameters
    ----------
    max_backtracking_steps
        The most times that it is made smaller.
    slope_rtol
        A number in (0, 1).
    decrease_factor, increase_factor
        Numbers in (0, 1), and of at least 1.
    max_learning_rate
        The greatest factor.
    atol, rtol
        By how much the condition may be missed.
    store_grad
        Whether the gradient at the new parameters is computed and kept in the state.

    Raises
    ------
    ValueError
        If an argument is out of range.
    TypeError
        By ``update``, if it lacks ``params``, ``value``, ``grad`` or ``value_fn``.

    >>> from fdbr.train import optim
    >>> search = optim.scale_by_backtracking_linesearch(20, decrease_factor=0.5)
    >>> extra = {"value": 9.0, "grad": 6.0, "value_fn": lambda x: x**2}
    >>> updates, state = search.update(-6.0, search.init(3.0), 3.0, **extra)
    >>> float(updates), float(state.learning_rate)
    (-3.0, 0.5)
    """
    function = "scale_by_backtracking_linesearch"
    check_positive(function, steps=max_backtracking_steps, max_learning_rate=max_learning_rate)
    if not 0 < decrease_factor < 1 or not increase_factor >= 1:
        raise ValueError(
            f"fdbr.train.optim.{function}: decrease_factor must lie in (0, 1) and increase_factor "
            f"be at least 1, got {decrease_factor} and {increase_factor}"
        )

    def init(params: Any) -> ScaleByBacktrackingLinesearchState:
        grad = tree.map(lambda p: lock(zeros(p)), tree.trainable(params))
        zero = dot(grad, grad)
        far = zero + float("inf")
        info = LinesearchInfo(0, far, zero)
        return ScaleByBacktrackingLinesearchState(zero + 1, far, grad if store_grad else None, info)

    def update(
        updates: Any,
        state: Any,
        params: Any = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Callable[..., Any] | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        check_state(function, state, ScaleByBacktrackingLinesearchState)
        _checked(function, params, value, grad, value_fn)
        value_at = _bound(value_fn, extra)
        slope = dot(grad, updates)
        zero = 0 * slope

        def iteration(carry: Any) -> Any:
            count, rate, *_ = carry
            rate = ops.where(count > 0, decrease_factor * rate, rate)
            new = value_at(along(params, rate, updates)) + zero
            error = new - (1.0 + rtol) * value - rate * slope_rtol * slope
            error = ops.where(ops.isnan(error), float("inf"), ops.maximum(error, 0.0))
            return count + 1, rate, new, error

        rate = ops.minimum(increase_factor * state.learning_rate, max_learning_rate)
        far = zero + float("inf")
        with np.errstate(all="ignore"):
            count, rate, new, error = while_loop(
                lambda carry: (carry[3] > atol) & (carry[0] <= max_backtracking_steps),
                iteration,
                (0, rate + zero, value + zero, far),
            )
        rate = ops.where(ops.isinf(error), 0.0, rate)
        kept = None
        if store_grad:
            found = value_and_grad(value_at)(along(params, rate, updates))[1]
            kept = tree.map(lambda u, g: g, updates, conjugated(found))
        info = LinesearchInfo(count, error, zero)
        new = ScaleByBacktrackingLinesearchState(rate, new, kept, info)
        factor: Any = rate
        return scale(factor).update(updates, scale(1.0).init(params), params)[0], new

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The value and the gradient of a function, from the state of a line search if it has them.

    Parameters
    ----------
    value_fn
        A function of parameters, and further arguments.

    Returns
    -------
    callable
        ``f(params, *args, state=state, **kwargs) -> (value, gradient)``.

    Raises
    ------
    ValueError
        By what it returns, if there is no value and gradient in the state.

    >>> from fdbr.train import optim
    >>> optimizer = optim.lbfgs()
    >>> loss = lambda x: (x - 1.0) ** 2
    >>> slope = optim.value_and_grad_from_state(loss)
    >>> value, grad = slope(3.0, state=optimizer.init(3.0))
    >>> float(value), float(grad)
    (4.0, 4.0)
    """

    def from_state(params: Any, *args: Any, state: Any, **kwargs: Any) -> Any:
        value, grad = tree_get(state, "value", None), tree_get(state, "grad", None)
        if value is None or grad is None:
            raise ValueError(
                "fdbr.train.optim.value_and_grad_from_state: there is no value and gradient in the "
                "state; give that of optim.lbfgs(…), or of a line search that stores the gradient"
            )
        if ops.isfinite(value):  # one of two traces in a jitted step
            return value, conjugated(grad)
        return value_and_grad(value_fn)(params, *args, **kwargs)

    return from_state
