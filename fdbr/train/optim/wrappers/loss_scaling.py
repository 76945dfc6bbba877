"""Losses that are scaled, so that gradients in float16 do not vanish."""

from typing import Any

import optree

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.masking import check_inner
from fdbr.train.optim.schedules.base import choose
from fdbr.train.optim.wrappers.finite import all_finite, nothing
from fdbr.tree import frozen, static

__all__ = ["DynamicLossScale", "LossScaleState", "dynamic_loss_scale", "scale_loss"]


@public("fdbr.train.optim")
@frozen
class DynamicLossScale:
    """A factor for losses that grows until gradients overflow (Micikevicius et al., ICLR 2018).

    It is a pure state: `adjusted` gives the next one.  `dynamic_loss_scale` puts it around an
    optimizer.

    Attributes
    ----------
    scale
        The factor, a power of two if it is to be exact.
    good_steps
        The number of steps since it changed.
    growth_interval
        The number of good steps after which it grows.
    growth_factor, backoff_factor
        The factors by which it grows, and after an overflow falls.
    min_scale, max_scale
        Its bounds.

    Raises
    ------
    ValueError, TypeError
        If a number is out of range.

    >>> from fdbr.train import optim
    >>> scale = optim.DynamicLossScale(8.0, growth_interval=2)
    >>> scale.scale_loss(0.5), scale.unscale([4.0, None])
    (4.0, [0.5, None])
    >>> scale.adjusted(False).scale, scale.adjusted(True).adjusted(True).scale
    (4.0, 16.0)
    """

    scale: Any = 2.0**15
    good_steps: Any = 0
    growth_interval: int = static(default=2000)
    growth_factor: float = static(default=2.0)
    backoff_factor: float = static(default=0.5)
    min_scale: float = static(default=1.0)
    max_scale: float = static(default=2.0**24)

    def __attrs_post_init__(self) -> None:
        name = "fdbr.train.optim.DynamicLossScale"
        integer(name, "growth_interval", self.growth_interval, 1)
        if not self.growth_factor >= 1 or not 0 < self.backoff_factor <= 1:
            raise ValueError(
                f"{name}: growth_factor must be at least 1 and backoff_factor in (0, 1], got "
                f"{self.growth_factor} and {self.backoff_factor}"
            )
        if not 0 < self.min_scale <= self.max_scale:
            raise ValueError(
                f"{name}: min_scale must be positive and at most max_scale, got {self.min_scale} "
                f"and {self.max_scale}"
            )

    def scale_loss(self, loss: Any) -> Any:
        """The loss times the factor, in float32 if it has 16 bits."""
        if getattr(loss, "itemsize", 8) <= 2:
            loss = ops.astype(loss, "float32")
        return self.scale * loss

    def unscale(self, grads: Any) -> Any:
        """Gradients divided by the factor."""
        factor = 1 / self.scale
        made = leafwise(
            "DynamicLossScale",
            lambda g, own, p, t: (t * g, own),
            state=EmptyState,
            numbers=lambda t: factor,
        )
        updates: Any = made.update(grads, EmptyState())[0]
        return updates

    def adjusted(self, finite: Any) -> "DynamicLossScale":
        """The factor for the next step, by whether the gradients of this one were finite."""
        if finite:
            good = self.good_steps + 1
            grown = good >= self.growth_interval
            more = ops.minimum(self.scale * self.growth_factor, self.max_scale)
            return self._with(choose(grown, more, self.scale), choose(grown, 0, good))
        return self._with(ops.maximum(self.scale * self.backoff_factor, self.min_scale), 0)

    def _with(self, scale: Any, good_steps: Any) -> "DynamicLossScale":
        return DynamicLossScale(
            scale,
            good_steps,
            self.growth_interval,
            self.growth_factor,
            self.backoff_factor,
            self.min_scale,
            self.max_scale,
        )


