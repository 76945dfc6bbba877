"""Snapshots of runs: which are written and kept, and that a run goes on from them."""

import errno
import itertools
import os
import shutil
import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import random, train
from fdbr.train.snapshots import writing

DATA = np.arange(10.0)


def batches():
    return train.Batches(DATA, size=2, key=random.key(1))


def step(state, batch):
    """A step whose state has everything: numbers, arrays, a key, counts."""
    key, noise = random.split(state["key"])
    w = state["w"] * 0.9 + batch.sum() + random.normal(noise, (3,))
    state = {"w": w, "key": key, "count": state["count"] + 1, "best": None}
    return state, {"loss": w.sum(), "size": len(batch)}


def start():
    return {"w": np.zeros(3), "key": random.key(0), "count": 0, "best": None}


def run(folder, stop=None, stages=(), epochs=3, resume=True, **settings):
    """A run that goes on from what is in the folder, and is stopped after some iterations."""
    settings = {"every": train.every(iterations=2), "final": False, **settings}
    report = train.resume(folder, like=start()) if resume else None
    reports = train.fit(step, start(), batches(), epochs=epochs, resume=report)
    stream = train.pipe(reports, *stages, train.snapshot(folder, **settings))
    seen = list(itertools.islice(stream, stop) if stop is not None else stream)
    stream.close()
    return seen


def iterations(folder):
    return [found.iteration for found in train.snapshots(folder)]


def same(a, b):
    """Whether two reports are the same, bit by bit, times aside."""
    ours = (a.iteration, a.epoch, dict(a.metrics), a.state, a.position, a.total, a.examples)
    theirs = (b.iteration, b.epoch, dict(b.metrics), b.state, b.position, b.total, b.examples)
    bits = [getattr(leaf, "tobytes", lambda leaf=leaf: leaf)() for leaf in fdbr.tree.leaves(ours)]
    others = [getattr(x, "tobytes", lambda x=x: x)() for x in fdbr.tree.leaves(theirs)]
    return bits == others and fdbr.tree.structure(ours) == fdbr.tree.structure(theirs)


@given(st.lists(st.integers(1, 6), max_size=4), st.sampled_from([1, 2, 3]), st.booleans())
@settings(max_examples=10, deadline=None)
def test_any_prefix_of_a_run_and_its_rest_are_the_run(tmp_path_factory, stops, count, final):
    folder = tmp_path_factory.mktemp("run")
    every = train.every(iterations=count)
    whole = run(folder / "whole", every=every)
    for stop in stops:
        run(folder / "parts", stop, every=every, final=final)
    last = run(folder / "parts", every=every)
    assert all(map(same, last, whole[len(whole) - len(last) :]))
    assert same(train.resume(folder / "parts", start()), train.resume(folder / "whole", start()))


def test_a_report_comes_back_with_all_that_is_in_it(tmp_path):
    def keeping(reports):
        for report in reports:
            kept = {"a": [1, (2.5, None)], "b": np.arange(3), "c": {"d": True, 7: "text"}}
            yield report.keep("mine", kept).keep("other", np.float32(0.1))

    last = run(tmp_path, stages=[keeping])[-1]
    found = train.resume(tmp_path, like=start())
    assert (found.iteration, found.epoch, found.position) == (14, 2, train.Position(2, 4))
    assert (found.total, found.examples) == (15, 2)
    assert found.seconds == found.position.seconds < last.seconds
    kept = found.position.kept
    assert kept["mine"]["a"] == [1, (2.5, None)]
    assert kept["mine"]["b"].tolist() == [0, 1, 2]
    assert kept["mine"]["c"] == {"d": True, 7: "text"}
    assert (type(kept["other"]), kept["other"]) == (np.float32, np.float32(0.1))
    assert found.state["key"].dtype == start()["key"].dtype
    with pytest.raises(ValueError, match="read-only"):
        found.state["w"][0] = 1


def test_a_number_of_python_in_like_may_have_become_an_array(tmp_path):
    reports = train.fit(lambda s, b: (s + b.sum(), {}), 0, batches(), iterations=3)
    states = [report.state for report in train.pipe(reports, train.snapshot(tmp_path))]
    found = train.resume(tmp_path, like=0)
    assert (type(found.state), found.state) == (np.float64, states[-1])


