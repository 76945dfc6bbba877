"""Means of parameters, for evaluation, and copies that follow slowly."""

from collections.abc import Callable
from typing import Any

import optree

from fdbr import ops, tree
from fdbr.core.array_modules import lock
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.pytrees.classes import NAMESPACE
from fdbr.pytrees.structure import is_inexact
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_params, check_state
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import check_decays, check_positive
from fdbr.train.optim.transforms.accumulating import chosen
from fdbr.tree import frozen

__all__ = [
    "ParamsEmaState",
    "averaged_params",
    "incremental_update",
    "params_ema",
    "periodic_update",
]


@public("fdbr.train.optim")
@frozen
class ParamsEmaState:
    """The state of `params_ema`.

    Attributes
    ----------
    count
        The number of updates made.
    weight
        The sum of the weights of all parameters in the mean.
    ema
        The weighted sum of the parameters, in float32 of those of 16 bits; `None` for what is not
        trained.
    """

    count: int
    weight: Any
    ema: Any


@public_factory("fdbr.train.optim")
def params_ema(decay: float | Callable[[Any], Any], debias: bool = True) -> Optimizer:
    """A moving average of the parameters; it belongs at the end of a chain.

    Updates pass unchanged.  Formula, with ``new = parameter + update``::

        ema = decay * ema + (1 - decay) * new
        weight = decay * weight + (1 - decay)

    `averaged_params` gives ``ema / weight``, with which the model is evaluated.

    Parameters
    ----------
    decay
        A number in [0, 1), or a function from the count of updates made before to one:
        ``lambda count: count / (count + 1)`` gives the plain mean of all parameters (Polyak and
        Juditsky 1992).
    debias
        Whether the mean is of the parameters after updates alone; otherwise it begins with those
        before the first one, of weight 1.

    Returns
    -------
    Optimizer
        Its state is a `ParamsEmaState`.

    Raises
    ------
    ValueError
        If ``decay`` is out of range.
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), optim.params_ema(0.5))
    >>> params, state = 8.0, optimizer.init(8.0)
    >>> for _ in range(2):
    ...     updates, state = optimizer.update(2.0, state, params)
    ...     params = optim.apply_updates(params, updates)
    >>> params, round(optim.averaged_params(state, params), 9)  # (2 * 4 + 6) / 3
    (4.0, 4.666666667)
    """
    if not callable(decay):
        check_decays("params_ema", decay=decay)
    schedule = decay if callable(decay) else lambda count: decay

    def first(p: Any) -> tuple[Any]:
        start = zeros(p, "float32" if getattr(p, "itemsize", 8) <= 2 else None)
        return (start,) if debias else (start + p,)

    def average(g: Any, own: Any, p: Any, decay: Any) -> tuple[Any, Any]:
        return g, (decay * own[0] + (1 - decay) * (p + g),)

    def init(params: Any) -> ParamsEmaState:
        mean = leafwise("params_ema", average, first, state=_Mean, fits="shape").init(params)
        return ParamsEmaState(0, 0.0 if debias else 1.0, mean.ema)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("params_ema", state, ParamsEmaState)
        check_params("params_ema", params)
        part = schedule(state.count)
        averaging = leafwise(
            "params_ema", average, first, state=_Mean, numbers=lambda t: part, fits="shape"
        )
        updates, mean = averaging.update(grads, _Mean(state.ema), params)
        weight = part * state.weight + (1 - part)
        return updates, ParamsEmaState(state.count + 1, weight, mean.ema)

    return Optimizer(init, update)


@frozen
class _Mean:
    ema: Any


@public("fdbr.train.optim")
def averaged_params(state: Any, params: Any) -> Any:
    """The parameters with their moving averages in the place of what is trained.

    Parameters
    ----------
    state
        A state with that of `params_ema` somewhere in it.
    params
        The parameters; what is not trained of them (buffers, integers, what is masked) is that of
        the result.  Before the first update they are returned as they are.

    Returns
    -------
    tree
        Its arrays are read-only, and of the parameters' dtypes.

    Raises
    ------
    ValueError
        If there is no such state, or more than one, or it is of other parameters.

    >>> from fdbr.train import optim
    >>> optim.averaged_params(optim.params_ema(0.9).init({"w": 2.0}), {"w": 2.0})
    {'w': 2.0}
    """

    def is_mean(node: Any) -> bool:
        return isinstance(node, ParamsEmaState)

    found = [n for n in optree.tree_leaves(state, is_mean, namespace=NAMESPACE) if is_mean(n)]
    if len(found) != 1:
        raise ValueError(
            f"fdbr.train.optim.averaged_params: the state has {len(found)} means of parameters in "
            "it, not one; put optim.params_ema(decay) at the end of the chain"
        )
    (mean,) = found
    if mean.weight == 0:
        return params

    def averaged(p: Any, total: Any) -> Any:
        if total is None:
            return p
        value = total / mean.weight
        dtype = getattr(p, "dtype", None)
        return value if dtype is None else lock(ops.astype(value, dtype))

    return tree.map(averaged, params, mean.ema)


@public("fdbr.train.optim")
def incremental_update(new_tensors: Any, old_tensors: Any, step_size: float) -> Any:
    """A mean of two trees: a slow copy of parameters takes a step towards them.

    Formula: ``step_size * new + (1 - step_size) * old`` (Polyak averaging).

    Parameters
    ----------
    new_tensors, old_tensors
        Trees of one structure.  Leaves that are not floating or complex are those of
        ``new_tensors``.
    step_size
        A number, in [0, 1].

    Returns
    -------
    tree
        Its arrays are read-only, and of the dtypes of ``old_tensors``.

    Raises
    ------
    ValueError
        If the structures differ, or ``step_size`` is negative.

    >>> from fdbr.train import optim
    >>> optim.incremental_update({"w": 2.0, "n": 3}, {"w": 0.0, "n": 1}, 0.25)
    {'w': 0.5, 'n': 3}
    """
    check_positive("incremental_update", or_zero=True, step_size=step_size)

    def moved(new: Any, old: Any) -> Any:
        if old is None or not is_inexact(new):
            return new
        value = step_size * new + (1 - step_size) * old
        dtype = getattr(old, "dtype", None) if is_inexact(old) else None
        return lock(value) if dtype is None else lock(ops.astype(value, dtype))

    return tree.map(moved, new_tensors, old_tensors)


@public("fdbr.train.optim")
def periodic_update(new_tensors: Any, old_tensors: Any, steps: int, update_period: int) -> Any:
    """The new tree every so many steps, the old one between.

    Parameters
    ----------
    new_tensors, old_tensors
        Trees of one structure.
    steps
        The count of steps, a number or a traced one.
    update_period
        The new tree is taken where ``steps % update_period == 0``.

    Returns
    -------
    tree

    Raises
    ------
    ValueError
        If the structures differ.

    >>> from fdbr.train import optim
    >>> [optim.periodic_update([1.0], [0.0], steps, 2) for steps in (3, 4)]
    [[0.0], [1.0]]
    """
    now = steps % update_period == 0

    def taken(new: Any, old: Any) -> Any:
        return chosen(now, lambda: new, lambda: old)

    return tree.map(taken, new_tensors, old_tensors)
