"""Rules for games, with noise, and by the value of the loss."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import scale_by_adam
from fdbr.train.optim.base import EmptyState, Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.momentum import sgd
from fdbr.train.optim.numbers import LearningRate, check_positive
from fdbr.train.optim.scale import scale, scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_noise
from fdbr.train.optim.transforms.clipping import global_norm
from fdbr.tree import frozen

__all__ = [
    "ScaleByOptimisticGradientState",
    "noisy_sgd",
    "optimistic_adam_v2",
    "optimistic_gradient_descent",
    "polyak_sgd",
    "scale_by_optimistic_gradient",
    "scale_by_polyak",
]


@public("fdbr.train.optim")
@frozen
class ScaleByOptimisticGradientState:
    """The state of `scale_by_optimistic_gradient`: a count of updates, and the last gradient."""

    count: int
    previous_gradient: Any


@public_factory("fdbr.train.optim")
def scale_by_optimistic_gradient(alpha: float = 1.0, beta: float = 1.0) -> Optimizer:
    """Go by what the next gradient is likely to be (Mokhtari et al., AISTATS 2020).

    Formula: ``update = (alpha + beta) * gradient - beta * previous_gradient``; the first gradient
    is its own predecessor.

    Parameters
    ----------
    alpha, beta
        Numbers; the weight of the gradient, and of its change.

    >>> transformation = scale_by_optimistic_gradient()
    >>> updates, state = transformation.update(3.0, transformation.init(0.0))
    >>> float(updates), float(transformation.update(2.0, state)[0])
    (3.0, 1.0)
    """

    def update(g: Any, own: Any, p: Any, later: Any) -> Any:
        previous = later * own[0] + (1.0 - later) * g
        return (alpha + beta) * g - beta * previous, (g,)

    return leafwise(
        "scale_by_optimistic_gradient",
        update,
        lambda p: (zeros(p),),
        state=ScaleByOptimisticGradientState,
        numbers=lambda t: ops.where(t > 1, 1.0, 0.0),
    )


@public_factory("fdbr.train.optim")
def optimistic_gradient_descent(
    learning_rate: LearningRate, alpha: float = 1.0, beta: float = 1.0
) -> Optimizer:
    """Optimistic gradient descent, for games such as GANs (Mokhtari et al., AISTATS 2020).

    It is `scale_by_optimistic_gradient`, then the learning rate.

    >>> optimizer = optimistic_gradient_descent(0.5)
    >>> float(optimizer.update(3.0, optimizer.init(0.0))[0])
    -1.5
    """
    return chain(scale_by_optimistic_gradient(alpha, beta), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def optimistic_adam_v2(
    learning_rate: LearningRate,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    nesterov: bool = True,
) -> Optimizer:
    """Adam for games (Daskalakis et al., *Training GANs with optimism*, ICLR 2018).

    It is `scale_by_adam`, `scale_by_optimistic_gradient` and the learning rate.

    >>> len(optimistic_adam_v2(0.1).init(0.0))
    3
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        scale_by_optimistic_gradient(alpha, beta),
        scale_by_learning_rate(learning_rate),
    )


@public_factory("fdbr.train.optim")
def noisy_sgd(
    learning_rate: LearningRate, eta: float = 0.01, gamma: float = 0.55, key: Any = None
) -> Optimizer:
    """Gradient descent with noise that fades (Neelakantan et al. 2015).

    It is `add_noise`, of variance ``eta / t**gamma``, then the learning rate.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    eta, gamma
        As those of `add_noise`.
    key
        The key of the noise.

    Raises
    ------
    TypeError
        If there is no key.

    >>> from fdbr import random
    >>> optimizer = noisy_sgd(0.5, key=random.key(0))
    >>> float(optimizer.update(1.0, optimizer.init(0.0))[0]) != -0.5
    True
    """
    if key is None:
        raise TypeError(
            "fdbr.train.optim.noisy_sgd: the noise needs a key; give key=fdbr.random.key(0)"
        )
    return chain(add_noise(eta, gamma, key), scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def scale_by_polyak(
    f_min: float = 0.0, max_learning_rate: float = 1.0, eps: float = 0.0, variant: str = "sps"
) -> Optimizer:
    """Rescale gradients by Polyak's step size (Polyak 1969; Loizou et al. 2021).

    Formula: ``update = min((value - f_min) / (norm(gradients)**2 + eps), max_learning_rate) *
    gradient``, with the norm of all gradients together; zero where that is zero.

    Parameters
    ----------
    f_min
        The least value of the loss, or a bound of it.
    max_learning_rate
        The greatest step size.
    eps
        A number ≥ 0.
    variant
        ``"sps"``, or ``"sps+"``: the difference counts as zero where it is negative.

    Raises
    ------
    TypeError
        By ``update``, if it is not given ``value``.
    ValueError
        If an argument is out of range.

    >>> transformation = scale_by_polyak()
    >>> updates, state = transformation.update(4.0, transformation.init(0.0), 0.0, value=8.0)
    >>> float(updates)
    2.0
    """
    if variant not in ("sps", "sps+"):
        raise ValueError(
            f"fdbr.train.optim.scale_by_polyak: variant must be 'sps' or 'sps+', not {variant!r}"
        )
    check_positive("scale_by_polyak", or_zero=True, eps=eps, max_learning_rate=max_learning_rate)

    def update(
        grads: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        if value is None:
            raise TypeError(
                "fdbr.train.optim.scale_by_polyak: it needs the value of the loss; call "
                "update(grads, state, params, value=value)"
            )
        squared = global_norm(grads) ** 2 + eps
        gap = value - f_min
        if variant == "sps+":
            gap = ops.maximum(gap, 0.0)
        some = squared > 2.3e-16
        found = ops.minimum(gap / ops.where(some, squared, 1.0), max_learning_rate)
        rate: Any = ops.where(some, found, 0.0)
        return scale(rate).update(grads, state, params)

    return Optimizer(lambda params: EmptyState(), update)


@public_factory("fdbr.train.optim")
def polyak_sgd(
    max_learning_rate: float = 1.0,
    scaling: LearningRate = 1.0,
    f_min: float = 0.0,
    eps: float = 0.0,
    variant: str = "sps",
) -> Optimizer:
    """Gradient descent with Polyak's step size (Loizou et al., AISTATS 2021).

    It is `sgd` with the learning rate ``scaling``, then `scale_by_polyak`; ``update`` is given the
    ``value`` of the loss.

    >>> optimizer = polyak_sgd()
    >>> float(optimizer.update(4.0, optimizer.init(0.0), 0.0, value=8.0)[0])
    -2.0
    """
    return chain(sgd(scaling), scale_by_polyak(f_min, max_learning_rate, eps, variant))