def test_an_empty_or_missing_folder_has_no_snapshot(tmp_path):
    assert train.resume(tmp_path, like=0) is None
    assert train.resume(tmp_path / "none", like=0) is None
    assert train.snapshots(tmp_path / "none") == []


def test_one_snapshot_is_read_by_its_file(tmp_path):
    seen = run(tmp_path)
    best = min(train.snapshots(tmp_path), key=lambda found: found.metrics["loss"])
    found = train.resume(best.path, like=start())
    assert (found.iteration, found.metrics["loss"]) == (best.iteration, best.metrics["loss"])
    assert found.state["w"].tobytes() == seen[best.iteration - 1].state["w"].tobytes()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^fdbr\.train\.resume: .*file is damaged"):
        train.resume(tmp_path / "file", like=0)


def test_another_state_is_refused_by_its_paths(tmp_path):
    run(tmp_path)
    with pytest.raises(ValueError, match=r"^fdbr\.train\.resume: ") as caught:
        train.resume(tmp_path, like={**start(), "w": np.zeros(4), "more": 1})
    assert "missing: ['state']['more']" in str(caught.value)
    assert "['state']['w'] (file: float64[3], like: float64[4])" in str(caught.value)


# --- which are kept -----------------------------------------------------------------


def test_all_are_kept_unless_it_is_said_how_many(tmp_path):
    run(tmp_path / "all", final=True)
    assert iterations(tmp_path / "all") == [2, 4, 6, 8, 10, 12, 14, 15]
    run(tmp_path / "two", keep=2)
    assert iterations(tmp_path / "two") == [12, 14]
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == [
        "snapshot-0000000012.safetensors",
        "snapshot-0000000014.safetensors",
    ]


def test_some_are_kept_for_good(tmp_path):
    run(tmp_path, stop=9, keep_every=train.every(epochs=1))
    assert iterations(tmp_path) == [5, 8]
    run(tmp_path, keep=2, keep_every=train.every(epochs=1))  # which is known after a resume, too
    assert iterations(tmp_path) == [5, 10, 14, 15]
    assert [found.permanent for found in train.snapshots(tmp_path)] == [True, True, False, True]


@pytest.mark.parametrize(("mode", "best"), [("min", 6), ("max", 4)])
def test_the_best_by_a_metric_is_kept(tmp_path, mode, best):
    values = [0, 5, 9, 9, 0, 1, 9, float("nan"), 1, 1]

    def judge(reports):
        for report in reports:
            yield report.with_metrics({"score": values[report.iteration - 1]})

    run(tmp_path, stop=7, stages=[judge], epochs=2, best="score", mode=mode)
    assert iterations(tmp_path) == sorted({best, 6})
    run(tmp_path, stages=[judge], epochs=2, best="score", mode=mode)
    assert iterations(tmp_path) == [best, 10]


def test_a_metric_that_never_comes_is_named_at_the_end(tmp_path):
    with pytest.raises(
        ValueError, match=r"saved had the metric best='accuracy'.*had 'loss', 'size'"
    ):
        run(tmp_path, best="accuracy")
    assert iterations(tmp_path) == [14]


def test_a_trigger_may_be_any_function_and_may_keep_a_state(tmp_path):
    def thrice(count, report):
        return count % 3 == 2, count + 1

    run(tmp_path / "a", every=lambda report: report.iteration in (3, 7))
    assert iterations(tmp_path / "a") == [3, 7]
    trigger = train.Trigger(thrice, lambda: 0)
    run(tmp_path / "b", stop=4, every=trigger)
    run(tmp_path / "b", every=trigger)
    assert iterations(tmp_path / "b") == [3, 6, 9, 12, 15]


# --- how runs end -------------------------------------------------------------------


