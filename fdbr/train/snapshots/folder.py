"""Folders of snapshots: which there are, and which of them are kept."""

import contextlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.reports import summary

__all__ = ["Retention", "Snapshot", "described", "files", "path_of", "snapshots"]

_NAME = re.compile(r"snapshot-(\d+)\.safetensors")


@attrs.frozen(eq=False)
class Snapshot:
    """A snapshot in a folder, by what its header says.

    Attributes
    ----------
    path
        Its file.
    iteration, epoch
        How many steps were made, and how many epochs were finished.
    metrics
        Those of its report, a mapping from names to numbers.
    seconds
        How long the run had taken.
    permanent
        Whether it is kept for good, by ``keep_every``.
    damage
        The reason why it cannot be read; `None` as far as the header tells.  The other attributes
        are then those that the file's name tells.
    """

    path: Path
    iteration: int
    epoch: int = 0
    metrics: Mapping[str, Any] = attrs.field(factory=dict)
    seconds: float = 0.0
    permanent: bool = False
    damage: str | None = None


def path_of(folder: Path, iteration: int) -> Path:
    """The file of the snapshot of an iteration."""
    return folder / f"snapshot-{iteration:010d}.safetensors"


def files(folder: Path) -> list[tuple[int, Path]]:
    """The iterations and files of the snapshots in a folder, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = ((_NAME.fullmatch(name), name) for name in names)
    return sorted((int(match[1]), folder / name) for match, name in found if match)


def snapshots(folder: str | Path) -> list[Snapshot]:
    """The snapshots in a folder, oldest first.

    Their headers are read, and nothing is checked beyond that: `resume` checks each bit.

    Parameters
    ----------
    folder
        The folder that `snapshot` writes to.  One that is empty or missing has none.

    Returns
    -------
    list
        A `Snapshot` for each file; that of a damaged one says so.

    Raises
    ------
    OSError
        If the folder cannot be read.

    >>> import tempfile
    >>> import numpy as np
    >>> from fdbr import train
    >>> batches = train.Batches(np.arange(4.0), size=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reports = train.fit(lambda s, b: (s + b, {"sum": s[0]}), np.zeros(1), batches, epochs=2)
    ...     for report in train.pipe(reports, train.snapshot(folder)):
    ...         pass
    ...     [(s.iteration, s.metrics["sum"]) for s in train.snapshots(folder)]
    [(4, np.float64(3.0)), (8, np.float64(9.0))]
    """
    return [found for iteration, path in files(Path(folder)) if (found := _of(iteration, path))]


def _of(iteration: int, path: Path) -> Snapshot | None:
    try:
        fields = summary("snapshots", path)
    except FileNotFoundError:  # somebody has just deleted it
        return None
    except (DamagedError, OSError) as error:
        return Snapshot(path, iteration, damage=str(error))
    return described(path, fields)


def described(path: Path, fields: Mapping[str, Any]) -> Snapshot:
    """The entry of a snapshot with these fields."""
    return Snapshot(
        path,
        fields["iteration"],
        fields["epoch"],
        fields["metrics"],
        fields["seconds"],
        fields.get("permanent", False),
    )


@attrs.frozen
class Retention:
    """Which snapshots of a folder are kept.

    Attributes
    ----------
    keep
        How many of the newest; `None` for all.
    best
        The metric of which the best one is kept, too.
    mode
        Whether the ``"min"`` or the ``"max"`` of it is best.
    """

    keep: int | None
    best: str | None
    mode: str

    def superfluous(self, entries: Iterable[Snapshot]) -> Iterator[Snapshot]:
        """Those of the entries, oldest first, that are not kept."""
        if self.keep is None:
            return
        readable = [entry for entry in entries if entry.damage is None]
        best = min(readable, key=self._rank, default=None)
        if best is not None and math.isinf(self._rank(best)):
            best = None
        for entry in readable[: -self.keep]:
            if not entry.permanent and entry is not best:
                yield entry

    def _rank(self, entry: Snapshot) -> float:
        """The metric, as what is least where it is best; infinite where it is no number."""
        value = math.nan
        with contextlib.suppress(TypeError, ValueError):
            value = float(entry.metrics.get(self.best or "", math.nan))
        return math.inf if math.isnan(value) else value if self.mode == "min" else -value
