"""SIGTERM ends a run after its iteration, and then the process."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fdbr import train

BATCHES = train.Batches(np.arange(20.0), 1)


def terminated(*iterations):
    """A step during which SIGTERM comes."""

    def step(state, batch):
        if state + 1 in iterations:
            signal.raise_signal(signal.SIGTERM)
        return state + 1, {"loss": float(state)}

    return step


@pytest.fixture(autouse=True)
def usual_handlers():
    signals = signal.SIGINT, signal.SIGTERM
    before = [signal.signal(number, usual) for number, usual in zip(signals, USUAL, strict=True)]
    yield
    assert tuple(map(signal.getsignal, signals)) == USUAL
    for number, handler in zip(signals, before, strict=True):
        signal.signal(number, handler)


USUAL = signal.default_int_handler, signal.SIG_DFL


def test_the_iteration_is_finished_and_then_the_process_ends(capfd):
    seen = []
    reports = train.fit(terminated(3), 0, BATCHES, epochs=2)
    with pytest.raises(SystemExit) as caught:
        seen.extend(report.iteration for report in reports)
    assert seen == [1, 2, 3]
    assert caught.value.code == 143
    assert "terminated; the run ends after this iteration" in capfd.readouterr().err


def test_stages_have_done_their_work_and_the_run_is_resumed_from_its_last_iteration(tmp_path):
    def run(step, resume=None):
        reports = train.fit(step, 0, BATCHES, epochs=1, resume=resume)
        stages = (
            train.log(tmp_path / "log.jsonl", every=train.every(iterations=1)),
            train.snapshot(tmp_path / "snapshots", every=train.every(iterations=4)),
        )
        return [report.iteration for report in train.pipe(reports, *stages)]

    with pytest.raises(SystemExit):
        run(terminated(7))
    found = train.resume(tmp_path / "snapshots", like=0)
    assert (found.iteration, found.state) == (7, 7)
    assert run(terminated(), found) == list(range(8, 21))
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 20


def test_a_last_snapshot_that_cannot_be_written_is_an_error_all_the_same(tmp_path):
    def step(state, batch):
        if state == 2:
            (tmp_path / "snapshots" / ".unfinished" / "lock").unlink()
            (tmp_path / "snapshots" / ".unfinished").rmdir()
            signal.raise_signal(signal.SIGTERM)
        return state + 1, {}

    reports = train.fit(step, 0, BATCHES, epochs=1)
    with pytest.raises(OSError, match=r"fdbr\.train\.snapshot"):
        list(train.pipe(reports, train.snapshot(tmp_path / "snapshots")))


def test_the_last_iteration_of_all_ends_the_process_too():
    reports = train.fit(terminated(20), 0, BATCHES, epochs=1)
    assert [next(reports).iteration for _ in range(20)][-1] == 20
    with pytest.raises(SystemExit):
        next(reports)


def test_ctrl_c_after_it_interrupts_at_once():
    reports = train.fit(terminated(2), 0, BATCHES, epochs=1)
    next(reports), next(reports)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(SystemExit):
        next(reports)


def test_a_handler_of_the_program_is_called_in_its_place():
    caught = []
    signal.signal(signal.SIGTERM, lambda *given: caught.append(given[0]))
    assert len(list(train.fit(terminated(2), 0, BATCHES, epochs=1))) == 20
    assert caught == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_run_in_another_thread_leaves_the_signal_alone():
    found = []

    def run():
        reports = train.fit(terminated(), 0, BATCHES, epochs=1)
        next(reports)
        found.append(signal.getsignal(signal.SIGTERM))
        reports.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]


def test_a_process_that_was_forked_from_a_run_is_ended_at_once():
    reports = train.fit(terminated(), 0, BATCHES, epochs=1)
    next(reports)
    child = os.fork()
    if not child:
        signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
    reports.close()


# --- programs -----------------------------------------------------------------------

PROGRAM = """
import os, sys, time
import numpy as np
from concurrent.futures import ProcessPoolExecutor
from fdbr import train

BATCHES = train.Batches(np.arange(200.0), 2)

def step(state, batch):
    time.sleep(0.01)
    return state + batch.sum(), {}

def train_it(folder, batches=BATCHES, leave=0):
    reports = train.fit(step, 0.0, batches, epochs=1000)
    try:
        for report in train.pipe(reports, train.snapshot(folder, every=train.every(epochs=100))):
            print(report.iteration, flush=True)
            if report.iteration == leave:
                os.kill(os.getpid(), 15)
                break
        reports = None
        time.sleep(60)
    finally:
        print("cleaned", flush=True)

if __name__ == "__main__":
    if sys.argv[1] == "plain":
        train_it("result")
    if sys.argv[1] == "left":
        train_it("result", leave=3)
    if sys.argv[1] == "workers":
        train_it("result", train.prefetch(BATCHES, workers=2, processes=True))
    if sys.argv[1] == "pool":
        with ProcessPoolExecutor(2) as executor:
            future = executor.submit(train_it, "result")
            executor.submit(time.sleep, 2).result()
            for process in executor._processes.values():
                process.terminate()
        print("is over", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes")
@pytest.mark.parametrize(
    ("how", "group"),
    [
        ("plain", False),
        pytest.param("left", None, marks=pytest.mark.slow),
        pytest.param("workers", False, marks=pytest.mark.slow),
        ("workers", True),
        pytest.param("pool", None, marks=pytest.mark.slow),
    ],
)
def test_a_program_that_is_terminated_leaves_a_snapshot_and_no_process(tmp_path, how, group):
    (tmp_path / "script.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    while program.stdout.readline() not in ("3\n", ""):
        pass
    if group is not None:
        (os.killpg if group else os.kill)(program.pid, signal.SIGTERM)
    out, err = program.communicate(timeout=60)
    said = out.split()
    if how == "pool":
        assert (program.returncode, said[-2:]) == (0, ["is", "over"]), err
    elif how == "left":
        assert program.returncode == -signal.SIGTERM, err
    else:
        assert (program.returncode, said[-1]) == (143, "cleaned"), err
        assert train.resume(tmp_path / "result", like=0.0).iteration == int(["3", *said][-2])
        assert "Traceback" not in err
    if how == "left":
        assert train.resume(tmp_path / "result", like=0.0).iteration == 3
    deadline = time.monotonic() + 20
    while _in_group(program.pid):
        assert time.monotonic() < deadline, "processes of it are still there"
        time.sleep(0.02)


def _in_group(group):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found.append(path.parent.name)
    return found
