"""A learning rate that falls where a value does no more."""

from typing import Any

import numpy as np

from fdbr import ops, tree
from fdbr.core.array_modules import array_module, lock
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.numbers import check_positive
from fdbr.tree import frozen

__all__ = ["ReduceLROnPlateauState", "reduce_on_plateau"]


@public("fdbr.train.optim")
@frozen
class ReduceLROnPlateauState:
    """The state of `reduce_on_plateau`: arrays without dimensions.

    Attributes
    ----------
    scale
        The factor of the updates.
    best_value
        The least value until now.
    plateau_count
        The number of values since, that were no better.
    cooldown_count
        The number of values that are still to be waited for.
    count, avg_value
        The number of values since one was judged, and their mean.
    """

    scale: Any
    best_value: Any
    plateau_count: Any
    cooldown_count: Any
    count: Any
    avg_value: Any


@public_factory("fdbr.train.optim")
def reduce_on_plateau(
    factor: float = 0.1,
    patience: int = 10,
    rtol: float = 1e-4,
    atol: float = 0.0,
    cooldown: int = 0,
    accumulation_size: int = 1,
    min_scale: float = 0.0,
) -> Optimizer:
    """Scale updates down when a value has stopped to fall; it belongs after an optimizer.

    ``update`` takes the value: ``optimizer.update(grads, state, params, value=loss)``.  Means of
    ``accumulation_size`` values are judged: one is better if it is below
    ``(1 - rtol) * best - atol``.  After ``patience`` that are not, the scale is multiplied by
    ``factor``, and the next ``cooldown`` do not count.

    Parameters
    ----------
    factor
        A number in (0, 1).
    patience, cooldown, accumulation_size
        Integers, at least 1, 0 and 1.
    rtol, atol
        Numbers ≥ 0, not both 0; ``rtol`` at most 1.
    min_scale
        The least scale.

    Returns
    -------
    Optimizer
        Its state is a `ReduceLROnPlateauState`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if there is no value.

    Notes
    -----
    A value of NaN is not better.  PyTorch's ``ReduceLROnPlateau`` waits for one value more than
    its ``patience``.

    >>> from fdbr.train import optim
    >>> optimizer = optim.chain(optim.sgd(1.0), optim.reduce_on_plateau(0.5, patience=2))
    >>> state = optimizer.init(0.0)
    >>> for value in (3.0, 2.0, 2.0, 2.0, 1.0):
    ...     update, state = optimizer.update(1.0, state, 0.0, value=value)
    ...     print(update)
    -1.0
    -1.0
    -1.0
    -0.5
    -0.5
    """
    name = "fdbr.train.optim.reduce_on_plateau"
    patience = integer(name, "patience", patience, 1)
    cooldown = integer(name, "cooldown", cooldown, 0)
    size = integer(name, "accumulation_size", accumulation_size, 1)
    check_positive("reduce_on_plateau", or_zero=True, rtol=rtol, atol=atol, min_scale=min_scale)
    if not 0 < factor < 1:
        raise ValueError(f"{name}: factor must lie in (0, 1), got {factor}")
    if rtol > 1 or (rtol == 0 and atol == 0):
        raise ValueError(
            f"{name}: rtol must be at most 1, and rtol or atol positive, got {rtol} and {atol}"
        )

    def init(params: Any) -> ReduceLROnPlateauState:
        xp = array_module(*tree.leaves(params))
        return _state(*map(xp.asarray, (1.0, np.inf, 0, 0, 0, 0.0)))

    def judged(state: Any, mean: Any) -> Any:
        better = mean < (1 - rtol) * state.best_value - atol
        waited = ops.where(better, 0, state.plateau_count + 1)
        cooling = state.cooldown_count > 0
        over = ops.logical_and(waited == patience, ops.logical_not(cooling))
        left = ops.where(over, cooldown, ops.maximum(state.cooldown_count - 1, 0))
        return (
            ops.maximum(ops.where(over, state.scale * factor, state.scale), min_scale),
            ops.where(better, mean, state.best_value),
            ops.where(ops.logical_or(cooling, over), 0, waited),
            left,
        )

    def update(
        grads: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        check_state("reduce_on_plateau", state, ReduceLROnPlateauState)
        if value is None:
            raise TypeError(
                f"{name}: it needs the value; call update(grads, state, params, value=loss)"
            )
        count = state.count + 1
        mean = (state.count * state.avg_value + _beside(value, state.scale)) / count
        whole = count == size
        before = state.scale, state.best_value, state.plateau_count, state.cooldown_count
        parts = [
            ops.where(whole, new, old) for new, old in zip(judged(state, mean), before, strict=True)
        ]
        new = _state(*parts, ops.where(whole, 0, count), ops.where(whole, 0.0, mean))
        scaling = leafwise(
            "reduce_on_plateau",
            lambda g, own, p, scale: (scale * g, own),
            state=EmptyState,
            numbers=lambda t: new.scale,
        )
        return scaling.update(grads, EmptyState(), params)[0], new

    return Optimizer(init, update)


def _beside(value: Any, there: Any) -> Any:
    """A value as an array that lies where another one does."""
    if isinstance(value, Tracer) or array_module(value) is array_module(there):
        return ops.asarray(value)
    return array_module(there).asarray(float(value))


def _state(*values: Any) -> ReduceLROnPlateauState:
    """A state whose numbers are arrays of the same dtypes at each step."""
    dtypes = ("float64", "float64", "int64", "int64", "int64", "float64")
    return ReduceLROnPlateauState(
        *(
            lock(ops.astype(ops.asarray(value), dtype))
            for value, dtype in zip(values, dtypes, strict=True)
        )
    )
