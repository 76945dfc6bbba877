"""Rescaling by a number, and by a learning rate: plain gradient descent."""

from collections.abc import Callable
from typing import Any

from fdbr.backend import lock, where_it_lies
from fdbr.core import Tracer
from fdbr.ops.dtypes import in_single
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import Parameters, check_state
from fdbr.tree import frozen

__all__ = ["LearningRate", "LearningRateState", "scale", "scale_by_learning_rate", "sgd"]

LearningRate = float | Callable[[int], Any]


@frozen
class LearningRateState:
    """The state of a learning rate.

    Attributes
    ----------
    step
        How many updates were made.
    """

    step: int = 0


def scale(factor: float) -> Optimizer:
    """Multiply by a number.

    Formula: ``update = factor * gradient``.

    >>> transformation = scale(-0.5)
    >>> transformation.update(4.0, transformation.init(0.0), 0.0)
    (-2.0, ())
    """

    def init(params: Any) -> Any:
        return ()

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        return _scaled("scale", factor, grads, params), state

    return Optimizer(init, update)


def scale_by_learning_rate(learning_rate: LearningRate) -> Optimizer:
    """Multiply by minus the learning rate, which turns a gradient into a descent.

    Formula: ``update = -learning_rate * gradient``.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before (0 at
        the first) to a number.

    Raises
    ------
    ValueError, TypeError
        If it is negative or no number.

    >>> halving = scale_by_learning_rate(lambda step: 0.5**step)
    >>> updates, state = halving.update(4.0, halving.init(0.0), 0.0)
    >>> halving.update(4.0, state, 0.0)
    (-2.0, LearningRateState(step=2))
    """
    return _by_learning_rate("scale_by_learning_rate", learning_rate)


def sgd(learning_rate: LearningRate) -> Optimizer:
    """Gradient descent.

    Formula: ``params - learning_rate * gradient``.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before to a
        number.

    Raises
    ------
    ValueError, TypeError
        If it is negative or no number; by ``update``, if the gradients do not fit the
        parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.sgd(0.5)
    >>> updates, state = optimizer.update(4.0, optimizer.init(10.0), 10.0)
    >>> optim.apply_updates(10.0, updates)
    8.0
    """
    return _by_learning_rate("sgd", learning_rate)


def _by_learning_rate(function: str, learning_rate: LearningRate) -> Optimizer:
    if not callable(learning_rate):
        learning_rate = _number(function, learning_rate)

    def init(params: Any) -> LearningRateState:
        return LearningRateState()

    def update(grads: Any, state: LearningRateState, params: Any) -> tuple[Any, LearningRateState]:
        check_state(function, state, LearningRateState)
        rate = learning_rate
        if callable(rate):
            rate = _number(function, rate(state.step))
        return _scaled(function, -rate, grads, params), LearningRateState(state.step + 1)

    return Optimizer(init, update)


def _scaled(function: str, factor: Any, grads: Any, params: Any) -> Any:
    parameters = Parameters(function, params)
    return parameters.unflatten(
        [None if g is None else lock(_times(g, factor)) for g in parameters.gradients(grads)]
    )


@where_it_lies
@in_single
def _times(g: Any, factor: Any) -> Any:
    return factor * g


def _number(function: str, value: Any) -> Any:
    """A learning rate as Python's float, which leaves the dtype of gradients as it is."""
    if isinstance(value, Tracer):
        return value
    try:
        rate = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"fdbr.train.optim.{function}: the learning rate must be a number or a function that "
            f"returns one, got {value!r}"
        ) from None
    if not rate >= 0:
        raise ValueError(
            f"fdbr.train.optim.{function}: the learning rate must be at least 0, got {rate}"
        )
    return rate