@public("fdbr.train.optim")
@frozen
class LossScaleState:
    """The state of `dynamic_loss_scale`.

    Attributes
    ----------
    loss_scale
        The factor for the next loss, a `DynamicLossScale`.
    skipped
        The number of updates that were skipped.
    inner_state
        The state of the optimizer, as its last update left it.
    """

    loss_scale: DynamicLossScale
    skipped: int
    inner_state: Any


@public_factory("fdbr.train.optim")
def dynamic_loss_scale(
    inner: Optimizer,
    init_scale: float = 2.0**15,
    growth_interval: int = 2000,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    min_scale: float = 1.0,
    max_scale: float = 2.0**24,
) -> Optimizer:
    """An optimizer for losses that are scaled (Micikevicius et al., ICLR 2018).

    Differentiate ``scale_loss(state, loss)``, and give ``update`` those gradients.  It divides them
    by the factor.  Are they finite, the optimizer makes its step, and the factor grows after
    ``growth_interval`` such steps; else the update is zero, the optimizer's state stays as it was,
    and the factor falls.

    Parameters
    ----------
    inner
        An optimizer.
    init_scale
        The first factor; in a loss of float16, more than 2**15 overflows.
    growth_interval, growth_factor, backoff_factor, min_scale, max_scale
        Those of `DynamicLossScale`.

    Returns
    -------
    Optimizer
        Its state is a `LossScaleState`.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these.

    Notes
    -----
    Keep parameters in float32 and cast them to float16 in the loss: then gradients arrive in
    float32, where dividing loses nothing.

    >>> import fdbr
    >>> from fdbr import ops
    >>> from fdbr.train import optim
    >>> import numpy as np
    >>> optimizer = optim.dynamic_loss_scale(optim.sgd(1.0))
    >>> def loss(w):
    ...     return (ops.astype(w, "float16") ** 2 * 1e-4).sum()
    >>> w = np.array([1e-3], "float32")
    >>> state = optimizer.init(w)
    >>> fdbr.grad(loss)(w)  # it has lost its digits
    array([1.7881393e-07], dtype=float32)
    >>> grads = fdbr.grad(lambda w: optim.scale_loss(state, loss(w)))(w)
    >>> optimizer.update(grads, state, w)[0]
    array([-2.0011794e-07], dtype=float32)
    """
    check_inner("dynamic_loss_scale", inner)
    first = DynamicLossScale(
        float(init_scale), 0, growth_interval, growth_factor, backoff_factor, min_scale, max_scale
    )

    def init(params: Any) -> LossScaleState:
        return LossScaleState(first, 0, inner.init(params))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("dynamic_loss_scale", state, LossScaleState)
        scale = state.loss_scale
        grads = scale.unscale(grads)
        if all_finite(grads):
            updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
            return updates, LossScaleState(scale.adjusted(True), state.skipped, inner_state)
        skipped = state.skipped + 1
        return nothing(grads), LossScaleState(scale.adjusted(False), skipped, state.inner_state)

    return Optimizer(init, update)


@public("fdbr.train.optim")
def scale_loss(state: Any, loss: Any) -> Any:
    """A loss times the factor in an optimizer's state.

    Parameters
    ----------
    state
        A state with that of `dynamic_loss_scale` somewhere in it.
    loss
        A number or an array.

    Returns
    -------
    array
        In float32 if the loss has 16 bits.

    Raises
    ------
    ValueError
        If there is no such state, or more than one.

    >>> from fdbr.train import optim
    >>> optimizer = optim.chain(optim.dynamic_loss_scale(optim.sgd(1.0), 8.0))
    >>> optim.scale_loss(optimizer.init(0.0), 0.5)
    4.0
    """
    found = [
        node
        for node in optree.tree_leaves(
            state, lambda node: isinstance(node, DynamicLossScale), namespace=NAMESPACE
        )
        if isinstance(node, DynamicLossScale)
    ]
    if len(found) != 1:
        raise ValueError(
            f"fdbr.train.optim.scale_loss: the state has {len(found)} scales of losses in it, not "
            "one; give the state of optim.dynamic_loss_scale(optimizer)"
        )
    return found[0].scale_loss(loss)
