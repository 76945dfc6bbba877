"""Snapshots of runs on many ranks are complete or none, and runs go on from them."""

import os
import shutil
import threading

import ml_dtypes
import numpy as np
import pytest

import fdbr
from fdbr import distributed as d
from fdbr import random, train, tree

DATA = train.Batches(np.arange(22.0), 4, random.key(4))


def step_of(comm):
    """A step whose state is the same on all ranks, with dropout that differs."""

    def step(state, batch):
        key, own = random.split(state["key"])
        noise = random.normal(d.fold_in_rank(own, comm), batch.shape)
        parts = np.array([(batch * noise).sum(), len(batch)])
        total, count = d.all_reduce(parts, comm)
        mean = batch.mean() if len(batch) else np.nan
        state = {"key": key, "w": 0.9 * state["w"] + total / count, "n": state["n"] + 1}
        return state, {"mean": mean, "size": float(len(batch))}

    return step


def first(comm):
    return {"key": random.key(1), "w": np.zeros(2), "n": 0}


def owned(comm):
    """A state of which each rank has its own, in the step below."""
    return {**first(comm), "own": np.zeros(3), "half": np.zeros(2, ml_dtypes.bfloat16)}


def own_step(comm):
    step = step_of(comm)

    def both(state, batch):
        more = {"own": state["own"] + comm.rank + batch.sum(), "half": state["half"] + comm.rank}
        changed, metrics = step({name: state[name] for name in ("key", "w", "n")}, batch)
        return {**changed, **more, "half": more["half"].astype(ml_dtypes.bfloat16)}, metrics

    return both


def run(comm, folder, iterations, make=first, step=step_of, watch=None, **options):
    state = make(comm)
    resumed = d.resume(folder, state, comm)
    reports = train.fit(
        step(comm), state, d.share(DATA, comm), iterations=iterations, resume=resumed
    )
    options = {"every": train.every(iterations=3), **options}
    stages = [
        d.aggregate(comm, train.every(iterations=4)),
        d.on_root(comm, train.average(train.every(iterations=4))),
        d.snapshot(folder, comm, **options),
    ]
    last = None
    for report in train.pipe(reports, *stages):
        if watch is not None:
            watch(comm, report)
        last = report
    return last


def bits(report):
    leaves = [np.asarray(leaf).tobytes() for leaf in tree.leaves(report.state)]
    return leaves, repr(dict(report.metrics)), report.position, report.iteration


def ranks(folder, size, *args, **options):
    return d.run_in_threads(lambda comm: run(comm, folder, *args, **options), size, timeout=20.0)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("states", ["same", "own"])
@pytest.mark.parametrize("background", [True, False])
def test_a_run_in_parts_ends_as_one_that_never_stopped(tmp_path, size, states, background):
    more = {} if states == "same" else {"make": owned, "step": own_step}
    whole = ranks(tmp_path / "whole", size, 13, background=background, **more)
    for end in (1, 4, 8, 13):
        parts = ranks(tmp_path / "parts", size, end, background=background, keep=2, **more)
    assert [bits(one) for one in parts] == [bits(one) for one in whole]
    names = sorted(os.listdir(tmp_path / "parts"))
    count = 1 if states == "same" or size == 1 else size + 1
    assert len(names) == 2 * count
    assert ".unfinished" not in names


def test_a_single_process_goes_on_where_many_have_stopped_and_the_other_way(tmp_path):
    alone = d.serial()
    ranks(tmp_path, 3, 5)
    report = train.resume(tmp_path, like=first(alone))
    assert report.iteration == 5
    stage = train.snapshot(tmp_path, train.every(iterations=3))
    reports = train.fit(step_of(alone), None, DATA, iterations=7, resume=report)
    *_, last = train.pipe(reports, d.aggregate(alone, train.every(iterations=4)), stage)
    one, other = d.run_in_threads(lambda comm: d.resume(tmp_path, first(comm), comm), 2)
    assert bits(one)[0] == bits(other)[0] == bits(last)[0]
    assert (one.iteration, one.position) == (7, last.position)


def test_on_another_number_of_ranks_the_same_state_and_the_sums_go_on(tmp_path):
    before = ranks(tmp_path, 3, 6)
    kept = [one.position.kept["aggregate"]["summed over ranks"]["size"] for one in before]
    after = d.run_in_threads(lambda comm: d.resume(tmp_path, first(comm), comm), 2)
    assert [bits(one)[0] for one in after] == [bits(before[0])[0]] * 2
    assert after[0].position.kept["aggregate"]["summed over ranks"]["size"] == (
        sum(total for total, _ in kept),
        sum(weight for _, weight in kept),
    )
    assert after[1].position.kept["aggregate"] == {}
    assert "average" in after[1].position.kept
    last = ranks(tmp_path, 2, 9)
    assert [one.iteration for one in last] == [9, 9]


