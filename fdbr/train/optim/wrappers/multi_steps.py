"""One step of an optimizer for several gradients: large batches in parts."""

from collections.abc import Callable
from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state, in_dtypes_of
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.masking import check_inner
from fdbr.train.optim.transforms.clipping import global_norm
from fdbr.train.optim.wrappers.finite import nothing
from fdbr.tree import frozen, static

__all__ = ["MultiSteps", "MultiStepsState", "skip_large_updates", "skip_not_finite"]


@public("fdbr.train.optim")
@frozen
class MultiStepsState:
    """The state of `MultiSteps`.

    Attributes
    ----------
    mini_step
        The number of gradients since the last step of the optimizer.
    gradient_step
        The number of steps that the optimizer has made.
    inner_opt_state
        Its state, as its last step left it.
    acc_grads
        The mean, or the sum, of the gradients since; `None` for what is not trained.
    skip_state
        What the function that skips has to tell of the last gradient.
    """

    mini_step: int
    gradient_step: int
    inner_opt_state: Any
    acc_grads: Any
    skip_state: Any = ()


@public("fdbr.train.optim")
@frozen
class MultiSteps:
    """An optimizer that makes a step for the mean of several gradients.

    Updates are zero until the gradients are there.  It is used as an optimizer is, by ``init`` and
    ``update``; ``gradient_transformation()`` makes one of it that stands in a `chain`.

    Attributes
    ----------
    opt
        The optimizer.
    every_k_schedule
        The number of gradients for a step: an integer, or a function from the number of steps
        made before to one.
    use_grad_mean
        Whether it is the mean of the gradients, and not their sum.
    should_skip_update_fn
        ``f(gradients, gradient_step, params) -> (skip, state)``: gradients for which ``skip`` is
        true count as if they had never been.  There are `skip_not_finite` and
        `skip_large_updates`.
    accumulator_dtype
        The dtype of the mean; by default float32 for gradients of 16 bits, else their own.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these.

    >>> import numpy as np
    >>> from fdbr.train import optim
    >>> optimizer = optim.MultiSteps(optim.sgd(0.5), every_k_schedule=2)
    >>> params = np.zeros(2)
    >>> state = optimizer.init(params)
    >>> for grads in np.array([1.0, 3.0]), np.array([3.0, 1.0]):
    ...     updates, state = optimizer.update(grads, state, params)
    ...     print(updates, bool(optimizer.has_updated(state)))
    [0. 0.] False
    [-1. -1.] True
    """

    opt: Any = static()
    every_k_schedule: int | Callable[[Any], Any] = static()
    use_grad_mean: bool = static(default=True)
    should_skip_update_fn: Callable[..., tuple[Any, Any]] | None = static(default=None)
    accumulator_dtype: Any = static(default=None)

    def __attrs_post_init__(self) -> None:
        check_inner("MultiSteps", self.opt)
        if not callable(self.every_k_schedule):
            integer("fdbr.train.optim.MultiSteps", "every_k_schedule", self.every_k_schedule, 1)

    @property
    def inner_opt(self) -> Any:
        """The optimizer."""
        return self.opt

    def init(self, params: Any) -> MultiStepsState:
        """The first state."""
        trained = tree.trainable(params)
        means = tree.map(lambda leaf: lock(zeros(leaf, self._dtype_for(leaf))), trained)
        _, skip_state = self._skipped(nothing(trained), 0, params)
        return MultiStepsState(0, 0, self.opt.init(params), means, skip_state)

    def update(
        self, updates: Any, state: MultiStepsState, params: Any = None, **extra: Any
    ) -> tuple[Any, MultiStepsState]:
        """Updates, which are zero while gradients are missing, and the next state."""
        check_state("MultiSteps", state, MultiStepsState)
        updates = in_dtypes_of("MultiSteps", params, updates)
        done, step = state.mini_step, state.gradient_step
        skip, skip_state = self._skipped(updates, step, params)
        if skip:
            kept = MultiStepsState(done, step, state.inner_opt_state, state.acc_grads, skip_state)
            return nothing(updates), kept
        _, added = self._adding(done).update(updates, _Sum(state.acc_grads), params)
        every = self.every_k_schedule
        if done + 1 < (every(step) if callable(every) else every):
            new = MultiStepsState(done + 1, step, state.inner_opt_state, added.total, skip_state)
            return nothing(updates), new
        whole = tree.map(_in_dtype_of, updates, added.total)
        updates, inner = self.opt.update(whole, state.inner_opt_state, params, **extra)
        return updates, MultiStepsState(0, step + 1, inner, nothing(added.total), skip_state)

    def has_updated(self, state: MultiStepsState) -> Any:
        """Whether the last update was a step of the optimizer."""
        return ops.logical_and(state.mini_step == 0, state.gradient_step > 0)

    def gradient_transformation(self) -> Optimizer:
        """The same as an `Optimizer`."""
        return Optimizer(self.init, self.update)

    def _dtype_for(self, leaf: Any) -> Any:
        if self.accumulator_dtype is not None:
            return self.accumulator_dtype
        return "float32" if getattr(leaf, "itemsize", 8) <= 2 else None

    def _skipped(self, updates: Any, step: Any, params: Any) -> tuple[Any, Any]:
        if self.should_skip_update_fn is None:
            return False, ()
        return self.should_skip_update_fn(updates, step, params)

    def _adding(self, done: Any) -> Optimizer:
        """A transformation that adds gradients to a mean of so many, or to a sum."""

        def add(g: Any, own: Any, p: Any, done: Any) -> tuple[Any, Any]:
            total = own[0] + ((g - own[0]) / (done + 1) if self.use_grad_mean else g)
            return g, (total,)

        return leafwise(
            "MultiSteps", add, lambda p: (p,), state=_Sum, numbers=lambda t: done, fits="shape"
        )


