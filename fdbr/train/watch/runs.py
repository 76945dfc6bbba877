"""The runs in a folder, as their files tell: logs, configurations, samples."""

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import attrs

__all__ = ["Runs"]

_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".svg", ".gif"})
_TEXTS = frozenset({".txt", ".md"})
_POINTS = 1000  # of a curve
_LONGEST = 1 << 20  # bytes of a text that is shown, and of a line


class Runs:
    """The runs below a folder: each is a folder with a log, a file of lines of JSON.

    Files are read as they grow; a line that is not whole yet waits for the next look.  Each file
    is read by one thread at a time, and what is kept of it has a bound for each metric.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._logs: dict[Path, _Log] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """The runs, as paths below the folder; ``.`` is the folder itself."""
        found = {path.parent for path in self._folder.rglob("*.jsonl") if path.is_file()}
        found |= {path.parent for path in self._folder.rglob("status.json") if path.is_file()}
        return sorted(path.relative_to(self._folder).as_posix() for path in found)

    def summary(self, name: str) -> dict[str, Any]:
        """A run's state, configuration and last report, and the names of its samples."""
        folder = self._at(name)
        status = _json(folder / "status.json")
        last: dict[str, Any] = {}
        for log in self._of(folder):
            last |= log.last
        return {
            "name": name,
            "state": status.get("state", ""),
            "error": status.get("error", ""),
            "config": _json(folder / "config.json"),
            "last": last,
            "pictures": _files(folder, _PICTURES),
            "texts": _files(folder, _TEXTS),
        }

    def curves(self, name: str) -> dict[str, list[list[float]]]:
        """Each metric of a run: its iterations and its values, at most a thousand.

        Of more, those are left out that lie between the least and the greatest of their neighbours.
        """
        curves: dict[str, list[list[float]]] = {}
        for log in self._of(self._at(name)):
            curves |= log.curves
        return curves

    def file(self, name: str, file: str) -> Path:
        """The path of a sample of a run.

        Raises
        ------
        FileNotFoundError
            If the run has no such picture or text.
        """
        folder = self._at(name)
        if file not in {one["name"] for one in _files(folder, _PICTURES | _TEXTS)}:
            raise FileNotFoundError(f"{name} has no sample {file!r}")
        return folder / file

    def _at(self, name: str) -> Path:
        if name not in self.names():
            raise FileNotFoundError(f"there is no run {name!r}")
        return self._folder / name

    def _of(self, folder: Path) -> Iterator["_Look"]:
        for path in sorted(folder.glob("*.jsonl")):
            with self._lock:
                log = self._logs.setdefault(path, _Log())
            try:
                look = log.read(path)
            except FileNotFoundError:  # it was renamed meanwhile
                continue
            yield look


@attrs.frozen
class _Look:
    """The content of a log at one moment: its last report, and its curves."""

    last: dict[str, Any]
    curves: dict[str, list[list[float]]]


