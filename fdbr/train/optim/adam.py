"""Adam."""

from typing import Any

import numpy as np

from fdbr import ops
from fdbr.backend import array_module, lock, where_it_lies
from fdbr.core import Tracer
from fdbr.floats import dtype_kind
from fdbr.libraries import kernel
from fdbr.ops.dtypes import in_single
from fdbr.train.optim.arithmetic import divided, plus, times
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.fitting import Parameters, check_state
from fdbr.train.optim.momentum import zeros_like
from fdbr.train.optim.scale import LearningRate, scale_by_learning_rate
from fdbr.tree import frozen

__all__ = ["AdamState", "adam", "scale_by_adam"]


@frozen
class AdamState:
    """The state of `scale_by_adam`.

    Attributes
    ----------
    step
        How many updates were made.
    mu, nu
        The running means of the gradients and of their squares, trees of the parameters'
        shape; `None` for what is not trained.
    """

    step: int
    mu: Any
    nu: Any


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    """Rescale gradients by Adam's running moments (Kingma & Ba, ICLR 2015).

    Formula, with ``t`` the count of updates, this one included::

        mu = b1 * mu + (1 - b1) * gradient
        nu = b2 * nu + (1 - b2) * gradient**2
        update = (mu / (1 - b1**t)) / (sqrt(nu / (1 - b2**t)) + eps)

    Parameters
    ----------
    b1, b2
        The decays of the running means, in [0, 1).
    eps
        A positive number.

    Raises
    ------
    ValueError
        If an argument is out of range.

    >>> transformation = scale_by_adam(eps=1e-12)
    >>> updates, state = transformation.update(3.0, transformation.init(0.0), 0.0)
    >>> round(float(updates), 6), state.step
    (1.0, 1)
    """
    _check(b1, b2, eps)

    def init(params: Any) -> AdamState:
        return AdamState(0, zeros_like(params), zeros_like(params))

    def update(grads: Any, state: AdamState, params: Any) -> tuple[Any, AdamState]:
        check_state("scale_by_adam", state, AdamState)
        parameters = Parameters("scale_by_adam", params)
        gs = parameters.gradients(grads)
        mus = parameters.state("mu", state.mu, gs)
        nus = parameters.state("nu", state.nu, gs)
        step = state.step + 1
        mu_weight, nu_weight = 1 - b1**step, 1 - b2**step
        updates: list[Any] = []
        for index, g in enumerate(gs):
            if g is None:
                updates.append(None)
                continue
            leaves = g, mus[index], nus[index]
            mu, nu, change = _moved(*leaves, b1, b2, mu_weight, nu_weight, eps)
            mus[index], nus[index] = lock(mu), lock(nu)
            updates.append(lock(change))
        state = AdamState(step, parameters.unflatten(mus), parameters.unflatten(nus))
        return parameters.unflatten(updates), state

    return Optimizer(init, update)


# The same as `_moved`, for a GPU, where each of its steps would be a kernel.
_KERNEL = (
    "T g, T mu, T nu, T b1, T rest1, T b2, T rest2, T weight1, T weight2, T eps",
    "T new_mu, T new_nu, T change",
    """
    new_mu = b1 * mu + rest1 * g;
    new_nu = b2 * nu + rest2 * g * g;
    change = new_mu / weight1 / (sqrt(new_nu / weight2) + eps);
    """,
    "fdbr_adam",
)


@where_it_lies
@in_single
def _moved(
    g: Any, mu: Any, nu: Any, b1: float, b2: float, weight1: float, weight2: float, eps: float
) -> tuple[Any, Any, Any]:
    """The next moments of a leaf, and its update."""
    if type(g) is not np.ndarray and not any(isinstance(leaf, Tracer) for leaf in (g, mu, nu)):
        compiled = kernel(array_module(g, mu, nu), *_KERNEL)
        if compiled is not None and g.dtype == mu.dtype == nu.dtype and dtype_kind(g.dtype) == "f":
            numbers = b1, 1 - b1, b2, 1 - b2, weight1, weight2, eps
            moved: tuple[Any, Any, Any] = compiled(g, mu, nu, *numbers)
            return moved
    mu = plus(b1 * mu, (1 - b1) * g)
    nu = plus(b2 * nu, times((1 - b2) * g, g))
    return mu, nu, divided(mu / weight1, plus(ops.sqrt(nu / weight2), eps))


def adam(
    learning_rate: LearningRate = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Optimizer:
    """Adam (Kingma & Ba, *Adam: a method for stochastic optimization*, ICLR 2015).

    It is ``chain(scale_by_adam(b1, b2, eps), scale_by_learning_rate(learning_rate))``.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before to a
        number.
    b1, b2
        The decays of the running means, in [0, 1).
    eps
        A positive number, added to the root of the mean square.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if gradients or state do not fit the
        parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.adam(0.1)
    >>> state = optimizer.init(0.0)
    >>> state
    (AdamState(step=0, mu=0.0, nu=0.0), LearningRateState(step=0))
    >>> updates, state = optimizer.update(3.0, state, 0.0)
    >>> round(float(updates), 6)
    -0.1
    """
    return chain(scale_by_adam(b1, b2, eps), scale_by_learning_rate(learning_rate))


def _check(b1: float, b2: float, eps: float) -> None:
    for name, value in (("b1", b1), ("b2", b2)):
        if not 0 <= value < 1:
            raise ValueError(f"fdbr.train.optim.adam: {name} must lie in [0, 1), got {value}")
    if not eps > 0:
        raise ValueError(f"fdbr.train.optim.adam: eps must be positive, got {eps}")
