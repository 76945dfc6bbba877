"""Reports as trees in files, and back."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fdbr.train.loop.positions import Position
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.header import DamagedError, Header
from fdbr.train.snapshots.plain import packed, unpacked
from fdbr.train.snapshots.reading import Expected, header_of, read

__all__ = [
    "PARTS",
    "fields_of",
    "iteration_in",
    "kept_in",
    "path_of",
    "read_report",
    "read_whole",
    "summary",
    "tree_of",
]

_PLAIN = ("iteration", "epoch", "metrics", "seconds", "total", "examples")
_TEXT, _ARRAYS, _STATE = "report", "arrays", "state"

PARTS = "parts"
"""The field of a snapshot whose state lies in other files, one of each rank that has written it."""

_NAME = re.compile(r"snapshot-(\d+)(\..+)?\.safetensors")


def path_of(folder: Path, iteration: int) -> Path:
    """The file of the snapshot of an iteration."""
    return folder / f"snapshot-{iteration:010d}.safetensors"


def iteration_in(name: str, *, part: bool = False) -> int | None:
    """The iteration in the name of a snapshot, or of a part of one; `None` in other names."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and (part or not match[2]) else None


def tree_of(function: str, report: Report, **more: Any) -> dict[str, Any]:
    """The tree in the file of a report; ``more`` is written beside its fields."""
    arrays: list[Any] = []
    position = report.position
    fields: dict[str, Any] = {name: getattr(report, name) for name in _PLAIN}
    fields["metrics"] = dict(report.metrics)
    fields["position"] = {
        "epoch": position.epoch,
        "batch": position.batch,
        "kept": dict(position.kept),
        "seconds": position.seconds,
    }
    text = packed(function, {**fields, **more}, arrays)
    return {_TEXT: text, _ARRAYS: arrays, _STATE: report.state}


def fields_of(tree: dict[str, Any]) -> dict[str, Any]:
    """The fields of a report, of what `tree_of` makes, without arrays."""
    fields: dict[str, Any] = unpacked(tree[_TEXT], None)
    return fields


def read_report(function: str, path: Path, like: Any) -> Report:
    """The report in a file; a `DamagedError` if that is not as it was written."""
    if parts := summary(function, path).get(PARTS):
        raise ValueError(
            f"fdbr.train.{function}: the state of {path} lies in the files of {parts['size']} "
            "ranks; read it with fdbr.distributed.resume"
        )
    return read_whole(function, path, like)[0]


def read_whole(function: str, path: Path, like: Any) -> tuple[Report, dict[str, Any]]:
    """`read_report`, with all fields that there are."""
    header = header_of(function, path)
    _text(function, path, header)
    prefix = f"[{_ARRAYS!r}]["
    arrays = [
        SimpleNamespace(shape=leaf.shape, dtype=None)
        for leaf in header.leaves
        if leaf.path.startswith(prefix)
    ]
    expected = Expected.like(function, {_TEXT: "", _ARRAYS: arrays, _STATE: like})
    found = read(function, path, expected)
    fields = _unpacked(function, path, found[_TEXT], found[_ARRAYS])
    given = {name: fields[name] for name in _PLAIN}
    position = Position(**fields["position"])
    return Report(**given, position=position, state=found[_STATE]), fields


def kept_in(function: str, path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The things that stages have kept in a report, of the leaves of its file."""
    prefix = f"[{_ARRAYS!r}]["
    arrays = [value for name, value in values.items() if name.startswith(prefix)]
    fields = _unpacked(function, path, values[f"[{_TEXT!r}]"], arrays)
    kept: dict[str, Any] = fields["position"]["kept"]
    return kept


def _unpacked(function: str, path: Path, text: str, arrays: list[Any] | None) -> dict[str, Any]:
    """The fields of a report; a `DamagedError` if the text is that of something else."""
    try:
        fields: dict[str, Any] = unpacked(text, arrays)
        whole = {*_PLAIN, "position"} <= set(fields)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        whole = False
    if not whole:
        raise _no_snapshot(function, path)
    if (part := fields.get("part", path.name)) != path.name:
        raise DamagedError(
            f"fdbr.train.{function}: {path} is the part of a snapshot that was called {part}: it "
            "was renamed, or copied over another. Give it its own name, or move it away"
        )
    told = iteration_in(path.name, part=True)
    if told not in (None, fields["iteration"]):
        raise DamagedError(
            f"fdbr.train.{function}: {path} is a snapshot of iteration {fields['iteration']}, not "
            f"of {told}, as its name says: it was renamed, or copied over another. Give it its "
            f"own name, {path_of(path.parent, fields['iteration']).name}, or move it away"
        )
    return fields


def summary(function: str, path: Path) -> dict[str, Any]:
    """The fields of the report in a file, without those that are arrays; they are not checked.

    Raises
    ------
    DamagedError
        If its header is none of a snapshot.
    """
    text = _text(function, path, header_of(function, path))
    return _unpacked(function, path, text, None)


def _text(function: str, path: Path, header: Header) -> str:
    for leaf in header.leaves:
        if leaf.path == f"[{_TEXT!r}]" and leaf.kind == "str":
            return leaf.value
    raise _no_snapshot(function, path)


def _no_snapshot(function: str, path: Path) -> DamagedError:
    return DamagedError(
        f"fdbr.train.{function}: {path} is a file of train.save, but no snapshot of a run; read "
        "it with train.load"
    )
