"""The writing of snapshots by several ranks together."""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from fdbr import tree
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.errors import DistributedError
from fdbr.distributed.loop.decisions import apart
from fdbr.distributed.loop.snapshots.files import Part, parts_in, remove
from fdbr.distributed.loop.snapshots.keeping import differing
from fdbr.distributed.objects import all_gather_object, broadcast_object
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.background import Background
from fdbr.train.snapshots.folder import Retention, files
from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.reports import PARTS, summary, tree_of
from fdbr.train.snapshots.writer import Writer, opened
from fdbr.train.snapshots.writing import checksum, contents, restated, write

__all__ = ["Group", "raised_by"]

_UNFINISHED = ".unfinished"


@attrs.frozen
class _Pending:
    """A snapshot whose parts are being written."""

    report: Report
    permanent: bool
    token: str


class Group:
    """The ranks as writers of one run's snapshots; each method is called by all of them.

    Parameters
    ----------
    folder
        The folder, as each rank sees it.
    comm
        The ranks.
    retention, overwrite
        As for `Writer`, which rank 0 has.
    shards
        Whether each rank writes its state; `None` if that is to be found out.
    background
        Whether files are written in the background.
    """

    def __init__(
        self,
        folder: Path,
        comm: Communicator,
        retention: Retention,
        overwrite: bool,
        shards: bool | None,
        background: bool,
    ) -> None:
        self._folder = folder
        self._comm = comm
        self._shards = shards
        self._pending: _Pending | None = None
        self._begun = False
        self._stack = contextlib.ExitStack()
        self._retention, self._overwrite, self._background = retention, overwrite, background

    def __enter__(self) -> "Group":
        with self._stack:
            self._unfinished = self._folder / _UNFINISHED
            for root in (True, False):  # who has the lock, and then the others
                self._together(self._open, root)
            self._work = self._stack.enter_context(Background(self._background))
            self._writer = Writer(
                self._folder, self._unfinished, self._retention, self._overwrite, self._work
            )
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _open(self, root: bool) -> None:
        if root != self._is_root:
            return
        if root:
            self._stack.enter_context(opened(self._folder))
            return
        # Of a shared folder, it is the one that the root has made and cleared.
        try:
            self._unfinished.mkdir(parents=True, exist_ok=True)
            for left in self._unfinished.iterdir():
                if left.suffix == ".tmp":
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise _restated(self._folder, error) from error
        self._stack.callback(self._leave)

    def _leave(self) -> None:
        with contextlib.suppress(OSError):  # the root or others write there yet
            self._unfinished.rmdir()

    @property
    def _is_root(self) -> bool:
        return self._comm.rank == 0

    def _together(self, f: Callable[..., Any], *args: Any) -> None:
        """Call a function on all ranks; what it raises on some is raised on all."""
        error: Exception | None = None
        try:
            f(*args)
        except Exception as raised:
            error = raised
        said = all_gather_object(None if error is None else (_kind(error), str(error)), self._comm)
        if error is not None:
            raise error
        for rank, one in enumerate(said):
            if one is not None:
                raise raised_by(rank, *one)

    # --- during the run ---------------------------------------------------------------

    def decide(
        self, report: Report, fires: bool, lasts: bool, *, agreed: bool
    ) -> tuple[bool, bool]:
        """Whether a report is saved, and for good: as rank 0 sees it.

        Ranks do not talk to each other where these are ``agreed``, unless parts are being written.
        """
        self._work.check()
        if not self._begun:
            self._together(self._begin, report)
            self._clean()
            self._begun = True
        if agreed and self._pending is None:
            return fires, lasts
        said = self._said("report", report.iteration, (fires, lasts, self._work.is_idle()))
        if self._pending is not None and all(idle for _, _, idle in said):
            self._commit()
        return said[0][:2]

    def _begin(self, report: Report) -> None:
        if self._is_root:
            self._writer.see(report)

    def _said(self, what: str, iteration: int, value: Any) -> list[Any]:
        """A value of each rank, where all have come to the same iteration."""
        said = all_gather_object((what, iteration, value), self._comm)
        if len({one for _, one, _ in said}) > 1:
            raise apart("snapshot", [one for _, one, _ in said])
        if len({one for one, _, _ in said}) > 1:
            ended = [str(rank) for rank, (one, _, _) in enumerate(said) if one == "end"]
            raise DistributedError(
                f"fdbr.distributed.snapshot: the run has ended after iteration {iteration} on "
                f"rank {', '.join(ended)} alone; let it end alike on all: "
                "fdbr.distributed.until(trigger, comm)"
            )
        return [value for _, _, value in said]

    def save(self, report: Report, permanent: bool) -> None:
        """Write a report, or begin to."""
        self._complete()
        kept = None if self._is_root else dict(report.position.kept)
        token = secrets.token_hex(4)
        said = self._said("save", report.iteration, (self._digest(report.state), kept, token))
        if len({digest for digest, _, _ in said}) == 1 and not self._shards:
            if self._is_root:
                others = [kept for _, kept, _ in said[1:]]
                ranks = differing([report.position.kept, *others])
                more: dict[str, Any] = {"ranks": ranks} if ranks else {}
                self._writer.save(report, permanent, **more)
            return
        token = said[0][2]
        part = Part(report.iteration, token, self._comm.rank, self._comm.size)
        name = part.path(self._folder).name
        content = contents("snapshot", tree_of("snapshot", report, token=token, part=name))
        self._pending = _Pending(_without_state(report), permanent, token)
        self._work.start(partial(self._write, part, content))

    def _digest(self, state: Any) -> str | None:
        """By which ranks see whether their states are the same, where they have to."""
        if self._shards is not None or self._comm.size == 1:
            return None
        return checksum(contents("snapshot", {"state": state}, lambda array: array))

    def _write(self, part: Part, content: Any) -> None:
        path = part.path(self._folder)
        try:
            write("snapshot", path, content, within=self._unfinished)
        except OSError as error:
            raise _restated(path, error) from error

    # --- parts ------------------------------------------------------------------------

    def _complete(self) -> None:
        """Have parts that are being written make a snapshot, when all ranks have theirs."""
        if self._pending is not None:
            self._together(self._work.wait)
            self._commit()

    def _commit(self) -> None:
        """Write the file that makes a snapshot of the parts of all ranks, which are whole."""
        pending, self._pending = self._pending, None
        assert pending is not None
        self._work.wait()
        parts = {"size": self._comm.size, "token": pending.token}
        if self._is_root:
            self._writer.save(pending.report, pending.permanent, here=True, **{PARTS: parts})
        self._clean()

    def _clean(self) -> None:
        """Delete parts of no snapshot that is there."""
        alive, unknown = broadcast_object(self._alive() if self._is_root else None, self._comm)
        size, rank = self._comm.size, self._comm.rank
        remove(
            self._folder,
            [
                part
                for part in parts_in(self._folder)
                if part.rank % size == rank
                and (part.iteration, part.token) not in alive
                and part.iteration not in unknown
            ],
        )

    def _alive(self) -> tuple[set[tuple[int, str]], set[int]]:
        """The snapshots that have parts, and the iterations of those of which nobody knows."""
        alive: set[tuple[int, str]] = set()
        unknown: set[int] = set()
        iterations = {part.iteration for part in parts_in(self._folder)}
        for iteration, path in files(self._folder):
            if iteration not in iterations:
                continue
            try:
                parts: Mapping[str, Any] = summary("snapshot", path).get(PARTS) or {}
            except (DamagedError, OSError):
                unknown.add(iteration)
                continue
            if parts:
                alive.add((iteration, parts["token"]))
        return alive, unknown

    # --- the end ----------------------------------------------------------------------

    def finish(self, report: Report | None, iteration: int) -> None:
        """Wait for the last write, and write a last report."""
        if not self._begun:
            return
        self._said("end", iteration, None)
        self._complete()
        if report is not None:
            self.save(report, False)
            self._complete()
        self._together(self._writer.finish, None)

    def give_up(self, report: Report | None, error: BaseException) -> None:
        """Wait for the own last write, as others may not come any more.

        Only where rank 0 is known to write the state of all, it writes the last report.
        """
        alone = self._comm.size == 1 or (self._is_root and self._shards is False)
        self._writer.finish(report if alone and self._begun else None, error)


def _without_state(report: Report) -> Report:
    return tree.replace(report, state=None)


def _restated(path: Path, error: OSError) -> OSError:
    if str(error).startswith("fdbr."):
        return error
    return restated(error, f"fdbr.distributed.snapshot: {path} cannot be written")


# --- errors of other ranks --------------------------------------------------------------

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (BlockingIOError, FileExistsError, OSError, TypeError, ValueError)
}


def _kind(error: Exception) -> str:
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS), "")


def raised_by(rank: int, kind: str, text: str) -> Exception:
    """The error that a rank has raised, on another one."""
    made = _KINDS.get(kind, DistributedError)(text)
    made.add_note(f"It was raised on rank {rank}.")
    return made
