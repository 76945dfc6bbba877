"""The folder of a run: its configuration, what is needed to repeat it, its log and its outcome.

``config.json``, ``run.json`` (the function, versions and machine), ``status.json`` (``running``,
``finished`` or ``failed``) and ``log.jsonl`` (a line a report).  Whoever runs writes; whoever
sweeps, or looks on, reads.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs

from fdbr.core.util.atomic_write import replacing
from fdbr.train.sweeps.configurations import fingerprint, plain

__all__ = ["Record", "records"]

_LIBRARIES = ("fdbr", "numpy", "scipy", "optree", "attrs", "cupy", "safetensors", "llvmlite")


@attrs.frozen
class Record:
    """The folder of one run.

    Attributes
    ----------
    folder
        Its path.
    """

    folder: Path

    @classmethod
    def of(cls, folder: Path, values: Any, repetition: int) -> "Record":
        """That of a configuration's plain values; a number tells it from others of the same."""
        name = fingerprint(values) + (f"-{repetition}" if repetition else "")
        return cls(folder / name)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    def begin(self, run: Any, config: Any) -> None:
        """Make the folder, and note what is to be run in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / "config.json", plain("train.sweep", config))
        if not (self.folder / "run.json").exists():
            _write(self.folder / "run.json", {"began": time.time(), **provenance(run, config)})

    def note(self, state: str, attempt: str, **more: Any) -> None:
        """Note how the run stands, beside what an attempt has noted before."""
        before = self.status()
        if before.get("attempt") != attempt:
            before = {}
        _write(self.folder / "status.json", {**before, "state": state, "attempt": attempt, **more})

    def status(self) -> dict[str, Any]:
        """The state of the run, as `note` has it; an empty dict before it has begun."""
        return _read(self.folder / "status.json")

    def config(self) -> Any:
        """The plain values of the configuration."""
        return _read(self.folder / "config.json")

    def entries(self, start: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The whole lines of the log from a byte on, and the byte where they end."""
        try:
            with self.log.open("rb") as file:
                file.seek(start)
                text = file.read()
        except FileNotFoundError:
            return [], start
        end = text.rfind(b"\n") + 1
        return [json.loads(line) for line in text[:end].splitlines()], start + end


def records(folder: str | Path) -> Iterator[Record]:
    """The runs in the folder of a sweep, by the time at which they were begun."""
    found = [path.parent for path in Path(folder).glob("*/config.json")]
    for path in sorted(found, key=lambda path: (_began(path), path.name)):
        yield Record(path)


def _began(folder: Path) -> float:
    return float(_read(folder / "run.json").get("began", 0))


def provenance(run: Any, config: Any) -> dict[str, Any]:
    """The provenance of a run: all that it takes to repeat it, beside its configuration."""
    main = sys.modules.get("__main__")
    return {
        "function": _path(run),
        "configuration": _path(type(config)),
        "script": getattr(main, "__file__", None),
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "versions": dict(_versions()),
    }


def _path(value: Any) -> str:
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _commit() -> str | None:
    """The commit of the working directory, with a ``+`` if files differ; `None` outside of Git."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file as a whole: who reads it finds the old one or the new one."""
    with replacing(path) as written:
        written.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {"": found}