class _Log:
    """The reports in a file, as far as it has been read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._end, self._begin, self._tail = 0, b"", b""
        self._last: dict[str, Any] = {}
        self._curves: dict[str, _Curve] = {}

    def read(self, path: Path) -> _Look:
        """Read what has come since the last look; everything, if the file is another one."""
        with self._lock, path.open("rb") as file:
            if not self._is_longer(file):
                self._clear()
            file.seek(self._end)
            for line in _whole_lines(file):
                self._end += line.size
                self._tail = line.text[-_KNOWN:]
                entry = _entry(line.text)
                if entry is not None:
                    self._add(entry)
            file.seek(0)
            self._begin = file.read(min(self._end, _KNOWN))
            curves = {name: curve.points() for name, curve in self._curves.items()}
            return _Look(self._last, curves)

    def _is_longer(self, file: BinaryIO) -> bool:
        """Whether a file begins with what was read: a resumed run may have cut and replaced it."""
        if file.read(len(self._begin)) != self._begin:
            return False
        file.seek(self._end - len(self._tail))
        return file.read(len(self._tail)) == self._tail

    def _add(self, entry: dict[str, Any]) -> None:
        self._last = entry
        iteration = entry["iteration"]
        for name, value in entry.items():
            if name != "iteration" and _is_number(value):
                self._curves.setdefault(name, _Curve()).add(iteration, value)


_KNOWN = 256
"""Bytes at the beginning of a file, and of the last line, by which it is known again."""


@attrs.frozen
class _Line:
    """A line of a file, and how many bytes it takes there; one that is too long has no text."""

    text: bytes
    size: int


def _whole_lines(file: BinaryIO) -> Iterator[_Line]:
    """The lines of a file from where it is, up to the last one that is whole."""
    while (text := file.readline(_LONGEST)).endswith(b"\n") or len(text) == _LONGEST:
        size = len(text)
        while not text.endswith(b"\n"):
            part = file.readline(_LONGEST)
            if not part:
                return
            size += len(part)
            text = part[-1:]
        yield _Line(text, size)


Point = tuple[float, float]


class _Curve:
    """A curve of any number of points, of which the least and the greatest of each piece are kept.

    A piece is a single point, until there are too many; then each two neighbours become one.
    """

    __slots__ = ("_high", "_last", "_length", "_low", "_pieces", "_seen")

    def __init__(self) -> None:
        self._pieces: list[list[Point]] = []  # those that are whole
        self._length = 1  # of each, in points of the curve
        self._seen = 0  # points of the one that is not whole
        self._low = self._high = self._last = (0.0, 0.0)

    def add(self, x: float, y: float) -> None:
        """Add a point at the end."""
        self._last = point = (x, y)
        if not self._seen:
            self._low = self._high = point
        elif y < self._low[1]:
            self._low = point
        elif y > self._high[1]:
            self._high = point
        self._seen += 1
        if self._seen == self._length:
            self._pieces.append(_in_order(self._low, self._high))
            self._seen = 0
            # A piece has at most two points; so has the one that is not whole, beside the last.
            if min(self._length, 2) * len(self._pieces) > _POINTS - 3:
                self._halve()

    def _halve(self) -> None:
        """Make one piece of each two."""
        pairs = zip(self._pieces[::2], self._pieces[1::2], strict=False)
        rest = self._pieces[len(self._pieces) // 2 * 2 :]
        self._pieces = [_extremes([*one, *other]) for one, other in pairs]
        if rest:
            self._low, self._high = rest[0][0], rest[0][-1]
            if self._low[1] > self._high[1]:
                self._low, self._high = self._high, self._low
            self._seen = self._length
        self._length *= 2

    def points(self) -> list[list[float]]:
        """The points that are kept, in their order; the last one is that of the curve."""
        rest = _in_order(self._low, self._high) if self._seen else []
        found = [list(point) for piece in (*self._pieces, rest) for point in piece]
        if not found or found[-1] != list(self._last):
            found.append(list(self._last))
        return found


def _in_order(low: Point, high: Point) -> list[Point]:
    return [low] if low is high else sorted((low, high))


def _extremes(points: list[Point]) -> list[Point]:
    """The least and the greatest of some points."""
    values = [y for _, y in points]
    low, high = values.index(min(values)), values.index(max(values))
    return _in_order(points[low], points[high])


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and _is_number(entry.get("iteration")) else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _files(folder: Path, suffixes: frozenset[str]) -> list[dict[str, Any]]:
    """The files of some kinds that lie in a folder, the newest first."""
    found = []
    for path in folder.iterdir():
        if path.suffix.lower() in suffixes and path.is_file() and not path.is_symlink():
            status = path.stat()
            if path.suffix.lower() in _PICTURES or status.st_size <= _LONGEST:
                found.append({"name": path.name, "time": status.st_mtime})
    return sorted(found, key=lambda one: (-one["time"], one["name"]))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it is not there, or not whole yet
        return {}
    return found if isinstance(found, dict) else {}
