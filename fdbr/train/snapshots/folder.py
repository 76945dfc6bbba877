"""Folders of snapshots: which there are, and which of them are kept."""

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from fdbr.errors.public import public
from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.reports import iteration_in, path_of, summary

__all__ = ["Retention", "Snapshot", "described", "files", "newest_first", "path_of", "snapshots"]


@public("fdbr.train")
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
    run
        A text that all snapshots of one run have, and those of no other; `None` in files of fdbr
        up to version 0.1.
    replaces
        The runs whose snapshots are deleted in favour of this one's, by ``overwrite``.
    """

    path: Path
    iteration: int
    epoch: int = 0
    metrics: Mapping[str, Any] = attrs.field(factory=dict)
    seconds: float = 0.0
    permanent: bool = False
    damage: str | None = None
    run: str | None = None
    replaces: Sequence[str] = ()


def files(folder: Path) -> list[tuple[int, Path]]:
    """The iterations and files of the snapshots in a folder, oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = ((iteration_in(name), folder / name) for name in names)
    return sorted((iteration, path) for iteration, path in found if iteration is not None)


@public("fdbr.train")
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
        A `Snapshot` for each file; that of a damaged one, or of one whose name tells another
        iteration than it is of, says so.

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
        run=fields.get("run"),
        replaces=tuple(fields.get("replaces", ())),
    )


def newest_first(function: str, folder: Path) -> Iterator[tuple[Path, DamagedError | None]]:
    """The files of the snapshots in a folder; with an error, those of another run.

    The run of a folder is that of most of its snapshots.

    Raises
    ------
    ValueError
        If two runs have equally many.
    """
    found = [one for one in snapshots(folder) if one.damage is None]
    replaced = {run for one in found for run in one.replaces}
    runs = Counter(one.run for one in found if one.run not in replaced and one.run is not None)
    (own, most), *others = [*runs.most_common(), (None, 0)]
    if others and others[0][1] == most:
        names = ", ".join(f"{one.path.name} of run {one.run}" for one in found if one.run in runs)
        raise ValueError(
            f"fdbr.train.{function}: {folder} has as many snapshots of one run as of another, and "
            f"it cannot be told which are its own: {names}. Move the others away"
        )
    by_path = {one.path: one.run for one in found}
    for _, path in reversed(files(folder)):
        run, error = by_path.get(path), None
        if run in replaced:  # a run that began anew was killed before it had deleted them
            continue
        if run not in (None, own):
            error = DamagedError(
                f"fdbr.train.{function}: {path} is a snapshot of another run than the others in "
                "the folder: it was copied there. Move it away, or resume from that file alone"
            )
        yield path, error


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
