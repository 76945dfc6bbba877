"""The runs in a folder, as their files tell: logs, configurations, samples."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Runs"]

_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".svg", ".gif"})
_TEXTS = frozenset({".txt", ".md"})
_POINTS = 1000  # of a curve
_LONGEST = 1 << 20  # bytes of a text that is shown


class Runs:
    """The runs below a folder: each is a folder with a log, a file of lines of JSON.

    Files are read as they grow; a line that is not whole yet waits for the next look.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._logs: dict[Path, _Log] = {}

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
        """Each metric of a run: its iterations and its values, at most a thousand."""
        curves: dict[str, list[list[float]]] = {}
        for log in self._of(self._at(name)):
            for metric, points in log.points.items():
                curves[metric] = _thinned(points)
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

    def _of(self, folder: Path) -> Iterator["_Log"]:
        for path in sorted(folder.glob("*.jsonl")):
            log = self._logs.setdefault(path, _Log())
            log.read(path)
            yield log


class _Log:
    """The reports in a file, as far as it has been read."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.end, self.begin = 0, b""
        self.last: dict[str, Any] = {}
        self.points: dict[str, list[list[float]]] = {}

    def read(self, path: Path) -> None:
        """Read what has come since the last look; everything, if the file is another one."""
        with path.open("rb") as file:
            begin = file.read(256)
            if not begin.startswith(self.begin) or path.stat().st_size < self.end:
                self._clear()
            file.seek(self.end)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.end += whole
        self.begin = begin[: min(self.end, 256)]
        for line in text[:whole].splitlines():
            entry = _entry(line)
            if entry is not None:
                self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self.last = entry
        iteration = entry["iteration"]
        for name, value in entry.items():
            if name != "iteration" and _is_number(value):
                self.points.setdefault(name, []).append([iteration, value])


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and _is_number(entry.get("iteration")) else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """At most a thousand points, the last one among them."""
    step = -(-len(points) // _POINTS)
    return points[::-step][::-1] if step > 1 else points


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
