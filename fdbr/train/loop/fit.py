"""The training loop: a generator of frozen reports."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from fdbr import tree
from fdbr.errors.checks import describe, differences, integer
from fdbr.errors.public import public
from fdbr.train.loop import continuing
from fdbr.train.loop.endings import ended
from fdbr.train.loop.examples import examples_of
from fdbr.train.loop.interrupts import put_off
from fdbr.train.loop.positions import NOTHING, Carried, Position
from fdbr.train.loop.reports import Report, read_only, report_of
from fdbr.train.loop.sources import Feed, explain_key, feed_of
from fdbr.train.triggers.base import Condition, Trigger, as_trigger

__all__ = ["fit"]

_NAME = "fit/until"
"""Under which a run keeps what its ``until`` keeps."""


@public("fdbr.train")
def fit(
    step: Callable[[Any, Any], tuple[Any, Mapping[str, Any]]],
    state: Any,
    batches: Any,
    *,
    epochs: int | None = None,
    iterations: int | None = None,
    until: Condition | None = None,
    position: Position | None = None,
    iteration: int = 0,
    resume: Report | None = None,
    initial: bool = False,
    examples: Callable[[Any], int | None] = examples_of,
) -> Iterator[Report]:
    """Train: apply a step to batch after batch and report after each.

    Nothing is computed before a report is asked for.  A run continues from any of its reports
    with ``fit(step, state, batches, resume=report, epochs=…)`` and makes the reports that were
    left to make; what its stages had kept continues, too.  The end, the step and the stages may
    change.  The batches may change only where an epoch begins: size, key, number of examples,
    sampler and ``drop_last`` are compared within an epoch, and a difference is an error.

    Ctrl-C ends a run that continues in the main thread: the iteration is finished, its report goes
    through the stages, and then there are no more reports.  A second Ctrl-C raises
    `KeyboardInterrupt` at once.  SIGTERM, by which batch systems and containers announce the end,
    does the same, and then ends the process: in place of the end of the reports comes
    ``SystemExit(143)``, so that snapshots are written, ``finally`` blocks run, and the exit status
    is that of a terminated process.  A second SIGTERM ends it at once, and so does the first one
    where the loop is left by ``break``, when its stages have ended.  Where the program has a
    handler of either signal, that one is called instead.  The calls of a
    `concurrent.futures.ProcessPoolExecutor` are ended by SIGTERM at once.

    Parameters
    ----------
    step
        ``step(state, batch) -> (state, metrics)``, a pure function.
    state
        The state to begin with: any value.
    batches
        `Batches`, or whatever has ``epoch(number, start)``, and ``len`` if the number of batches
        in an epoch is known; or an iterable of batches, which is read anew in each epoch.  An
        iterator, such as a generator, has one epoch.  Iterables are read from their beginning: a
        run that is resumed leaves out what it has consumed.  If these batches are not the same
        ones again, as of a loader that shuffles, it raises an error.
    epochs, iterations
        Where the run ends, counted from the beginning of its first part: after so many epochs
        or so many iterations, whichever comes first.
    until
        A trigger: the first report of which it fires is the last.
    position, iteration
        Where it begins; both come from the report at which an earlier part ended.
    resume
        That report: its state, position and iteration are where the run begins, in place of
        those arguments.  `None`, as `resume` gives it of an empty folder, begins anew.
    initial
        Whether a run that begins anew has a report of iteration 0, without metrics, so that its
        stages see the state before the first step.  Intervals count it as due.
    examples
        ``examples(batch)``: how many examples a batch has, or `None`.  By default the length of
        the first axis of its first array; of a list that is none of columns, its length.

    Returns
    -------
    iterator
        A generator of `Report`.

    Raises
    ------
    TypeError
        If nothing says when to end, or an argument is not what it should be; by the generator, if
        ``step`` returns something else than state and metrics.
    ValueError
        If a number is out of range, or a run is resumed within an epoch with batches in another
        order; by the generator, if the batches are others than ``len`` or ``position`` say, or an
        iterator ends too early.

    Warns
    -----
    RuntimeWarning
        If a run is resumed within an epoch of an iterable whose order cannot be checked; or if
        ``state`` has another structure than the state of ``resume``, which is taken.

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
    resumed = resume is not None or position is not None or iteration != 0
    if resume is not None:
        given = state
        state, position, iteration = _where(resume, position, iteration)
        _compare(given, state)
    begin = Position() if position is None else position
    feed = feed_of(batches)
    _check_numbers(begin, epochs, iterations, iteration)
    before = begin.kept.get(continuing.NAME)
    if before is not None:
        now = feed.order_settings(begin.epoch, begin.batch)
        continuing.check(before, now, begin.epoch, begin.batch)
    if feed.passes is not None and epochs is None and iterations is None:
        epochs = feed.passes
    if epochs is None and iterations is None and until is None:
        raise TypeError(
            "fdbr.train.fit: give epochs, iterations, until, or several: when should it end?"
        )
    if feed.size == 0:
        raise ValueError(
            "fdbr.train.fit: batches are empty, there is nothing to train with; give at least one "
            "batch"
        )
    if feed.size is not None and begin.batch > feed.size:
        raise ValueError(
            f"fdbr.train.fit: position is at batch {begin.batch}, but an epoch has {feed.size} "
            "batches; give the batches with which the position was reached"
        )
    if feed.size == begin.batch:
        begin = Position.carrying(begin.epoch + 1, 0, begin.carried)
    trigger = None if until is None else as_trigger("fit", "until", until)
    total = _total(feed, begin, epochs, iterations, iteration)
    plan = _Plan(step, examples, feed, epochs, iterations, total, trigger, initial, resumed)
    return _reports(plan, state, begin, iteration)


