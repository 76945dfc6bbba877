"""Statistics of the arrays of a tree: of parameters, of gradients."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fdbr import ops, tree
from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, check_new, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["checked_percentiles", "parameter_statistics", "percentile_label", "statistics"]


@public("fdbr.train")
def statistics(values: Any, prefix: str = "", percentiles: Sequence[float] = ()) -> dict[str, Any]:
    """Mean, standard deviation, extremes, norm and the share of zeros of each array of a tree.

    A pure function: in a step it makes metrics of gradients, jitted or not, ::

        return state, {"loss": value, **train.statistics(grads, "grads/")}

    and `parameter_statistics` is a stage that makes them of the parameters.

    Parameters
    ----------
    values
        A tree.  Leaves that are no floating or complex arrays with an element are passed by;
        of complex ones the absolute values count.
    prefix
        What is put before the names.
    percentiles
        Numbers from 0 to 100.

    Returns
    -------
    dict
        Arrays of shape ``()``, under the path of the leaf and the name of the statistic: ``mean``,
        ``std``, ``min``, ``max``, ``norm`` (Euclidean), ``zeros``, and ``p50`` of percentile 50.

    Raises
    ------
    TypeError
        If ``percentiles`` are no numbers.
    ValueError
        If one is out of range.

    >>> import numpy as np
    >>> from fdbr import train
    >>> found = train.statistics({"w": np.array([0.0, 3.0, 4.0, 1.0])}, percentiles=[50])
    >>> {name: float(value) for name, value in found.items() if "std" not in name}
    {"['w']/mean": 2.0, "['w']/min": 0.0, "['w']/max": 4.0, "['w']/norm": 5.09901951...,
     "['w']/zeros": 0.25, "['w']/p50": 2.0}
    """
    wanted = checked_percentiles("statistics", percentiles)
    found: dict[str, Any] = {}
    for path, leaf in zip(tree.paths(values), tree.leaves(values), strict=True):
        if tree.is_inexact(leaf) and (not hasattr(leaf, "size") or leaf.size):
            at = f"{prefix}{path}/" if path else prefix
            found.update((at + name, value) for name, value in _of(leaf, wanted).items())
    return found


def _of(array: Any, percentiles: list[float]) -> dict[str, Any]:
    array = ops.reshape(ops.asarray(array), (-1,))
    if ops.isdtype(array.dtype, "complex floating"):
        array = ops.abs(array)
    found = {
        "mean": ops.mean(array),
        "std": ops.std(array),
        "min": ops.min(array),
        "max": ops.max(array),
        "norm": ops.linalg.vector_norm(array),
        "zeros": ops.mean(ops.astype(array == 0, array.dtype)),
    }
    for percentile in percentiles:
        found[percentile_label(percentile)] = ops.quantile(array, percentile / 100)
    return found


def percentile_label(percentile: float) -> str:
    """The name of a percentile among statistics."""
    return f"p{percentile:g}"


def checked_percentiles(function: str, given: Any) -> list[float]:
    """Percentiles, if they are some; errors name the function."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(
            f"fdbr.train.{function}: percentiles must be a sequence of numbers, not "
            f"{describe(given)}"
        )
    for number in given:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise TypeError(
                f"fdbr.train.{function}: a percentile is a number, not {describe(number)}"
            )
        if not 0 <= number <= 100:
            raise ValueError(
                f"fdbr.train.{function}: percentiles lie between 0 and 100, got {number}"
            )
    return list(given)


def _whole(state: Any) -> Any:
    return state


@public_factory("fdbr.train")
def parameter_statistics(
    of: Callable[[Any], Any] = _whole,
    every: Condition = each_epoch,
    prefix: str = "params/",
    percentiles: Sequence[float] = (),
    name: str = "parameter_statistics",
) -> Stage:
    """A stage that adds `statistics` of the state, or of what follows from it, to some reports.

    Parameters
    ----------
    of
        ``of(state)``: the tree, such as ``lambda state: state[0]`` of a state of model and
        optimizer; it may compute gradients.  By default the whole state.
    every
        Which reports; by default the last of each epoch.
    prefix
        What is put before the names.
    percentiles
        Numbers from 0 to 100.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises ValueError where a report has a metric of such a name already.

    Raises
    ------
    TypeError, ValueError
        If ``of`` is no function, or ``percentiles`` are no such numbers.

    >>> import numpy as np
    >>> from fdbr import train
    >>> report = train.Report(1, 1, {}, [np.array([1.0, 3.0])], train.Position(1, 0), 0.1)
    >>> found = next(train.parameter_statistics()(iter([report])))
    >>> float(found.metrics["params/[0]/mean"])
    2.0
    """
    trigger = as_trigger("parameter_statistics", "every", every)
    wanted = checked_percentiles("parameter_statistics", percentiles)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    added = statistics(of(report.state), prefix, wanted)
                    check_new("parameter_statistics", added, report.metrics)
                    report = report.with_metrics({**report.metrics, **added})
                yield report

    return stage
