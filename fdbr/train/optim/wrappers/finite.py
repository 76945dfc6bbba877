"""Updates that are skipped: where something is not finite, or at some steps."""

from collections.abc import Callable
from typing import Any

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.masking import check_inner
from fdbr.train.optim.transforms.stateless import nothing_like
from fdbr.tree import frozen

__all__ = [
    "ApplyIfFiniteState",
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "all_finite",
    "apply_if_finite",
    "conditionally_mask",
    "conditionally_transform",
    "nothing",
]


@public("fdbr.train.optim")
def all_finite(values: Any) -> Any:
    """Whether no element of a tree is infinite or NaN.

    Parameters
    ----------
    values
        A tree of arrays and numbers; `None` is passed by.

    Returns
    -------
    bool
        Traced, where a leaf is.

    Raises
    ------
    TypeError
        If a leaf is no array or number.

    >>> from fdbr.train import optim
    >>> bool(optim.all_finite({"w": 1.0, "b": float("nan")}))
    False
    """
    found: Any = True
    for leaf in tree.leaves(values):
        own = ops.all(ops.isfinite(leaf))
        found = own if found is True else ops.logical_and(found, own)
    return found


def nothing(values: Any) -> Any:
    """A tree of zeros; `None` where there is `None`."""
    return tree.map(lambda leaf: lock(nothing_like(leaf)), values)


@public("fdbr.train.optim")
@frozen
class ApplyIfFiniteState:
    """The state of `apply_if_finite`.

    Attributes
    ----------
    notfinite_count
        The number of updates skipped one after the other until now.
    last_finite
        Whether the last update was finite.
    total_notfinite
        The number of updates that were not finite.
    inner_state
        The state of the optimizer, as its last update left it.
    """

    notfinite_count: int
    last_finite: bool
    total_notfinite: int
    inner_state: Any


@public_factory("fdbr.train.optim")
def apply_if_finite(inner: Optimizer, max_consecutive_errors: int) -> Optimizer:
    """Skip updates that are not finite.

    If a gradient, or an update that the optimizer makes of finite gradients, is infinite or NaN
    somewhere, the update is zero everywhere, and the optimizer's state stays as it was.

    Parameters
    ----------
    inner
        An optimizer.
    max_consecutive_errors
        The number of updates one after the other, at least 0, that may be skipped; the next one is
        applied, not finite as it is, so that a run that is lost comes to an end.

    Returns
    -------
    Optimizer
        Its state is an `ApplyIfFiniteState`.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these.

    Notes
    -----
    Python decides, so a jitted step has a program for each of the two ways; on a GPU it waits for
    the gradients.

    >>> from fdbr.train import optim
    >>> optimizer = optim.apply_if_finite(optim.sgd(0.1), 5)
    >>> updates, state = optimizer.update([1.0, float("inf")], optimizer.init([2.0, 3.0]))
    >>> updates, state.notfinite_count, optimizer.update([1.0, 1.0], state)[0]
    ([0.0, 0.0], 1, [-0.1, -0.1])
    """
    check_inner("apply_if_finite", inner)
    name = "fdbr.train.optim.apply_if_finite"
    most = integer(name, "max_consecutive_errors", max_consecutive_errors, 0)

    def init(params: Any) -> ApplyIfFiniteState:
        return ApplyIfFiniteState(0, True, 0, inner.init(params))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("apply_if_finite", state, ApplyIfFiniteState)
        total = state.total_notfinite
        if all_finite(grads):
            updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
            if all_finite(updates):
                return updates, ApplyIfFiniteState(0, True, total, inner_state)
        skipped = state.notfinite_count + 1
        if skipped > most:
            updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
            return updates, ApplyIfFiniteState(skipped, False, total + 1, inner_state)
        return nothing(grads), ApplyIfFiniteState(skipped, False, total + 1, state.inner_state)

    return Optimizer(init, update)


@public("fdbr.train.optim")
@frozen
class ConditionallyTransformState:
    """The state of `conditionally_transform`.

    Attributes
    ----------
    inner_state
        The state of the transformation, as its last update left it.
    step
        The number of updates made, with those at which it was not asked.
    """

    inner_state: Any
    step: int


@public("fdbr.train.optim")
@frozen
class ConditionallyMaskState:
    """The state of `conditionally_mask`.

    Attributes
    ----------
    step
        The number of updates made, with those at which it was not asked.
    inner_state
        The state of the transformation, as its last update left it.
    """

    step: int
    inner_state: Any


@public_factory("fdbr.train.optim")
def conditionally_transform(
    inner: Optimizer, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> Optimizer:
    """A transformation at some steps; at the others, gradients are handed on as they are.

    Parameters
    ----------
    inner
        An optimizer or transformation; its state stays as it was at the other steps.
    should_transform_fn
        A function from the count of updates made before to a truth value.
    forward_extra_args
        Whether that function is given the keywords of ``update``, too.

    Raises
    ------
    TypeError
        If ``inner`` is no `Optimizer`.

    >>> from fdbr.train import optim
    >>> odd = optim.conditionally_transform(optim.scale(2.0), lambda step: step % 2 == 1)
    >>> updates, state = odd.update(1.0, odd.init(0.0))
    >>> updates, odd.update(1.0, state)[0]
    (1.0, 2.0)
    """
    name, kind = "conditionally_transform", ConditionallyTransformState
    return _conditional(name, kind, inner, should_transform_fn, forward_extra_args, lambda g: g)


@public_factory("fdbr.train.optim")
def conditionally_mask(
    inner: Optimizer, should_transform_fn: Callable[..., Any], forward_extra_args: bool = False
) -> Optimizer:
    """A transformation at some steps; at the others, updates are zero.

    Parameters
    ----------
    inner, should_transform_fn, forward_extra_args
        Those of `conditionally_transform`.

    Raises
    ------
    TypeError
        If ``inner`` is no `Optimizer`.

    >>> from fdbr.train import optim
    >>> odd = optim.conditionally_mask(optim.scale(2.0), lambda step: step % 2 == 1)
    >>> updates, state = odd.update(1.0, odd.init(0.0))
    >>> updates, odd.update(1.0, state)[0]
    (0.0, 2.0)
    """
    name, kind = "conditionally_mask", ConditionallyMaskState
    return _conditional(name, kind, inner, should_transform_fn, forward_extra_args, nothing)


def _conditional(
    name: str,
    kind: Any,
    inner: Optimizer,
    should: Callable[..., Any],
    forward: bool,
    otherwise: Callable[[Any], Any],
) -> Optimizer:
    check_inner(name, inner)

    def init(params: Any) -> Any:
        return kind(step=0, inner_state=inner.init(params))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state(name, state, kind)
        if should(state.step, **(extra if forward else {})):
            updates, inner_state = inner.update(grads, state.inner_state, params, **extra)
        else:
            updates, inner_state = otherwise(grads), state.inner_state
        return updates, kind(step=state.step + 1, inner_state=inner_state)

    return Optimizer(init, update)