def zero(comm, count=7, extra=0):
    """A state of which each rank has a part, filled up with zeros, as of a sharded optimizer."""
    each = -(-count // comm.size)
    whole = np.zeros((each * comm.size + extra, 2), np.float32)
    whole[:count] = np.arange(2 * count).reshape(-1, 2) + 1
    rows = slice(comm.rank * each, (comm.rank + 1) * each)
    even = np.array_split(np.arange(12), comm.size)[comm.rank]
    return {"flat": whole[rows], "even": even, "same": np.ones(3), "n": 4, "none": None}


@pytest.mark.parametrize("before", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_parts_are_divided_anew_for_another_number_of_ranks(tmp_path, before, after):
    def write(comm):
        report = train.Report(1, 0, {}, zero(comm), train.Position(0, 1), 0.1)
        list(d.snapshot(tmp_path, comm, shards=True)(iter([report])))

    def read(comm):
        like = tree.map(lambda leaf: leaf * 0, zero(comm))
        return d.resume(tmp_path, like, comm).state, zero(comm)

    d.run_in_threads(write, before)
    for found, wanted in d.run_in_threads(read, after):
        assert tree.structure(found) == tree.structure(wanted)
        assert found["n"] == 4
        for name in ("flat", "even", "same"):
            np.testing.assert_array_equal(found[name], wanted[name])
            assert found[name].dtype == wanted[name].dtype


@pytest.mark.parametrize(
    ("state", "like", "message"),
    [
        (
            lambda r: np.full((), r),
            np.zeros((), int),
            "was different on the 3 ranks .*on 3",
        ),
        (lambda r: np.full(2, r + 1), np.zeros(2, int), "was different on the 3 ranks"),
        (lambda r: r, 0, "was different on the 3 ranks"),
        (lambda r: np.full(2, r + 1), np.zeros(5, int), "has 6 rows on 3 ranks .* 10 in like of"),
        (lambda r: np.full((2, r), 1), np.zeros((2, 1), int), "only first axes are divided"),
        (lambda r: {f"{r}": np.ones(1)}, {"0": np.ones(1)}, "holds another tree than like: miss"),
        (lambda r: np.ones(2 + r), np.zeros(4, int), "is float64 in the snapshot, and int64"),
    ],
)
def test_states_that_cannot_be_divided_anew_are_refused_on_all_ranks(
    tmp_path, state, like, message
):
    def write(comm):
        report = train.Report(1, 0, {}, state(comm.rank), train.Position(0, 1), 0.1)
        list(d.snapshot(tmp_path, comm, shards=True)(iter([report])))

    def read(comm):
        with pytest.raises(ValueError, match=f"fdbr.distributed.resume: .*{message}"):
            d.resume(tmp_path, like, comm)

    d.run_in_threads(write, 3)
    d.run_in_threads(read, 2)


@pytest.mark.parametrize("shards", [None, True])
def test_states_go_back_to_where_those_of_like_lie(tmp_path, xp, shards):
    def write(comm):
        state = {"w": xp.arange(3.0), "n": xp.asarray(2), "none": None, "text": "a"}
        report = train.Report(1, 0, {}, state, train.Position(0, 1), 0.1)
        list(d.snapshot(tmp_path, comm, shards=shards)(iter([report])))

    def read(comm):
        like = {"w": xp.zeros(3), "n": xp.asarray(0), "none": None, "text": ""}
        return d.resume(tmp_path, like, comm).state

    d.run_in_threads(write, 2)
    for size in (1, 2, 3):
        for state in d.run_in_threads(read, size):
            assert type(state["w"]) is type(xp.zeros(3))
            assert state["w"].tolist() == [0.0, 1.0, 2.0]
            assert (int(state["n"]), state["none"], state["text"]) == (2, None, "a")
            assert type(xp) is not type(np) or not state["w"].flags.writeable


def test_a_snapshot_in_parts_says_how_to_read_it(tmp_path):
    ranks(tmp_path, 2, 3, make=owned, step=own_step)
    with pytest.raises(ValueError, match=r"the files of 2 ranks; read it with fdbr\.distributed"):
        train.resume(tmp_path, like=owned(d.serial()))
    assert [one.iteration for one in train.snapshots(tmp_path)] == [3]


def damaged(path):
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["missing part", "damaged part", "damaged", "other token"])
def test_what_is_not_whole_is_passed_by_with_the_reason(tmp_path, how):
    ranks(tmp_path, 2, 6, make=owned, step=own_step)
    (part,) = tmp_path.glob("snapshot-0000000006.*.rank-1-of-2.*")
    whole = tmp_path / "snapshot-0000000006.safetensors"
    if how == "missing part":
        part.unlink()
    elif how == "other token":
        part.rename(part.with_name(part.name.replace(part.name.split(".")[1], "00000000")))
    else:
        damaged(part if how == "damaged part" else whole)

    def read(comm):
        report = d.resume(tmp_path, owned(comm), comm)
        with pytest.raises(ValueError, match="holds another tree than like"):
            d.resume(tmp_path, first(comm), comm)
        return report.iteration

    reason = "as rank 1 sees it" if how in ("missing part", "other token") else "train.save"
    with pytest.warns(RuntimeWarning, match=f"cannot be read, so the run goes on .* 3: .*{reason}"):
        assert d.run_in_threads(read, 2) == [3, 3]


def test_where_no_snapshot_is_complete_all_ranks_say_so(tmp_path):
    ranks(tmp_path, 2, 3, make=owned, step=own_step)
    for part in tmp_path.glob("*rank-0*"):
        part.unlink()

    def read(comm):
        with pytest.raises(ValueError, match=r"none of the 1 snapshots in .* is complete"):
            d.resume(tmp_path, owned(comm), comm)

    d.run_in_threads(read, 2)


def test_ranks_may_have_folders_of_their_own(tmp_path):
    def each(comm, end):
        folder = tmp_path / f"{comm.rank}"
        return run(comm, folder, end, owned, own_step, keep=1)

    for end in (4, 7):
        found = d.run_in_threads(lambda comm, end=end: each(comm, end), 2)
    whole = ranks(tmp_path / "whole", 2, 7, make=owned, step=own_step)
    assert [bits(one) for one in found] == [bits(one) for one in whole]
    assert [len(os.listdir(tmp_path / f"{rank}")) for rank in range(2)] == [2, 1]

    def same(comm):
        folder = tmp_path / "same" / f"{comm.rank}"
        run(comm, folder, 2)
        return run(comm, folder, 5).iteration, (tmp_path / "same" / "1").exists()

    assert d.run_in_threads(same, 2) == [(5, True)] * 2
    assert os.listdir(tmp_path / "same" / "1") == []


def test_rank_0_decides_when(tmp_path):
    """A trigger that follows the time may fire on other ranks, or not."""

    def each(comm):
        count = [0]

        def now_and_then(report):
            count[0] += 1
            return (count[0] + comm.rank) % 2 == 0

        return run(comm, tmp_path, 6, every=now_and_then, final=False).iteration

    assert d.run_in_threads(each, 2) == [6, 6]
    assert [one.iteration for one in train.snapshots(tmp_path)] == [2, 4, 6]


@pytest.mark.parametrize("states", ["same", "own"])
def test_a_run_that_fails_on_one_rank_leaves_the_last_snapshot(tmp_path, states):
    more = {} if states == "same" else {"make": owned, "step": own_step}

    def watch(comm, report):
        if comm.rank == 1 and report.iteration == 5:
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        ranks(tmp_path, 3, 9, watch=watch, keep=1, background=False, **more)
    assert [one.iteration for one in train.snapshots(tmp_path)] == [3]
    last = ranks(tmp_path, 3, 9, keep=1, **more)
    whole = ranks(tmp_path / "whole", 3, 9, **more)
    assert [bits(one) for one in last] == [bits(one) for one in whole]
    assert len(list(tmp_path.glob("*.safetensors"))) == (1 if states == "same" else 4)


@pytest.mark.parametrize("how", ["break", "close", "error"])
@pytest.mark.parametrize("shards", [None, True, False])
def test_a_loop_that_is_left_waits_for_nobody(tmp_path, how, shards):
    """Rank 0 writes the last report where it is known that nobody else has to."""

    def each(comm):
        reports = train.fit(step_of(comm), first(comm), d.share(DATA, comm), epochs=2)
        stage = d.snapshot(tmp_path, comm, shards=shards)
        if how == "close":
            stream = train.pipe(reports, stage)
            while next(stream).iteration < 4:
                pass
            stream.close()
            return
        for report in train.pipe(reports, stage):
            if report.iteration == 4:
                if how == "error":
                    raise RuntimeError("boom")
                break

    if how == "error":
        with pytest.raises(RuntimeError, match="boom"):
            d.run_in_threads(each, 2, timeout=300.0)
    else:
        d.run_in_threads(each, 2, timeout=300.0)
    found = [one.iteration for one in train.snapshots(tmp_path)]
    assert found == ([4] if shards is False else [])


def test_a_single_rank_that_leaves_its_loop_writes_the_last_report(tmp_path):
    reports = train.fit(step_of(d.serial()), first(d.serial()), DATA, epochs=2)
    for report in train.pipe(reports, d.snapshot(tmp_path, d.serial())):
        if report.iteration == 4:
            break
    assert [one.iteration for one in train.snapshots(tmp_path)] == [4]


def test_errors_of_the_folder_are_those_of_all_ranks(tmp_path):
    ranks(tmp_path, 2, 3)

    def each(comm):
        with pytest.raises(FileExistsError, match="has snapshots up to iteration 3"):
            list(d.snapshot(tmp_path, comm)(iter([report])))
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="file"):
            list(d.snapshot(tmp_path / "file", comm)(iter([report])))

    report = train.Report(1, 0, {}, first(d.serial()), train.Position(0, 1), 0.1)
    d.run_in_threads(each, 2)
    assert sorted(os.listdir(tmp_path)) == ["file", "snapshot-0000000003.safetensors"]


