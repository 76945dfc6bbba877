"""Additions to gradients: parts of the parameters, and noise."""

from collections.abc import Callable
from typing import Any

from fdbr import ops, random
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.optim.base import EmptyState, Optimizer
from fdbr.train.optim.fitting import Parameters, check_state
from fdbr.train.optim.leafwise import leafwise
from fdbr.train.optim.masking import masked
from fdbr.train.optim.numbers import check_positive
from fdbr.tree import frozen

__all__ = [
    "AddNoiseState",
    "WeightDecaySchedule",
    "add_decayed_weights",
    "add_l1",
    "add_noise",
    "check_noise_key",
    "noise_like",
    "proximal_l1",
]


@public("fdbr.train.optim")
@frozen
class WeightDecaySchedule:
    """The state of a weight decay that follows a schedule.

    Attributes
    ----------
    count
        The number of updates made.
    """

    count: int


@public_factory("fdbr.train.optim")
def add_decayed_weights(
    weight_decay: float | Callable[[Any], Any] = 0.0, mask: Any = None
) -> Optimizer:
    """Add a multiple of the parameters to their gradients.

    Formula: ``update = gradient + weight_decay * parameter``.  Before an optimizer's rule it is
    the gradient of ``weight_decay / 2 * norm(parameters)**2``, Chainer's ``WeightDecay`` and
    PyTorch's ``weight_decay``; after the rule it is the decoupled weight decay of AdamW.

    Parameters
    ----------
    weight_decay
        A number, or a schedule: a function from the count of updates made before to a number.
    mask
        Which parameters decay, as for `masked`; by default all that have a gradient.

    Raises
    ------
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> decay = optim.add_decayed_weights(0.1, mask="w")
    >>> params = {"w": 2.0, "b": 3.0}
    >>> decay.update({"w": 1.0, "b": 1.0}, decay.init(params), params)[0]
    {'w': 1.2, 'b': 1.0}
    """
    return _with_parameters(
        "add_decayed_weights", weight_decay, lambda g, p, rate: g + rate * p, mask
    )


@public_factory("fdbr.train.optim")
def add_l1(rate: float | Callable[[Any], Any], mask: Any = None) -> Optimizer:
    """Add the signs of the parameters to their gradients: Chainer's ``Lasso``.

    Formula: ``update = gradient + rate * sign(parameter)``, before an optimizer's rule the
    gradient of ``rate * sum(abs(parameters))``.  `proximal_l1` reaches zero exactly.

    Parameters
    ----------
    rate
        A number, or a schedule: a function from the count of updates made before to a number.
    mask
        Which parameters are meant, as for `masked`; by default all that have a gradient.

    Raises
    ------
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> lasso = optim.add_l1(0.1)
    >>> lasso.update({"w": 1.0, "b": 1.0}, lasso.init(0.0), {"w": -2.0, "b": 3.0})[0]
    {'w': 0.9, 'b': 1.1}
    """
    return _with_parameters("add_l1", rate, lambda g, p, rate: g + rate * ops.sign(p), mask)


@public_factory("fdbr.train.optim")
def proximal_l1(threshold: float | Callable[[Any], Any], mask: Any = None) -> Optimizer:
    """Bring parameters nearer to zero after a step, and to zero those that are near.

    It is the proximal step of ``l1 * sum(abs(parameters))`` (ISTA; Daubechies et al. 2004) if
    ``threshold`` is the learning rate times ``l1``, and belongs at the end of a chain.  Formula,
    with ``new = parameter + update``::

        update = sign(new) * max(abs(new) - threshold, 0) - parameter

    Parameters
    ----------
    threshold
        A number ≥ 0, or a schedule: a function from the count of updates made before to a number.
    mask
        Which parameters are meant, as for `masked`; by default all that have a gradient.

    Raises
    ------
    TypeError
        By ``update``, if there are no parameters.

    >>> from fdbr.train import optim
    >>> shrinking = optim.proximal_l1(0.5)
    >>> shrinking.update([0.25, -2.0], shrinking.init(0.0), [0.0, 4.0])[0]
    [0.0, -2.5]
    """

    def shrunk(g: Any, p: Any, threshold: Any) -> Any:
        new = p + g
        return ops.sign(new) * ops.maximum(ops.abs(new) - threshold, 0) - p

    return _with_parameters("proximal_l1", threshold, shrunk, mask)


