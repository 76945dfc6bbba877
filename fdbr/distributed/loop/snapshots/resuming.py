"""The way back from a folder of snapshots, on all ranks alike."""

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, is_array, lock, to_numpy
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.collectives import broadcast
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.loop.snapshots.dividing import divided, shapes_of
from fdbr.distributed.loop.snapshots.files import Part
from fdbr.distributed.loop.snapshots.keeping import kept_by_rank, kept_for
from fdbr.distributed.loop.snapshots.writing import raised_by
from fdbr.distributed.objects import all_gather_object, broadcast_object
from fdbr.errors.public import public
from fdbr.train.loop.positions import Position
from fdbr.train.loop.reports import Report
from fdbr.train.snapshots.folder import newest_first
from fdbr.train.snapshots.header import DamagedError
from fdbr.train.snapshots.reading import Expected
from fdbr.train.snapshots.reports import PARTS, read_whole, summary
from fdbr.train.snapshots.writing import leaves_of

__all__ = ["resume"]

_NAME = "fdbr.distributed.resume"

Offer = tuple[str, Any]
"""Rank 0 says: ``none``, an ``error``, a report that is ``whole``, or one in ``parts``."""


@public("fdbr.distributed")
def resume(folder: str | Path, like: Any, comm: Communicator) -> Report | None:
    """The report of the newest complete snapshot in a folder, the same one on all ranks.

    Rank 0 chooses, and passes by what is damaged or incomplete.  A state that is the same on all
    ranks it reads and sends to the others, which need not see the folder; where each rank has
    written its own, each reads that.

    On another number of ranks than those that have written it, a state that is the same on all
    ranks is what it was.  Of one that is not, what all ranks had alike is given to all; arrays that
    were parts of greater ones, along their first axis, are divided anew, as the shapes in ``like``
    of all ranks tell; with zeros at the end that fill them up to equal parts, or without.  What
    differs otherwise is an error.

    Parameters
    ----------
    folder
        The folder that `snapshot`, or `fdbr.train.snapshot`, writes to; or the file of one
        snapshot.
    like
        A state of the structure that is expected, such as that of a new run; see
        `fdbr.train.load`.
    comm
        The ranks.

    Returns
    -------
    Report or None
        As of `fdbr.train.resume`: give it to `fdbr.train.fit`.

    Warns
    -----
    RuntimeWarning
        On rank 0, if a snapshot is passed by; the warning says why.

    Raises
    ------
    OSError
        If ``folder`` cannot be read.
    ValueError
        If no snapshot is complete, though there are some; or if the newest one that is holds
        another state than ``like``.  All ranks raise it.

    >>> import tempfile
    >>> from fdbr import distributed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(distributed.resume(folder, like=0.0, comm=distributed.serial()))
    None
    """
    comm = communicator_of("resume", comm)
    given = Path(os.fspath(folder))
    failures: list[tuple[Path, str]] = []
    offers = _offers(given, like, failures) if comm.rank == 0 else None
    while True:
        own: Report | None = None
        if offers is not None:
            (what, content), own = next(offers)
            what, content = broadcast_object((what, content), comm)
        else:
            what, content = broadcast_object(None, comm)
        if what == "none":
            return None
        if what == "error":
            raise raised_by(0, *content)
        if what == "whole":
            return _sent(own, content, like, comm)
        report = _in_parts(given, content, like, comm, failures)
        if report is not None:
            if failures:
                _warn(failures, content["path"], report, 4)
            return report


# --- on rank 0 ----------------------------------------------------------------------------


def _offers(
    given: Path, like: Any, failures: list[tuple[Path, str]]
) -> Iterator[tuple[Offer, Report | None]]:
    """Rank 0's offers, newest first; the report is for itself.  Failures are added to a list."""
    try:
        single = given.exists() and not given.is_dir()
        missed = True
        while missed:
            missed = False
            for path, strange in [(given, None)] if single else newest_first("resume", given):
                try:
                    if strange is not None:
                        raise strange
                    offer = _offer(path, like)
                except (DamagedError, OSError) as error:
                    if single:
                        raise
                    if os.path.lexists(path):
                        failures.append((path, str(error)))
                    else:  # it was deleted: a run that continues has a newer one by now
                        missed = True
                    continue
                if failures and offer[0][0] == "whole":
                    _warn(failures, path, offer[1], 5)
                yield offer
            if missed:
                failures.clear()
        if failures:
            reasons = "; ".join(reason for _, reason in failures)
            raise ValueError(
                f"{_NAME}: none of the {len(failures)} snapshots in {given} is complete. To begin "
                f"anew, move them away. {reasons}"
            )
    except Exception as error:
        kind = "OSError" if isinstance(error, OSError) else type(error).__name__
        kind = "ValueError" if isinstance(error, ValueError) else kind
        yield ("error", (kind, str(error))), None
    yield ("none", None), None


