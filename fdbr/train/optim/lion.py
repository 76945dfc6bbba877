"""Rules that go by the signs of gradients."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import averaged
from fdbr.train.optim.base import EmptyState, Optimizer, chain
from fdbr.train.optim.leafwise import filled, leafwise, zeros
from fdbr.train.optim.numbers import (
    LearningRate,
    check_decays,
    check_positive,
    learning_rate_of,
)
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = [
    "ScaleByLionState",
    "ScaleByRpropState",
    "lion",
    "rprop",
    "scale_by_lion",
    "scale_by_rprop",
    "scale_by_sign",
    "sign_sgd",
]


@public("fdbr.train.optim")
@frozen
class ScaleByLionState:
    """The state of `scale_by_lion`.

    Attributes
    ----------
    count
        The number of updates made.
    mu
        The running mean of the gradients.
    """

    count: int
    mu: Any


@public("fdbr.train.optim")
@frozen
class ScaleByRpropState:
    """The state of `scale_by_rprop`.

    Attributes
    ----------
    step_sizes
        The size of the next step, of each element.
    prev_updates
        The steps made last.
    """

    step_sizes: Any
    prev_updates: Any


@public_factory("fdbr.train.optim")
def scale_by_sign() -> Optimizer:
    """The signs of gradients (Bernstein et al., *signSGD*, ICML 2018).

    Formula: ``update = sign(gradient)``.

    >>> float(scale_by_sign().update(-3.0, scale_by_sign().init(0.0))[0])
    -1.0
    """
    return leafwise("scale_by_sign", lambda g, own, p, t: (ops.sign(g), own), state=EmptyState)


@public_factory("fdbr.train.optim")
def sign_sgd(learning_rate: LearningRate) -> Optimizer:
    """Steps of one size against the signs of gradients (Bernstein et al., ICML 2018).

    Formula: ``params - learning_rate * sign(gradient)``.

    >>> optimizer = sign_sgd(0.1)
    >>> float(optimizer.update(-3.0, optimizer.init(0.0))[0])
    0.1
    """
    return chain(scale_by_sign(), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_lion(
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    *,
    mode: str = "hard",
    smooth_beta: float = 1.0,
) -> Optimizer:
    """The sign of a running mean of gradients (Chen et al. 2023).

    Formula::

        update = sign(b1 * mu + (1 - b1) * gradient)
        mu = b2 * mu + (1 - b2) * gradient

    Parameters
    ----------
    b1
        The weight of the mean in the update, in [0, 1).
    b2
        The decay of the mean, in [0, 1).
    mu_dtype
        The dtype of ``mu``; by default that of the parameter.
    mode
        ``"hard"``, the sign; ``"smooth"``, ``tanh(smooth_beta * x)`` instead; or ``"refined"``,
        which is the value itself between -1 and 1.
    smooth_beta
        The steepness of ``"smooth"``.

    Raises
    ------
    ValueError
        If an argument is out of range.

    >>> transformation = scale_by_lion()
    >>> updates, state = transformation.update(-3.0, transformation.init(0.0))
    >>> float(updates)
    -1.0
    """
    check_decays("scale_by_lion", b1=b1, b2=b2)
    if mode not in ("hard", "smooth", "refined"):
        raise ValueError(
            "fdbr.train.optim.scale_by_lion: mode must be 'hard', 'smooth' or 'refined', not "
            f"{mode!r}"
        )

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        x = averaged(own[0], g, b1)
        if mode == "smooth":
            change = ops.tanh(smooth_beta * x)
        elif mode == "refined":
            change = ops.where(ops.abs(x) < 1.0, x, ops.sign(x))
        else:
            change = ops.sign(x)
        return change, (averaged(own[0], g, b2),)

    return leafwise(
        "scale_by_lion",
        update,
        lambda p: (zeros(p, mu_dtype),),
        state=ScaleByLionState,
        fits="dtype" if mu_dtype is None else "shape",
    )


@public_factory("fdbr.train.optim")
def lion(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-3,
    mask: Any = None,
) -> Optimizer:
    """Lion (Chen et al., *Symbolic discovery of optimization algorithms*, NeurIPS 2023).

    Formula: ``params - learning_rate * (sign + weight_decay * params)``, with the sign of
    `scale_by_lion`.  Its learning rate is a third to a tenth of Adam's.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    b1, b2, mu_dtype
        As those of `scale_by_lion`.
    weight_decay, mask
        As those of `add_decayed_weights`.

    >>> optimizer = lion(0.1, weight_decay=0.5)
    >>> round(float(optimizer.update(-3.0, optimizer.init(1.0), 1.0)[0]), 6)
    0.05
    """
    return chain(
        scale_by_lion(b1, b2, mu_dtype),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@public_factory("fdbr.train.optim")
def scale_by_rprop(
    learning_rate: float,
    eta_minus: float = 0.5,
    eta_plus: float = 1.2,
    min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> Optimizer:
    """Steps whose sizes grow while the sign of the gradient stays (Riedmiller & Braun 1993).

    Formula, of each element: with ``agree = gradient * prev_update``, the step size is multiplied
    by ``eta_plus`` where that is positive and by ``eta_minus`` where it is negative, within its
    bounds; the update is ``step_size * sign(gradient)``, and nothing where it is negative.

    Parameters
    ----------
    learning_rate
        The size of the first steps.
    eta_minus, eta_plus
        The factors of the step sizes.
    min_step_size, max_step_size
        Their bounds.

    Raises
    ------
    ValueError
        If an argument is negative.

    >>> transformation = scale_by_rprop(0.1)
    >>> updates, state = transformation.update(3.0, transformation.init(0.0))
    >>> float(transformation.update(3.0, state)[0])
    0.12
    """
    rate = learning_rate_of("scale_by_rprop", learning_rate)
    sizes: dict[str, Any] = {"min_step_size": min_step_size, "max_step_size": max_step_size}
    check_positive("scale_by_rprop", eta_minus=eta_minus, eta_plus=eta_plus, **sizes)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        step_size, previous = own
        agree = g * previous
        grown = ops.where(agree > 0, step_size * eta_plus, step_size * eta_minus)
        bounded = ops.clip(grown, min_step_size, max_step_size)
        step_size = ops.where(agree == 0, step_size, bounded)
        change = ops.where(agree < 0, 0.0, step_size * ops.sign(g))
        return change, (step_size, change)

    return leafwise(
        "scale_by_rprop",
        update,
        lambda p: (filled(p, rate), zeros(p)),
        state=ScaleByRpropState,
    )


@public_factory("fdbr.train.optim")
def rprop(
    learning_rate: float,
    eta_minus: float = 0.5,
    eta_plus: float = 1.2,
    min_step_size: float = 1e-6,
    max_step_size: float = 50.0,
) -> Optimizer:
    """Rprop (Riedmiller & Braun, ICNN 1993): `scale_by_rprop`, downhill.

    The learning rate is the size of the first steps.  It is a rule for whole gradients, not for
    those of small batches.

    >>> optimizer = rprop(0.1)
    >>> float(optimizer.update(3.0, optimizer.init(0.0))[0])
    -0.1
    """
    sizes = scale_by_rprop(learning_rate, eta_minus, eta_plus, min_step_size, max_step_size)
    return chain(sizes, scale(-1.0))