@frozen
class _Sum:
    total: Any


def _in_dtype_of(g: Any, total: Any) -> Any:
    dtype = getattr(g, "dtype", None)
    same = dtype is None or getattr(total, "dtype", dtype) == dtype  # a number has none
    return total if same else lock(ops.astype(total, dtype))


# --- gradients to skip --------------------------------------------------------------


@public("fdbr.train.optim")
def skip_not_finite(updates: Any, gradient_step: Any, params: Any) -> tuple[Any, Any]:
    """Skip gradients with an element that is infinite or NaN: for `MultiSteps`.

    Parameters
    ----------
    updates
        The gradients.
    gradient_step, params
        Not used.

    Returns
    -------
    bool, dict
        Whether to skip them, and that again with ``num_not_finite``, the number of such elements.

    >>> from fdbr.train import optim
    >>> bool(optim.skip_not_finite([1.0, float("inf")], 0, None)[0])
    True
    """
    count: Any = 0
    for leaf in tree.leaves(updates):
        count = count + ops.sum(ops.logical_not(ops.isfinite(ops.asarray(leaf))))
    skip = count > 0
    return skip, {"should_skip": skip, "num_not_finite": count}


@public("fdbr.train.optim")
def skip_large_updates(
    updates: Any, gradient_step: Any, params: Any, max_squared_norm: float
) -> tuple[Any, Any]:
    """Skip gradients whose norm, all together, is too large or NaN: for `MultiSteps`.

    Parameters
    ----------
    updates
        The gradients.
    gradient_step, params
        Not used.
    max_squared_norm
        The least square of the norm that is too large; give it with `functools.partial`.

    Returns
    -------
    bool, dict
        Whether to skip them, and that again with ``norm_squared``.

    >>> from fdbr.train import optim
    >>> bool(optim.skip_large_updates([3.0, 4.0], 0, None, max_squared_norm=20.0)[0])
    True
    """
    squared = global_norm(updates) ** 2
    skip = ops.logical_not(squared < max_squared_norm)
    return skip, {"should_skip": skip, "norm_squared": squared}
