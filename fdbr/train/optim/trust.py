"""Rules by the ratio of the size of parameters to that of their updates, layer by layer."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import scale_by_adam
from fdbr.train.optim.arithmetic import square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.masking import masked
from fdbr.train.optim.momentum import trace
from fdbr.train.optim.numbers import (
    LearningRate,
    check_decays,
    check_positive,
    learning_rate_of,
)
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.train.optim.transforms.normalizing import scale_by_trust_ratio
from fdbr.tree import frozen

__all__ = [
    "ScaleByNovogradState",
    "fromage",
    "lamb",
    "lars",
    "novograd",
    "scale_by_novograd",
]


@public("fdbr.train.optim")
@frozen
class ScaleByNovogradState:
    """The state of `scale_by_novograd`.

    Attributes
    ----------
    count
        The number of updates made.
    mu
        The running mean of rescaled gradients.
    nu
        The running mean of the squared norm of each array of gradients.
    """

    count: int
    mu: Any
    nu: Any


@public_factory("fdbr.train.optim")
def lars(
    learning_rate: LearningRate,
    weight_decay: Any = 0.0,
    weight_decay_mask: Any = True,
    trust_coefficient: float = 0.001,
    eps: float = 0.0,
    trust_ratio_mask: Any = True,
    momentum: float = 0.9,
    nesterov: bool = False,
) -> Optimizer:
    """LARS (You, Gitman & Ginsburg, *Large batch training of convolutional networks*, 2017).

    It is weight decay, `scale_by_trust_ratio`, the learning rate, and then `trace`.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    weight_decay, weight_decay_mask
        As those of `add_decayed_weights`.
    trust_coefficient, eps, trust_ratio_mask
        As those of `scale_by_trust_ratio`, and the parameters that it is for: biases and the
        scales of normalization are often left out.
    momentum, nesterov
        As those of `trace`.

    >>> import numpy as np
    >>> optimizer, params = lars(1.0, trust_coefficient=0.1), np.array([3.0, 4.0])
    >>> optimizer.update(np.array([0.0, 2.0]), optimizer.init(params), params)[0]
    array([ 0. , -0.5])
    """
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(scale_by_trust_ratio(0.0, trust_coefficient, eps), trust_ratio_mask),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )


@public_factory("fdbr.train.optim")
def lamb(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: Any = 0.0,
    mask: Any = None,
) -> Optimizer:
    """LAMB (You et al., *Large batch optimization for deep learning*, ICLR 2020).

    It is `scale_by_adam`, weight decay (`add_decayed_weights`), `scale_by_trust_ratio` and the
    learning rate.

    >>> import numpy as np
    >>> optimizer, params = lamb(0.1), np.array([3.0, 4.0])
    >>> optimizer.update(np.array([0.0, 2.0]), optimizer.init(params), params)[0].round(4)
    array([-0. , -0.5])
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        scale_by_learning_rate(learning_rate),
    )


@public_factory("fdbr.train.optim")
def fromage(learning_rate: LearningRate, min_norm: float = 1e-6) -> Optimizer:
    """Fromage (Bernstein et al., *On the distance between two neural networks*, NeurIPS 2020).

    Formula, layer by layer: ``(params - learning_rate * norm(params) / norm(gradient) * gradient)
    / sqrt(1 + learning_rate**2)``, with norms of at least ``min_norm``.

    >>> import numpy as np
    >>> optimizer, params = fromage(0.75), np.array([3.0, 4.0])
    >>> optimizer.update(np.array([0.0, 2.0]), optimizer.init(params), params)[0]
    array([-0.6, -3.8])
    """
    rate = learning_rate_of("fromage", learning_rate)

    def shrunk(value: Any) -> Any:
        return 1 / (1 + value**2) ** 0.5

    def of(count: Any) -> Any:
        return rate(count) if callable(rate) else rate

    def step(count: Any) -> Any:
        return of(count) * shrunk(of(count))

    def decay(count: Any) -> Any:
        return shrunk(of(count)) - 1

    return chain(
        scale_by_trust_ratio(min_norm),
        scale_by_learning_rate(step if callable(rate) else step(0)),
        add_decayed_weights(decay if callable(rate) else decay(0)),
    )


@public_factory("fdbr.train.optim")
def scale_by_novograd(
    b1: float = 0.9,
    b2: float = 0.25,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
    mu_dtype: Any = None,
) -> Optimizer:
    """Rescale each array of gradients by a running mean of its norm (Ginsburg et al. 2019).

    Formula, where the first gradient is all there is to ``nu`` and ``mu`` at first::

        nu = b2 * nu + (1 - b2) * norm(gradient)**2
        mu = b1 * mu + gradient / (sqrt(nu + eps_root) + eps) + weight_decay * param

    Parameters
    ----------
    b1, b2
        The decays, in [0, 1).
    eps, eps_root, weight_decay
        Numbers ≥ 0.
    mu_dtype
        The dtype of ``mu``; by default that of the parameter.

    >>> import numpy as np
    >>> transformation, params = scale_by_novograd(), np.array([3.0, 4.0])
    >>> transformation.update(np.array([0.0, 2.0]), transformation.init(params), params)[0]
    array([0., 1.])
    """
    check_decays("scale_by_novograd", b1=b1, b2=b2)
    check_positive("scale_by_novograd", or_zero=True, eps=eps, eps_root=eps_root)

    def numbers(t: Any) -> Any:
        first = ops.where(t > 1, 0.0, 1.0)
        return first + (1 - first) * (1 - b2), (1 - first) * b2, (1 - first) * b1

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        nu = t[1] * own[1] + t[0] * ops.sum(square(g))
        mu = t[2] * own[0] + g / (ops.sqrt(nu + eps_root) + eps) + weight_decay * p
        return mu, (mu, nu)

    return leafwise(
        "scale_by_novograd",
        update,
        lambda p: (zeros(p, mu_dtype), ops.sum(zeros(p))),
        state=ScaleByNovogradState,
        numbers=numbers,
        needs_params=True,
        fits="any",
    )


@public_factory("fdbr.train.optim")
def novograd(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.25,
    eps: float = 1e-6,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
) -> Optimizer:
    """NovoGrad (Ginsburg et al., *Stochastic gradient methods with layer-wise moments*, 2019).

    It is `scale_by_novograd`, then the learning rate.

    >>> import numpy as np
    >>> optimizer, params = novograd(0.1), np.array([3.0, 4.0])
    >>> optimizer.update(np.array([0.0, 2.0]), optimizer.init(params), params)[0].round(4)
    array([-0. , -0.1])
    """
    moments = scale_by_novograd(b1, b2, eps, eps_root, weight_decay)
    return chain(moments, scale_by_learning_rate(learning_rate))
