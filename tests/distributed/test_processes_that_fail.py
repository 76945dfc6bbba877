"""What becomes of all ranks when calls do not come about, or one of the ranks fails."""

import json
import os
import re
import signal
import time
from pathlib import Path

import launching
import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def disagreements(tmp_path_factory):
    """What each rank has seen in ``disagreeing.py``, and how that ended."""
    folder = tmp_path_factory.mktemp("seen")
    ended = launching.mpiexec(3, HERE / "disagreeing.py", folder, timeout=60)
    seen = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
    assert len(seen) == 3, ended.stderr
    return seen, ended


@pytest.mark.parametrize(
    ("name", "texts"),
    {
        "op": [
            r"ranks 0, 2: all_reduce\(op='sum'\) of float64\[3\] at .*disagreeing.py:\d+",
            r"rank 1: all_reduce\(op='max'\) of float64\[3\] at .*disagreeing.py:\d+",
        ],
        "name": ["rank 0: all_reduce", "rank 1: all_gather", r"rank 2: barrier\(\)"],
        "shape": [r"ranks 0, 1: .*float64\[3\]", r"rank 2: .*float32\[3,1\]"],
        "root": [r"rank 1: broadcast\(root=0\)", r"rank 2: broadcast\(root=1\)"],
        "wire": ["rank 2: .*wire='float16'"],
        "structure": [
            r"ranks 0, 1: .* in {'a': \*, 'b': None} at",
            r"rank 2: .* in \[None, \*\] at",
        ],
        "taken": [r"rank 2: broadcast\(root=0\) in \[\*\] at", r"rank 1: .* in \(\*,\) at"],
        "extreme": [r"ranks 0, 1: reduce\(op='max', root=0\)", r"rank 2: reduce\(.*root=1\)"],
        "objects": [r"ranks 0, 1: gather_object\(root=0\)", r"rank 2: gather_object\(root=1\)"],
        "split": ["ranks 0, 2: all_reduce", r"rank 1: split\(\)"],
        "object": ["rank 0: all_gather_object", "ranks 1, 2: all_reduce"],
    }.items(),
)
def test_every_rank_is_told_at_once_what_each_has_called(disagreements, name, texts):
    for rank in disagreements[0]:
        kind, message, seconds, after = rank[name]
        assert kind == "MismatchError"
        for text in texts:
            assert re.search(text, message), message
        assert seconds < 30.0  # the time-out is 60
        assert "MismatchError: fdbr.distributed: this communicator is broken" in after


def test_ranks_that_wait_say_who_is_missing(disagreements):
    for rank in disagreements[0][:2]:
        kind, message, seconds, after = rank["missing"]
        assert kind == "CollectiveTimeoutError"
        assert re.search(r"waited 0\.6 s for rank 2, which did not come", message)
        assert re.search(r"ranks? 0.*: waits in all_reduce\(op='sum'\) of float64\[3\] at", message)
        assert 0.5 < seconds < 20.0
        assert "this communicator is broken" in after


def test_a_rank_that_comes_too_late_gets_the_error_too(disagreements):
    for rank in disagreements[0]:
        assert rank["late"][0] == "CollectiveTimeoutError"


def test_ranks_that_wait_for_one_another_are_told(disagreements):
    for rank in disagreements[0][:2]:
        kind, message, seconds, _ = rank["crossed"]
        assert kind == "MismatchError"
        assert re.search(r"rank 0: waits in receive\(source=1\)", message)
        assert re.search(r"rank 1: waits in receive\(source=0\)", message)
        assert seconds < 20.0
    for rank in disagreements[0]:
        kind, message, seconds, _ = rank["alone"]
        assert kind == "MismatchError"
        assert re.search(r"rank 0: waits in receive\(source=1\)", message)
        assert re.search(r"ranks? 1(, 2)?: waits in all_reduce", message)
        assert seconds < 20.0


@pytest.mark.parametrize(
    ("name", "text"),
    {
        "message": r"sent: send\(to=1\) of float64\[3\] .*\n.*receive\(source=0\) of float64\[4\]",
        "message of another wire": "another wire",
        "object for array": "an object was sent",
        "tag": r"receive\(source=0, tag=4\)",
    }.items(),
)
def test_sender_and_receiver_are_told_that_a_message_does_not_fit(disagreements, name, text):
    sender, receiver, _ = disagreements[0]
    assert receiver[name][0] in ("MismatchError", "CollectiveTimeoutError")
    assert re.search(text, receiver[name][1])
    assert re.search(text, sender[name][3])  # by its next call
    assert receiver[name][2] < 20.0


