"""Triggers that follow a metric."""

import math
from typing import Any

from fdbr.core.util.pickling import public_factory
from fdbr.errors.checks import describe, integer
from fdbr.train.loop.reports import Report
from fdbr.train.metrics import number
from fdbr.train.triggers.base import Condition, Trigger, as_trigger
from fdbr.train.triggers.intervals import each_epoch

__all__ = ["best", "early_stopping"]


@public_factory("fdbr.train")
def best(metric: str, mode: str = "min", every: Condition = each_epoch) -> Trigger:
    """True when a metric is better than ever before.

    Parameters
    ----------
    metric
        Its name.
    mode
        Whether better is less, ``"min"``, or more, ``"max"``.
    every
        Of which reports the metric is looked at; by default the last of each epoch.  Each of them
        must have it.

    Returns
    -------
    Trigger
        Its state is the best value so far.  NaN is never better.

    Raises
    ------
    TypeError
        If an argument is not what it should be; where the metric is no number.
    ValueError
        If ``mode`` is something else; where a report that is looked at has no such metric.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i, {"test/loss": loss}, None, train.Position(i, 0), 0.1)
    ...     for i, loss in enumerate([0.5, 0.7, 0.4], 1)
    ... ]
    >>> [fires for report, fires in train.due(reports, train.best("test/loss"))]
    [True, False, True]
    """
    looked_at, sign = _checked("best", metric, mode, every)

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        looks, inner = looked_at.update(state["every"], report)
        value = _metric("best", report, metric) if looks else None
        better = value is not None and _improves(sign, value, state["best"], 0.0)
        return better, {"best": value if better else state["best"], "every": inner}

    label = f"best({metric!r}, mode={mode!r})"
    return Trigger(update, lambda: {"best": None, "every": looked_at.start()}, label)


@public_factory("fdbr.train")
def early_stopping(
    metric: str,
    patience: int = 3,
    mode: str = "min",
    min_delta: float = 0.0,
    every: Condition = each_epoch,
) -> Trigger:
    """True when a metric has not become better for so long that a run had better end.

    Use it to end one: ``train.until(train.early_stopping("test/loss"))`` is a stage, to be put
    behind the one that makes the metric.

    Parameters
    ----------
    metric
        Its name.
    patience
        How many times in a row it may be no better.
    mode
        Whether better is less, ``"min"``, or more, ``"max"``.
    min_delta
        By how much a value must be better to count.
    every
        Of which reports the metric is looked at; by default the last of each epoch.  Each of them
        must have it.

    Returns
    -------
    Trigger
        Its state is the best value so far, and how often in a row there was none.

    Raises
    ------
    TypeError
        If an argument is not what it should be; where the metric is no number.
    ValueError
        If one is out of range; where a report that is looked at has no such metric.

    >>> from fdbr import train
    >>> reports = [
    ...     train.Report(i, i, {"test/loss": loss}, None, train.Position(i, 0), 0.1)
    ...     for i, loss in enumerate([0.5, 0.7, 0.4, 0.4, 0.6], 1)
    ... ]
    >>> trigger = train.early_stopping("test/loss", patience=2)
    >>> [fires for report, fires in train.due(reports, trigger)]
    [False, False, False, False, True]
    """
    looked_at, sign = _checked("early_stopping", metric, mode, every)
    patience = integer("fdbr.train.early_stopping", "patience", patience, least=1)
    if isinstance(min_delta, bool) or not isinstance(min_delta, int | float):
        raise TypeError(
            f"fdbr.train.early_stopping: min_delta must be a number, not {describe(min_delta)}"
        )
    if not 0 <= min_delta < math.inf:
        raise ValueError(
            f"fdbr.train.early_stopping: min_delta must be at least 0, got {min_delta}"
        )

    def update(state: Any, report: Report) -> tuple[bool, Any]:
        looks, inner = looked_at.update(state["every"], report)
        value = _metric("early_stopping", report, metric) if looks else None
        if value is None:
            return False, {**state, "every": inner}
        if _improves(sign, value, state["best"], min_delta):
            return False, {"best": value, "waited": 0, "every": inner}
        waited = state["waited"] + 1
        return waited >= patience, {**state, "waited": waited, "every": inner}

    label = f"early_stopping({metric!r}, patience={patience}, mode={mode!r}, min_delta={min_delta})"
    return Trigger(update, lambda: {"best": None, "waited": 0, "every": looked_at.start()}, label)


def _checked(function: str, metric: Any, mode: Any, every: Any) -> tuple[Trigger, int]:
    if not isinstance(metric, str):
        raise TypeError(
            f"fdbr.train.{function}: metric must be the name of one, such as 'test/loss', not "
            f"{describe(metric)}"
        )
    if not isinstance(mode, str) or mode not in ("min", "max"):
        raise ValueError(
            f"fdbr.train.{function}: mode must be 'min' or 'max', got "
            f"{mode if isinstance(mode, str) else describe(mode)}"
        )
    return as_trigger(function, "every", every), 1 if mode == "min" else -1


def _improves(sign: int, value: float, best: float | None, min_delta: float) -> bool:
    if best is None:
        return not math.isnan(value)
    return sign * value < sign * best - min_delta


def _metric(function: str, report: Report, metric: str) -> float | None:
    if metric in report.metrics:
        return number(metric, report.metrics[metric])
    if report.iteration == 0:  # before the first step
        return None
    raise ValueError(
        f"fdbr.train.{function}: there is no metric {metric!r} in the report of iteration "
        f"{report.iteration}, but {', '.join(map(repr, report.metrics)) or 'none at all'}; put the "
        f"stage that makes it (evaluate) before, or look at it as rarely: "
        f"{function}({metric!r}, every=…)"
    )
