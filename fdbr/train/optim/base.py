"""The `Optimizer` type, and how optimizers are composed."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import name_of
from fdbr.errors.public import public
from fdbr.pytrees.short_repr import brief
from fdbr.tree import frozen, static

__all__ = ["EmptyState", "GradientTransformation", "Optimizer", "chain", "identity"]


def _extended(update: Any) -> Any:
    """An update function that takes further keywords: those it does not know, it does not get."""
    if not callable(update):
        raise TypeError(
            "fdbr.train.optim.Optimizer: update must be a function "
            f"update(grads, state, params=None, **extra), got {update!r}"
        )
    try:
        parameters = inspect.signature(update).parameters.values()
    except (TypeError, ValueError):  # it does not tell
        return update
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return update
    known = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}

    def extended(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        return update(grads, state, params, **{k: v for k, v in extra.items() if k in known})

    made: Any = functools.update_wrapper(extended, update)
    del made.__wrapped__  # its signature is its own
    return made


@public("fdbr.train.optim")
@frozen
class Optimizer:
    """A pair of pure functions.

    A gradient transformation (a rescaling, a running mean) is the same pair, and
    `GradientTransformation` another name of this class: an optimizer is one whose updates are
    meant to be added to the parameters.

    Attributes
    ----------
    init
        ``init(params) -> state``.
    update
        ``update(grads, state, params=None, **extra) -> (updates, state)``: the updates are a tree
        of the parameters' shape; where the gradient is `None`, so is the update.  Some rules need
        more, and get it by keyword: ``value`` (of the objective, at ``params``), ``grad`` and
        ``value_fn``.  A function of three arguments is as good; it does not see what it does not
        take.

    See Also
    --------
    fdbr.train.optim.leafwise : makes one from a rule for a single array.

    >>> import fdbr
    >>> descent = Optimizer(
    ...     init=lambda params: (),
    ...     update=lambda grads, state, params: (fdbr.tree.map(lambda g: -g, grads), state),
    ... )
    >>> descent.update([2.0, None], descent.init([1.0, 1]), [1.0, 1], value=3.0)
    ([-2.0, None], ())
    """

    init: Callable[[Any], Any] = static(repr=name_of)
    update: Callable[..., tuple[Any, Any]] = static(repr=name_of, converter=_extended)


GradientTransformation = Optimizer


@public("fdbr.train.optim")
@frozen
class EmptyState:
    """The state of a transformation that keeps nothing."""


@public_factory("fdbr.train.optim")
def identity() -> Optimizer:
    """Gradients as they are.

    >>> identity().update(4.0, identity().init(0.0))
    (4.0, EmptyState())
    """

    def init(params: Any) -> EmptyState:
        return EmptyState()

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return grads, state

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def chain(*transformations: Optimizer) -> Optimizer:
    """Gradient transformations one after the other.

    Parameters
    ----------
    transformations
        Each is given the updates of the one before as its gradients, and all further keywords
        (``value`` …).

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
        if not all(callable(getattr(part, name, None)) for name in ("init", "update")):
            raise TypeError(
                f"fdbr.train.optim.chain: transformation {position} is a {type(part).__name__}, "
                "no Optimizer; give what optim.sgd(…), optim.trace(…) and so on return"
            )

    def init(params: Any) -> Any:
        return tuple(part.init(params) for part in transformations)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if not isinstance(state, tuple) or len(state) != len(transformations):
            raise ValueError(
                f"fdbr.train.optim.chain: the state must be a tuple of {len(transformations)} "
                f"states, got {brief(state)}; make one with optimizer.init(params), and call "
                "update(grads, state, params)"
            )
        states = []
        for part, own in zip(transformations, state, strict=True):
            grads, own = part.update(grads, own, params, **extra)
            states.append(own)
        return grads, tuple(states)

    return Optimizer(init, update)
