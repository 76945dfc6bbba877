"""Gradients over several steps: means that fade, and sums."""

from typing import Any

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.ops.dtypes import is_number
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import check_decays
from fdbr.tree import frozen

__all__ = ["ApplyEvery", "EmaState", "apply_every", "ema"]


@public("fdbr.train.optim")
@frozen
class EmaState:
    """The state of `ema`.

    Attributes
    ----------
    count
        The number of updates made.
    ema
        The mean, a tree of the parameters' shape; `None` for what is not trained.
    """

    count: int
    ema: Any


@public_factory("fdbr.train.optim")
def ema(decay: float, debias: bool = True, accumulator_dtype: Any = None) -> Optimizer:
    """An exponential moving average of the gradients.

    Formula, with ``t`` the count of updates, this one included::

        mean = decay * mean + (1 - decay) * gradient
        update = mean / (1 - decay**t)

    Without ``debias`` the update is the mean, which is too near to zero in the first steps.  For
    means of the parameters there is `params_ema`.

    Parameters
    ----------
    decay
        A number in [0, 1).
    debias
        Whether to divide by the sum of the weights.
    accumulator_dtype
        The dtype of the mean; by default that of each parameter.

    Raises
    ------
    ValueError
        If ``decay`` is out of range.

    >>> from fdbr.train import optim
    >>> mean = optim.ema(0.5)
    >>> updates, state = mean.update(4.0, mean.init(0.0))
    >>> updates, mean.update(1.0, state)[0]
    (4.0, 2.0)
    """
    check_decays("ema", decay=decay)

    def update(g: Any, own: Any, p: Any, weight: Any) -> tuple[Any, Any]:
        mean = decay * own[0] + (1 - decay) * g
        return (mean / weight if debias else mean), (mean,)

    return leafwise(
        "ema",
        update,
        lambda p: (zeros(p, accumulator_dtype),),
        state=EmaState,
        numbers=lambda t: 1 - decay**t,
        fits="shape",
    )


@public("fdbr.train.optim")
@frozen
class ApplyEvery:
    """The state of `apply_every`.

    Attributes
    ----------
    count
        The number of updates made.
    grad_acc
        The sum of the gradients since the last one that was applied, a tree of the parameters'
        shape; `None` for what is not trained.
    """

    count: int
    grad_acc: Any


@public_factory("fdbr.train.optim")
def apply_every(k: int = 1) -> Optimizer:
    """Add up gradients, and hand on the sum every ``k`` steps, zeros at the others.

    What stands before it in a chain works at each step; `MultiSteps` leaves a whole optimizer
    alone until the mean of ``k`` gradients is there.

    Parameters
    ----------
    k
        An integer, at least 1.

    Raises
    ------
    ValueError, TypeError
        If it is not.

    >>> from fdbr.train import optim
    >>> every = optim.apply_every(2)
    >>> updates, state = every.update(4.0, every.init(0.0))
    >>> updates, every.update(1.0, state)[0]
    (0.0, 5.0)
    """
    k = integer("fdbr.train.optim.apply_every", "k", k, 1)

    def update(g: Any, own: Any, p: Any, iteration: Any) -> tuple[Any, Any]:
        first, last = iteration
        total = chosen(first, lambda: g, lambda: own[0] + g)
        return chosen(last, lambda: total, lambda: 0 * zeros(g)), (total,)

    return leafwise(
        "apply_every",
        update,
        lambda p: (zeros(p),),
        state=ApplyEvery,
        numbers=lambda t: ((t - 1) % k == 0, t % k == 0),
    )


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """``x()`` if a condition holds, else ``y()``: both are there where it is traced."""
    if not isinstance(condition, Tracer):
        return x() if condition else y()
    yes, no = x(), y()
    if is_number(yes) and is_number(no):
        return yes if condition else no
    return ops.where(condition, yes, no)
