"""Files of lines, each an object of JSON."""

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

from fdbr.train.loop.reports import Report
from fdbr.train.metrics import numbers
from fdbr.train.stages.piping import check_new

__all__ = ["JsonLines", "entries_of", "set_aside"]


class JsonLines:
    """A log as JSON lines; errors name the function that writes it."""

    def __init__(self, path: Path, function: str = "log") -> None:
        self.path = path
        self.function = function

    def cut(self, first: Report) -> None:
        """Leave out the lines from a report on, and a last one that is not whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists() or set_aside(self.path, first):
            self.path.touch()
            return
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        while end:
            begin = content.rfind(b"\n", 0, end - 1) + 1
            if self._iteration(content[begin:end]) < first.iteration:
                break
            end = begin
        if end < len(content):
            os.truncate(self.path, end)

    def _iteration(self, line: bytes) -> int:
        try:
            found = json.loads(line)["iteration"]
            if isinstance(found, int):
                return found
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise ValueError(
            f"fdbr.train.{self.function}: {self.path} holds something else than a log: "
            f"{line[:40]!r}; give another path"
        )

    def write(self, report: Report) -> None:
        """Append the line of a report."""
        self.append(self.line(report))

    def line(self, report: Report) -> dict[str, Any]:
        """The line of a report: numbers, and `None` for what JSON has not."""
        entries = entries_of(report, self.function).items()
        return {name: value if math.isfinite(value) else None for name, value in entries}

    def append(self, line: dict[str, Any]) -> None:
        """Append a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def entries_of(report: Report, function: str = "log") -> dict[str, float]:
    """The entries of a line, by their names."""
    entry: dict[str, float] = {
        "iteration": report.iteration,
        "epoch": report.epoch,
        "seconds": round(report.seconds, 6),
    }
    check_new(function, report.metrics, entry)
    return entry | numbers(report.metrics)


def set_aside(path: Path, first: Report) -> bool:
    """Rename the file of an earlier run, if this one begins; say whether that was so."""
    if first.iteration > 1 or first.position.carried.resumed:
        return False
    if path.stat().st_size:
        names = (f"{path.name}~{number or ''}" for number in itertools.count())
        free = next(name for name in names if not os.path.lexists(path.with_name(name)))
        os.replace(path, path.with_name(free))
    return True
