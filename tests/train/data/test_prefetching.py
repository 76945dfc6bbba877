"""Batches that are read ahead, by threads and by processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.data import read_by_workers as cases

from fdbr import random, train

KEY = random.key(0)
PROCESSES = pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])


def rows(batches, epoch=0, start=0):
    return [batch.tolist() for batch in batches.epoch(epoch, start)]


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 5), st.integers(1, 9), st.data())
def test_threads_change_no_order(count, size, workers, ahead, data):
    batches = train.Batches(np.arange(count), size, KEY)
    read = train.prefetch(batches, workers, ahead=ahead)
    start = data.draw(st.integers(0, len(batches)))
    assert len(read) == len(batches)
    assert rows(read, 3, start) == rows(batches, 3, start)


@settings(max_examples=8)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.data())
def test_processes_change_no_order_and_no_augmentation(count, size, workers, ahead, data):
    dataset = train.map_examples(cases.noise, np.arange(float(count)), KEY)
    batches = train.Batches(dataset, size, KEY)
    read = train.prefetch(batches, workers, processes=True, ahead=ahead)
    start = data.draw(st.integers(0, len(batches)))
    assert rows(read, 3, start) == rows(batches, 3, start)


def test_batches_from_processes_are_read_only_trees_of_any_size():
    dataset = {"x": np.arange(120000.0).reshape(12, 100, 100), "y": (np.arange(12), None)}
    batches = train.Batches(dataset, 5, KEY, sampler=train.StratifiedSampler([0, 1] * 6))
    read = list(train.prefetch(batches, 2, processes=True))
    for batch, expected in zip(read, batches, strict=True):
        np.testing.assert_array_equal(batch["x"], expected["x"])
        np.testing.assert_array_equal(batch["y"][0], expected["y"][0])
        assert batch["y"][1] is None
        with pytest.raises(ValueError, match="read-only"):
            batch["x"][0] = 1


def test_collations_go_to_processes():
    dataset = [np.arange(n) for n in (3, 1, 2)]
    batches = train.Batches(dataset, 2, collate=train.collate_padded(masks=True))
    read = train.prefetch(batches, 1, processes=True)
    assert [mask.sum() for _, mask in read] == [4, 2]


@PROCESSES
def test_an_error_comes_in_its_iteration_with_the_example_and_the_traceback(processes):
    batches = train.Batches(cases.At(7, cases.fail), 2)
    epoch = train.prefetch(batches, 2, processes).epoch(1)
    assert [next(epoch)[0, 0] for _ in range(3)] == [0, 2, 4]
    with pytest.raises(KeyError, match="the image of 7") as caught:
        next(epoch)
    notes = "".join(caught.value.__notes__)
    assert "example 7 (batch 3 of epoch 1)" in notes
    if processes:
        assert "in the worker process" in notes
        assert 'raise KeyError(f"the image of {index}")' in notes
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (cases.fail_strangely, "OwnError: 3: no 2"),
        (cases.hand_out_what_cannot_be_pickled, "pickle"),
        (cases.die, r"was ended by SIGKILL before it had sent batch 1 .* short of memory"),
        (cases.leave, r"ended with exit status 5 .*__main__"),
    ],
)
def test_what_befalls_a_process_is_told(do, message):
    collate = list if do is cases.hand_out_what_cannot_be_pickled else None
    batches = train.Batches(cases.At(2, do), 2, collate=collate)
    epoch = train.prefetch(batches, 2, processes=True).epoch(0)
    next(epoch)
    with pytest.raises(Exception, match=message):
        list(epoch)
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_from_outside_ends_the_epoch():
    epoch = train.prefetch(train.Batches(cases.At(19, cases.linger), 1), 2, True).epoch(0)
    next(epoch)
    for process in multiprocessing.active_children():
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        list(epoch)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_a_closed_generator_leaves_no_process_no_descriptor_and_no_memory():
    batches = train.Batches(np.zeros((20, 10000)), 2)
    list(train.prefetch(batches, 1, True))  # which starts what all processes share
    before = len(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm"))
    epoch = train.prefetch(batches, 2, True).epoch(0)
    kept = next(epoch)
    assert len(multiprocessing.active_children()) == 2
    epoch.close()
    assert multiprocessing.active_children() == []
    assert (len(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm"))) == before
    assert kept.sum() == 0


def test_a_process_that_lingers_is_ended():
    epoch = train.prefetch(train.Batches(cases.At(2, cases.linger), 2), 1, True).epoch(0)
    next(epoch)
    epoch.close()
    assert multiprocessing.active_children() == []


def test_ctrl_c_ends_all_workers():
    epoch = train.prefetch(train.Batches(cases.At(3, cases.linger), 1), 2, True).epoch(0)
    next(epoch)

    def press():  # which reaches all processes of a terminal
        time.sleep(0.2)
        for process in multiprocessing.active_children():
            os.kill(process.pid, signal.SIGINT)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    hand = threading.Timer(0, press)
    hand.start()
    with pytest.raises(KeyboardInterrupt):
        list(epoch)
    hand.join()
    assert multiprocessing.active_children() == []


STARTING = """
import numpy as np
from fdbr import train

