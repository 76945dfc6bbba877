"""Measurements of updates within a chain, which stand in its state."""

from collections.abc import Callable, Mapping
from typing import Any

from fdbr import ops, tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.optim.base import Optimizer
from fdbr.train.optim.fitting import check_state
from fdbr.train.optim.transforms.accumulating import ema
from fdbr.train.optim.wrappers.finite import nothing
from fdbr.tree import frozen

__all__ = ["MonitorState", "SnapshotState", "measure_with_ema", "monitor", "snapshot"]


@public("fdbr.train.optim")
@frozen
class SnapshotState:
    """The state of `snapshot`.

    Attributes
    ----------
    measurement
        The last measurement, by its name.
    """

    measurement: dict[str, Any]


@public_factory("fdbr.train.optim")
def snapshot(measure_name: str, measure: Callable[[Any], Any]) -> Optimizer:
    """Note a measurement of the updates at this place of a chain; they pass unchanged.

    Parameters
    ----------
    measure_name
        The name by which `tree_get` finds it in the state.
    measure
        A function from updates to an array, a number or a tree of them.  The first state has its
        value for updates of zero.

    Raises
    ------
    TypeError
        If the name is no text, or the function none.

    >>> from fdbr.train import optim
    >>> optimizer = optim.chain(optim.scale(2.0), optim.snapshot("norm", optim.global_norm))
    >>> _, state = optimizer.update([3.0, 4.0], optimizer.init([0.0, 0.0]))
    >>> float(optim.tree_get(state, "norm"))
    10.0
    """

    def init(params: Any) -> SnapshotState:
        return SnapshotState({measure_name: measure(nothing(tree.trainable(params)))})

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("snapshot", state, SnapshotState)
        return grads, SnapshotState({measure_name: measure(grads)})

    return Optimizer(init, update)


@public("fdbr.train.optim")
@frozen
class MonitorState:
    """The state of `monitor`.

    Attributes
    ----------
    measurements
        The last measurements, by their names.
    measure_states
        The states of the measures that have one, in their order.
    """

    measurements: dict[str, Any]
    measure_states: tuple[Any, ...]


@public_factory("fdbr.train.optim")
def monitor(measures: Mapping[str, Any]) -> Optimizer:
    """Note several measurements of the updates at this place of a chain; they pass unchanged.

    Parameters
    ----------
    measures
        By their names, functions of the updates, as for `snapshot`, or transformations that make
        measurements of them and keep something, as `measure_with_ema` returns.

    Raises
    ------
    TypeError
        If ``measures`` is no mapping from names to these.

    >>> from fdbr.train import optim
    >>> smooth = optim.measure_with_ema(optim.global_norm, 0.5)
    >>> watched = optim.monitor({"norm": optim.global_norm, "smooth": smooth})
    >>> state = watched.init([0.0, 0.0])
    >>> for grads in ([3.0, 4.0], [0.0, 2.0]):
    ...     _, state = watched.update(grads, state)
    >>> float(optim.tree_get(state, "norm")), float(optim.tree_get(state, "smooth"))
    (2.0, 3.0)
    """
    if not isinstance(measures, Mapping) or not all(
        isinstance(name, str) and (isinstance(own, Optimizer) or callable(own))
        for name, own in measures.items()
    ):
        raise TypeError(
            "fdbr.train.optim.monitor: measures must be a dict from names to functions of the "
            f"updates, not {describe(measures)}"
        )
    kept = {name: own for name, own in measures.items() if isinstance(own, Optimizer)}

    def measured(grads: Any, states: tuple[Any, ...], params: Any, extra: Any) -> MonitorState:
        found = {name: own(grads) for name, own in measures.items() if name not in kept}
        new = []
        for (name, own), state in zip(kept.items(), states, strict=True):
            found[name], state = own.update(grads, state, params, **extra)
            new.append(state)
        return MonitorState(found, tuple(new))

    def init(params: Any) -> MonitorState:
        states = tuple(own.init(params) for own in kept.values())
        first = measured(nothing(tree.trainable(params)), states, params, {})
        return MonitorState(first.measurements, states)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        check_state("monitor", state, MonitorState)
        return grads, measured(grads, state.measure_states, params, extra)

    return Optimizer(init, update)


@public_factory("fdbr.train.optim")
def measure_with_ema(
    measure: Callable[[Any], Any], decay: float, debias: bool = True, accumulator_dtype: Any = None
) -> Optimizer:
    """A moving average of a measurement, for `monitor`.

    Parameters
    ----------
    measure
        A function from updates to an array, a number or a tree of them.
    decay, debias, accumulator_dtype
        Those of `ema`.

    Returns
    -------
    Optimizer
        Its "updates" are the average.

    Raises
    ------
    ValueError
        If ``decay`` is out of range.
    TypeError
        If ``measure`` is no function.

    >>> from fdbr.train import optim
    >>> large = optim.measure_with_ema(lambda updates: optim.global_norm(updates) > 1, 0.5)
    >>> average, _ = large.update([3.0, 4.0], large.init([0.0, 0.0]))
    >>> float(average)
    1.0
    """
    average = ema(decay, debias, accumulator_dtype)

    def measured(updates: Any) -> Any:
        return tree.map(lambda value: 1.0 * ops.asarray(value), measure(updates))

    def init(params: Any) -> Any:
        return average.init(measured(nothing(tree.trainable(params))))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        return average.update(measured(grads), state)

    return Optimizer(init, update)
