"""Adam between bounds, and rules by the variance of gradients."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import ScaleByAdamState
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import filled, leafwise, zeros
from fdbr.train.optim.moments import ScaleByAmsgradState
from fdbr.train.optim.numbers import (
    LearningRate,
    check_decays,
    check_positive,
    learning_rate_of,
    rate_at,
)
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.tree import frozen

__all__ = [
    "ScaleByMsvagState",
    "ScaleBySmorms3State",
    "adabound",
    "amsbound",
    "msvag",
    "scale_by_adabound",
    "scale_by_msvag",
    "scale_by_smorms3",
    "smorms3",
]


@public("fdbr.train.optim")
@frozen
class ScaleByMsvagState:
    """The state of `scale_by_msvag`: a count, and running means of gradients and squares."""

    count: int
    mu: Any
    nu: Any


@public("fdbr.train.optim")
@frozen
class ScaleBySmorms3State:
    """The state of `scale_by_smorms3`: a count, a memory's length, and means as of `msvag`."""

    count: int
    memory: Any
    mu: Any
    nu: Any


@public_factory("fdbr.train.optim")
def scale_by_adabound(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    final_learning_rate: float = 0.1,
    gamma: float = 1e-3,
    eps: float = 1e-8,
    amsbound: bool = False,
) -> Optimizer:
    """Adam whose rates are clipped between bounds that close in (Luo et al., ICLR 2019).

    Formula, with ``mu`` and ``nu`` as in `scale_by_adam`::

        low = final_learning_rate * (1 - 1 / (gamma * t + 1))
        high = final_learning_rate * (1 + 1 / (gamma * t))
        rate = learning_rate * sqrt(1 - b2**t) / (1 - b1**t) / (sqrt(nu) + eps)
        update = clip(rate, low, high) * mu

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule; it is part of the rule.
    b1, b2, eps
        As those of `scale_by_adam`.
    final_learning_rate
        The rate of gradient descent that it turns into.
    gamma
        A number > 0: how fast.
    amsbound
        Whether the greatest ``nu`` so far takes the place of ``nu``.

    Raises
    ------
    ValueError
        If an argument is out of range.

    >>> transformation = scale_by_adabound(0.01)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    0.01
    """
    check_decays("scale_by_adabound", b1=b1, b2=b2)
    check_positive("scale_by_adabound", gamma=gamma)
    check_positive("scale_by_adabound", or_zero=True, eps=eps, final=final_learning_rate)
    rate = learning_rate_of("scale_by_adabound", learning_rate)

    def numbers(t: Any) -> Any:
        corrected = rate_at("scale_by_adabound", rate, t - 1) * (1 - b2**t) ** 0.5 / (1 - b1**t)
        low = final_learning_rate * (1 - 1 / (gamma * t + 1))
        return corrected, low, final_learning_rate * (1 + 1 / (gamma * t))

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, b1)
        nu = averaged(own[1], square(g), b2)
        kept = (mu, nu, ops.maximum(own[2], nu)) if amsbound else (mu, nu)
        rates = ops.maximum(ops.minimum(t[0] / (ops.sqrt(kept[-1]) + eps), t[2]), t[1])
        return rates * mu, kept

    return leafwise(
        "scale_by_adabound",
        update,
        lambda p: (zeros(p),) * (3 if amsbound else 2),
        state=ScaleByAmsgradState if amsbound else ScaleByAdamState,
        numbers=numbers,
    )


@public_factory("fdbr.train.optim")
def adabound(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    final_learning_rate: float = 0.1,
    gamma: float = 1e-3,
    eps: float = 1e-8,
) -> Optimizer:
    """AdaBound (Luo et al., *Adaptive gradient methods with dynamic bound*, ICLR 2019).

    It is `scale_by_adabound`, downhill.

    >>> optimizer = adabound(0.01)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.01
    """
    rule = scale_by_adabound(learning_rate, b1, b2, final_learning_rate, gamma, eps)
    return chain(rule, scale(-1.0))


@public_factory("fdbr.train.optim")
def amsbound(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    final_learning_rate: float = 0.1,
    gamma: float = 1e-3,
    eps: float = 1e-8,
) -> Optimizer:
    """AMSBound (Luo et al., ICLR 2019): `adabound` by the greatest second moment so far.

    >>> optimizer = amsbound(0.01)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.01
    """
    rule = scale_by_adabound(learning_rate, b1, b2, final_learning_rate, gamma, eps, True)
    return chain(rule, scale(-1.0))


