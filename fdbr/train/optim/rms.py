"""Rules that divide by the root of a mean of squares, or of their sum."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.arithmetic import averaged, square
from fdbr.train.optim.base import Optimizer, chain, identity
from fdbr.train.optim.leafwise import filled, leafwise, zeros
from fdbr.train.optim.momentum import trace
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = [
    "ScaleByAdaDeltaState",
    "ScaleByRStdDevState",
    "ScaleByRStdDevWithCountState",
    "ScaleByRmsState",
    "ScaleByRmsWithCountState",
    "ScaleByRssState",
    "adadelta",
    "adagrad",
    "rmsprop",
    "scale_by_adadelta",
    "scale_by_rms",
    "scale_by_rss",
    "scale_by_stddev",
]


@public("fdbr.train.optim")
@frozen
class ScaleByRmsState:
    """The state of `scale_by_rms`: ``nu``, the running mean of squared gradients."""

    nu: Any


@public("fdbr.train.optim")
@frozen
class ScaleByRmsWithCountState:
    """The state of `scale_by_rms` that corrects the bias: ``nu``, and the count of updates."""

    count: int
    nu: Any


@public("fdbr.train.optim")
@frozen
class ScaleByRStdDevState:
    """The state of `scale_by_stddev`: running means of gradients, ``mu``, and squares, ``nu``."""

    mu: Any
    nu: Any


@public("fdbr.train.optim")
@frozen
class ScaleByRStdDevWithCountState:
    """The state of `scale_by_stddev` that corrects the bias."""

    count: int
    mu: Any
    nu: Any


@public("fdbr.train.optim")
@frozen
class ScaleByRssState:
    """The state of `scale_by_rss`: the sum of squared gradients."""

    sum_of_squares: Any


@public("fdbr.train.optim")
@frozen
class ScaleByAdaDeltaState:
    """The state of `scale_by_adadelta`: running means of squared gradients and updates."""

    e_g: Any
    e_x: Any


def _over_root(g: Any, nu: Any, eps: Any, eps_in_sqrt: bool) -> Any:
    return g / ops.sqrt(nu + eps) if eps_in_sqrt else g / (ops.sqrt(nu) + eps)


@public_factory("fdbr.train.optim")
def scale_by_rms(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> Optimizer:
    """Divide gradients by the root of their mean square (Hinton 2012).

    Formula::

        nu = decay * nu + (1 - decay) * gradient**2
        update = gradient / sqrt(nu + eps)

    Parameters
    ----------
    decay
        The decay of the mean, in [0, 1).
    eps
        A number ≥ 0.
    initial_scale
        The mean at first.
    eps_in_sqrt
        Whether ``eps`` is added under the root, and not to it.
    bias_correction
        Whether ``nu / (1 - decay**t)`` takes the place of ``nu``.

    >>> transformation = scale_by_rms(0.75)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    2.0
    """
    check_decays("scale_by_rms", decay=decay)
    check_positive("scale_by_rms", or_zero=True, eps=eps)

    def update(g: Any, own: Any, p: Any, weight: Any) -> Any:
        nu = averaged(own[0], square(g), decay)
        corrected = nu / weight if bias_correction else nu
        return _over_root(g, corrected, eps, eps_in_sqrt), (nu,)

    return leafwise(
        "scale_by_rms",
        update,
        lambda p: (filled(p, initial_scale),),
        state=ScaleByRmsWithCountState if bias_correction else ScaleByRmsState,
        numbers=(lambda t: 1 - decay**t) if bias_correction else None,
    )


@public_factory("fdbr.train.optim")
def scale_by_stddev(
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> Optimizer:
    """Divide gradients by their standard deviation (Graves 2013).

    Formula: that of `scale_by_rms` with ``nu - mu**2`` in the place of ``nu``, where ``mu`` is the
    running mean of the gradients.  The arguments are the same.

    >>> transformation = scale_by_stddev(0.5)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    2.0
    """
    check_decays("scale_by_stddev", decay=decay)
    check_positive("scale_by_stddev", or_zero=True, eps=eps)

    def update(g: Any, own: Any, p: Any, weight: Any) -> Any:
        mu = averaged(own[0], g, decay)
        nu = averaged(own[1], square(g), decay)
        first, second = (mu / weight, nu / weight) if bias_correction else (mu, nu)
        return _over_root(g, second - square(first), eps, eps_in_sqrt), (mu, nu)

    return leafwise(
        "scale_by_stddev",
        update,
        lambda p: (zeros(p), filled(p, initial_scale)),
        state=ScaleByRStdDevWithCountState if bias_correction else ScaleByRStdDevState,
        numbers=(lambda t: 1 - decay**t) if bias_correction else None,
    )


@public_factory("fdbr.train.optim")
def rmsprop(
    learning_rate: LearningRate,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> Optimizer:
    """RMSProp (Hinton 2012; centred and with momentum, Graves 2013).

    Formula: ``params - learning_rate * gradient / sqrt(nu + eps)``, see `scale_by_rms` and, for
    ``centered``, `scale_by_stddev`.  With momentum, `trace` follows upon the learning rate.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    decay, eps, initial_scale, eps_in_sqrt, bias_correction
        As those of `scale_by_rms`.  PyTorch and Chainer have ``eps_in_sqrt=False``.
    centered
        Whether to divide by the standard deviation.
    momentum, nesterov
        The decay of `trace`, and whether it looks ahead; by default there is none.

    >>> optimizer = rmsprop(0.1, 0.75)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.2
    """
    make = scale_by_stddev if centered else scale_by_rms
    return chain(
        make(decay, eps, initial_scale, eps_in_sqrt, bias_correction),
        scale_by_learning_rate(learning_rate),
        identity() if momentum is None else trace(momentum, nesterov),
    )


@public_factory("fdbr.train.optim")
def scale_by_rss(initial_accumulator_value: float = 0.1, eps: float = 1e-7) -> Optimizer:
    """Divide gradients by the root of the sum of their squares (Duchi et al., JMLR 2011).

    Formula::

        sum_of_squares = sum_of_squares + gradient**2
        update = gradient / sqrt(sum_of_squares + eps)

    Where the sum is zero, so is the update.

    >>> transformation = scale_by_rss(0.0, 0.0)
    >>> updates, state = transformation.update(3.0, transformation.init(0.0))
    >>> float(transformation.update(4.0, state)[0])
    0.8
    """
    check_positive("scale_by_rss", or_zero=True, eps=eps, value=initial_accumulator_value)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        total = own[0] + square(g)
        some = total > 0
        return ops.where(some, g / ops.sqrt(ops.where(some, total + eps, 1.0)), 0.0), (total,)

    return leafwise(
        "scale_by_rss",
        update,
        lambda p: (filled(p, initial_accumulator_value),),
        state=ScaleByRssState,
    )


@public_factory("fdbr.train.optim")
def adagrad(
    learning_rate: LearningRate, initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> Optimizer:
    """AdaGrad (Duchi, Hazan & Singer, JMLR 2011): `scale_by_rss`, then the learning rate.

    >>> optimizer = adagrad(0.1, 0.0)
    >>> round(float(optimizer.update(3.0, optimizer.init(0.0))[0]), 6)
    -0.1
    """
    return chain(
        scale_by_rss(initial_accumulator_value, eps), scale_by_learning_rate(learning_rate)
    )


@public_factory("fdbr.train.optim")
def scale_by_adadelta(rho: float = 0.9, eps: float = 1e-6) -> Optimizer:
    """Rescale gradients to the size of past updates (Zeiler 2012).

    Formula::

        e_g = rho * e_g + (1 - rho) * gradient**2
        update = sqrt(e_x + eps) / sqrt(e_g + eps) * gradient
        e_x = rho * e_x + (1 - rho) * update**2

    >>> transformation = scale_by_adadelta(0.75, 1e-4)
    >>> round(float(transformation.update(3.0, transformation.init(0.0))[0]), 6)
    0.02
    """
    check_decays("scale_by_adadelta", rho=rho)
    check_positive("scale_by_adadelta", or_zero=True, eps=eps)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        e_g = averaged(own[0], square(g), rho)
        change = ops.sqrt(own[1] + eps) / ops.sqrt(e_g + eps) * g
        return change, (e_g, averaged(own[1], square(change), rho))

    return leafwise(
        "scale_by_adadelta", update, lambda p: (zeros(p), zeros(p)), state=ScaleByAdaDeltaState
    )


@public_factory("fdbr.train.optim")
def adadelta(
    learning_rate: LearningRate | None = None,
    rho: float = 0.9,
    eps: float = 1e-6,
    weight_decay: Any = 0.0,
    weight_decay_mask: Any = None,
) -> Optimizer:
    """Adadelta (Zeiler 2012).

    It is weight decay (`add_decayed_weights`), `scale_by_adadelta` and the learning rate, which is
    1 by default, as in the paper.

    >>> optimizer = adadelta()
    >>> updates, state = optimizer.update(3.0, optimizer.init(0.0), 0.0)
    >>> float(updates) < 0
    True
    """
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        scale_by_adadelta(rho, eps),
        scale(-1.0) if learning_rate is None else scale_by_learning_rate(learning_rate),
    )