def _offer(path: Path, like: Any) -> tuple[Offer, Report | None]:
    parts: Mapping[str, Any] = summary("resume", path).get(PARTS) or {}
    report, fields = read_whole("resume", path, None if parts else like)
    said = {
        "path": path,
        "iteration": report.iteration,
        "epoch": report.epoch,
        "metrics": dict(report.metrics),
        "seconds": report.seconds,
        "total": report.total,
        "examples": report.examples,
        "position": (report.position.epoch, report.position.batch, report.position.seconds),
        "kept": dict(report.position.kept),
        "ranks": fields.get("ranks") or {},
        "parts": dict(parts),
    }
    return ("parts" if parts else "whole", said), report


def _warn(failures: list[tuple[Path, str]], path: Path, report: Report | None, level: int) -> None:
    names = ", ".join(str(failed) for failed, _ in failures)
    iteration = "" if report is None else f", iteration {report.iteration}"
    warnings.warn(
        f"{_NAME}: {names} cannot be read, so the run goes on from {path}{iteration}: "
        f"{failures[0][1]}",
        RuntimeWarning,
        stacklevel=level,  # where resume is called
    )


# --- a state that is the same on all ranks ----------------------------------------------


def _sent(own: Report | None, said: Mapping[str, Any], like: Any, comm: Communicator) -> Report:
    """The report that rank 0 has read, on all ranks."""
    leaves = None
    if own is not None:
        leaves = [leaf for _, leaf in leaves_of(own.state)]
    kinds = broadcast_object(None if leaves is None else [_kind(leaf) for leaf in leaves], comm)
    values = []
    for i, (form, content) in enumerate(kinds):
        if form == "plain":
            values.append(content)
            continue
        array = np.empty(content[1], content[0])
        if leaves is not None:
            array[...] = to_numpy(leaves[i])
        if array.nbytes:
            sent = broadcast(array.reshape(-1).view(np.uint8), comm)
            array.reshape(-1).view(np.uint8)[...] = sent
        values.append(array[()] if form == "scalar" else array)
    state = own.state if own is not None else _filled(like, values)
    kept = kept_by_rank(said["kept"], said["ranks"], _ranks(said["ranks"], comm.size))
    return _report(said, state, kept_for(comm.rank, comm.size, kept))


def _ranks(others: Mapping[str, Any], size: int) -> int:
    """The number of ranks that have kept something; any, where all have kept the same."""
    return len(next(iter(others.values()))) if others else size


def _kind(leaf: Any) -> tuple[str, Any]:
    if not is_array(leaf):
        return "plain", leaf
    form = "scalar" if isinstance(leaf, np.generic) else "array"
    return form, (np.dtype(leaf.dtype), tuple(leaf.shape))


def _filled(like: Any, values: list[Any]) -> Any:
    """A tree like another one, with other leaves, where those of the other lie."""
    expected = Expected.like("resume", like)
    placed = []
    for value, (_, given) in zip(values, expected.leaves, strict=True):
        if isinstance(value, np.ndarray):
            xp = array_module(given)
            value = lock(xp.asarray(value))
        placed.append(value)
    return expected.filled(placed)


def _report(said: Mapping[str, Any], state: Any, kept: Mapping[str, Any]) -> Report:
    epoch, batch, seconds = said["position"]
    return Report(
        said["iteration"],
        said["epoch"],
        said["metrics"],
        state,
        Position(epoch, batch, kept, seconds),
        said["seconds"],
        said["total"],
        said["examples"],
    )


# --- a state in parts ---------------------------------------------------------------------


def _in_parts(
    given: Path,
    said: Mapping[str, Any],
    like: Any,
    comm: Communicator,
    failures: list[tuple[Path, str]],
) -> Report | None:
    """The report of a snapshot in parts; `None`, on all ranks, if one of them is not whole."""
    folder = given if given.is_dir() or not given.suffix else given.parent
    size, token = said["parts"]["size"], said["parts"]["token"]
    paths = [Part(said["iteration"], token, rank, size).path(folder) for rank in range(size)]
    same = size == comm.size
    shapes = None if same else all_gather_object(shapes_of(like), comm)
    found: tuple[Any, Mapping[str, Any]] | None = None
    outcome: tuple[str, str] = ("", "")
    try:
        if shapes is None:
            report, _ = read_whole("resume", paths[comm.rank], like)
            found = report.state, report.position.kept
        else:
            values, kept = divided(paths, like, shapes, comm.rank)
            found = _filled(like, values), kept_for(comm.rank, comm.size, kept)
    except FileNotFoundError as error:
        outcome = "damaged", f"there is no {error.filename or error}, as rank {comm.rank} sees it"
    except (DamagedError, OSError) as error:
        outcome = "damaged", str(error)
    except (ValueError, TypeError) as error:
        outcome = type(error).__name__, str(error)
    outcomes = all_gather_object(outcome, comm)
    for rank, (kind, text) in enumerate(outcomes):
        if kind not in ("", "damaged"):
            raise raised_by(rank, kind, text)
    damage = [text for kind, text in outcomes if kind]
    if damage:
        failures.append((said["path"], damage[0]))
        if given == said["path"]:
            raise ValueError(f"{_NAME}: {given} is not complete: {damage[0]}")
        return None
    assert found is not None
    return _report(said, *found)
