"""Processes that read batches live over epochs, and change nothing about them."""

import contextlib
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train.data import read_by_workers as cases

from fdbr import random, train

KEY = random.key(0)
BATCHES = train.Batches(train.map_examples(cases.noise, np.arange(13.0), KEY), 2, KEY)


def pids():
    return sorted(process.pid for process in multiprocessing.active_children())


@pytest.fixture(scope="module", params=[1, 2])
def ahead(request):
    with contextlib.closing(train.prefetch(BATCHES, request.param, processes=True)) as source:
        yield source


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(0, 8)), max_size=4))
def test_epochs_left_or_read_to_their_end_are_those_without_workers(ahead, reads):
    for number, start, count in reads:  # of one epoch after the other, so many batches
        expected = BATCHES.epoch(number, start)
        with contextlib.closing(ahead.epoch(number, start)) as found:
            for _ in range(count):
                batch = next(found, None)
                wanted = next(expected, None)
                assert (batch is None) == (wanted is None)
                if batch is not None:
                    assert batch.tobytes() == wanted.tobytes()


@settings(max_examples=10, deadline=None)
@given(st.lists(st.booleans(), max_size=20), st.integers(0, 2), st.integers(0, 2))
def test_two_iterators_of_one_source_do_not_mix(ahead, iterations, first, second):
    found = [ahead.epoch(first), ahead.epoch(second)]
    expected = [BATCHES.epoch(first), BATCHES.epoch(second)]
    for iteration in iterations:
        batch, wanted = next(found[iteration], None), next(expected[iteration], None)
        assert (batch is None) == (wanted is None)
        assert batch is None or batch.tobytes() == wanted.tobytes()
    for stream in found:
        stream.close()


def test_workers_are_the_same_in_all_epochs_and_the_second_begins_at_once(ahead):
    list(ahead.epoch(0))
    before, imported = pids(), time.perf_counter()
    next(iter(ahead.epoch(1)))
    seconds = time.perf_counter() - imported
    list(ahead.epoch(2))
    assert pids() == before
    assert seconds < 2  # starting them takes seconds: it is some milliseconds, on a machine at rest


def test_an_error_ends_the_workers_and_the_next_epoch_has_new_ones():
    source = train.prefetch(train.Batches(cases.At(7, cases.fail), 2), 2, processes=True)
    for number in range(2):
        epoch = source.epoch(number)
        assert [next(epoch)[0, 0] for _ in range(3)] == [0, 2, 4]
        with pytest.raises(KeyError, match="the image of 7"):
            next(epoch)


def test_a_worker_that_is_killed_between_epochs_is_replaced(ahead):
    whole = [batch.tobytes() for batch in ahead.epoch(1)]
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    assert [batch.tobytes() for batch in ahead.epoch(1)] == whole


def test_a_dataset_that_was_changed_between_epochs_is_read_as_it_is():
    for size in (10, 100_000):
        dataset = np.zeros((4, size))
        with contextlib.closing(train.prefetch(train.Batches(dataset, 4), 1, True)) as source:
            for value in (0, 1, 1, 2):
                dataset[3] = value
                (batch,) = source.epoch(0)
                assert (batch[3] == value).all()
                assert (batch[:3] == 0).all()


def test_workers_end_with_their_source_and_not_before():
    before = pids()
    source = train.prefetch(BATCHES, 2, processes=True)
    next(source.epoch(0))
    assert len(pids()) == len(before) + 2
    source.close()
    assert pids() == before
    epoch = source.epoch(0)  # new ones
    next(epoch)
    source.close()
    assert len(list(epoch)) == 6  # what is under way is read to its end
    assert pids() == before
    list(source.epoch(0))
    assert len(pids()) == len(before) + 2
    del source, epoch
    gc.collect()
    assert pids() == before


def test_a_copy_of_a_source_has_workers_of_its_own():
    with contextlib.closing(train.prefetch(BATCHES, 1, processes=True)) as source:
        whole = [batch.tobytes() for batch in source]
        for other in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
            assert [batch.tobytes() for batch in other] == whole


def test_a_read_that_lasts_is_not_waited_for_when_an_epoch_is_left():
    source = train.prefetch(train.Batches(cases.At(2, cases.linger), 2), 2, True)
    epoch = source.epoch(0)
    next(epoch)
    began = time.perf_counter()
    epoch.close()
    assert time.perf_counter() - began < 1
    source.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_batches_may_be_read_ahead(workers):
    batches = train.Batches(np.arange(2000), 1)
    read = train.prefetch(batches, workers, processes=True, ahead=2000)
    assert [batch.item() for batch in read] == list(range(2000))


def test_a_worker_told_to_terminate_sends_what_it_was_asked_for():
    before = pids()
    source = train.prefetch(train.Batches(np.arange(20), 1), 1, True, ahead=3)
    epoch = source.epoch(0)
    found = [next(epoch).item()]
    (process,) = [one for one in multiprocessing.active_children() if one.pid not in before]
    process.terminate()
    process.join(20)
    assert process.exitcode == 128 + signal.SIGTERM
    with pytest.raises(RuntimeError, match="was ended by SIGTERM before it had sent batch"):
        found += [batch.item() for batch in epoch]
    assert found == list(range(len(found)))


PROGRAM = """
import multiprocessing, os, signal, sys
import numpy as np
from fdbr import train

batches = train.prefetch(train.Batches(np.arange(40.0), 2), workers=2, processes=True)
if __name__ == "__main__":
    for number in range(2):
        for batch in batches.epoch(number):
            pass
    waiting = batches.epoch(2)
    next(waiting)
    print(*[process.pid for process in multiprocessing.active_children()], flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "error":
        raise SystemExit(3)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("exit", 0),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("error", 3), ("kill", -9))),
    ],
)
def test_workers_end_with_their_program_however_that_ends(tmp_path, end, code):
    (tmp_path / "script.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(tmp_path / "script.py"), end]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    workers = done.stdout.split()
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "they are still there"
        time.sleep(0.02)
