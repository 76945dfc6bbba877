"""The threads of kernels: each part is done once, whoever calls, and nobody waits for ever."""

import dis
import itertools
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fdbr.backends.cpu.runtime import blas, machine, pool

# Adds one to each element of its rows, and writes the part's number to the first of them.
COUNTS = """
define void @kernel(ptr %table, i64 %start, i64 %stop, i64 %part) {
entry:
  %at = getelementptr i64, ptr %table, i64 0
  br label %loop
loop:
  %i = phi i64 [%start, %entry], [%j, %loop]
  %p = getelementptr i64, ptr %table, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %stop
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def count(rows, grain, parts):
    table = np.zeros(rows, np.int64)
    pool.launch(machine.address_of(COUNTS), table.ctypes.data, rows, grain, parts)
    return table


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 1000])
@pytest.mark.parametrize("grain", [1, 16, 64])
@pytest.mark.parametrize("parts", [1, 2, 3, 40])
def test_each_row_is_done_once(rows, grain, parts):
    assert (count(rows, grain, parts) == 1).all()


def test_many_launches_one_after_the_other():
    assert all((count(100, 1, 8) == 1).all() for _ in range(20_000))


def test_many_threads_launch_at_the_same_time():
    with ThreadPoolExecutor(8) as callers:
        tables = list(callers.map(lambda _: count(5000, 1, 16), range(2000)))
    assert all((table == 1).all() for table in tables)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is no second core to go to",
)
def test_threads_leave_the_core_to_which_the_caller_came():
    cores = os.sched_getaffinity(0)
    helpers = [thread.native_id for thread in ready().threads]
    try:
        for core in sorted(cores)[:2] * 2:
            os.sched_setaffinity(0, {core})
            pool._pool.core = -1  # where its threads are is not known, as at the beginning
            for helper in helpers:
                os.sched_setaffinity(helper, {core})  # where it does not come to its turn
            launches = 0
            while core in set().union(*map(os.sched_getaffinity, helpers)):
                count(100, 1, 8)
                launches += 1
                assert launches < 100_000
    finally:
        os.sched_setaffinity(0, cores)


def ready():
    """The threads of this process, which have begun."""
    count(1000, 1, 8)
    return pool._pool


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_signal_handlers_launch_too():
    found = []
    before = signal.signal(signal.SIGALRM, lambda *_: found.append(count(1000, 1, 8)))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(found) < 50:
            assert (count(1000, 1, 8) == 1).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all((table == 1).all() for table in found)


class Interrupt(BaseException):
    """What a signal handler raises."""


CALLS = {
    after.offset
    for before, after in itertools.pairwise(dis.get_instructions(pool.launch))
    if before.opname.startswith(("CALL", "JUMP_BACKWARD"))
}
"""The places in `launch` at which Python looks for signals."""


def interrupted(step, f):
    """Call a function, which an interrupt ends at such a place; whether it got so far."""
    left = step

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code is not pool.launch.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in CALLS:
            left -= 1
            if left < 0:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        f()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_leaves_the_threads_to_later_launches():
    count(1000, 1, 8)
    step = 0
    while interrupted(step, lambda: count(1000, 1, 8)):
        assert not pool._pool.lock.locked(), f"at step {step}"
        assert (count(1000, 1, 8) == 1).all()
        step += 1
    assert step > 2


def test_an_interrupt_of_their_start_leaves_threads_to_be_started(monkeypatch):
    def refused(self):
        raise Interrupt

    monkeypatch.setattr(pool, "_pool", pool._Pool())
    monkeypatch.setattr(pool, "thread_count", lambda: 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(Interrupt):
            count(1000, 1, 8)
    assert (count(1000, 1, 8) == 1).all()
    assert pool._pool.helpers == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_while_the_blas_has_one_thread_has_all_of_its_own():
    with blas.alone() as known:
        if not known:
            pytest.skip("the library of linear algebra has no setting")
        had, read = blas._state.had, blas._settings()[0]
        child = os.fork()
        if child == 0:
            os._exit(0 if read() == had else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    count(1000, 1, 8)
    child = os.fork()
    if child == 0:
        os._exit(0 if (count(1000, 1, 8) == 1).all() and pool._pool.helpers >= 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("before", ["ops.tanh(x)", "pass"])
def test_the_end_of_python_is_no_obstacle(before):
    program = (
        "import numpy as np\nfrom fdbr import ops\nimport atexit\n"
        f"x = np.ones((600, 1000), 'float32')\n{before}\natexit.register(lambda: ops.tanh(x))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_threads_sleep_while_there_is_nothing_to_do():
    count(1000, 1, 8)
    clock = os.times()
    threading.Event().wait(0.5)
    later = os.times()
    assert later.user + later.system - clock.user - clock.system < 0.4
