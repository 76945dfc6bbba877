"""Sweeps: one function, many configurations."""

import contextlib
import os
import pickle
import tempfile
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.loop.reports import Report
from fdbr.train.sweeps.configurations import plain
from fdbr.train.sweeps.pools import Pool
from fdbr.train.sweeps.processes import ProcessDiedError, RunProcesses
from fdbr.train.sweeps.records import Record
from fdbr.train.sweeps.searches import Search, as_search
from fdbr.train.sweeps.worker import work
from fdbr.tree import frozen, static

__all__ = ["SweepReport", "sweep"]

_OUTCOMES = ("finished", "failed")
_PAUSE = 0.1  # seconds between looks at the logs


@public("fdbr.train")
@frozen
class SweepReport:
    """The report of a run of a sweep.

    Attributes
    ----------
    run
        The name of the run, which is that of its folder.
    config
        Its configuration.
    state
        ``"running"``; or ``"finished"`` or ``"failed"``, which is the last of the run.
    iteration, epoch, seconds, metrics
        As in `Report`; those of the last report if the run has ended.  Metrics are numbers of
        Python, `None` for what is not finite.
    error
        Why the run failed.
    restored
        Whether the run had ended before the sweep began: it was not run again.
    """

    run: str = static()
    config: Any = static()
    state: str = static()
    iteration: int = static(default=0)
    epoch: int = static(default=0)
    seconds: float = static(default=0.0)
    metrics: Mapping[str, Any] = static(
        default=MappingProxyType({}), converter=MappingProxyType, repr=lambda m: repr(dict(m))
    )
    error: str | None = static(default=None)
    restored: bool = static(default=False)


@public("fdbr.train")
def sweep(
    run: Callable[..., Iterable[Report]],
    configs: Any,
    folder: str | Path | None = None,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    retries: int = 1,
    every: Callable[[Report], bool] | None = None,
) -> Iterator[SweepReport]:
    """Run one function with many configurations, several at a time, and stream their reports.

    Each run has a folder, whose name follows from the configuration.  A run that has finished there
    is not run again, so a sweep that was stopped continues where it was; a run that was stopped in
    the middle begins anew, or continues from its own snapshots, if ``run`` asks `resume` for them.
    A run that raises has failed, and the others continue; one whose process dies is tried again.

    Parameters
    ----------
    run
        ``run(config)``, or ``run(config, folder)``: a function that returns reports, as `fit` and
        `pipe` do.  It is run in another process, so it must stand at the top of a module; a script
        calls `sweep` under ``if __name__ == "__main__"``.
    configs
        Configurations, as `grid` and `random_search` give them: frozen attrs classes, dataclasses
        or dicts; or a search that proposes one after the other, such as `optuna_search`.
    folder
        Where the runs have their folders.  Without it they lie in a temporary one, which is removed
        in the end.
    executor
        Any of ``concurrent.futures``, or Dask's ``client.get_executor()``, or mpi4py's
        ``MPIPoolExecutor()``, whose workers see the same files.  By default, a process a run.
    workers
        How many runs at a time; by default as many as the executor has, or else as there are cores.
    retries
        How often a run is tried again whose process died.  Where that breaks an executor, as it
        breaks a ``ProcessPoolExecutor``, the sweep continues with a new one of the same settings;
        with other executors it ends with an error that names the runs that are left.
    every
        A trigger without a state: which reports are streamed and logged, beside the last; by
        default all.

    Returns
    -------
    iterator
        A generator of `SweepReport`, in the order of time, and in each run in that of iterations.
        Closing it ends the runs.  Raises RuntimeError if an executor is broken and cannot be
        replaced; the same sweep continues with the folder and another executor.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be, or a configuration cannot be written down.
    ImportError
        If ``cattrs`` is not installed.
    """
    retries = integer("fdbr.train.sweep", "retries", retries, least=0)
    if workers is None:
        count = _room(executor)
    else:
        count = integer("fdbr.train.sweep", "workers", workers, least=1)
    if executor is None:
        _check_picklable("run", run)
        _check_picklable("every", every)
    return _swept(_Sweep(run, as_search(configs), count, retries, every), folder, executor)


