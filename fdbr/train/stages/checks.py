"""Runs that fail as soon as a number is none."""

from collections.abc import Callable, Iterator
from typing import Any

from fdbr import tree
from fdbr.core.array_modules import array_module, is_array
from fdbr.core.util.pickling import public_factory
from fdbr.train.loop.reports import Report
from fdbr.train.stages.keeping import due
from fdbr.train.stages.piping import Stage, closing
from fdbr.train.triggers.base import Condition, as_trigger
from fdbr.train.triggers.intervals import each_iteration

__all__ = ["check_finite"]


def _whole(state: Any) -> Any:
    return state


@public_factory("fdbr.train")
def check_finite(
    of: Callable[[Any], Any] | None = _whole,
    every: Condition = each_iteration,
    name: str = "check_finite",
) -> Stage:
    """A stage that ends a run with an error if a metric or a parameter is NaN or infinite.

    The error names all of them.  It comes before the stages behind this one see the report, so
    that a `snapshot` behind it never saves such a state.  A number of the state that is an array
    of no axes, or no array, may be infinite: optimizers begin with such a best value.

    Parameters
    ----------
    of
        ``of(state)``: the tree that is looked at; by default the whole state.  `None` looks at
        the metrics alone.
    every
        Which reports; by default each.  To look takes the time of reading the parameters.
    name
        That of the stage, under which it keeps what its trigger keeps.

    Returns
    -------
    stage
        Raises FloatingPointError.

    Raises
    ------
    TypeError
        If ``of`` is no function.

    >>> import numpy as np
    >>> from fdbr import train
    >>> state = {"w": np.array([1.0, np.nan])}
    >>> report = train.Report(7, 1, {"loss": 0.5}, state, train.Position(1, 0), 0.25)
    >>> list(train.check_finite()(iter([report])))
    Traceback (most recent call last):
    FloatingPointError: fdbr.train.check_finite: after iteration 7, the state has NaN at ['w'] (1 of
    2); run the step in `with fdbr.debug.nan_check():` to see which operation made it
    """
    trigger = as_trigger("check_finite", "every", every)

    def stage(reports: Iterator[Report]) -> Iterator[Report]:
        with closing(due(reports, trigger, name=name)) as stream:
            for report, fires in stream:
                if fires:
                    _check(report, of)
                yield report

    return stage


def _check(report: Report, of: Callable[[Any], Any] | None) -> None:
    wrong = [
        f"the metric {name!r} is {value}"
        for name, value in report.metrics.items()
        if _is_number(value) and not abs(value) < float("inf")
    ]
    if of is not None:
        values = of(report.state)
        leaves = tree.leaves(values)
        found = [(i, text) for i, leaf in enumerate(leaves) if (text := _found(leaf))]
        if found:
            paths = tree.paths(values)
            at = (f"{text} at {paths[i] or 'its root'}{share}" for i, (text, share) in found)
            wrong.append(f"the state has {', '.join(at)}")
    if wrong:
        raise FloatingPointError(
            f"fdbr.train.check_finite: after iteration {report.iteration}, {'; '.join(wrong)}; run "
            "the step in `with fdbr.debug.nan_check():` to see which operation made it"
        )


def _is_number(value: Any) -> bool:
    if isinstance(value, int | float | complex):
        return True
    return is_array(value) and value.shape == () and value.dtype.kind in "fcV"


def _found(leaf: Any) -> tuple[str, str] | None:
    """The kind of numbers that should not be in a leaf, and how many of how many there are."""
    if isinstance(leaf, float | complex):
        return ("NaN", "") if leaf != leaf else None
    if not tree.is_inexact(leaf):
        return None
    xp = array_module(leaf)
    if not leaf.shape:
        return ("NaN", "") if bool(xp.isnan(leaf)) else None
    if bool(xp.isfinite(leaf).all()):
        return None
    bad = int(leaf.size - xp.isfinite(leaf).sum())
    return ("NaN" if bool(xp.isnan(leaf).any()) else "infinity"), f" ({bad} of {leaf.size})"
