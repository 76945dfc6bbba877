"""Rescaling by a number, by a schedule, and by a learning rate."""

from collections.abc import Callable
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.numbers import LearningRate, learning_rate_of, rate_at
from fdbr.tree import frozen

__all__ = ["ScaleByScheduleState", "scale", "scale_by_learning_rate", "scale_by_schedule"]


@public("fdbr.train.optim")
@frozen
class ScaleByScheduleState:
    """The state of `scale_by_schedule`.

    Attributes
    ----------
    count
        The number of updates made.
    """

    count: int


@public_factory("fdbr.train.optim")
def scale(step_size: float) -> Optimizer:
    """Multiply by a number.

    Formula: ``update = step_size * gradient``.

    Parameters
    ----------
    step_size
        A number, or an array of no axes.

    >>> transformation = scale(-0.5)
    >>> transformation.update(4.0, transformation.init(0.0), 0.0)
    (-2.0, EmptyState())
    """
    return _scaled("scale", lambda t: step_size)


@public_factory("fdbr.train.optim")
def scale_by_schedule(step_size_fn: Callable[..., Any]) -> Optimizer:
    """Multiply by a number that depends on the count of updates.

    Formula: ``update = step_size_fn(count) * gradient``.

    Parameters
    ----------
    step_size_fn
        A function from the count of updates made before (0 at the first) to a number, of either
        sign.

    >>> halving = scale_by_schedule(lambda count: 0.5**count)
    >>> updates, state = halving.update(4.0, halving.init(0.0), 0.0)
    >>> halving.update(4.0, state, 0.0)
    (2.0, ScaleByScheduleState(count=2))
    """
    return _scaled("scale_by_schedule", lambda t: step_size_fn(t - 1), ScaleByScheduleState)


@public_factory("fdbr.train.optim")
def scale_by_learning_rate(learning_rate: LearningRate, *, flip_sign: bool = True) -> Optimizer:
    """Multiply by minus the learning rate, which turns a gradient into a descent.

    Formula: ``update = -learning_rate * gradient``.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before (0 at
        the first) to a number.
    flip_sign
        Whether to go downhill; uphill otherwise.

    Raises
    ------
    ValueError, TypeError
        If it is negative or no number.

    >>> halving = scale_by_learning_rate(lambda count: 0.5**count)
    >>> updates, state = halving.update(4.0, halving.init(0.0), 0.0)
    >>> halving.update(4.0, state, 0.0)
    (-2.0, ScaleByScheduleState(count=2))
    """
    function = "scale_by_learning_rate"
    rate = learning_rate_of(function, learning_rate)

    def factor(t: Any) -> Any:
        found = rate_at(function, rate, t - 1) if callable(rate) else rate
        return -found if flip_sign else found

    return _scaled(function, factor, ScaleByScheduleState if callable(rate) else None)


def _scaled(function: str, factor: Callable[[Any], Any], state: Any = None) -> Optimizer:
    return leafwise(
        function,
        lambda g, own, p, step_size: (step_size * g, own),
        state=state or EmptyState,
        numbers=factor,
    )