@attrs.frozen
class _Plan:
    """The arguments of `fit` that stay as they are while it runs."""

    step: Callable[[Any, Any], tuple[Any, Mapping[str, Any]]]
    examples: Callable[[Any], int | None]
    feed: Feed
    epochs: int | None
    iterations: int | None
    total: int | None
    until: Trigger | None
    initial: bool
    resumed: bool

    def is_over(self, iteration: int, position: Position) -> bool:
        """Whether the numbers say that there is no further iteration."""
        if self.iterations is not None and iteration >= self.iterations:
            return True
        return self.epochs is not None and position.epoch >= self.epochs


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


def _compare(state: Any, resumed: Any) -> None:
    """Warn if the state that is given has another structure than the one that is taken."""
    if state is None or state is resumed:
        return
    given, taken = (
        {
            path: getattr(leaf, "shape", ())
            for path, leaf in zip(tree.paths(s), tree.leaves(s), strict=True)
        }
        for s in (state, resumed)
    )
    lists = {
        "only in resume": [path for path in taken if path not in given],
        "only in state": [path for path in given if path not in taken],
        "of another shape": [
            f"{path or 'the leaf'} (resume: {taken[path]}, state: {shape})"
            for path, shape in given.items()
            if path in taken and taken[path] != shape
        ],
    }
    if any(lists.values()):
        warnings.warn(
            "fdbr.train.fit: the run continues with the state of resume, but state has another "
            f"structure: {differences(lists)}; give the state of the earlier run, or None",
            RuntimeWarning,
            stacklevel=4,  # where fit is called
        )


def _check_numbers(position: Any, epochs: Any, iterations: Any, iteration: Any) -> None:
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


def _total(
    feed: Feed, begin: Position, epochs: int | None, iterations: int | None, iteration: int
) -> int | None:
    """The iteration at which a run ends by its numbers, as far as it is known."""
    ends = [] if iterations is None else [iterations]
    if epochs is not None:
        if feed.size is None:
            return None
        ends.append(iteration + (epochs - begin.epoch) * feed.size - begin.batch)
    return max(iteration, min(ends)) if ends else None


def _reports(plan: _Plan, state: Any, position: Position, iteration: int) -> Iterator[Report]:
    began = time.perf_counter() - position.seconds
    before = position.kept.get(continuing.NAME)
    # Stages take it from the first report, and put it into the others.
    kept: Mapping[str, Any] = {
        name: value for name, value in position.kept.items() if name != continuing.NAME
    }
    judge = _Judge(plan.until, kept)
    if judge.has_ended or ended(kept) or plan.is_over(iteration, position):
        return
    with put_off() as interrupt:
        if plan.initial and not plan.resumed:
            report = Report(0, 0, {}, state, Position(), 0.0, plan.total)
            ends, report = judge(report)
            yield report
            if ends:
                return
        while not interrupt.ends(iteration) and not plan.is_over(iteration, position):
            _check_passes(plan, position, iteration)
            feed, number = plan.feed, position.epoch
            settings: Mapping[str, Any] | None = None
            for batch, done, last in feed.batches(number, position.batch):
                if interrupt.ends(iteration):
                    return
                if position.batch and settings is None:
                    _check_order(feed, before, position)
                try:
                    state, metrics = _checked(plan.step(state, batch))
                except KeyError as error:
                    explain_key(error, batch, f"fdbr.train.fit, in iteration {iteration + 1}")
                    raise
                iteration += 1
                seconds = time.perf_counter() - began
                epoch = number + last
                if last:
                    settings = feed.order_settings(epoch, 0)
                elif settings is None or feed.is_iterable:
                    settings = feed.order_settings(number, done)
                carrying = {**kept, continuing.NAME: settings} if settings else kept
                carried = Carried(carrying, seconds, resumed=plan.resumed)
                position = Position.carrying(epoch, 0 if last else done, carried)
                kept = NOTHING
                report = report_of(
                    iteration,
                    epoch,
                    read_only(metrics),
                    state,
                    position,
                    seconds,
                    plan.total,
                    plan.examples(batch),
                )
                ends, report = judge(report)
                yield report
                if ends or interrupt.ends(iteration) or iteration == plan.iterations:
                    return


def _check_order(feed: Feed, before: Mapping[str, Any] | None, position: Position) -> None:
    """Check the first batch of a run that was resumed within an epoch."""
    now = feed.order_settings(position.epoch, position.batch)
    continuing.check(before, now, position.epoch, position.batch)
    if feed.is_iterable and not feed.is_fixed:
        continuing.warn_unless_checked(before, now)


class _Judge:
    """The ``until`` of a run, with what it keeps."""

    def __init__(self, until: Trigger | None, kept: Mapping[str, Any]) -> None:
        self.until = until
        self.state: Any = None
        self.has_ended = False
        if until is not None:
            before = kept.get(_NAME)
            self.has_ended = before is not None and before["ended"] == until.label
            self.state = until.start() if before is None else before["trigger"]

    def __call__(self, report: Report) -> tuple[bool, Report]:
        if self.until is None:
            return False, report
        ends, self.state = self.until.update(self.state, report)
        ended = self.until.label if ends else None
        return ends, report.keep(_NAME, {"trigger": self.state, "ended": ended})


def _check_passes(plan: _Plan, position: Position, iteration: int) -> None:
    passes = plan.feed.passes
    if passes is not None and position.epoch >= passes:
        raise ValueError(
            f"fdbr.train.fit: batches is an iterator, which ended after {iteration} iterations; "
            "give epochs=1, too, if that is the end, or something that can be read again: a list, "
            "or an object with epoch(number, start)"
        )


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
