"""Adam with Nesterov's momentum."""

from typing import Any

from fdbr import ops
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.adam import scale_by_adam
from fdbr.train.optim.arithmetic import divided, plus, square
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.leafwise import across
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = ["ScaleByNadamState", "nadam", "nadamw"]

_WARMUP = 0.96  # Dozat's: the momentum at first is half of ``b1``, and grows to it


@public("fdbr.train.optim")
@frozen
class ScaleByNadamState:
    """The state of `nadam` with a schedule of the momentum.

    Attributes
    ----------
    count
        The number of updates made.
    momentum_product
        The product of the momenta of all updates.
    mu, nu
        The running means of the gradients and of their squares, trees of the parameters'
        shape; `None` for what is not trained.
    """

    count: int
    momentum_product: float
    mu: Any
    nu: Any


def _scale_by_nadam(
    b1: float, b2: float, eps: float, eps_root: float, mu_dtype: Any, momentum_decay: float
) -> Optimizer:
    """The rescaling of `nadam` with a schedule of the momentum."""
    check_decays("nadam", b1=b1, b2=b2)
    check_positive("nadam", or_zero=True, eps=eps, eps_root=eps_root, momentum_decay=momentum_decay)
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype)

    def momentum(t: Any) -> Any:
        return b1 * (1 - 0.5 * _WARMUP ** (t * momentum_decay))

    def init(params: Any) -> ScaleByNadamState:
        start = moments.init(params)
        return ScaleByNadamState(0, 1.0, start.mu, start.nu)

    def rule(g: Any, own: Any, p: Any, t: Any) -> Any:
        now, ahead, weight = t
        mu = plus(b1 * own[0], (1 - b1) * g)
        nu = plus(b2 * own[1], (1 - b2) * square(g))
        root = plus(ops.sqrt(nu / weight + eps_root), eps)
        return divided(plus(ahead * mu, now * g), root), (mu, nu)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("nadam", state, ScaleByNadamState)
        t = state.count + 1
        now, ahead = momentum(t), momentum(t + 1)
        product = state.momentum_product * now
        numbers = (1 - now) / (1 - product), ahead / (1 - product * ahead), 1 - b2**t
        updates, mu, nu = across("nadam", rule, grads, params, state.mu, state.nu, numbers=numbers)
        return updates, ScaleByNadamState(t, product, mu, nu)

    return Optimizer(init, update)


def _moments(
    function: str,
    moments: tuple[float, float, float, float, Any],
    nesterov: bool,
    momentum_decay: float | None,
) -> Optimizer:
    if momentum_decay is None:
        return scale_by_adam(*moments, nesterov=nesterov)
    if not nesterov:
        raise ValueError(
            f"fdbr.train.optim.{function}: momentum_decay={momentum_decay} is of Nesterov's "
            "momentum; say nesterov=True, or leave it out"
        )
    return _scale_by_nadam(*moments, momentum_decay)


@public_factory("fdbr.train.optim")
def nadam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = True,
    momentum_decay: float | None = None,
) -> Optimizer:
    """Adam with Nesterov's momentum (Dozat 2016).

    Without ``momentum_decay`` it is `adam` with ``nesterov``, as in Optax.  With it the momentum
    grows, as in PyTorch's ``NAdam``, whose default is 0.004.  Formula, with ``mu`` and ``nu`` of
    `scale_by_adam`, ``m(t) = b1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))``, and ``M(t)`` the
    product of ``m(1)`` to ``m(t)``::

        mean = m(t + 1) / (1 - M(t + 1)) * mu + (1 - m(t)) / (1 - M(t)) * gradient
        update = mean / (sqrt(nu / (1 - b2**t) + eps_root) + eps)

    Parameters
    ----------
    learning_rate, b1, b2, eps, eps_root, mu_dtype
        As those of `adam`.
    nesterov
        Whether to look one step ahead.
    momentum_decay
        How fast the momentum grows from half of ``b1`` to ``b1``, a number ≥ 0; `None` for a
        momentum of ``b1`` throughout.

    Raises
    ------
    ValueError
        If an argument is out of range, or there is a ``momentum_decay`` without ``nesterov``.

    >>> nadam(0.1).init(0.0)
    (ScaleByAdamState(count=0, mu=0.0, nu=0.0), EmptyState())
    >>> optimizer = nadam(0.1, momentum_decay=0.004)
    >>> updates, state = optimizer.update(3.0, optimizer.init(0.0), 0.0)
    >>> round(float(updates), 6)
    -0.105645
    """
    moments = b1, b2, eps, eps_root, mu_dtype
    return chain(
        _moments("nadam", moments, nesterov, momentum_decay), scale_by_learning_rate(learning_rate)
    )


@public_factory("fdbr.train.optim")
def nadamw(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = True,
    momentum_decay: float | None = None,
) -> Optimizer:
    """Nadam with decoupled weight decay: `nadam`, and `adamw`'s weight decay.

    Parameters
    ----------
    learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov, momentum_decay
        As those of `nadam`.
    weight_decay, mask
        As those of `add_decayed_weights`.

    Raises
    ------
    ValueError
        As by `nadam`.

    >>> len(nadamw(0.1).init(0.0))
    3
    """
    moments = b1, b2, eps, eps_root, mu_dtype
    return chain(
        _moments("nadamw", moments, nesterov, momentum_decay),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
