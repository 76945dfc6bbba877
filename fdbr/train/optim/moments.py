"""Adam's kin: rules with a running mean of gradients and a measure of their size."""

from collections.abc import Callable
from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import ScaleByAdamState
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import filled, leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = [
    "ScaleByAmsgradState",
    "ScaleByBeliefState",
    "adabelief",
    "adamax",
    "adamaxw",
    "amsgrad",
    "radam",
    "scale_by_adamax",
    "scale_by_amsgrad",
    "scale_by_belief",
    "scale_by_radam",
    "scale_by_yogi",
    "yogi",
]


@public("fdbr.train.optim")
@frozen
class ScaleByAmsgradState:
    """The state of `scale_by_amsgrad`.

    Attributes
    ----------
    count
        The number of updates made.
    mu, nu, nu_max
        The running means of the gradients and of their squares, and the greatest of the latter.
    """

    count: int
    mu: Any
    nu: Any
    nu_max: Any


@public("fdbr.train.optim")
@frozen
class ScaleByBeliefState:
    """The state of `scale_by_belief`.

    Attributes
    ----------
    count
        The number of updates made.
    mu, nu
        The running means of the gradients, and of the squares of their deviations from that.
    """

    count: int
    mu: Any
    nu: Any


def _corrections(b1: Any, b2: Any, nesterov: bool = False) -> Callable[[Any], Any]:
    """The shares of gradients in both means after t updates, and in the first after t + 1."""
    return lambda t: (1 - b1**t, 1 - b2**t, 1 - b1 ** (t + 1) if nesterov else 1.0)


def _first(mu: Any, g: Any, b1: Any, weights: Any, nesterov: bool) -> Any:
    """The first moment without its bias, of the next step with Nesterov's momentum."""
    return b1 / weights[2] * mu + (1 - b1) / weights[0] * g if nesterov else mu / weights[0]