@public_factory("fdbr.train.optim")
def scale_by_msvag(beta: float = 0.9) -> Optimizer:
    """Momentum, each element as far as it can be trusted (Balles & Hennig, ICML 2018).

    Formula, with ``mean`` and ``square`` the running means of gradients and their squares, divided
    by ``1 - beta**t``::

        rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * (1 - beta**t))
        variance = (square - mean**2) / (1 - rho)
        update = mean**2 / (mean**2 + rho * variance) * mean

    ``rho`` is at most 0.9999, and the factor lies between 0 and 1; where all gradients were zero
    it is zero.

    Parameters
    ----------
    beta
        The decay of both means, in [0, 1).

    >>> transformation = scale_by_msvag()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    3.0
    """
    check_decays("scale_by_msvag", beta=beta)

    def numbers(t: Any) -> Any:
        power = beta**t
        rho = (1 - beta) * (1 + power) / ((1 + beta) * (1 - power))
        return 1 - power, ops.minimum(rho, 0.9999)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu, nu = averaged(own[0], g, beta), averaged(own[1], square(g), beta)
        mean = mu / t[0]
        squared = square(mean)
        below = squared + t[1] * (nu / t[0] - squared) / (1 - t[1])
        some = below > 0
        factor = ops.where(some, squared / ops.where(some, below, 1.0), 0.0)
        return ops.minimum(factor, 1.0) * mean, (mu, nu)

    return leafwise(
        "scale_by_msvag",
        update,
        lambda p: (zeros(p), zeros(p)),
        state=ScaleByMsvagState,
        numbers=numbers,
    )


@public_factory("fdbr.train.optim")
def msvag(learning_rate: LearningRate, beta: float = 0.9) -> Optimizer:
    """M-SVAG (Balles & Hennig, *Dissecting Adam*, ICML 2018).

    It is `scale_by_msvag`, then the learning rate.

    >>> optimizer = msvag(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.3
    """
    return chain(scale_by_msvag(beta), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_smorms3(learning_rate: LearningRate, eps: float = 1e-16) -> Optimizer:
    """Rates out of the signal in the noise of gradients (Funk 2015).

    Formula, with ``memory`` 1 at first::

        r = 1 / (memory + 1)
        mu = (1 - r) * mu + r * gradient
        nu = (1 - r) * nu + r * gradient**2
        x = mu**2 / (nu + eps)
        update = min(learning_rate, x) / (sqrt(nu) + eps) * gradient
        memory = 1 + memory * (1 - x)

    Parameters
    ----------
    learning_rate
        The greatest rate, a number ≥ 0 or a schedule; it is part of the rule.
    eps
        A number ≥ 0.

    >>> transformation = scale_by_smorms3(0.1)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    0.141421
    """
    check_positive("scale_by_smorms3", or_zero=True, eps=eps)
    rate = learning_rate_of("scale_by_smorms3", learning_rate)

    def update(g: Any, own: Any, p: Any, greatest: Any) -> Any:
        memory, mu, nu = own
        r = 1 / (memory + 1)
        mu = (1 - r) * mu + r * g
        nu = (1 - r) * nu + r * square(g)
        x = square(mu) / (nu + eps)
        change = ops.minimum(x, greatest) / (ops.sqrt(nu) + eps) * g
        return change, (1 + memory * (1 - x), mu, nu)

    return leafwise(
        "scale_by_smorms3",
        update,
        lambda p: (filled(p, 1), zeros(p), zeros(p)),
        state=ScaleBySmorms3State,
        numbers=lambda t: rate_at("scale_by_smorms3", rate, t - 1),
    )


@public_factory("fdbr.train.optim")
def smorms3(learning_rate: LearningRate = 1e-3, eps: float = 1e-16) -> Optimizer:
    """SMORMS3 (Simon Funk, *RMSprop loses to SMORMS3*, 2015): `scale_by_smorms3`, downhill.

    >>> optimizer = smorms3(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.141421
    """
    return chain(scale_by_smorms3(learning_rate, eps), scale(-1.0))
