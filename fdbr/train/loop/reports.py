"""Reports: what a run says after each iteration."""

import html
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.loop.positions import Position
from fdbr.tree import frozen

__all__ = ["Report", "read_only", "report_of"]


def read_only(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that cannot be changed."""
    return MappingProxyType(dict(metrics))


def _metrics_text(metrics: Mapping[str, Any] | None) -> str:
    return repr(metrics and dict(metrics))


@public("fdbr.train")
@frozen
class Report:
    """The report of one iteration.

    Attributes
    ----------
    iteration
        How many steps were made, this one included.
    epoch
        How many epochs are finished.
    metrics
        What the step returned, a read-only mapping from names to numbers or 0-d arrays.
    state
        The state after the step.
    position
        Where to continue; give it to `fit` with ``state`` and ``iteration``.
    seconds
        The time since the run began, its earlier parts included.
    total
        The iteration at which the run will end, if that is known.
    examples
        How many examples the batch had, if that is known: the weight of the metrics in means.

    >>> from fdbr import train
    >>> report = train.Report(1, 0, {"loss": 0.5}, None, train.Position(0, 1), seconds=0.25)
    >>> report.metrics["loss"], report.position
    (0.5, Position(epoch=0, batch=1))
    """

    iteration: int
    epoch: int
    metrics: Mapping[str, Any] = attrs.field(converter=read_only, repr=_metrics_text)
    state: Any = attrs.field(repr=False)
    position: Position
    seconds: float
    total: int | None = None
    examples: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:  # read-only mappings cannot be pickled
        fields = (self.iteration, self.epoch, dict(self.metrics), self.state, self.position)
        return Report, (*fields, self.seconds, self.total, self.examples)

    def _repr_html_(self) -> str:
        """Iteration, epoch, time and metrics as a notebook shows them: a table of one row."""
        shown: dict[str, Any] = {"iteration": self.iteration, "epoch": self.epoch}
        shown |= {"seconds": f"{self.seconds:.1f}", **self.metrics}
        heads = "".join(f"<th>{html.escape(str(name))}</th>" for name in shown)
        cells = "".join(f"<td>{html.escape(_cell(value))}</td>" for value in shown.values())
        return f"<table><tr>{heads}</tr><tr>{cells}</tr></table>"

    def with_metrics(self, metrics: Mapping[str, Any]) -> "Report":
        """The same report with other metrics."""
        return _changed(self, read_only(metrics), self.position)

    def keep(self, name: str, state: Any) -> "Report":
        """The same report with what a stage keeps; a run that is resumed gives it back.

        Parameters
        ----------
        name
            The name of the stage.
        state
            What it needs to continue after this report: a number, a string, a truth value, `None`,
            an array, or dicts (under strings), lists and tuples of such.  It must not change any
            more.  Read it from ``report.position.kept`` of the first report that comes.

        Raises
        ------
        ValueError
            If another stage has kept something under that name, or the report has gone through a
            stage that saves what is kept, such as `snapshot`.

        >>> from fdbr import train
        >>> report = train.Report(1, 0, {}, None, train.Position(0, 1), 0.25)
        >>> dict(report.keep("best", 0.5).position.kept)
        {'best': 0.5}
        """
        return self._carrying(self.position.carried.with_state(name, state))

    def seal(self, stage: str) -> "Report":
        """The same report, in which no further stage can keep anything.

        A stage that saves reports passes them on so: what came after it would be lost.

        Parameters
        ----------
        stage
            What the error calls it that a later stage gets from `keep`.
        """
        return self._carrying(self.position.carried.sealed(stage))

    def with_kept_of(self, other: "Report") -> "Report":
        """The same report with what the stages keep that another one has gone through."""
        return self._carrying(other.position.carried)

    def _carrying(self, carried: Any) -> "Report":
        position = self.position
        position = Position.carrying(position.epoch, position.batch, carried)
        return _changed(self, self.metrics, position)


def _cell(value: Any) -> str:
    """A metric as text; an array by its shape."""
    if getattr(value, "shape", None):
        return describe(value)
    if isinstance(value, float) or getattr(getattr(value, "dtype", None), "kind", "") == "f":
        return f"{float(value):.6g}"
    return str(value)


_new = Report.__new__
_put: Any = object.__setattr__


def report_of(
    iteration: int,
    epoch: int,
    metrics: Mapping[str, Any],
    state: Any,
    position: Position,
    seconds: float,
    total: int | None,
    examples: int | None,
) -> Report:
    """A report of what is known to be right, with read-only metrics.

    The class, which checks its arguments, takes thrice the time.
    """
    made = _new(Report)
    _put(made, "iteration", iteration)
    _put(made, "epoch", epoch)
    _put(made, "metrics", metrics)
    _put(made, "state", state)
    _put(made, "position", position)
    _put(made, "seconds", seconds)
    _put(made, "total", total)
    _put(made, "examples", examples)
    return made


def _changed(report: Report, metrics: Mapping[str, Any], position: Position) -> Report:
    """A report with other metrics and another position."""
    return report_of(
        report.iteration,
        report.epoch,
        metrics,
        report.state,
        position,
        report.seconds,
        report.total,
        report.examples,
    )
