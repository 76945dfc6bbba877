"""Runs of several processes that die, at any moment, and are begun again end as if they had not."""

import json
import os
import random
import signal
import time
from pathlib import Path

import dying
import launching
import pytest
from hypothesis import settings

from fdbr import train
from fdbr.distributed import resume, run_in_threads

THOROUGH = settings.default.max_examples > 100
PROGRAM = Path(__file__).parent / "dying.py"
RANKS, ITERATIONS = (3, 600) if THOROUGH else (2, 24)
LIMIT = 60.0
"""Seconds within which all ranks end when one has died; the time-out of collectives is 4."""


def contents(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def is_writing(folder):
    try:
        return any(path.name != "lock" for path in (folder / "snapshots/.unfinished").iterdir())
    except FileNotFoundError:
        return False


def life(folder, kind, jitted, wish=None):
    """One life of a run: until it ends, or a rank dies as is wished; how it ended, and where.

    A wish is a signal, a rank, how many seconds after the run has gone on, and a place: ``any``, in
    a ``collective``, or while a snapshot is ``written``; or after how many iterations one raises.
    """
    fails = wish if isinstance(wish, int) else 0
    for rank in range(RANKS):
        (folder / f"process-{rank}").unlink(missing_ok=True)
    before = contents(folder / "iteration")
    process = launching.start(
        RANKS, PROGRAM, folder, kind, "jitted" if jitted else "eager", ITERATIONS, fails
    )
    place = None
    began, deadline = None, time.monotonic() + 120.0
    while isinstance(wish, tuple) and process.poll() is None and place is None:
        signal_, rank, wait, where = wish
        now = time.monotonic()
        assert now < deadline
        if began is None and contents(folder / "iteration") not in (b"", before):
            began = now
        if began is not None and now - began > wait:
            late = now - began > wait + 1.0  # whose wish may not come true
            inside = contents(folder / f"rank-{rank}") == b"\1"
            writing = is_writing(folder)
            if late or {"any": True, "collective": inside, "written": writing}[where]:
                place = (inside, writing)
                os.kill(int(contents(folder / f"process-{rank}")), signal_)
        time.sleep(0.0002)
    died = time.monotonic()
    ended = launching.finish(process, LIMIT if wish else 600.0)
    return ended, place, time.monotonic() - died


def undisturbed(folder, kind, jitted):
    """The run that never stops; of two ranks, threads add the same numbers as processes."""
    if RANKS > 2:
        ended, _, _ = life(folder, kind, jitted)
        assert ended.returncode == 0, ended.stderr
    else:
        run_in_threads(lambda comm: dying.run(comm, folder, kind, jitted, ITERATIONS), RANKS)


def outcome(folder):
    """All that a run leaves, without times: states, reports, lines of the log, snapshots."""
    reports = [json.loads((folder / f"report-{rank}").read_text()) for rank in range(RANKS)]
    states = [(folder / f"state-{rank}").read_bytes() for rank in range(RANKS)]
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    log = [{name: value for name, value in line.items() if name != "seconds"} for line in log]
    entries = [(s.iteration, dict(s.metrics)) for s in train.snapshots(folder / "snapshots")]
    files = [path.name.split(".")[0::2] for path in sorted((folder / "snapshots").iterdir())]
    return reports, states, log, entries, files


def complete(folder, kind):
    """The iteration of the last complete snapshot, as ranks that are threads see it."""

    def last(comm):
        report = resume(folder / "snapshots", dying.start(comm, kind)[1], comm)
        return 0 if report is None else report.iteration

    found = set(run_in_threads(last, RANKS))
    assert len(found) == 1
    return found.pop()


def ways_to_die(jitted, in_ci):
    """The wishes of a test: many in the thorough profile."""
    dice = random.Random(f"{jitted}{time.time_ns() if THOROUGH else ''}")
    places = ("any", "collective", "written") * 10 if THOROUGH else (in_ci,)
    wishes: list = [
        (signal.SIGKILL, dice.randrange(RANKS), dice.uniform(0, 0.3), where) for where in places
    ]
    if THOROUGH or jitted:
        wishes.append((signal.SIGINT, RANKS - 1, 0.02, "any"))
    if THOROUGH:
        wishes.insert(7, (signal.SIGSTOP, RANKS - 1, 0.05, "any"))
        wishes.insert(14, (signal.SIGSTOP, 0, 0.05, "collective"))
        wishes.insert(10, 12)
    return wishes


CASES = [("same", False), ("own", True)] if not THOROUGH else [
    (kind, jitted) for kind in ("same", "own") for jitted in (False, True)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "jitted"), CASES)
def test_a_run_whose_ranks_die_again_and_again_ends_as_one_that_never_stopped(
    tmp_path, kind, jitted
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    undisturbed(whole, kind, jitted)
    wishes = ways_to_die(jitted, "collective" if jitted else "written")
    places, slowest, last = [], 0.0, 0
    while not (parts / "ended").exists():
        wish = wishes.pop(0) if wishes else None
        ended, place, seconds = life(parts, kind, jitted, wish)
        if (parts / "ended").exists():
            break
        assert wish is not None, ended.stderr
        if isinstance(wish, int):
            assert "RuntimeError: a rank that fails" in ended.stderr
        else:
            places.append(place)
        slowest = max(slowest, seconds)
        now = complete(parts, kind)
        assert now >= last
        if isinstance(wish, tuple) and wish[0] == signal.SIGINT:
            assert ended.returncode == 0, ended.stderr
            said = [line for line in ended.stdout.splitlines() if line.startswith("stopped")]
            assert said == [f"stopped after iteration {now}"] * RANKS
        else:
            assert ended.returncode != 0
        last = now
    inside, writing = (sum(column) for column in zip(*places, strict=True))
    print(
        f"died {len(places)} times, {inside} in a collective, {writing} while writing; all had "
        f"ended {slowest:.1f} s later"
    )
    for one, other in zip(outcome(parts), outcome(whole), strict=True):
        assert one == other