def test_the_last_report_is_saved_however_a_run_ends(tmp_path):
    run(tmp_path / "end", epochs=1, final=True)
    assert iterations(tmp_path / "end") == [2, 4, 5]
    run(tmp_path / "break", stop=3, final=True)
    assert iterations(tmp_path / "break") == [2, 3]
    for kind in (KeyboardInterrupt, ZeroDivisionError):

        def breaking(reports, kind=kind):
            for report in reports:
                if report.iteration == 4:
                    raise kind
                yield report

        with pytest.raises(kind):
            run(tmp_path / kind.__name__, stages=[breaking], final=True)
        assert iterations(tmp_path / kind.__name__) == [2, 3]


def test_a_state_that_was_given_up_is_missed_without_hiding_the_error(tmp_path):
    @fdbr.jit(donate_argnums=0)
    def double(state):
        return {"w": state["w"] * 2}

    def failing(state, batch):
        state = double(state)
        if state["w"][0] > 20:
            raise ZeroDivisionError("the step")
        return state, {}

    reports = train.fit(failing, {"w": np.ones(3)}, batches(), epochs=2)
    with pytest.raises(ZeroDivisionError, match="the step") as caught:
        list(train.pipe(reports, train.snapshot(tmp_path, train.every(iterations=3))))
    assert "donated to the jitted function" in caught.value.__notes__[0]
    assert iterations(tmp_path) == [3]


def test_what_keeps_something_after_the_snapshot_is_refused(tmp_path):
    reports = train.fit(step, start(), batches(), epochs=1)
    with pytest.raises(ValueError, match="put snapshot last"):
        list(train.pipe(reports, train.snapshot(tmp_path), train.average()))


def test_the_best_and_the_newest_may_lie_in_folders_of_their_own(tmp_path):
    best, newest = tmp_path / "best", tmp_path / "newest"
    losses = []
    for epochs in (1, 3):
        report = train.resume(newest, like=start())
        reports = train.fit(step, start(), batches(), epochs=epochs, resume=report)
        stages = [
            train.snapshot(best, train.best("loss"), keep=1, final=False, overwrite=True),
            train.snapshot(newest, train.every(iterations=2), keep=1),
        ]
        losses += [report.metrics["loss"] for report in train.pipe(reports, *stages)]
    assert iterations(newest) == [15]
    assert iterations(best) == [min((5, 10, 15), key=lambda i: losses[i - 1])]


# --- in the background --------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch):
    """Writing that waits until it is allowed."""
    allowed = threading.Event()
    original = writing.save_file

    def save_file(*args, **kwargs):
        assert allowed.wait(60)
        original(*args, **kwargs)

    monkeypatch.setattr(writing, "save_file", save_file)
    return allowed


def test_steps_go_on_while_a_file_is_written(tmp_path, slow):
    reports = train.fit(step, start(), batches(), epochs=1)
    stream = train.pipe(reports, train.snapshot(tmp_path, train.every(iterations=4)))
    seen = list(itertools.islice(stream, 4))
    assert iterations(tmp_path) == []
    slow.set()
    seen += stream
    assert len(seen) == 5
    assert iterations(tmp_path) == [4, 5]


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_file_has_the_state_of_its_iteration_though_later_steps_write_over_it(
    tmp_path, slow, size
):
    @fdbr.jit(donate_argnums=0)
    def grown(state, batch):
        return {"w": state["w"] * 0.5 + batch.sum(), "n": state["n"] + 1}

    def plain(state, batch):
        state["w"][...] = state["w"] * 0.5 + batch.sum()  # in place, as nobody should
        return state, {}

    for step in (lambda s, b: (grown(s, b), {}), plain):
        folder = tmp_path / f"{step is plain}"
        begin = {"w": np.zeros(size), "n": np.zeros(())}
        found = []
        reports = train.fit(step, begin, batches(), iterations=9)
        for report in train.pipe(reports, train.snapshot(folder, train.every(iterations=5))):
            found.append(report.state["w"].copy())
            if report.iteration == 9:
                slow.set()
        (first, last) = train.snapshots(folder)
        assert (first.iteration, last.iteration) == (5, 9)
        state = {"w": np.zeros(size), "n": np.zeros(())}
        for entry in (first, last):
            written = train.load(entry.path, {"report": "", "arrays": [], "state": state})
            assert written["state"]["w"].tobytes() == found[entry.iteration - 1].tobytes()
        slow.clear()


