"""The `Optimizer` type, and how optimizers are composed."""

from collections.abc import Callable
from typing import Any

from fdbr.messages import name_of
from fdbr.tree import frozen, static

__all__ = ["Optimizer", "chain"]


@frozen
class Optimizer:
    """A pair of pure functions.

    A gradient transformation (a rescaling, a running mean) is the same pair: an optimizer is
    one whose updates are meant to be added to the parameters.

    Attributes
    ----------
    init
        ``init(params) -> state``.
    update
        ``update(grads, state, params) -> (updates, state)``: the updates are a tree of the
        parameters' shape; where the gradient is `None`, so is the update.

    >>> import fdbr
    >>> descent = Optimizer(
    ...     init=lambda params: (),
    ...     update=lambda grads, state, params: (fdbr.tree.map(lambda g: -g, grads), state),
    ... )
    >>> descent.update([2.0, None], descent.init([1.0, 1]), [1.0, 1])
    ([-2.0, None], ())
    """

    init: Callable[[Any], Any] = static(repr=name_of)
    update: Callable[[Any, Any, Any], tuple[Any, Any]] = static(repr=name_of)


def chain(*transformations: Optimizer) -> Optimizer:
    """Gradient transformations one after the other.

    Parameters
    ----------
    transformations
        Each is given the updates of the one before as its gradients.

    Returns
    -------
    Optimizer
        Its state is the tuple of theirs.

    Raises
    ------
    TypeError
        If one of them is no `Optimizer`.
    ValueError
        By ``update``, if the state is not a tuple of as many states.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> slow = optim.chain(optim.trace(0.9), optim.scale(-0.5))
    >>> params = {"w": np.zeros(2)}
    >>> updates, state = slow.update({"w": np.ones(2)}, slow.init(params), params)
    >>> updates
    {'w': array([-0.5, -0.5])}
    """
    for position, part in enumerate(transformations):
        if not isinstance(part, Optimizer):
            raise TypeError(
                f"fdbr.train.optim.chain: transformation {position} is a {type(part).__name__}, "
                "no Optimizer; give what optim.sgd(…), optim.trace(…) and so on return"
            )

    def init(params: Any) -> Any:
        return tuple(part.init(params) for part in transformations)

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        if not isinstance(state, tuple) or len(state) != len(transformations):
            raise ValueError(
                f"fdbr.train.optim.chain: the state must be a tuple of {len(transformations)} "
                f"states, got {state!r}; make one with optimizer.init(params)"
            )
        states = []
        for part, own in zip(transformations, state, strict=True):
            grads, own = part.update(grads, own, params)
            states.append(own)
        return grads, tuple(states)

    return Optimizer(init, update)
