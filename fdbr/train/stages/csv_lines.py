"""Tables in CSV files."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from fdbr.core.util.atomic_write import replacing
from fdbr.train.loop.reports import Report
from fdbr.train.stages.json_lines import entries_of, set_aside

__all__ = ["CsvLines"]


class CsvLines:
    """A log as a table with a header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] = []

    def cut(self, first: Report) -> None:
        """Leave out the rows from a report on, and a last one that is not whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists() or set_aside(self.path, first):
            self.path.touch()
            return
        with self.path.open(encoding="utf-8", newline="") as file:
            content = file.read()
        content = content[: content.rfind("\n") + 1]
        header, *rows = list(csv.reader(io.StringIO(content, newline=""))) or [[]]
        try:
            if header and header[0] != "iteration":
                raise ValueError
            rows = [row for row in rows if int(row[0]) < first.iteration]
        except (ValueError, IndexError):
            raise ValueError(
                f"fdbr.train.log: {self.path} holds something else than a log, a table whose first "
                "column is iteration; give another path"
            ) from None
        self.columns = header
        self._rewrite(rows)

    def _rewrite(self, rows: Iterable[list[str]]) -> None:
        with replacing(self.path) as written, written.open("w", encoding="utf-8") as file:
            file.write("".join(map(_row, [self.columns, *rows] if self.columns else [])))

    def write(self, report: Report) -> None:
        """Append a row; where there are new metrics, write the file anew with their columns."""
        entry = entries_of(report)
        if new := [name for name in entry if name not in self.columns]:
            rows = self._rows()
            self.columns = [*self.columns, *new]
            self._rewrite(row + [""] * len(new) for row in rows)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_row(self._fields(entry)))

    def _rows(self) -> list[list[str]]:
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))[1:]

    def _fields(self, entry: Mapping[str, float]) -> list[str]:
        return [repr(entry[name]) if name in entry else "" for name in self.columns]


def _row(fields: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()
