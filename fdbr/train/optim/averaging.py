"""Rules that average the parameters on their way: ASGD, schedule-free ones, lookahead."""

from typing import Any, NamedTuple

from fdbr import ops, tree
from fdbr.core.array_modules import keep
from fdbr.core.util.pickling import public_factory
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer, chain
from fdbr.train.optim.fitting import check_params, check_state
from fdbr.train.optim.leafwise import across, leafwise
from fdbr.train.optim.momentum import sgd
from fdbr.train.optim.numbers import LearningRate, check_positive, learning_rate_of, rate_at
from fdbr.train.optim.rms import scale_by_rms
from fdbr.train.optim.scale import scale_by_learning_rate
from fdbr.train.optim.schedules import warmup_constant_schedule
from fdbr.train.optim.transforms.adding import add_decayed_weights
from fdbr.train.optim.wrappers.states import tree_get
from fdbr.tree import frozen

__all__ = [
    "AsgdState",
    "LookaheadParams",
    "LookaheadState",
    "ScheduleFreeState",
    "asgd",
    "lookahead",
    "schedule_free",
    "schedule_free_adamw",
    "schedule_free_eval_params",
    "schedule_free_sgd",
]


@public("fdbr.train.optim")
@frozen
class AsgdState:
    """The state of `asgd`.

    Attributes
    ----------
    count
        The number of updates made.
    ax
        The mean of the parameters, which is the result.
    """

    count: int
    ax: Any


