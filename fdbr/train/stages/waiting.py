"""Metrics that a stage waits for."""

from collections.abc import Iterable

from fdbr.train.loop.reports import Report

__all__ = ["Awaited"]


class Awaited:
    """The metrics that a stage of some name waits for, and those that have come instead.

    They may come rarely; so a run that goes to its end tells which have not come at all.
    """

    def __init__(self, stage: str, names: Iterable[str]) -> None:
        self.stage = stage
        self.missing = set(names)
        self.seen: set[str] = set()
        self.last: Report | None = None

    def see(self, report: Report) -> None:
        """Note what a report has that the stage looks at."""
        self.seen.update(report.metrics)
        self.missing.difference_update(report.metrics)
        self.last = report

    def check(self) -> None:
        """Raise at the end of the reports, if something never came.

        A run that has ended before its time, by Ctrl-C or a trigger, could not give all.
        """
        last = self.last
        if not self.missing or last is None or last.iteration < (last.total or 0):
            return
        missing = ", ".join(map(repr, sorted(self.missing)))
        seen = ", ".join(map(repr, sorted(self.seen))) or "none"
        raise ValueError(
            f"fdbr.train.{self.stage}: the run has ended, and none of the reports that this stage "
            f"reads had the metric {missing}; they had {seen}. Put the stage that adds the metric "
            "before this one, or give another name"
        )