@public_factory("fdbr.train.optim")
def scale_by_adamax(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    """Rescale gradients by the greatest of late (Kingma & Ba, ICLR 2015, section 7.1).

    Formula, with ``t`` the count of updates, this one included::

        mu = b1 * mu + (1 - b1) * gradient
        nu = max(abs(gradient) + eps, b2 * nu)
        update = mu / (1 - b1**t) / nu

    Parameters
    ----------
    b1, b2
        The decays of the running mean and of the maximum, in [0, 1).
    eps
        A number ≥ 0.

    >>> transformation = scale_by_adamax()
    >>> updates, state = transformation.update(3.0, transformation.init(0.0))
    >>> round(float(updates), 6)
    1.0
    """
    check_decays("scale_by_adamax", b1=b1, b2=b2)
    check_positive("scale_by_adamax", or_zero=True, eps=eps)

    def update(g: Any, own: Any, p: Any, weight: Any) -> Any:
        mu = averaged(own[0], g, b1)
        nu = ops.maximum(ops.abs(g) + eps, b2 * own[1])
        return mu / weight / nu, (mu, nu)

    return leafwise(
        "scale_by_adamax",
        update,
        lambda p: (zeros(p), zeros(p)),
        state=ScaleByAdamState,
        numbers=lambda t: 1 - b1**t,
    )


@public_factory("fdbr.train.optim")
def adamax(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Optimizer:
    """Adamax (Kingma & Ba, ICLR 2015): `scale_by_adamax`, then the learning rate.

    >>> optimizer = adamax(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.1
    """
    return chain(scale_by_adamax(b1, b2, eps), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def adamaxw(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: Any = 1e-4,
    mask: Any = None,
) -> Optimizer:
    """Adamax with decoupled weight decay (Loshchilov & Hutter, ICLR 2019).

    ``weight_decay`` and ``mask`` are those of `add_decayed_weights`.

    >>> optimizer = adamaxw(0.1, weight_decay=0.5)
    >>> round(float(optimizer.update(3.0, optimizer.init(1.0), 1.0)[0]), 6)
    -0.15
    """
    return chain(
        scale_by_adamax(b1, b2, eps),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


@public_factory("fdbr.train.optim")
def scale_by_amsgrad(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> Optimizer:
    """Rescale gradients by moments of which the second never shrinks (Reddi et al., ICLR 2018).

    Formula: that of `scale_by_adam`, with the greatest ``nu / (1 - b2**t)`` so far in its place.

    Parameters
    ----------
    b1, b2, eps, eps_root, mu_dtype
        As those of `scale_by_adam`.
    bias_correction_mu, bias_correction_nu
        Whether to divide the means by ``1 - b**t``; the paper does not.

    >>> transformation = scale_by_amsgrad()
    >>> _, state = transformation.update(3.0, transformation.init(0.0))
    >>> updates, state = transformation.update(0.0, state)
    >>> round(float(state.nu_max), 6)
    9.0
    """
    check_decays("scale_by_amsgrad", b1=b1, b2=b2)
    check_positive("scale_by_amsgrad", or_zero=True, eps=eps, eps_root=eps_root)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, b1)
        nu = averaged(own[1], square(g), b2)
        nu_max = ops.maximum(own[2], nu / t[1] if bias_correction_nu else nu)
        first = mu / t[0] if bias_correction_mu else mu
        return first / (ops.sqrt(nu_max + eps_root) + eps), (mu, nu, nu_max)

    return leafwise(
        "scale_by_amsgrad",
        update,
        lambda p: (zeros(p, mu_dtype), zeros(p), zeros(p)),
        state=ScaleByAmsgradState,
        numbers=_corrections(b1, b2),
        fits="dtype" if mu_dtype is None else "shape",
    )


@public_factory("fdbr.train.optim")
def amsgrad(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> Optimizer:
    """AMSGrad (Reddi et al., *On the convergence of Adam and beyond*, ICLR 2018).

    It is `scale_by_amsgrad`, then the learning rate.

    >>> optimizer = amsgrad(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.1
    """
    moments = scale_by_amsgrad(
        b1, b2, eps, eps_root, mu_dtype, bias_correction_mu, bias_correction_nu
    )
    return chain(moments, scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_belief(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-16,
    eps_root: float = 1e-16,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Rescale gradients by how far they are from expectation (Zhuang et al., NeurIPS 2020).

    Formula::

        mu = b1 * mu + (1 - b1) * gradient
        nu = b2 * nu + (1 - b2) * (gradient - mu)**2 + eps_root
        update = mu / (1 - b1**t) / (sqrt(nu / (1 - b2**t)) + eps)

    Parameters
    ----------
    b1, b2, eps, nesterov
        As those of `scale_by_adam`.
    eps_root
        A number ≥ 0, added to ``nu`` in each step.

    >>> transformation = scale_by_belief()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    1.111111
    """
    check_decays("scale_by_belief", b1=b1, b2=b2)
    check_positive("scale_by_belief", or_zero=True, eps=eps, eps_root=eps_root)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, b1)
        nu = averaged(own[1], square(g - mu), b2) + eps_root
        return _first(mu, g, b1, t, nesterov) / (ops.sqrt(nu / t[1]) + eps), (mu, nu)

    return leafwise(
        "scale_by_belief",
        update,
        lambda p: (zeros(p), zeros(p)),
        state=ScaleByBeliefState,
        numbers=_corrections(b1, b2, nesterov),
    )


@public_factory("fdbr.train.optim")
def adabelief(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-16,
    eps_root: float = 1e-16,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """AdaBelief (Zhuang et al., NeurIPS 2020): `scale_by_belief`, then the learning rate.

    >>> optimizer = adabelief(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.111111
    """
    belief = scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return chain(belief, scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_yogi(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-3,
    eps_root: float = 0.0,
    initial_accumulator_value: float = 1e-6,
) -> Optimizer:
    """Rescale gradients by moments of which the second changes slowly (Zaheer et al. 2018).

    Formula: that of `scale_by_adam`, with ``nu = nu - (1 - b2) * sign(nu - gradient**2) *
    gradient**2``, and both moments ``initial_accumulator_value`` at first.

    >>> transformation = scale_by_yogi()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 4)
    0.9996
    """
    check_decays("scale_by_yogi", b1=b1, b2=b2)
    check_positive("scale_by_yogi", or_zero=True, eps=eps, eps_root=eps_root)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, b1)
        squared = square(g)
        nu = own[1] - (1 - b2) * ops.sign(own[1] - squared) * squared
        return mu / t[0] / (ops.sqrt(nu / t[1] + eps_root) + eps), (mu, nu)

    return leafwise(
        "scale_by_yogi",
        update,
        lambda p: (filled(p, initial_accumulator_value),) * 2,
        state=ScaleByAdamState,
        numbers=_corrections(b1, b2),
    )


@public_factory("fdbr.train.optim")
def yogi(
    learning_rate: LearningRate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3
) -> Optimizer:
    """Yogi (Zaheer et al., *Adaptive methods for nonconvex optimization*, NeurIPS 2018).

    It is `scale_by_yogi`, then the learning rate.

    >>> optimizer = yogi(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 4)
    -0.1
    """
    return chain(scale_by_yogi(b1, b2, eps), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_radam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    threshold: float = 5.0,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Rescale gradients by Adam's moments, once their variance is small (Liu et al., ICLR 2020).

    Formula, with ``r_inf = 2 / (1 - b2) - 1`` and ``r = r_inf - 2 * t * b2**t / (1 - b2**t)``: as
    long as ``r < threshold``, ``update = mu / (1 - b1**t)``; then that of `scale_by_adam`, times
    ``sqrt((r - 4) * (r - 2) * r_inf / ((r_inf - 4) * (r_inf - 2) * r))``.

    Parameters
    ----------
    b1, b2, eps, eps_root, nesterov
        As those of `scale_by_adam`.
    threshold
        The degrees of freedom from which on the second moment counts.

    >>> transformation = scale_by_radam()
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    3.0
    """
    check_decays("scale_by_radam", b1=b1, b2=b2)
    check_positive("scale_by_radam", or_zero=True, eps=eps, eps_root=eps_root)
    limit = 2.0 / (1.0 - b2) - 1.0
    corrections = _corrections(b1, b2, nesterov)

    def numbers(t: Any) -> Any:
        power = b2**t
        r = limit - 2 * t * power / (1 - power)
        enough = r >= threshold
        safe = ops.where(enough, r, 5.0)
        factor = (safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)
        rectified = ops.where(enough, ops.sqrt(ops.where(enough, factor, 1.0)), 0.0)
        return *corrections(t), rectified, ops.where(enough, 0.0, 1.0)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu = averaged(own[0], g, b1)
        nu = averaged(own[1], square(g), b2)
        first = _first(mu, g, b1, t, nesterov)
        return first * (t[3] / (ops.sqrt(nu / t[1] + eps_root) + eps) + t[4]), (mu, nu)

    return leafwise(
        "scale_by_radam",
        update,
        lambda p: (zeros(p), zeros(p)),
        state=ScaleByAdamState,
        numbers=numbers,
    )


@public_factory("fdbr.train.optim")
def radam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    threshold: float = 5.0,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Rectified Adam (Liu et al., *On the variance of the adaptive learning rate*, ICLR 2020).

    It is `scale_by_radam`, then the learning rate.

    >>> optimizer = radam(0.1)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.3
    """
    rectified = scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov)
    return chain(rectified, scale_by_learning_rate(learning_rate))