# --- what can go wrong --------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
def test_an_error_of_writing_comes_out_and_nothing_is_lost(tmp_path, monkeypatch, background):
    original = os.fsync
    calls = itertools.count()

    def full(file):
        if next(calls) > 5:  # two for each file
            raise OSError(errno.ENOSPC, "No space left on device")
        original(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"^fdbr\.train\.snapshot: .*No space left") as caught:
        run(tmp_path, background=background, keep=1, final=True)
    assert caught.value.errno == errno.ENOSPC
    (left,) = train.snapshots(tmp_path)
    monkeypatch.undo()
    assert train.resume(tmp_path, start()).iteration == left.iteration == 6
    assert [p.name for p in tmp_path.iterdir()] == [left.path.name]
    assert run(tmp_path)[-1].iteration == 15


def test_the_error_of_the_last_write_comes_out_of_close(tmp_path, monkeypatch):
    stream = train.pipe(train.fit(step, start(), batches(), epochs=1), train.snapshot(tmp_path))
    next(stream)
    shutil.rmtree(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^fdbr\.train\.snapshot: .*cannot be written"):
        stream.close()


def test_a_folder_that_cannot_be_written_to_stops_a_run_before_its_first_step(tmp_path):
    steps = []
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"^fdbr\.train\.snapshot: .*file.*cannot be written to"):
        run(tmp_path / "file" / "folder", stages=[lambda r: map(steps.append, r)], resume=False)
    assert not steps


def test_a_folder_that_vanishes_is_an_error_at_the_next_report(tmp_path):
    folder = tmp_path / "folder"
    reports = train.fit(step, start(), batches(), epochs=3)
    stream = train.pipe(reports, train.snapshot(folder, train.every(iterations=2)))
    next(stream)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match=r"^fdbr\.train\.snapshot: .*cannot be written"):
        list(stream)


def test_one_run_at_a_time_writes_to_a_folder(tmp_path):
    first = train.pipe(train.fit(step, start(), batches(), epochs=1), train.snapshot(tmp_path))
    next(first)
    with pytest.raises(BlockingIOError, match="another run of this process writes there"):
        run(tmp_path, resume=False)
    child = os.fork()
    if not child:  # another process, which has no lock of its own
        from fdbr.train.snapshots import locking

        locking._held.clear()
        try:
            run(tmp_path, resume=False)
        except BlockingIOError as error:
            os._exit(0 if f"(process {os.getppid()})" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    first.close()
    assert run(tmp_path)[-1].iteration == 15


def test_what_a_killed_run_left_is_cleared_away_and_never_read(tmp_path):
    run(tmp_path, stop=4)
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "snapshot-0000000099.safetensors").write_bytes(b"half")
    assert train.resume(tmp_path, start()).iteration == 4
    run(tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} == {".safetensors"}


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_snapshot_is_passed_by_with_a_warning_that_names_both(tmp_path):
    run(tmp_path, stop=7)
    damage(tmp_path / "snapshot-0000000006.safetensors")
    with pytest.warns(RuntimeWarning, match=r"000006.*goes on from .*000004") as caught:
        assert train.resume(tmp_path, start()).iteration == 4
    assert caught[0].filename == __file__
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        whole = run(tmp_path)
    assert whole[-1].iteration == 15
    assert iterations(tmp_path) == [2, 4, 6, 8, 10, 12, 14]  # the sixth is written again
    assert train.resume(tmp_path, start()).iteration == 14
    (aside,) = tmp_path.glob("*.damaged")
    assert aside.name.startswith("snapshot-0000000006")


def test_if_every_snapshot_is_damaged_that_is_an_error(tmp_path):
    run(tmp_path, stop=4)
    before = {}
    for found in train.snapshots(tmp_path):
        damage(found.path)
        before[found.path] = found.path.read_bytes()
    with pytest.raises(ValueError, match=r"^fdbr\.train\.resume: none of the 2 snapshots"):
        train.resume(tmp_path, start())
    assert {path: path.read_bytes() for path in before} == before


