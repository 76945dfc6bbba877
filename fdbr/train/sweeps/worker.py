"""The work on one configuration: in a process, a thread, or on another machine."""

import inspect
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fdbr.train.loop.reports import Report
from fdbr.train.stages.json_lines import JsonLines
from fdbr.train.sweeps.records import Record

__all__ = ["takes_folder", "work"]


def work(run: Callable[..., Any], config: Any, folder: str, attempt: str, every: Any) -> None:
    """Run a configuration to its end, and leave its reports and its outcome in its folder."""
    record = Record(Path(folder))
    record.note("running", attempt, process=os.getpid())
    try:
        reports = run(config, record.folder) if takes_folder(run) else run(config)
        last = _written(record, attempt, iter(reports), every)
        record.note("finished", attempt, last=last)
    except BaseException as error:
        state = "failed" if isinstance(error, Exception) else "interrupted"
        record.note(
            state,
            attempt,
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
        )
        if state == "interrupted":
            raise


def takes_folder(run: Callable[..., Any]) -> bool:
    """Whether a function takes the folder of its run, beside the configuration."""
    try:
        parameters = list(inspect.signature(run).parameters.values())
    except (TypeError, ValueError):
        return False
    wanted = [p for p in parameters if p.default is p.empty or p.name == "folder"]
    return len([p for p in wanted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) > 1


def _written(record: Record, attempt: str, reports: Iterator[Any], every: Any) -> Any:
    """Write reports to the log, from the iteration on at which they begin; the last line."""
    lines: JsonLines | None = None
    last: dict[str, Any] | None = None
    written = True
    for report in reports:
        if not isinstance(report, Report):
            raise TypeError(
                "fdbr.train.sweep: run must return reports, as train.fit and train.pipe give them, "
                f"not {type(report).__name__}"
            )
        if lines is None:
            lines = JsonLines(record.log, "sweep")
            lines.cut(report)
            offset = record.log.stat().st_size
            record.note("running", attempt, offset=offset)
        last, written = lines.line(report), every is None or bool(every(report))
        if written:
            lines.append(last)
    if lines is not None and last is not None and not written:  # the end of a run is always told
        lines.append(last)
    return last
