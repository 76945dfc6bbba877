"""Hyperparameters that stand in the state, where they can be seen and changed."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.core.util.pickling import factory, public_factory
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.tree import frozen

__all__ = [
    "InjectStatefulHyperparamsState",
    "inject_hyperparams",
    "inject_stateful_hyperparams",
]


@public("fdbr.train.optim")
@frozen
class InjectStatefulHyperparamsState:
    """The state of `inject_hyperparams`.

    Attributes
    ----------
    count
        The number of updates made.
    hyperparams
        The numbers of the last update, by name.  Those that no schedule sets may be changed:
        ``optim.tree_set(state, learning_rate=0.01)``.
    hyperparams_states
        The states of schedules, by name: the count of one that is a function.
    inner_state
        The state of the optimizer.
    """

    count: int
    hyperparams: dict[str, Any]
    hyperparams_states: dict[str, Any]
    inner_state: Any


@public_factory("fdbr.train.optim")
def inject_hyperparams(
    inner_factory: Callable[..., Optimizer],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., Optimizer]:
    """An optimizer whose numbers stand in its state.

    A stage, or you, can then see the learning rate and change it, and any number may follow a
    schedule; a jitted step is not traced again.

    Parameters
    ----------
    inner_factory
        A function that makes an optimizer, such as ``optim.adam``.
    static_args
        The names of arguments that stay what they are: functions that are no schedules, and
        integers on which the structure depends.
    hyperparam_dtype
        The dtype of the numbers; by default floats stay Python's, which leave the dtypes of
        gradients alone.

    Returns
    -------
    function
        Of the same arguments as ``inner_factory``.  Numbers, but for truth values, go to the
        state; functions are schedules, of the count of updates made before; objects with ``init()
        -> state``, ``update(state, **extra) -> state`` and a call ``(state, **extra) -> number``
        are schedules with a state, and see the keywords of ``update``.

    Raises
    ------
    TypeError, ValueError
        If ``inner_factory`` is no function, or one of ``static_args`` is none of its arguments.

    >>> from fdbr.train import optim
    >>> optimizer = optim.inject_hyperparams(optim.sgd)(learning_rate=0.5)
    >>> state = optimizer.init(1.0)
    >>> optim.tree_get(state, "learning_rate")
    0.5
    >>> optimizer.update(1.0, optim.tree_set(state, learning_rate=0.25), 1.0)[0]
    -0.25
    """
    name = "fdbr.train.optim.inject_hyperparams"
    fixed = {static_args} if isinstance(static_args, str) else set(static_args)
    signature = inspect.signature(inner_factory)
    if not fixed <= set(signature.parameters):
        raise ValueError(
            f"{name}: static_args has {sorted(fixed - set(signature.parameters))}, but the "
            f"arguments are {list(signature.parameters)}"
        )

    @functools.wraps(inner_factory)
    def made(*args: Any, **kwargs: Any) -> Optimizer:
        return _made(inner_factory, fixed, hyperparam_dtype, args, kwargs)

    return made


@factory
def _made(
    inner_factory: Callable[..., Optimizer],
    fixed: set[str],
    dtype: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Optimizer:
    signature = inspect.signature(inner_factory)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()

    def make(arguments: dict[str, Any]) -> Optimizer:
        in_order = {name: arguments[name] for name in bound.arguments}
        own = inspect.BoundArguments(signature, in_order)
        return inner_factory(*own.args, **own.kwargs)

    return _injected(make, dict(bound.arguments), fixed, dtype)


def _injected(
    make: Callable[[dict[str, Any]], Optimizer],
    arguments: dict[str, Any],
    fixed: set[str],
    dtype: Any,
) -> Optimizer:
    schedules, numbers, others = {}, {}, {}
    for name, value in arguments.items():
        if name in fixed or isinstance(value, bool):
            others[name] = value
        elif callable(value):
            schedules[name] = value if _has_state(value) else _Counting(value)
        elif _is_number(value):
            numbers[name] = _converted(value, dtype)
        else:
            others[name] = value

    def made(hyperparams: dict[str, Any]) -> Optimizer:
        return make({**others, **hyperparams})

    def init(params: Any) -> InjectStatefulHyperparamsState:
        states = {name: schedule.init() for name, schedule in schedules.items()}
        first = {name: schedules[name](state) for name, state in states.items()}
        hyperparams = numbers | {name: _converted(v, dtype) for name, v in first.items()}
        inner_state = made(hyperparams).init(params)
        return InjectStatefulHyperparamsState(0, hyperparams, states, inner_state)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("inject_hyperparams", state, InjectStatefulHyperparamsState)
        states = state.hyperparams_states
        scheduled = {
            name: _converted(schedules[name](own, **extra), dtype) for name, own in states.items()
        }
        hyperparams = {**state.hyperparams, **scheduled}
        updates, inner_state = made(hyperparams).update(grads, state.inner_state, params, **extra)
        states = {name: schedules[name].update(own, **extra) for name, own in states.items()}
        count = state.count + 1
        return updates, InjectStatefulHyperparamsState(count, hyperparams, states, inner_state)

    return Optimizer(init, update)


class _Counting:
    """A schedule that is a function of the count, with the count as its state."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def init(self) -> int:
        return 0

    def update(self, state: Any, **extra: Any) -> Any:
        return state + 1

    def __call__(self, state: Any, **extra: Any) -> Any:
        return self.function(state)


def _has_state(schedule: Any) -> bool:
    return callable(getattr(schedule, "init", None)) and callable(getattr(schedule, "update", None))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Tracer) or (
        hasattr(value, "dtype") and getattr(value, "shape", None) == ()
    )


def _converted(value: Any, dtype: Any) -> Any:
    """A number in the dtype that is asked for; by default floats are Python's."""
    if isinstance(value, Tracer | int):
        return value
    if dtype is not None:
        return ops.astype(ops.asarray(value), dtype)
    return value.item() if type(value).__module__ == "numpy" else value


@public_factory("fdbr.train.optim")
def inject_stateful_hyperparams(
    inner_factory: Callable[..., Optimizer],
    static_args: str | Iterable[str] = (),
    hyperparam_dtype: Any = None,
) -> Callable[..., Optimizer]:
    """Another name of `inject_hyperparams`, which Optax has, too.

    Parameters
    ----------
    inner_factory, static_args, hyperparam_dtype
        Those of `inject_hyperparams`.

    Returns
    -------
    function
        That of `inject_hyperparams`.

    Raises
    ------
    TypeError, ValueError
        Those of `inject_hyperparams`.

    >>> from fdbr.train import optim
    >>> optimizer = optim.inject_stateful_hyperparams(optim.scale)(step_size=lambda count: -count)
    >>> optimizer.update(2.0, optimizer.update(2.0, optimizer.init(1.0))[1])[0]
    -2.0
    """
    return inject_hyperparams(inner_factory, static_args, hyperparam_dtype)
