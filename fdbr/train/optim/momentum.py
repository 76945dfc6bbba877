"""Gradient descent, and momentum."""

from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import plus
from fdbr.train.optim.base import Optimizer, chain, identity
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_decays
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.tree import frozen

__all__ = ["TraceState", "momentum_sgd", "sgd", "trace"]


@public("fdbr.train.optim")
@frozen
class TraceState:
    """The state of `trace`.

    Attributes
    ----------
    trace
        The decaying sum of gradients, a tree of the parameters' shape; `None` for what is not
        trained.
    """

    trace: Any


@public_factory("fdbr.train.optim")
def trace(decay: float, nesterov: bool = False, accumulator_dtype: Any = None) -> Optimizer:
    """A decaying sum of gradients.

    Formula: ``trace = gradient + decay * trace``; the update is ``trace``, or with
    ``nesterov`` it is ``gradient + decay * trace``.

    Parameters
    ----------
    decay
        A number in [0, 1).
    nesterov
        Whether to look one step ahead.
    accumulator_dtype
        The dtype of the sum; by default that of the parameter.

    Raises
    ------
    ValueError
        If ``decay`` is out of range.

    >>> transformation = trace(0.9)
    >>> updates, state = transformation.update(1.0, transformation.init(0.0), 0.0)
    >>> transformation.update(1.0, state, 0.0)
    (1.9, TraceState(trace=1.9))
    """
    check_decays("trace", decay=decay)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        summed = plus(decay * own[0], g)
        return plus(decay * summed, g) if nesterov else summed, (summed,)

    return leafwise(
        "trace",
        update,
        lambda p: (zeros(p, accumulator_dtype),),
        state=TraceState,
        fits="dtype" if accumulator_dtype is None else "shape",
    )


@public_factory("fdbr.train.optim")
def sgd(
    learning_rate: LearningRate,
    momentum: float | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> Optimizer:
    """Gradient descent, with momentum on request.

    Formula: ``params - learning_rate * gradient``; with momentum (Polyak 1964; Nesterov as in
    Sutskever et al., ICML 2013) a decaying sum takes the place of the gradient, see `trace`: the
    form of PyTorch and Optax.  It is ``chain(trace(momentum, nesterov) or identity(),
    scale_by_learning_rate(learning_rate))``.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before to a
        number.
    momentum
        The decay of the sum of gradients, in [0, 1); by default there is none.
    nesterov
        Whether to look one step ahead.
    accumulator_dtype
        The dtype of the sum; by default that of the parameter.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if gradients or state do not fit the
        parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.sgd(0.5)
    >>> updates, state = optimizer.update(4.0, optimizer.init(10.0), 10.0)
    >>> optim.apply_updates(10.0, updates)
    8.0
    """
    first = identity() if momentum is None else trace(momentum, nesterov, accumulator_dtype)
    return chain(first, scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def momentum_sgd(
    learning_rate: LearningRate, momentum: float = 0.9, nesterov: bool = False
) -> Optimizer:
    """Gradient descent with momentum: `sgd` whose momentum is 0.9 unless another is given.

    >>> from fdbr.train import optim
    >>> optimizer = optim.momentum_sgd(0.1)
    >>> updates, state = optimizer.update(1.0, optimizer.init(0.0), 0.0)
    >>> updates
    -0.1
    """
    return sgd(learning_rate, momentum, nesterov)
