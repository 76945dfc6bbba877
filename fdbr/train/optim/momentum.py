"""Momentum."""

from typing import Any

from fdbr import ops, tree
from fdbr.backend import lock, where_it_lies
from fdbr.ops.dtypes import in_single
from fdbr.train.optim.arithmetic import plus
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.fitting import Parameters, check_state
from fdbr.train.optim.scale import LearningRate, scale_by_learning_rate
from fdbr.tree import frozen

__all__ = ["TraceState", "momentum_sgd", "trace", "zeros_like"]


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


def trace(decay: float, nesterov: bool = False) -> Optimizer:
    """A decaying sum of gradients.

    Formula: ``trace = gradient + decay * trace``; the update is ``trace``, or with
    ``nesterov`` it is ``gradient + decay * trace``.

    Parameters
    ----------
    decay
        A number in [0, 1).
    nesterov
        Whether to look one step ahead.

    Raises
    ------
    ValueError
        If ``decay`` is out of range.

    >>> transformation = trace(0.9)
    >>> updates, state = transformation.update(1.0, transformation.init(0.0), 0.0)
    >>> transformation.update(1.0, state, 0.0)
    (1.9, TraceState(trace=1.9))
    """
    if not 0 <= decay < 1:
        raise ValueError(f"fdbr.train.optim.trace: decay must lie in [0, 1), got {decay}")

    def init(params: Any) -> TraceState:
        return TraceState(zeros_like(params))

    def update(grads: Any, state: TraceState, params: Any) -> tuple[Any, TraceState]:
        check_state("trace", state, TraceState)
        parameters = Parameters("trace", params)
        gs = parameters.gradients(grads)
        traces = [
            t if g is None else lock(_decayed(t, g, decay))
            for g, t in zip(gs, parameters.state("trace", state.trace, gs), strict=True)
        ]
        steps = [
            None if g is None else lock(_decayed(t, g, decay)) if nesterov else t
            for g, t in zip(gs, traces, strict=True)
        ]
        return parameters.unflatten(steps), TraceState(parameters.unflatten(traces))

    return Optimizer(init, update)


@where_it_lies
@in_single
def _decayed(trace: Any, g: Any, decay: float) -> Any:
    return plus(decay * trace, g)


def momentum_sgd(
    learning_rate: LearningRate, momentum: float = 0.9, nesterov: bool = False
) -> Optimizer:
    """Gradient descent with momentum (Polyak 1964; Nesterov as in Sutskever et al. 2013).

    It is ``chain(trace(momentum, nesterov), scale_by_learning_rate(learning_rate))``, the
    form of PyTorch.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before to a
        number.
    momentum
        The decay of the sum of gradients, in [0, 1).
    nesterov
        Whether to look one step ahead.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if gradients or state do not fit the
        parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.momentum_sgd(0.1)
    >>> updates, state = optimizer.update(1.0, optimizer.init(0.0), 0.0)
    >>> updates
    -0.1
    """
    return chain(trace(momentum, nesterov), scale_by_learning_rate(learning_rate))


def zeros_like(params: Any) -> Any:
    """Read-only zeros of the parameters' shapes and dtypes, for what is trained of them."""
    return tree.map(
        lambda leaf: 0.0 if isinstance(leaf, float) else lock(ops.zeros_like(leaf)),
        tree.trainable(params),
    )