def test_two_runs_cannot_write_to_one_folder(tmp_path):
    ready, done = threading.Event(), threading.Event()

    def watch(comm, report):
        ready.set()
        done.wait(10.0)

    def one():
        ranks(tmp_path, 2, 1, watch=watch)

    thread = threading.Thread(target=one)
    thread.start()
    ready.wait(10.0)
    try:
        with pytest.raises(BlockingIOError, match="another run"):
            ranks(tmp_path, 2, 1)
    finally:
        done.set()
        thread.join()


def test_the_best_and_lasting_ones_are_kept(tmp_path):
    for make, step in ((first, step_of), (owned, own_step)):
        shutil.rmtree(tmp_path, ignore_errors=True)

        def with_metric(comm, step=step):
            inner = step(comm)

            def stepped(state, batch):
                state, _ = inner(state, batch)
                return state, {"loss": abs(int(state["n"]) - 5.0) + comm.rank}

            return stepped

        ranks(
            tmp_path, 2, 14, make=make, step=with_metric, every=train.every(iterations=1), keep=2,
            best="loss", keep_every=train.at(iterations=3),
        )  # fmt: skip
        found = [one.iteration for one in train.snapshots(tmp_path)]
        assert found == [3, 5, 13, 14]
        assert set(parts(tmp_path)) == (set(found) if make is owned else set())