@public_factory("fdbr.train.optim")
def asgd(
    learning_rate: LearningRate = 1e-2,
    lambd: float = 1e-4,
    alpha: float = 0.75,
    t0: float = 1e6,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Averaged gradient descent (Polyak & Juditsky 1992), as PyTorch has it.

    Formula, with ``k = t - 1`` updates before::

        eta = learning_rate / (1 + lambd * learning_rate * k)**alpha
        params = (1 - lambd * eta) * params - eta * (gradient + weight_decay * params)
        ax = ax + (params - ax) / max(1, k - t0)

    Parameters
    ----------
    learning_rate
        A number ≥ 0, or a schedule.
    lambd
        The decay of the parameters.
    alpha
        The power by which the rate decays.
    t0
        The update from which on parameters are averaged; ``state.ax`` are the parameters until
        then.
    weight_decay
        A number ≥ 0.

    Raises
    ------
    TypeError
        By ``update``, if it is not given the parameters.

    >>> optimizer = asgd(0.1, lambd=0.0)
    >>> updates, state = optimizer.update(3.0, optimizer.init(1.0), 1.0)
    >>> round(float(updates), 6), round(float(state.ax), 6)
    (-0.3, 0.7)
    """
    check_positive("asgd", or_zero=True, lambd=lambd, alpha=alpha, weight_decay=weight_decay)
    rate = learning_rate_of("asgd", learning_rate)

    def numbers(t: Any) -> Any:
        found = rate_at("asgd", rate, t - 1)
        eta = found / (1 + lambd * found * (t - 1)) ** alpha
        return eta, 1 / ops.maximum(1.0, t - 1 - t0)

    def update(g: Any, own: Any, p: Any, t: Any) -> Any:
        change = -t[0] * (g + (weight_decay + lambd) * p)
        return change, (own[0] + (p + change - own[0]) * t[1],)

    return leafwise(
        "asgd",
        update,
        lambda p: (p if isinstance(p, float) else keep(p),),
        state=AsgdState,
        numbers=numbers,
        needs_params=True,
    )


@public("fdbr.train.optim")
@frozen
class ScheduleFreeState:
    """The state of `schedule_free`.

    Attributes
    ----------
    b1
        The weight of the mean in the parameters.
    weight_sum
        The sum of the weights of all updates.
    step_count
        The number of the next update.
    max_lr
        The greatest learning rate so far.
    base_optimizer_state
        The state of the optimizer within.
    z
        The parameters that it moves.
    """

    b1: float
    weight_sum: Any
    step_count: int
    max_lr: Any
    base_optimizer_state: Any
    z: Any


@public_factory("fdbr.train.optim")
def schedule_free(
    base_optimizer: Optimizer,
    learning_rate: LearningRate,
    b1: float = 0.9,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """Averaging in the place of a schedule (Defazio et al., *The road less scheduled*, 2024).

    Formula, with ``u`` the update of the optimizer within, and ``params`` the point ``y`` at which
    gradients are taken::

        x = (y - (1 - b1) * z) / b1
        z = z + u
        x = x + (z - x) * weight / weight_sum
        y = b1 * x + (1 - b1) * z

    where the weight of an update is the greatest learning rate so far to the power of
    ``weight_lr_power``.  `schedule_free_eval_params` gives ``x``, at which to evaluate.

    Parameters
    ----------
    base_optimizer
        An optimizer without momentum.
    learning_rate
        Its learning rate, or its schedule, which is given 1 at the first update.
    b1
        A number in (0, 1].
    weight_lr_power
        The power of the learning rate in the weights.
    state_dtype
        The dtype of ``z``; by default that of the parameters.

    Raises
    ------
    ValueError
        If ``b1`` is not positive.

    >>> from fdbr.train import optim
    >>> optimizer = optim.schedule_free(optim.sgd(0.5), 0.5)
    >>> updates, state = optimizer.update(1.0, optimizer.init(2.0), 2.0)
    >>> optim.schedule_free_eval_params(state, optim.apply_updates(2.0, updates))
    1.5
    """
    check_positive("schedule_free", b1=b1)
    rate = learning_rate_of("schedule_free", learning_rate)

    def copied(leaf: Any) -> Any:
        if state_dtype is not None and not isinstance(leaf, float):
            leaf = ops.astype(leaf, state_dtype)
        return leaf if isinstance(leaf, float) else keep(leaf)

    def init(params: Any) -> ScheduleFreeState:
        z = tree.map(copied, tree.trainable(params))
        zero = ops.asarray(0.0)[()]
        return ScheduleFreeState(b1, zero, 1, zero, base_optimizer.init(params), z)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("schedule_free", state, ScheduleFreeState)
        check_params("schedule_free", params)
        max_lr = ops.maximum(state.max_lr, rate_at("schedule_free", rate, state.step_count))
        weight = max_lr**weight_lr_power
        weight_sum = state.weight_sum + weight
        part = weight / ops.where(weight_sum > 0, weight_sum, 1.0)
        updates, base = base_optimizer.update(grads, state.base_optimizer_state, params, **extra)

        def moved(u: Any, own: Any, y: Any, t: Any) -> Any:
            z = own[0] + u
            x = (y - (1 - b1) * own[0]) / b1
            return b1 * ((1 - t) * x + t * z) + (1 - b1) * z - y, (z,)

        changes, z = across("schedule_free", moved, updates, params, state.z, numbers=part)
        count = state.step_count + 1
        return changes, ScheduleFreeState(state.b1, weight_sum, count, max_lr, base, z)

    return Optimizer(init, update)


@public("fdbr.train.optim")
def schedule_free_eval_params(state: Any, params: Any) -> Any:
    """The parameters at which to evaluate, of a run with `schedule_free`.

    Formula: ``(params - (1 - b1) * z) / b1``.

    Parameters
    ----------
    state
        A `ScheduleFreeState`, or a state that has one.
    params
        The parameters that are trained with it.

    Raises
    ------
    ValueError
        If there is no `ScheduleFreeState` in the state.

    >>> optimizer = schedule_free_sgd(0.5)
    >>> schedule_free_eval_params(optimizer.init(2.0), 2.0)
    2.0
    """
    tree.structure(state)  # it has one, or says why not
    b1, z = tree_get(state, "b1", None), tree_get(state, "z", None)
    if b1 is None or z is None:
        raise ValueError(
            "fdbr.train.optim.schedule_free_eval_params: the state must have a ScheduleFreeState, "
            f"got {type(state).__name__}; give that of optim.schedule_free(…)"
        )
    found, *_ = across(
        "schedule_free_eval_params",
        lambda z, own, y, t: ((y - (1 - b1) * z) / b1, own),
        z,
        params,
    )
    return tree.combine(found, params)


def _warmed_up(learning_rate: float, warmup_steps: int | None) -> Any:
    if warmup_steps is None:
        return learning_rate
    return warmup_constant_schedule(0, learning_rate, warmup_steps)


@public_factory("fdbr.train.optim")
def schedule_free_sgd(
    learning_rate: float = 1.0,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    weight_decay: float | None = None,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """Schedule-free gradient descent (Defazio et al. 2024): `schedule_free` of `sgd`.

    Parameters
    ----------
    learning_rate
        A number ≥ 0.
    warmup_steps
        The number of updates over which it is reached, from 0; by default it is there at once.
    b1, weight_lr_power, state_dtype
        As those of `schedule_free`.
    weight_decay
        That of `add_decayed_weights`, or `None`.

    >>> optimizer = schedule_free_sgd(0.5)
    >>> float(optimizer.update(1.0, optimizer.init(2.0), 2.0)[0])
    -0.5
    """
    rate = _warmed_up(learning_rate, warmup_steps)
    base = sgd(rate)
    if weight_decay is not None:
        base = chain(add_decayed_weights(weight_decay), base)
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


@public_factory("fdbr.train.optim")
def schedule_free_adamw(
    learning_rate: float = 0.0025,
    warmup_steps: int | None = None,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    weight_lr_power: float = 2.0,
    state_dtype: Any = None,
) -> Optimizer:
    """Schedule-free AdamW (Defazio et al. 2024).

    It is `schedule_free` of `scale_by_rms`, weight decay and the learning rate.

    Parameters
    ----------
    learning_rate, warmup_steps, b1, weight_decay, weight_lr_power, state_dtype
        As those of `schedule_free_sgd`.
    b2, eps
        The decay of the mean of squares, and what is added to its root.

    >>> optimizer = schedule_free_adamw(0.5)
    >>> round(float(optimizer.update(1.0, optimizer.init(2.0), 2.0)[0]), 6)
    -0.5
    """
    rate = _warmed_up(learning_rate, warmup_steps)
    base = chain(
        scale_by_rms(b2, eps, 0.0, False, True),
        add_decayed_weights(weight_decay),
        scale_by_learning_rate(rate),
    )
    return schedule_free(base, rate, b1, weight_lr_power, state_dtype)


@public("fdbr.train.optim")
class LookaheadParams(NamedTuple):
    """The two sets of parameters of `lookahead`.

    Attributes
    ----------
    fast
        Those at which gradients are taken.
    slow
        Those at which to evaluate.
    """

    fast: Any
    slow: Any

    @classmethod
    def init_synced(cls, params: Any) -> "LookaheadParams":
        """Both sets from one."""
        return cls(params, params)


@public("fdbr.train.optim")
@frozen
class LookaheadState:
    """The state of `lookahead`.

    Attributes
    ----------
    fast_state
        That of the optimizer within.
    steps_since_sync
        The number of updates since the two sets met.
    """

    fast_state: Any
    steps_since_sync: int


@public_factory("fdbr.train.optim")
def lookahead(
    fast_optimizer: Optimizer,
    sync_period: int,
    slow_step_size: float,
    reset_state: bool = False,
) -> Optimizer:
    """Several steps forward, one step back (Zhang et al., NeurIPS 2019).

    Formula: an optimizer moves ``params.fast``; each ``sync_period`` updates, ``slow = slow +
    slow_step_size * (fast - slow)``, and ``fast = slow``.

    Parameters
    ----------
    fast_optimizer
        The optimizer within.
    sync_period
        The number of its updates until the two meet, at least 1.
    slow_step_size
        The part of the way that the slow ones go.
    reset_state
        Whether its state begins anew then.

    Returns
    -------
    Optimizer
        Of `LookaheadParams`: ``update`` takes gradients by the fast ones.

    Raises
    ------
    ValueError, TypeError
        If ``sync_period`` is less than 1; by ``update``, if parameters are no `LookaheadParams`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.lookahead(optim.sgd(1.0), 1, 0.5)
    >>> params = optim.LookaheadParams.init_synced(2.0)
    >>> updates, state = optimizer.update(1.0, optimizer.init(params), params)
    >>> optim.apply_updates(params, updates)
    LookaheadParams(fast=1.5, slow=1.5)
    """
    if sync_period < 1:
        raise ValueError(
            f"fdbr.train.optim.lookahead: sync_period must be at least 1, got {sync_period}"
        )

    def init(params: Any) -> LookaheadState:
        return LookaheadState(fast_optimizer.init(_both(params).fast), 0)

    def moved(u: Any, own: Any, p: Any, met: Any) -> Any:
        ahead = met * (p + u - own[0])
        return u - (1 - slow_step_size) * ahead, (slow_step_size * ahead,)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("lookahead", state, LookaheadState)
        fast, slow = _both(params)
        updates, within = fast_optimizer.update(grads, state.fast_state, fast, **extra)
        count = (state.steps_since_sync + 1) % sync_period
        met = ops.where(count == 0, 1.0, 0.0)
        both = LookaheadParams(*across("lookahead", moved, updates, fast, slow, numbers=met))
        if reset_state and count == 0:
            within = fast_optimizer.init(fast)
        return both, LookaheadState(within, count)

    return Optimizer(init, update)


def _both(params: Any) -> LookaheadParams:
    if not isinstance(params, LookaheadParams):
        raise TypeError(
            "fdbr.train.optim.lookahead: the parameters must be LookaheadParams, got "
            f"{type(params).__name__}; make them with LookaheadParams.init_synced(params)"
        )
    return params
