"""Runs that are killed, at any moment, and resumed end as those that never stopped."""

import csv
import json
import multiprocessing
import random
import time

import killed
import numpy as np
import pytest
from hypothesis import settings

from fdbr import train, tree

THOROUGH = settings.default.max_examples > 100
KILLS, EPOCHS = (50, 150) if THOROUGH else (4, 15)

# In the thorough profile each life is a process of its own; else they are forked from one that
# has imported everything.
context = multiprocessing.get_context("spawn" if THOROUGH else "forkserver")
context.set_forkserver_preload(["killed"])


def lines(folder):
    """The logs, without times."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    with (folder / "log.csv").open(newline="") as file:
        entries += csv.DictReader(file)
    return [{name: v for name, v in entry.items() if name != "seconds"} for entry in entries]


def saved(folder):
    """The snapshots that there are in the end, without times."""
    folder = folder / "snapshots"
    last = train.resume(folder, like=killed.start()[1])
    assert [path.suffix for path in folder.iterdir() if path.suffix != ".safetensors"] == []
    entries = [(found.iteration, found.metrics) for found in train.snapshots(folder)]
    position = (last.position.epoch, last.position.batch, last.position.kept)
    bits = [np.asarray(leaf).tobytes() for leaf in tree.leaves(last.state)]
    return entries, position, dict(last.metrics), bits


def progress(folder):
    """How far a run says that it has come, and whether it is writing a file."""
    try:
        said = (folder / "iteration").read_text()
    except FileNotFoundError:
        said = ""
    unfinished = folder / "snapshots" / ".unfinished"
    try:
        writing = any(path.name != "lock" for path in unfinished.iterdir())
    except FileNotFoundError:
        writing = False
    return said, writing


def live(folder, jitted, wish):
    """One life of a run: until it ends, or is killed as is wished; whether it was, in a write."""
    process = context.Process(target=killed.run, args=(str(folder), jitted, EPOCHS))
    before, _ = progress(folder)
    process.start()
    wait, in_write = wish
    began = None
    while process.is_alive():
        said, writing = progress(folder)
        if began is None and said not in ("", before):
            began = time.perf_counter()
        late = began is not None and time.perf_counter() - began > wait
        if late and (writing or not in_write):
            process.kill()
            break
        time.sleep(0.0005)
    process.join()
    return process.exitcode, progress(folder)[1]


@pytest.mark.slow
@pytest.mark.parametrize("jitted", [False, True])
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_never_stopped(tmp_path, jitted):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    assert live(whole, jitted, (1e9, False))[0] == 0
    dice = random.Random(f"{jitted}{time.time_ns() if THOROUGH else ''}")
    kills, in_write = 0, 0
    while not (parts / "ended").exists():
        kill = kills < KILLS
        wish = (dice.uniform(0, 0.05), dice.random() < 0.5) if kill else (1e9, False)
        code, writing = live(parts, jitted, wish)
        assert code in (0, -9)
        kills += code == -9
        in_write += code == -9 and writing
    assert (parts / "ended").read_bytes() == (whole / "ended").read_bytes()
    assert lines(parts) == lines(whole)
    assert saved(parts) == saved(whole)
    print(f"killed {kills} times, {in_write} times in the middle of writing")
    assert kills