def _with_parameters(
    name: str, rate: Any, rule: Callable[[Any, Any, Any], Any], mask: Any
) -> Optimizer:
    """A transformation by ``rule(g, p, rate)``, of those parameters that a mask tells."""
    schedule = rate if callable(rate) else lambda count: rate
    made = leafwise(
        name,
        lambda g, own, p, number: (rule(g, p, number), own),
        state=WeightDecaySchedule if callable(rate) else EmptyState,
        numbers=(lambda t: schedule(t - 1)) if callable(rate) else lambda t: rate,
        needs_params=True,
    )
    return made if mask is None else masked(made, mask)


# --- noise --------------------------------------------------------------------------


@public("fdbr.train.optim")
@frozen
class AddNoiseState:
    """The state of `add_noise`.

    Attributes
    ----------
    count
        The number of updates made.
    rng_key
        The key of the next noise.
    """

    count: int
    rng_key: Any


@public_factory("fdbr.train.optim")
def add_noise(eta: float, gamma: float, key: Any) -> Optimizer:
    """Add Gaussian noise that fades to gradients (Neelakantan et al. 2015).

    Formula, with ``t`` the count of updates, this one included:
    ``update = gradient + sqrt(eta / t**gamma) * normal``.  Chainer's ``GradientNoise(eta)`` has
    ``gamma=0.55``.

    Parameters
    ----------
    eta
        The variance of the first noise, a number ≥ 0.
    gamma
        The exponent by which it fades, a number ≥ 0.
    key
        A key of `fdbr.random`; the noise of each step and of each leaf follows from it.  The state
        has it, so that a run that is resumed has the noise of one that never stopped.

    Raises
    ------
    ValueError
        If a number is negative.
    TypeError
        If there is no key.

    >>> import fdbr
    >>> from fdbr.train import optim
    >>> noise = optim.add_noise(0.01, 0.55, fdbr.random.key(0))
    >>> updates, state = noise.update({"w": 1.0, "steps": None}, noise.init({"w": 2.0}))
    >>> abs(updates["w"] - 1.0) < 0.5, updates["steps"], state.count
    (True, None, 1)
    """
    check_positive("add_noise", or_zero=True, eta=eta, gamma=gamma)
    check_noise_key("add_noise", key)

    def init(params: Any) -> AddNoiseState:
        return AddNoiseState(0, key)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("add_noise", state, AddNoiseState)
        count = state.count + 1
        rng_key, own = random.split(state.rng_key)
        parameters = Parameters("add_noise", params, grads)
        samples = [
            None if g is None else noise_like(random.fold_in(own, index), g)
            for index, g in enumerate(parameters.gradients(grads))
        ]
        deviation = (eta / count**gamma) ** 0.5
        noisy = leafwise(
            "add_noise",
            lambda g, own, p, number: (g + number * own[0], own),
            lambda p: (p,),
            state=_Noise,
            numbers=lambda t: deviation,
        )
        updates, _ = noisy.update(grads, _Noise(parameters.unflatten(samples)), params)
        return updates, AddNoiseState(count, rng_key)

    return Optimizer(init, update)


@frozen
class _Noise:
    samples: Any


def check_noise_key(function: str, key: Any) -> None:
    """Raise a TypeError unless a value has the shape of a key."""
    if getattr(key, "shape", None) != (2,):
        raise TypeError(
            f"fdbr.train.optim.{function}: key must be a key of fdbr.random, such as "
            f"fdbr.random.key(0), got {describe(key)}"
        )


def noise_like(key: Any, g: Any) -> Any:
    """Return standard normal noise like an array, of variance 1 also for a complex array."""
    if not hasattr(g, "dtype"):
        if isinstance(g, complex):
            real, imag = random.normal(key, (2,)) * 0.5**0.5
            return complex(real, imag)
        return float(random.normal(key))
    if ops.isdtype(g.dtype, "complex floating"):
        real, imag = random.normal(key, (2, *g.shape), ops.real(g).dtype) * 0.5**0.5
        return ops.astype(real + 1j * imag, g.dtype)
    return random.normal(key, g.shape, g.dtype)