def test_ranks_that_wait_for_one_whose_program_is_over_end(disagreements):
    seen, ended = disagreements
    for rank in seen[:2]:
        kind, message, seconds, _ = rank["ended"]
        assert kind == "RankFailedError"
        assert "rank 2 has come to the end of its program" in message
        assert seconds < 20.0
    assert seen[2]["whole"][1] == "3.0"  # other communicators were whole all the time
    assert ended.returncode == 7


def test_an_exception_ends_all_ranks_with_its_traceback_alone():
    program = """
    import sys
    import numpy as np
    from fdbr import distributed as d

    comm = d.world()
    if comm.rank == 1:
        np.ones(2) @ np.ones(3)
    d.all_reduce(np.ones(3), comm)
    """
    began = time.monotonic()
    ended = launching.mpiexec(2, program)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.index("rank 1 of 2 failed") < ended.stderr.index("Traceback")
    assert "ValueError: matmul" in ended.stderr
    assert time.monotonic() - began < 40.0


def started(process, count):
    """Wait until so many ranks have written that they are ready; the lines."""
    lines = []
    while len(lines) < count:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        lines.append(line.strip())
    return lines


BUSY = """
import os
import sys
import numpy as np
from fdbr import distributed as d

comm = d.world(timeout={timeout})
print(comm.rank, os.getpid(), flush=True)
big = np.ones(500_000)
while True:
    if comm.rank == 2:
        np.linalg.svd(np.ones((300, 300)))
    d.all_reduce(big, comm)
"""


def test_a_rank_that_is_killed_ends_the_others_within_seconds():
    process = launching.start(3, BUSY.format(timeout=60))
    numbers = dict(map(int, line.split()) for line in started(process, 3))
    time.sleep(0.3)
    began = time.monotonic()
    os.kill(numbers[1], signal.SIGKILL)
    ended = launching.finish(process, 20)
    assert time.monotonic() - began < 30.0
    assert ended.returncode != 0


def test_a_rank_that_stands_still_is_named_by_the_others():
    process = launching.start(3, BUSY.format(timeout=1.5))
    numbers = dict(map(int, line.split()) for line in started(process, 3))
    time.sleep(0.3)
    began = time.monotonic()
    os.kill(numbers[1], signal.SIGSTOP)
    ended = launching.finish(process, 30)
    assert time.monotonic() - began < 30.0
    assert ended.returncode == 1
    assert re.search(r"CollectiveTimeoutError: .*waited 1\.5 s for rank 1, which", ended.stderr)
    assert ended.stderr.count("Traceback") == 1


FITTING = """
import sys
import time
import numpy as np
from fdbr import distributed as d, train

comm = d.world(timeout=20.0)
print(comm.rank, flush=True)

def step(state, batch):
    time.sleep(0.01 * (comm.rank + 1))
    total = d.all_reduce(state + batch.sum(), comm)
    if comm.rank == 1:
        time.sleep(0.02)
    return total / comm.size, {"loss": total}

batches = train.Batches(np.ones(1000), 1)
reports = train.fit(step, 0.0, batches, epochs=2)
if comm.rank == 0:
    reports = train.pipe(reports, train.snapshot(sys.argv[1], every=train.every(epochs=9)))
for report in reports:
    last = report.iteration
d.barrier(comm)
print("last", last, d.all_gather_object(last, comm), flush=True)
"""


def test_ctrl_c_ends_all_ranks_after_the_same_iteration_with_a_snapshot(tmp_path):
    process = launching.start(3, FITTING, tmp_path / "snapshots")
    started(process, 3)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)  # mpiexec hands it on to the ranks
    ended = launching.finish(process, 30)
    assert ended.returncode == 0, ended.stderr
    lasts = re.findall(r"last (\d+) \[(\d+), (\d+), (\d+)\]", ended.stdout)
    assert len(lasts) == 3
    assert len({number for line in lasts for number in line}) == 1
    assert ended.stderr.count("the run ends after this iteration") == 1
    assert len(list((tmp_path / "snapshots").glob("*.safetensors"))) == 1
