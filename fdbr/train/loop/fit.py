"""The training loop: a generator of frozen reports."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from fdbr.messages import describe, integer
from fdbr.train.loop.examples import examples_of
from fdbr.train.loop.positions import NOTHING, Carried, Position
from fdbr.train.loop.reports import Report

__all__ = ["Source", "fit"]


class Source(Protocol):
    """The protocol of the batches that `fit` takes; `Batches` fulfils it."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from batch ``start`` on."""
        ...


def fit(
    step: Callable[[Any, Any], tuple[Any, Mapping[str, Any]]],
    state: Any,
    batches: Source,
    *,
    epochs: int | None = None,
    iterations: int | None = None,
    position: Position | None = None,
    iteration: int = 0,
    resume: Report | None = None,
    examples: Callable[[Any], int | None] = examples_of,
) -> Iterator[Report]:
    """Train: apply a step to batch after batch and report after each.

    Nothing is computed before a report is asked for.  A run goes on from any of its reports
    with ``fit(step, state, batches, resume=report, epochs=…)`` and makes the reports that were
    left to make; what its stages had kept goes on, too.

    Parameters
    ----------
    step
        ``step(state, batch) -> (state, metrics)``, a pure function.
    state
        The state to begin with: any value.
    batches
        `Batches`, or whatever has ``len`` and ``epoch(number, start)``.
    epochs, iterations
        Where the run ends, counted from the beginning of its first part: after so many epochs
        or so many iterations, whichever comes first.
    position, iteration
        Where it begins; both come from the report at which an earlier part ended.
    resume
        That report: its state, position and iteration are where the run begins, in place of
        those arguments.  `None`, as `resume` gives it of an empty folder, begins anew.
    examples
        ``examples(batch)``: how many examples a batch has, or `None`.  By default the length of
        the first axis of its first array; of a list that is none of arrays, its length.

    Returns
    -------
    iterator
        A generator of `Report`.

    Raises
    ------
    TypeError
        If neither ``epochs`` nor ``iterations`` is given, or an argument is not what it should
        be; by the generator, if ``step`` returns something else than state and metrics.
    ValueError
        If a number is out of range.

    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches(np.arange(4.0), size=2)
    >>> reports = train.fit(lambda s, b: (s + b.sum(), {"sum": s}), 0.0, batches, epochs=2)
    >>> for report in reports:
    ...     print(report.iteration, report.epoch, report.state)
    1 0 1.0
    2 1 6.0
    3 1 7.0
    4 2 12.0
    """
    if resume is not None:
        state, position, iteration = _where(resume, position, iteration)
    begin = Position() if position is None else position
    _check_arguments(step, batches, begin, epochs, iterations, iteration)
    size = len(batches)
    if begin.batch > size or not size:
        raise ValueError(
            f"fdbr.train.fit: position is at batch {begin.batch}, but an epoch has {size} batches; "
            "give the batches with which the position was reached"
        )
    ends = [] if iterations is None else [iterations]
    if epochs is not None:
        ends.append(iteration + (epochs - begin.epoch) * size - begin.batch)
    total = max(iteration, min(ends))
    return _reports(step, state, batches, begin, iteration, total, examples)


def _where(resume: Any, position: Any, iteration: Any) -> tuple[Any, Position, int]:
    if not isinstance(resume, Report):
        raise TypeError(
            "fdbr.train.fit: resume must be the report at which an earlier part ended, or None, "
            f"not {describe(resume)}"
        )
    if position is not None or iteration:
        raise TypeError(
            "fdbr.train.fit: resume says where to begin; leave position and iteration out"
        )
    return resume.state, resume.position, resume.iteration


def _check_arguments(
    step: Any, batches: Any, position: Any, epochs: Any, iterations: Any, iteration: Any
) -> None:
    if not hasattr(batches, "epoch") or not hasattr(batches, "__len__"):
        raise TypeError(
            f"fdbr.train.fit: batches must have len and epoch(number, start), got "
            f"{type(batches).__name__}; make them with fdbr.train.Batches(dataset, size)"
        )
    if epochs is None and iterations is None:
        raise TypeError("fdbr.train.fit: give epochs, iterations, or both: when should it end?")
    if not isinstance(position, Position):
        raise TypeError(
            f"fdbr.train.fit: position must be a Position, got {type(position).__name__}; take "
            "that of a report"
        )
    for name, value in (
        ("epochs", 0 if epochs is None else epochs),
        ("iterations", 0 if iterations is None else iterations),
        ("iteration", iteration),
        ("position.epoch", position.epoch),
        ("position.batch", position.batch),
    ):
        integer("fdbr.train.fit", name, value, least=0)


def _reports(
    step: Callable[[Any, Any], tuple[Any, Mapping[str, Any]]],
    state: Any,
    batches: Source,
    position: Position,
    iteration: int,
    total: int,
    examples: Callable[[Any], int | None],
) -> Iterator[Report]:
    began = time.perf_counter() - position.seconds
    size = len(batches)
    epoch, done = position.epoch, position.batch
    kept = position.kept  # which stages take from the first report, and put into the others
    while iteration < total:
        for batch in batches.epoch(epoch, done):
            state, metrics = _checked(step(state, batch))
            iteration += 1
            done += 1
            seconds = time.perf_counter() - began
            finished, at = (epoch + 1, 0) if done == size else (epoch, done)
            position = Position.carrying(finished, at, Carried(kept, seconds))
            kept = NOTHING
            count = examples(batch)
            yield Report(iteration, finished, metrics, state, position, seconds, total, count)
            if iteration == total:
                return
        if done != size:
            raise ValueError(
                f"fdbr.train.fit: batches has len {size}, but epoch {epoch} ended after batch "
                f"{done}; len must be the number of batches in every epoch"
            )
        epoch, done = epoch + 1, 0


def _checked(result: Any) -> tuple[Any, Mapping[str, Any]]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"fdbr.train.fit: step must return (state, metrics), got {_kind(result)}")
    if not isinstance(result[1], Mapping):
        raise TypeError(
            "fdbr.train.fit: the metrics that step returns must be a mapping from names to "
            f"numbers, such as {{'loss': value}}, got {_kind(result[1])}"
        )
    return result


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
