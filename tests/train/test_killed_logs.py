"""Whatever a run has recorded before it was killed is there when it is resumed, once."""

import csv
import itertools
import json
import os
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import random, train

BATCHES = train.Batches(np.sin(np.arange(9.0)), 2, key=random.key(0))
EACH = train.every(iterations=1)


def run(folder, snapshots, killed=None):
    """A run with all that it records, that ends as by SIGKILL with an iteration."""
    found = train.resume(folder / "snapshots", like=0.0)
    reports = train.fit(
        lambda state, batch: (state + batch.sum(), {"loss": state}),
        0.0,
        BATCHES,
        epochs=3,
        resume=found,
    )
    stages = [
        train.evaluate(lambda state: {"loss": state}),
        train.log(folder / "log.jsonl", every=EACH),
        train.log(folder / "log.csv", every=EACH, name="csv"),
        train.average(),
        train.snapshot(folder / "snapshots", every=train.every(iterations=snapshots)),
    ]
    for report in train.pipe(reports, *stages):
        if report.iteration == killed:
            os._exit(9)


def in_child(folder, snapshots, killed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads and forks
        child = os.fork()
    if not child:
        try:
            run(folder, snapshots, killed)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def lines(path):
    if path.name.startswith("log.csv"):
        with path.open(newline="") as file:
            entries = list(csv.DictReader(file))
    else:
        entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: v for name, v in one.items() if v and name != "seconds"} for one in entries]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 15), min_size=1, max_size=4), st.integers(1, 6))
def test_after_any_kills_the_logs_are_whole_and_nothing_is_lost(tmp_path_factory, kills, snapshots):
    whole, parts = (tmp_path_factory.mktemp("run") for _ in range(2))
    run(whole, snapshots)
    lost = []  # the attempts that had no snapshot to go on from
    for killed in kills:
        begun = train.resume(parts / "snapshots", like=0.0)
        in_child(parts, snapshots, killed)
        if begun is None and train.resume(parts / "snapshots", like=0.0) is None:
            lost.append(killed)
    run(parts, snapshots)
    for name in ("log.jsonl", "log.csv"):
        assert lines(parts / name) == lines(whole / name)
        kept = [f"{name}~{number or ''}" for number, _ in enumerate(lost)]
        assert sorted(p.name for p in parts.glob(f"{name}~*")) == sorted(kept)
        for old, killed in zip(kept, lost, strict=True):
            assert lines(parts / old) == lines(whole / name)[:killed]
    found, expected = (
        [(one.iteration, one.metrics) for one in train.snapshots(folder / "snapshots")]
        for folder in (parts, whole)
    )
    assert found == expected


def test_a_name_that_is_taken_is_never_written_over(tmp_path):
    path = tmp_path / "log.jsonl"
    for number in range(4):
        reports = train.fit(lambda s, b: (s, {"n": s}), number, BATCHES, iterations=2)
        for _ in itertools.islice(train.pipe(reports, train.log(path, every=EACH)), 1):
            pass
    found = [json.loads(p.read_text())["n"] for p in sorted(tmp_path.glob("log.jsonl~*"))]
    assert found == [0, 1, 2]
    assert json.loads(path.read_text())["n"] == 3
