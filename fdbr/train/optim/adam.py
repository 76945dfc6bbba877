"""Adam."""

from typing import Any

from fdbr.core.array_modules import array_module, is_array
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.ops.moments import adam_step
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.leafwise import leafwise, zeros
from fdbr.train.optim.numbers import LearningRate, check_decays, check_positive
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.tree import frozen

__all__ = ["ScaleByAdamState", "adam", "adamw", "scale_by_adam"]


@public("fdbr.train.optim")
@frozen
class ScaleByAdamState:
    """The state of `scale_by_adam`.

    Attributes
    ----------
    count
        The number of updates made.
    mu, nu
        The running means of the gradients and of their squares, trees of the parameters'
        shape; `None` for what is not trained.
    """

    count: int
    mu: Any
    nu: Any


@public_factory("fdbr.train.optim")
def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Rescale gradients by Adam's running moments (Kingma & Ba, ICLR 2015).

    Formula, with ``t`` the count of updates, this one included::

        mu = b1 * mu + (1 - b1) * gradient
        nu = b2 * nu + (1 - b2) * gradient**2
        update = (mu / (1 - b1**t)) / (sqrt(nu / (1 - b2**t) + eps_root) + eps)

    With ``nesterov`` (Dozat 2016), ``b1 * mu / (1 - b1**(t + 1)) + (1 - b1) * gradient /
    (1 - b1**t)`` takes the place of ``mu / (1 - b1**t)``.  Of complex gradients it is the squared
    absolute value that is averaged.

    Parameters
    ----------
    b1, b2
        The decays of the running means, in [0, 1).
    eps
        A number ≥ 0, added to the root.
    eps_root
        A number ≥ 0, added under the root: a positive one lets one differentiate through updates
        of gradients that are zero.
    mu_dtype
        The dtype of ``mu``; by default that of the parameter.
    nesterov
        Whether to look one step ahead.

    Raises
    ------
    ValueError
        If an argument is out of range.

    >>> transformation = scale_by_adam(eps=1e-12)
    >>> updates, state = transformation.update(3.0, transformation.init(0.0), 0.0)
    >>> round(float(updates), 6), state.count
    (1.0, 1)
    """
    check_decays("scale_by_adam", b1=b1, b2=b2)
    check_positive("scale_by_adam", or_zero=True, eps=eps, eps_root=eps_root)

    def numbers(t: Any) -> Any:
        return 1 - b1**t, 1 - b2**t, (1 - b1 ** (t + 1) if nesterov else 1.0)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        mu, nu, change = _moved(g, own[0], own[1], (b1, b2, eps, eps_root), t, nesterov)
        return change, (mu, nu)

    return leafwise(
        "scale_by_adam",
        update,
        lambda p: (zeros(p, mu_dtype), zeros(p)),
        state=ScaleByAdamState,
        numbers=numbers,
        fits="dtype" if mu_dtype is None else "shape",
    )


def _moved(
    g: Any, mu: Any, nu: Any, constants: Any, weights: Any, nesterov: bool
) -> tuple[Any, Any, Any]:
    """The next moments of a leaf, and its update."""
    plain = all(is_array(leaf) and not isinstance(leaf, Tracer) for leaf in (g, mu, nu))
    step = adam_step.on(array_module(g, mu, nu)) if plain else adam_step.definition
    return step(g, mu, nu, constants, weights, nesterov)


@public_factory("fdbr.train.optim")
def adam(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Adam (Kingma & Ba, *Adam: a method for stochastic optimization*, ICLR 2015).

    It is ``chain(scale_by_adam(…), scale_by_learning_rate(learning_rate))``: see `scale_by_adam`
    for the formula and the other arguments.

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule: a function from the count of updates made before to a
        number.
    b1, b2, eps, eps_root, mu_dtype, nesterov
        As those of `scale_by_adam`.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range; by ``update``, if gradients or state do not fit the
        parameters.

    >>> from fdbr.train import optim
    >>> optimizer = optim.adam(0.1)
    >>> state = optimizer.init(0.0)
    >>> state
    (ScaleByAdamState(count=0, mu=0.0, nu=0.0), EmptyState())
    >>> updates, state = optimizer.update(3.0, state, 0.0)
    >>> round(float(updates), 6)
    -0.1
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(moments, scale_by_learning_rate(learning_rate))


@public_factory("fdbr.train.optim")
def adamw(
    learning_rate: LearningRate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: Any = 1e-4,
    mask: Any = None,
    *,
    nesterov: bool = False,
) -> Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019).

    Formula: ``params - learning_rate * (adam + weight_decay * params)``, where ``adam`` is the
    update of `scale_by_adam`.

    Parameters
    ----------
    learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov
        As those of `adam`.
    weight_decay, mask
        As those of `add_decayed_weights`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.adamw(0.1, weight_decay=0.5)
    >>> updates, state = optimizer.update(3.0, optimizer.init(1.0), 1.0)
    >>> round(float(updates), 6)
    -0.15
    """
    return chain(
        scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
