"""A snapshot under another's name, or in the folder of another run, is not resumed from."""

import itertools
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import train

BATCHES = train.Batches(np.arange(4.0), 1)
SECOND = train.every(iterations=2)


def run(folder, stop, rate=1.0, start=0.0, **settings):
    """A run that is stopped after some iterations; the sums that its states are."""
    resume = train.resume(folder, like=0.0) if settings.pop("resume", True) else None
    reports = train.fit(
        lambda state, batch: (state + rate * batch[0], {}), start, BATCHES, epochs=9, resume=resume
    )
    settings = {"every": SECOND, "final": False, **settings}
    stream = train.pipe(reports, train.snapshot(folder, **settings))
    seen = list(itertools.islice(stream, stop))
    stream.close()
    return [report.state for report in seen]


def path_of(folder, iteration):
    return folder / f"snapshot-{iteration:010d}.safetensors"


def iterations(folder):
    return [found.iteration for found in train.snapshots(folder) if found.damage is None]


@settings(max_examples=20, deadline=None)
@given(st.permutations([2, 4, 6, 8, 12]), st.integers(1, 4))
def test_of_files_that_changed_their_names_the_newest_with_its_own_is_taken(
    tmp_path_factory, names, count
):
    folder = tmp_path_factory.mktemp("run")
    run(folder, 8)
    content = {i: path_of(folder, i).read_bytes() for i in (2, 4, 6, 8)}
    for source, target in zip((2, 4, 6, 8)[:count], names[:count], strict=True):
        path_of(folder, target).write_bytes(content[source])
    true = [i for i in content if path_of(folder, i).read_bytes() == content[i]]
    assert iterations(folder) == true
    there = [int(path.name[9:19]) for path in folder.iterdir()]
    if not true:
        with pytest.raises(ValueError, match="as its name says"):
            train.resume(folder, like=0.0)
    elif max(there) == max(true):
        assert train.resume(folder, like=0.0).iteration == max(true)
    else:
        with pytest.warns(RuntimeWarning, match="is a snapshot of iteration .* not of"):
            assert train.resume(folder, like=0.0).iteration == max(true)


def test_a_file_under_a_false_name_is_refused_and_one_under_a_free_name_is_read(tmp_path):
    run(tmp_path, 4)
    shutil.copy(path_of(tmp_path, 2), path_of(tmp_path, 99))
    with pytest.raises(ValueError, match=r"iteration 2, not of 99.*its own name, snapshot-0*2\."):
        train.resume(path_of(tmp_path, 99), like=0.0)
    shutil.copy(path_of(tmp_path, 2), tmp_path / "best.safetensors")
    assert train.resume(tmp_path / "best.safetensors", like=0.0).iteration == 2


@pytest.mark.parametrize("copied", [6, 10])
def test_a_snapshot_of_another_run_is_passed_by_and_never_deleted(tmp_path, copied):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(ours, 6)
    run(theirs, 10, rate=3.0)
    shutil.copy(path_of(theirs, copied), path_of(ours, copied))
    with pytest.warns(RuntimeWarning, match="of another run than the others in the folder"):
        found = train.resume(ours, like=0.0)
    own = 4 if copied == 6 else 6
    assert (found.iteration, found.state) == (own, sum([0, 1, 2, 3, 0, 1][:own]))
    assert train.resume(path_of(ours, copied), like=0.0).iteration == copied  # asked for by name
    content = path_of(ours, copied).read_bytes()
    with pytest.warns(RuntimeWarning, match="of another run"):
        run(ours, 12, keep=1)
    assert content in [path.read_bytes() for path in ours.iterdir()]


def test_of_two_runs_with_as_many_snapshots_neither_is_chosen(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run(ours, 2)
    run(theirs, 4, keep=1)
    shutil.copy(path_of(theirs, 4), ours)
    with pytest.raises(ValueError, match=r"as many snapshots of one run as of another.*Move"):
        train.resume(ours, like=0.0)
    path_of(ours, 4).unlink()
    assert train.resume(ours, like=0.0).iteration == 2


def test_a_run_that_overwrites_another_and_is_killed_goes_on_from_itself(tmp_path):
    run(tmp_path, 8)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run(tmp_path, 2, rate=5.0, resume=False, overwrite=True)
    assert iterations(tmp_path) == [2]
    for name, content in before.items():  # as if it had been killed before it deleted them
        if not (tmp_path / name).exists():
            (tmp_path / name).write_bytes(content)
    found = train.resume(tmp_path, like=0.0)
    assert (found.iteration, found.state) == (2, 5.0)


def test_parts_of_one_run_are_one_run_however_often_it_is_resumed(tmp_path):
    for stop in (3, 3, 3):
        run(tmp_path, stop)
    runs = {found.run for found in train.snapshots(tmp_path)}
    assert len(runs) == 1
    assert None not in runs
