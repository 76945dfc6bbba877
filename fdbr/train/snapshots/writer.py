"""The writing of a run's snapshots to its folder."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from fdbr.core.util.atomic_write import sync_folder
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.background import Background
from fdbr.train.snapshots.folder import (
    Retention,
    Snapshot,
    described,
    newest_first,
    path_of,
    snapshots,
)
from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.locking import locked
from fdbr.train.snapshots.reading import check
from fdbr.train.snapshots.reports import fields_of, tree_of
from fdbr.train.snapshots.writing import Contents, contents, restated, write

__all__ = ["Writer", "opened"]

_UNFINISHED = ".unfinished"  # a folder in the folder, of files that are being written
_LOCK = "lock"


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """A folder for the snapshots of one run, where others do not write meanwhile.

    It is made, and cleared of what killed runs left half written.  What comes out is the folder
    in it for files that are being written.
    """
    unfinished = folder / _UNFINISHED
    known = folder.exists()
    try:
        with locked(unfinished / _LOCK, f"fdbr.train.snapshot: {folder} is in use") as alone:
            if not known:
                sync_folder(folder.absolute().parent)
            if alone:
                for left in unfinished.iterdir():
                    if left.name != _LOCK:
                        left.unlink() if not left.is_dir() else shutil.rmtree(left)
            yield unfinished
    except OSError as error:
        if str(error).startswith("fdbr."):
            raise
        raise restated(error, f"fdbr.train.snapshot: {folder} cannot be written to") from error
    finally:
        with contextlib.suppress(OSError):  # somebody else writes there, or it is gone
            unfinished.rmdir()


class Writer:
    """Who writes the snapshots of a run, and deletes those that are not kept.

    Parameters
    ----------
    folder, unfinished
        The folder, and the one in it for files that are not whole.
    retention
        Which snapshots are kept.
    overwrite
        Whether snapshots of later iterations than that where the run begins are deleted.
    work
        Where files are written.
    """

    def __init__(
        self,
        folder: Path,
        unfinished: Path,
        retention: Retention,
        overwrite: bool,
        work: Background,
    ) -> None:
        self._folder = folder
        self._unfinished = unfinished
        self._retention = retention
        self._overwrite = overwrite
        self._work = work
        self._entries: list[Snapshot] = []
        self._later: list[Snapshot] = []
        self._begun = False
        self._run = ""
        self._replaced: list[str] = []

    def see(self, report: Report) -> None:
        """Raise what is wrong: with the last write, or with the folder for this first report."""
        self._work.check()
        if not self._begun:
            self._begin(report)
            self._begun = True

    def save(
        self, report: Report, permanent: bool = False, here: bool = False, **more: Any
    ) -> None:
        """Write a report, or begin to: it may be changed, or given up, from now on.

        ``more`` is written beside its fields.
        """
        if self._replaced:
            more["replaces"] = self._replaced
        tree = tree_of("snapshot", report, permanent=permanent, run=self._run, **more)
        content = contents("snapshot", tree)
        entry = described(path_of(self._folder, report.iteration), fields_of(tree))
        del tree
        work = partial(self._write, entry, content)
        del content  # the work alone refers to the arrays, and no longer than it takes
        (self._work.do if here else self._work.start)(work)

    def finish(self, report: Report | None, error: BaseException | None = None) -> None:
        """Wait for the last write, and write a last report; an error of the run comes first."""
        try:
            self._work.wait()
            if report is not None and not self._work.failed:
                self.save(report, here=True)
            if error is None:
                self._check_metric()
        except Exception as failure:
            if error is None or isinstance(error, GeneratorExit | SystemExit):
                raise  # these say nothing themselves
            if failure is not error:
                error.add_note(f"The last iteration is in no snapshot: {failure}")

    def _begin(self, report: Report) -> None:
        """Look at what is there already."""
        strange = {path for path, error in newest_first("snapshot", self._folder) if error}
        found = [
            entry
            for entry in snapshots(self._folder)
            if entry.damage is None and entry.path not in strange
        ]
        first = report.iteration
        self._entries = [entry for entry in found if entry.iteration < first]
        self._later = [entry for entry in found if entry.iteration >= first and _is_whole(entry)]
        self._run = next((entry.run for entry in reversed(self._entries) if entry.run), "")
        self._run = self._run or secrets.token_hex(8)
        others = dict.fromkeys(entry.run for entry in self._later)
        self._replaced = [run for run in others if run not in (None, self._run)]
        if self._later and not self._overwrite:
            raise FileExistsError(
                f"fdbr.train.snapshot: {self._folder} has snapshots up to iteration "
                f"{self._later[-1].iteration}, but this run is at {report.iteration}. Go on from "
                "them, fit(…, resume=train.resume(folder, like=state)), give another folder, or "
                "overwrite=True to delete them"
            )

    def _write(self, entry: Snapshot, content: Contents) -> None:
        """Write a file, and then delete those that are not kept."""
        path = entry.path
        try:
            ours = [*self._entries, *self._later]
            if path.exists() and all(other.path != path for other in ours):  # it is damaged
                os.rename(path, path.with_name(f"{path.name}.{secrets.token_hex(4)}.damaged"))
            write("snapshot", path, content, within=self._unfinished)
            self._entries = [other for other in self._entries if other.path != path]
            self._entries.append(entry)
            self._entries.sort(key=lambda other: other.iteration)
            gone = [other for other in self._later if other.path != path]
            gone += self._retention.superfluous(self._entries)
            self._later, self._replaced = [], []
            for other in gone:
                other.path.unlink(missing_ok=True)
            self._entries = [other for other in self._entries if other not in gone]
        except OSError as error:
            if str(error).startswith("fdbr."):
                raise
            raise restated(error, f"fdbr.train.snapshot: {path} cannot be written") from error

    def _check_metric(self) -> None:
        best = self._retention.best
        if best is None or not self._entries:
            return
        if not any(best in entry.metrics for entry in self._entries):
            there = ", ".join(map(repr, self._entries[-1].metrics)) or "none"
            raise ValueError(
                f"fdbr.train.snapshot: no report that was saved had the metric best={best!r}; the "
                f"last one had {there}. Put the stage that adds the metric before this one, and "
                "choose reports that have it with every="
            )


def _is_whole(entry: Snapshot) -> bool:
    try:
        check("snapshot", entry.path)
    except (DamagedError, OSError):
        return False
    return True