def parts(folder):
    """The iterations of the files of single ranks."""
    return [int(path.name[9:19]) for path in folder.glob("*.rank-*")]


def test_parts_of_no_snapshot_are_cleared_away_and_others_stay(tmp_path):
    ranks(tmp_path, 3, 3, make=owned, step=own_step)
    for rank in range(3):
        name = f"snapshot-0000000007.deadbeef.rank-{rank}-of-3.safetensors"
        (tmp_path / name).write_text("half")
    ranks(tmp_path, 3, 6, make=owned, step=own_step)
    assert set(parts(tmp_path)) == {3, 6}
    assert len(parts(tmp_path)) == 6


def test_a_jitted_run_goes_on_bit_by_bit(tmp_path):
    def jitted(comm):
        def value(w, batch):
            return ((w * batch - 1.0) ** 2).sum()

        derivatives = fdbr.jit(fdbr.grad(value))

        def step(state, batch):
            grads = d.all_reduce(derivatives(state["w"], batch), comm)
            return {**state, "w": state["w"] - 1e-4 * grads}, {"mean": float(len(batch))}

        return step

    whole = ranks(tmp_path / "whole", 2, 11, step=jitted)
    for end in (4, 11):
        last = ranks(tmp_path / "parts", 2, end, step=jitted)
    assert [bits(one) for one in last] == [bits(one) for one in whole]


def test_wrong_arguments_are_named(tmp_path):
    comm = d.serial()
    for error, arguments, message in [
        (TypeError, {"comm": 1}, "comm must be a communicator"),
        (ValueError, {"comm": comm, "mode": "least"}, "mode must be 'min' or 'max'"),
        (ValueError, {"comm": comm, "keep": 0}, "keep must be at least 1"),
        (TypeError, {"comm": comm, "shards": "all"}, "shards must be True or False, not str"),
        (TypeError, {"comm": comm, "every": 3}, "every must be a function"),
    ]:
        with pytest.raises(error, match=f"fdbr.distributed.snapshot: {message}"):
            d.snapshot(tmp_path, **arguments)