batches = train.prefetch(train.Batches(np.arange(400.0), 2), workers=2, processes=True)
if __name__ == "__main__":
    print("begins", flush=True)
    for report in train.fit(lambda s, x: (s, {}), 0, batches, epochs=10_000):
        pass
    print("has ended", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
def test_ctrl_c_while_workers_start_ends_the_run_in_order(tmp_path):
    (tmp_path / "script.py").write_text(STARTING)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert program.stdout.readline() == "begins\n"
    time.sleep(0.5)  # its workers take longer than that
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=60)[0] == "has ended\n"
    assert program.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_workers_end_with_a_program_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, cases.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        pids = program.stdout.readline().split()
        program.kill()
    assert len(pids) == 2
    for _ in range(400):
        if not any(map(alive, pids)):
            return
        time.sleep(0.05)
    raise AssertionError("they are still there")


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_arrays_mapped_from_files_go_to_processes_by_name(tmp_path):
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.truncate(2**42)
        file.seek(5 * 4096 + 8192)
        file.write(b"\7" * 4096)
    mapped = np.memmap(path, "u1", "r", offset=8192, shape=(2**29, 4096))
    for view, found in ((mapped, 5), (mapped[2:, ::2], 3), (np.asarray(mapped)[::-1], 2**29 - 6)):
        batches = train.Batches({"x": view}, 4, sampler=train.SequentialSampler(8))
        read = train.prefetch(batches, 1, True).epoch(0)
        if found < 8:
            rows = np.concatenate([batch["x"] for batch in read])
            assert np.flatnonzero(rows.any(axis=1)).tolist() == [found]
        else:
            assert not next(read)["x"].any()


def test_what_was_written_to_a_private_map_goes_to_processes(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(6))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[:] = np.arange(6)
    for view in (mapped, np.asarray(mapped)[::-2]):
        batches = train.Batches(view, 6)
        (read,) = train.prefetch(batches, 1, processes=True)
        assert read.tolist() == view.tolist()


def _read(end):
    try:
        end.send(
            [b.tolist() for b in train.prefetch(train.Batches(np.arange(6), 3), 1, processes=True)]
        )
    except RuntimeError as error:
        end.send(str(error))


@pytest.mark.parametrize("daemon", [False, True])
def test_a_fork_of_a_process_that_has_workers_has_its_own(daemon):
    here, there = multiprocessing.Pipe()
    _read(there)
    whole = here.recv()
    process = multiprocessing.get_context("fork").Process(
        target=_read, args=(there,), daemon=daemon
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads and forks
        process.start()
    found = here.recv()
    process.join()
    assert found == whole if not daemon else "this process is a daemon" in found


def test_public_functions_go_to_processes():
    dataset = train.map_examples(train.augment.to_float, np.full((4, 1, 2, 2), 255, "uint8"))
    batches = train.Batches(dataset, 4, collate=train.collate_ragged)
    assert [batch[0].max() for batch in train.prefetch(batches, 1, processes=True)] == [1.0]


@PROCESSES
def test_streams_are_read_ahead_too(processes):
    stream = train.Stream(range(10), 3)
    read = train.prefetch(stream, 4, processes)
    assert not hasattr(read, "__len__")
    assert rows(read) == rows(stream)
    assert rows(read, 1, start=2) == rows(stream, 1, start=2)


@PROCESSES
def test_a_run_that_goes_on_with_workers_is_the_whole_run(processes):
    def step(state, batch):
        return 0.5 * state + batch.sum(), {}

    def reports(source, **options):
        made = train.fit(step, 0.0, source, epochs=2, **options)
        return [(r.iteration, r.epoch, r.state) for r in made]

    dataset = train.map_examples(cases.noise, np.arange(7.0), KEY)
    batches = train.Batches(dataset, 2, KEY)
    whole = reports(batches)
    ahead = train.prefetch(batches, 2, processes)
    assert reports(ahead) == whole
    middle = list(train.fit(step, 0.0, batches, epochs=2))[4]
    assert reports(ahead, resume=middle) == whole[5:]


def test_no_more_is_read_than_was_asked_for():
    read = []

    class Counted:
        def __len__(self):
            return 100

        def __getitem__(self, i):
            read.append(i)
            return i

    epoch = train.prefetch(train.Batches(Counted(), 1), 2, ahead=5).epoch(0)
    assert read == []
    next(epoch)
    epoch.close()
    assert len(read) <= 6


def test_what_cannot_be_pickled_is_refused_with_advice():
    dataset = train.map_examples(lambda x: x, np.arange(3))
    with pytest.raises(TypeError, match=r"no lambdas .* processes=False"):
        next(train.prefetch(train.Batches(dataset, 2), 1, processes=True).epoch(0))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"workers": 0}, ValueError), ({"ahead": 0}, ValueError), ({"workers": 1.5}, TypeError)],
)
def test_settings_out_of_range_are_refused(arguments, error):
    with pytest.raises(error, match=r"fdbr\.train\.prefetch: "):
        train.prefetch(train.Batches(np.arange(3), 1), **arguments)


def test_what_has_no_epochs_is_refused():
    with pytest.raises(TypeError, match="must have epoch"):
        train.prefetch(np.arange(3))


def test_a_start_beyond_the_epoch_is_refused_at_once():
    with pytest.raises(ValueError, match="start is 4, but an epoch has 3 batches"):
        train.prefetch(train.Batches(np.arange(3), 1)).epoch(0, 4)
