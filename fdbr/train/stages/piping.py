"""Stages, and how they are put together.

A stage is a function from an iterator of reports to an iterator of reports.  One that is closed
closes what it reads from, so that closing the last one, or breaking out of a loop over it, ends
them all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report

__all__ = ["Stage", "check_new", "closing", "pipe"]

T = TypeVar("T")

Stage = Callable[[Iterator[Report]], Iterator[Report]]


@public("fdbr.train")
def pipe(reports: Iterable[Report], *stages: Stage) -> Iterator[Report]:
    """Reports that have gone through some stages, the first stage first.

    Parameters
    ----------
    reports
        What `fit` returns.
    stages
        Functions from an iterator of reports to an iterator of reports.

    Returns
    -------
    iterator
        The reports that come out of the last stage.

    Raises
    ------
    TypeError
        If a stage is no function, makes one and was not called, or returns no reports.

    >>> import numpy as np
    >>> from fdbr import train
    >>> reports = train.fit(
    ...     lambda state, batch: (state + 1, {"count": state}),
    ...     0,
    ...     train.Batches(np.arange(3), size=1),
    ...     epochs=1,
    ... )
    >>> for report in train.pipe(reports, train.average()):
    ...     print(dict(report.metrics))
    {'count': 0}
    {'count': 1}
    {'count': 1.0}
    """
    if not isinstance(reports, Iterable):
        raise TypeError(
            "fdbr.train.pipe: reports must be an iterator of reports, such as train.fit(…) gives, "
            f"not {type(reports).__name__}"
        )
    stream = iter(reports)
    has_table = any(getattr(stage, "is_table", False) for stage in stages)
    for position, stage in enumerate(stages):
        if not callable(stage):
            raise TypeError(
                f"fdbr.train.pipe: stage {position} must be a function from reports to reports, "
                f"got {type(stage).__name__}"
            )
        if getattr(stage, "__annotations__", {}).get("return") is Stage:
            raise _uncalled(position, stage)
        # A table has the lines that a progress bar prints by default.
        found = (getattr(stage, "beside_table", stage) if has_table else stage)(stream)
        if not isinstance(found, Iterable):
            if callable(found):
                raise _uncalled(position, stage)
            raise TypeError(
                f"fdbr.train.pipe: stage {position}, {name_of(stage)}, must return an iterator of "
                f"reports, got {describe(found)}; a generator function yields each report that it "
                "is given"
            )
        stream = iter(found)
    return stream


def _uncalled(position: int, stage: Any) -> TypeError:
    return TypeError(
        f"fdbr.train.pipe: stage {position}, {name_of(stage)}, is a function that makes a stage; "
        f"call it: {name_of(stage)}(…)"
    )


@contextmanager
def closing(reports: Iterator[T]) -> Iterator[Iterator[T]]:
    """A block at whose end the iterator is closed, if it can be."""
    try:
        yield reports
    finally:
        if (close := getattr(reports, "close", None)) is not None:
            close()


def check_new(function: str, names: Iterable[str], taken: Mapping[str, Any]) -> None:
    """Refuse names that stand in the mapping already."""
    if clash := sorted(set(names) & set(taken)):
        raise ValueError(
            f"fdbr.train.{function}: {', '.join(clash)} would stand twice in one report; rename "
            "the metric or give another prefix"
        )


def named(function: str, name: Any) -> str:
    """The name of a stage, if it is one."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"fdbr.train.{function}: name must be a text, not {describe(name)}")
    return name