def test_files_of_others_among_the_snapshots_are_named(tmp_path):
    run(tmp_path, stop=4)
    foreign = tmp_path / "snapshot-0000000009.safetensors"
    train.save(foreign, {"w": 1})
    assert "no snapshot of a run" in train.snapshots(tmp_path)[-1].damage
    with pytest.warns(RuntimeWarning, match="no snapshot of a run"):
        run(tmp_path, keep=1)
    assert foreign.exists()
    assert iterations(tmp_path) == [9, 14]


def test_a_run_does_not_write_over_the_snapshots_of_a_longer_one(tmp_path):
    run(tmp_path)
    with pytest.raises(FileExistsError, match=r"has snapshots up to iteration 14.*resume"):
        run(tmp_path, resume=False)
    assert iterations(tmp_path) == [2, 4, 6, 8, 10, 12, 14]
    run(tmp_path, resume=False, stop=3, overwrite=True)
    assert iterations(tmp_path) == [2]


def test_a_report_that_cannot_be_in_a_file_is_named(tmp_path):
    def strange(state, batch):
        return state, {"figure": object()}

    reports = train.fit(strange, 0, batches(), epochs=1)
    with pytest.raises(TypeError, match=r"the report holds object at \['metrics'\]\['figure'\]"):
        list(train.pipe(reports, train.snapshot(tmp_path)))
    reports = train.fit(lambda s, b: (object(), {}), 0, batches(), epochs=1)
    with pytest.raises(TypeError, match=r"^fdbr\.train\.snapshot: the leaf \['state'\] is object"):
        list(train.pipe(reports, train.snapshot(tmp_path)))


def test_arguments_are_checked(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1"):
        train.snapshot(tmp_path, keep=0)
    with pytest.raises(ValueError, match="mode must be 'min' or 'max'"):
        train.snapshot(tmp_path, mode="least")
    with pytest.raises(TypeError, match="every must be a function"):
        train.snapshot(tmp_path, every=5)


def test_arrays_of_another_module_come_back_as_such(tmp_path, xp):
    begin = {"w": xp.asarray(np.arange(3.0))}
    reports = train.fit(
        lambda s, b: ({"w": s["w"] * 2}, {"m": s["w"][0]}), begin, batches(), epochs=1
    )
    last = list(train.pipe(reports, train.snapshot(tmp_path)))[-1]
    found = train.resume(tmp_path, like=begin)
    assert type(found.state["w"]) is type(begin["w"])
    assert fdbr.backend.to_numpy(found.state["w"] == last.state["w"]).all()


def test_after_ctrl_c_there_is_a_snapshot_of_the_last_finished_iteration(tmp_path):
    def interrupted(state, batch):
        if state["count"] == 4:
            signal.raise_signal(signal.SIGINT)
        return step(state, batch)

    reports = train.fit(interrupted, start(), batches(), epochs=3)
    stage = train.snapshot(tmp_path, train.every(iterations=3))
    last = list(train.pipe(reports, stage))[-1]
    assert last.iteration == 5
    assert iterations(tmp_path) == [3, 5]
    assert same(train.resume(tmp_path, start()), last.seal("snapshot"))


def test_a_run_may_begin_with_a_report_of_its_first_state(tmp_path):
    for _ in range(2):
        report = train.resume(tmp_path, like=start())
        reports = train.fit(step, start(), batches(), epochs=1, initial=True, resume=report)
        for _ in train.pipe(itertools.islice(reports, 3), train.snapshot(tmp_path)):
            pass
    assert iterations(tmp_path) == [0, 2, 5]


def test_the_best_values_are_saved_by_a_trigger(tmp_path):
    stage = train.snapshot(tmp_path, train.best("loss"), keep=1, final=False)
    reports = train.fit(step, start(), batches(), epochs=2)
    losses = [report.metrics["loss"] for report in train.pipe(reports, stage)]
    assert iterations(tmp_path) == [5 if losses[4] < losses[9] else 10]


def test_a_link_that_leads_nowhere_is_passed_by_too(tmp_path):
    run(tmp_path, stop=2)
    (tmp_path / "snapshot-0000000009.safetensors").symlink_to(tmp_path / "none")
    with pytest.warns(RuntimeWarning, match=r"0000009.*goes on from"):
        assert train.resume(tmp_path, start()).iteration == 2
