"""The work on one configuration: in a process, a thread, or on another machine."""

import inspect
import json
import math
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fdbr.train.loop.reports import Report
from fdbr.train.metrics import numbers
from fdbr.train.stages.piping import check_new
from fdbr.train.sweeps.records import Record

__all__ = ["takes_folder", "work"]


def work(run: Callable[..., Any], config: Any, folder: str, attempt: str, every: Any) -> None:
    """Run a configuration to its end, and leave its reports and its outcome in its folder."""
    record = Record(Path(folder))
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
    entry: dict[str, Any] | None = None
    last: dict[str, Any] | None = None  # if it is not in the log yet
    file: Any = None
    try:
        for report in reports:
            line = _entry(report)
            if file is None:
                file, offset = _opened(record.log, line["iteration"])
                record.note("running", attempt, process=os.getpid(), offset=offset)
            last = entry = line
            if every is None or every(report):
                file.write(json.dumps(line, allow_nan=False) + "\n")
                file.flush()
                last = None
        if last is not None:  # the end of a run is always told
            file.write(json.dumps(last, allow_nan=False) + "\n")
    finally:
        if file is not None:
            file.close()
    return entry


def _opened(path: Path, iteration: int) -> tuple[Any, int]:
    """The log, without the lines from an iteration on, and where it ends."""
    kept = [e for e in Record(path.parent).entries()[0] if e["iteration"] < iteration]
    text = "".join(json.dumps(entry) + "\n" for entry in kept)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return path.open("a", encoding="utf-8"), len(text.encode())


def _entry(report: Any) -> dict[str, Any]:
    if not isinstance(report, Report):
        raise TypeError(
            "fdbr.train.sweep: run must return reports, as train.fit and train.pipe give them, not "
            f"{type(report).__name__}"
        )
    entry: dict[str, Any] = {
        "iteration": report.iteration,
        "epoch": report.epoch,
        "seconds": round(report.seconds, 6),
    }
    check_new("sweep", report.metrics, entry)
    for name, value in numbers(report.metrics).items():
        entry[name] = value if math.isfinite(value) else None
    return entry
