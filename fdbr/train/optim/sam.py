"""Sharpness-aware minimization."""

from collections.abc import Callable
from typing import Any

from fdbr import tree
from fdbr.core.array_modules import keep
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.apply import apply_updates
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_params, check_state
from fdbr.train.optim.leafwise import across
from fdbr.train.optim.transforms.clipping import by_global_norm
from fdbr.tree import frozen

__all__ = ["SAMState", "normalize", "sam"]


@public_factory("fdbr.train.optim")
def normalize() -> Optimizer:
    """Divide gradients by their norm, of all of them together.

    Formula: ``update = gradient / norm(gradients)``.

    >>> normalize().update([3.0, 4.0], normalize().init([0.0, 0.0]))[0]
    [0.6, 0.8]
    """
    return by_global_norm("normalize", lambda g, norm: g / norm)


@public("fdbr.train.optim")
@frozen
class SAMState:
    """The state of `sam`.

    Attributes
    ----------
    steps_since_sync
        The number of updates since the last that was meant to stay.
    opt_state, adv_state
        Those of both optimizers.
    cache
        The parameters to go back to, `None` in the opaque mode.
    """

    steps_since_sync: int
    opt_state: Any
    adv_state: Any
    cache: Any


@public_factory("fdbr.train.optim")
def sam(
    optimizer: Optimizer,
    adv_optimizer: Optimizer,
    sync_period: int = 2,
    reset_state: bool = True,
    opaque_mode: bool = False,
) -> Optimizer:
    """Sharpness-aware minimization (Foret et al., ICLR 2021).

    ``sync_period - 1`` steps go uphill, by ``adv_optimizer``; the gradient that is found there
    moves the parameters from which they began, by ``optimizer``.

    In the usual mode each step of yours is one of these, on the same batch or the next, and every
    ``sync_period``-th arrives at new parameters.  In the opaque mode one step is all of them, and
    ``update`` is given ``grad_fn``.

    Parameters
    ----------
    optimizer
        The optimizer that makes progress.
    adv_optimizer
        The one that goes uphill; the paper's is ``chain(normalize(), sgd(rho))``.
    sync_period
        The number of gradients for one step of progress, at least 1.
    reset_state
        Whether the state of ``adv_optimizer`` begins anew after each.
    opaque_mode
        Whether ``update`` does all in one, with ``grad_fn(params, i) -> gradients``.

    Raises
    ------
    ValueError, TypeError
        If ``sync_period`` is less than 1; by ``update``, if it lacks the parameters, or in the
        opaque mode ``grad_fn``.

    >>> from fdbr.train import optim
    >>> uphill = optim.chain(optim.normalize(), optim.sgd(0.5))
    >>> optimizer = optim.sam(optim.sgd(0.1), uphill, opaque_mode=True)
    >>> slope = lambda params, i: 2 * params
    >>> float(optimizer.update(2.0, optimizer.init(1.0), 1.0, grad_fn=slope)[0])
    -0.30000000000000004
    """
    if sync_period < 1:
        raise ValueError(f"fdbr.train.optim.sam: sync_period must be at least 1, got {sync_period}")

    def init(params: Any) -> SAMState:
        cache = None if opaque_mode else tree.map(keep, tree.trainable(params))
        return SAMState(0, optimizer.init(params), adv_optimizer.init(params), cache)

    def uphill(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        down, state = adv_optimizer.update(grads, state, params)
        return across("sam", lambda u, own, p, t: (-u, own), down, params)[0], state

    def update(
        grads: Any,
        state: Any,
        params: Any = None,
        *,
        grad_fn: Callable[..., Any] | None = None,
        **extra: Any,
    ) -> tuple[Any, Any]:
        check_state("sam", state, SAMState)
        check_params("sam", params)
        if opaque_mode:
            return opaque(grads, state, params, grad_fn, extra)
        count, adversary = state.steps_since_sync, state.adv_state
        cache = tree.map(keep, tree.trainable(params)) if count == 0 else state.cache
        if (count + 1) % sync_period:  # one of two traces in a jitted step
            updates, adversary = uphill(grads, adversary, params)
            return updates, SAMState(count + 1, state.opt_state, adversary, cache)
        start = tree.combine(cache, params)
        steps, inner = optimizer.update(grads, state.opt_state, start, **extra)
        updates, _ = across("sam", lambda u, own, p, t: (own[0] - p + u, own), steps, params, start)
        if reset_state:
            adversary = adv_optimizer.init(params)
        return updates, SAMState(0 * count, inner, adversary, cache)

    def opaque(grads: Any, state: Any, params: Any, grad_fn: Any, extra: Any) -> tuple[Any, Any]:
        if grad_fn is None:
            raise TypeError(
                "fdbr.train.optim.sam: in the opaque mode it needs gradients at other parameters; "
                "call update(grads, state, params, grad_fn=lambda params, i: …)"
            )
        at, adversary = params, state.adv_state
        for i in range(sync_period - 1):
            updates, adversary = uphill(grads, adversary, at)
            at = apply_updates(at, updates)
            grads = grad_fn(at, i)
        if reset_state:
            adversary = adv_optimizer.init(params)
        updates, inner = optimizer.update(grads, state.opt_state, params, **extra)
        return updates, SAMState(state.steps_since_sync, inner, adversary, None)

    return Optimizer(init, update)