def _room(executor: Any) -> int:
    """The number of calls that an executor works on at a time, as far as it says."""
    client: Any = getattr(executor, "_client", None)  # Dask's, which may have machines come and go
    if hasattr(client, "nthreads"):
        return sum(client.nthreads().values()) or 1
    names = "_max_workers", "num_workers"  # of the standard library, of mpi4py
    found = next((n for name in names if (n := getattr(executor, name, None))), None)
    return found or os.cpu_count() or 1


def _check_picklable(name: str, function: Any) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:
        raise TypeError(
            f"fdbr.train.sweep: {name} must be a function at the top of a module, which another "
            f"process can import: {error}; or give executor=ThreadPoolExecutor(…)"
        ) from error


def _swept(sweep: "_Sweep", folder: Any, executor: Executor | None) -> Iterator[SweepReport]:
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        if executor is None:
            executor = RunProcesses(max(1, (os.cpu_count() or 1) // sweep.workers))
            stack.callback(executor.shutdown, cancel_futures=True)
        else:
            stack.callback(sweep.cancel)
        yield from sweep.reports(Path(folder), Pool(executor, stack))


@attrs.define(eq=False)
class _Run:
    """One run on its way."""

    config: Any
    token: Any
    record: Record
    attempt: str = ""
    tries: int = 0
    read: int | None = None  # up to which byte of the log, once it is known where it begins


@attrs.define
class _Sweep:
    """The runs on their way, by their futures."""

    run: Any
    search: Search
    workers: int
    retries: int
    every: Any
    active: dict[Future[Any], _Run] = attrs.field(factory=dict)
    waiting: deque[_Run] = attrs.field(factory=deque)  # to be tried again, or for the first time
    seen: Counter[str] = attrs.field(factory=Counter)
    fruitless: int = 0  # executors in a row that broke before a run had begun

    def reports(self, folder: Path, pool: Pool) -> Iterator[SweepReport]:
        exhausted = False
        while True:
            accepts = True
            while accepts and self.waiting and len(self.active) < self.workers:
                accepts = self._submit(pool, self.waiting.popleft())
            while accepts and not exhausted and len(self.active) < self.workers:
                asked = self.search.ask()
                if asked is None:
                    exhausted = True
                    break
                one = self._prepared(folder, *asked)
                if one.record.status().get("state") == "finished":
                    yield self._ended(one, restored=True)
                else:
                    one.record.begin(self.run, one.config)
                    accepts = self._submit(pool, one)
            if not self.active and not self.waiting:
                return
            done = wait(self.active, timeout=_PAUSE, return_when=FIRST_COMPLETED).done
            for one in list(self.active.values()):
                yield from self._news(one)
            pool.look()
            broken = next((e for e in map(_error, done) if isinstance(e, BrokenExecutor)), None)
            if broken is not None:
                done = wait(self.active).done  # all calls of a broken executor fail
                self._blame(pool)
                self._renew(pool, broken)
            for future in done:
                one = self.active.pop(future)
                yield from self._news(one)
                died = self._died(future, one)
                if died and one.tries <= self.retries:
                    self.waiting.append(one)
                else:
                    yield self._ended(one, died)

    def cancel(self) -> None:
        """Have no further run begin."""
        for future in self.active:
            future.cancel()

    def _prepared(self, folder: Path, config: Any, token: Any) -> _Run:
        values = plain("train.sweep", config)
        name = Record.of(folder, values, 0).name
        self.seen[name] += 1
        return _Run(config, token, Record.of(folder, values, self.seen[name] - 1))

    def _submit(self, pool: Pool, one: _Run) -> bool:
        """Have a run begin; `False` if the executor is broken, and the run waits."""
        one.attempt, one.read = uuid.uuid4().hex, None
        one.tries += 1
        given = self.run, one.config, str(one.record.folder), one.attempt, self.every
        try:
            self.active[pool.submit(work, *given)] = one
        except BrokenExecutor as error:
            one.tries -= 1
            self.waiting.appendleft(one)
            if not self.active:  # else those that are under way tell the same
                self.fruitless += 1
                self._renew(pool, error)
            return False
        return True

    def _blame(self, pool: Pool) -> None:
        """Have the runs lose no try that have only shared a broken executor with another."""
        pool.end()
        begun = [one for one in self.active.values() if self._process(one) is not None]
        guilty = [one for one in begun if pool.has_died(self._process(one))] or begun
        for one in self.active.values():
            one.tries -= one not in guilty
        self.fruitless = 0 if begun else self.fruitless + 1

    def _process(self, one: _Run) -> Any:
        """The process of a run that has begun and has no outcome."""
        status = one.record.status()
        ours = status.get("attempt") == one.attempt and status["state"] not in _OUTCOMES
        return status.get("process") if ours else None

    def _renew(self, pool: Pool, error: BrokenExecutor) -> None:
        """Go on with another executor, or raise an error that names the runs that are left."""
        if self.fruitless < 2 and pool.renew():
            return
        left = [one for one in (*self.active.values(), *self.waiting) if not self._has_outcome(one)]
        for one in left:
            one.record.note("interrupted", one.attempt, error=f"{type(error).__name__}: {error}")
        names = "; ".join(f"{one.record.name}, {one.config}" for one in left[:5])
        more = f"; and {len(left) - 5} more" * (len(left) > 5)
        why = " again, before a run had begun" * (self.fruitless > 1)
        raise RuntimeError(
            f"fdbr.train.sweep: the {type(pool.executor).__name__} is broken{why}: {error}. These "
            f"runs had not ended: {names}{more}. The outcomes of the others are in their folders: "
            "start the same sweep with another executor, and it continues from there"
        ) from error

    def _news(self, one: _Run) -> Iterator[SweepReport]:
        """The reports that have come since the last look."""
        if one.read is None:
            status = one.record.status()
            if status.get("attempt") != one.attempt or "offset" not in status:
                return
            one.read = int(status["offset"])
        entries, one.read = one.record.entries(one.read)
        for entry in entries:
            yield _report(one, "running", entry)

    def _died(self, future: Future[Any], one: _Run) -> str:
        """Why a run has no outcome of its own; an empty text if it has one."""
        if self._has_outcome(one):
            return ""
        error = _error(future)
        if error is None:
            return "it ended without an outcome"
        if not isinstance(error, ProcessDiedError | BrokenExecutor | OSError):
            one.tries = self.retries + 1  # it would happen again
        return f"{type(error).__name__}: {error}"

    def _has_outcome(self, one: _Run) -> bool:
        status = one.record.status()
        return status.get("attempt") == one.attempt and status["state"] in _OUTCOMES

    def _ended(self, one: _Run, died: str = "", *, restored: bool = False) -> SweepReport:
        """The last report of a run."""
        status = one.record.status()
        if died:
            one.record.note("failed", one.attempt, error=died)
            status = one.record.status()
        entries = one.record.entries()[0]
        last = status.get("last") or (entries[-1] if entries else {})
        report = _report(one, status["state"], last, status.get("error"), restored=restored)
        failed = report.state != "finished"
        self.search.tell(one.token, None if failed else dict(report.metrics))
        return report


def _error(future: Future[Any]) -> BaseException | None:
    return None if future.cancelled() else future.exception()


def _report(
    one: _Run, state: str, entry: Mapping[str, Any], error: Any = None, *, restored: bool = False
) -> SweepReport:
    metrics = dict(entry)
    return SweepReport(
        one.record.name,
        one.config,
        state,
        metrics.pop("iteration", 0),
        metrics.pop("epoch", 0),
        metrics.pop("seconds", 0.0),
        metrics,
        error,
        restored,
    )
