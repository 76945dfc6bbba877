"""Kernels are compiled in threads: interrupts, forks, errors and the end of Python are safe."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import fdbr
from fdbr.backends.cpu.runtime import compiling, machine, workers
from fdbr.backends.cpu.runtime.launching import launch_alone
from fdbr.backends.cpu.runtime.workers import BusyError, compute

ENDLESS = 60.0  # seconds after which a test that hangs fails
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks next to threads


class StoppedError(Exception):
    """What the handler of a signal raises."""


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(workers, "available", lambda: 2)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Return an empty cache on disk; nothing is in memory either."""
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_loaded", {})
    return tmp_path


def source(number):
    """Return a kernel that writes a number to each element."""
    return f"""
def kernel(table, start, stop, thread):
    a = data(table, 0, f8(0))
    for r in range(start, stop):
        a[r] = f8({number})
"""


def result(address):
    out = np.zeros(3)
    launch_alone(address, np.array([id(out)], np.int64).ctypes.data, 3)
    return out.tolist()


def is_clean(folder):
    """Return whether a cache has whole kernels only, and no temporary file."""
    names = [path.stem for path in folder.glob("*.kernel")]
    return len(names) == len(list(folder.iterdir())) and all(map(machine.find, names))


# --- results and errors ----------------------------------------------------------------


def test_items_are_computed_at_the_same_time():
    both = threading.Barrier(2)
    found = compute(lambda item, pauses: both.wait(ENDLESS) * 0 + item, [1, 2])
    assert found == {1: 1, 2: 2}


def test_the_first_error_is_raised_and_ends_the_work():
    begun = []

    def work(item, pauses):
        begun.append(item)
        if item == 3:
            raise ValueError("three")
        time.sleep(0.001)

    with pytest.raises(ValueError, match="three"):
        compute(work, range(10_000))
    workers.finish()
    assert len(begun) < 10_000


def test_an_item_that_another_process_computes_is_the_last_one():
    order, busy = [], [2, 0, 0]

    def work(item, pauses):
        assert pauses
        if busy[item]:
            busy[item] -= 1
            raise BusyError
        order.append(item)
        return -item

    assert compute(work, [0, 1, 2]) == {0: 0, 1: -1, 2: -2}
    assert order[-1] == 0


def test_nobody_waits_forever_for_another_process(monkeypatch):
    """For instance, if it is suspended while it compiles."""
    monkeypatch.setattr(workers, "_MOST_PAUSES", 3)

    def work(item, pauses):
        if pauses:
            raise BusyError
        return item

    assert compute(work, ["a", "b"]) == {"a": "a", "b": "b"}


def test_all_kernels_of_a_program_are_compiled_when_it_has_been_generated(cache):
    found = compiling.addresses_of(map(source, range(6)))
    assert [result(found[source(i)]) for i in range(6)] == [[i] * 3 for i in range(6)]
    assert len(list(cache.iterdir())) == 6
    assert is_clean(cache)


def test_code_is_emitted_while_another_thread_is_inside_llvm():
    llvm, module = machine._llvm(), machine._parsed("define void @kernel() {\n  ret void\n}\n")
    found = []

    def emit():
        emitter = machine._this_machine(threading.get_ident())
        with llvm.ffi.OutputString() as error:
            ready.set()
            assert lock_is_held.wait(ENDLESS)
            emit_to_memory = machine._unlocked("LLVMPY_TargetMachineEmitToMemory")
            found.append(emit_to_memory(emitter, module, 1, error))
            done.set()

    ready, lock_is_held, done = threading.Event(), threading.Event(), threading.Event()
    thread = threading.Thread(target=emit)
    thread.start()
    assert ready.wait(ENDLESS)
    with llvm.ffi.lib._lock:
        lock_is_held.set()
        assert done.wait(ENDLESS)
    thread.join()
    llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(found[0])


# --- interrupts ------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch):
    """Hold each compilation until the event is set; tell when the first one has begun."""
    begun, go = threading.Event(), threading.Event()
    compile = compiling._compiled

    def slow(source):
        begun.set()
        assert go.wait(ENDLESS)
        return compile(source)

    monkeypatch.setattr(compiling, "_compiled", slow)
    yield begun, go
    go.set()
    workers.finish()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are POSIX's")
@pytest.mark.parametrize("count", [1, 2, 20])
def test_an_interrupt_ends_the_wait_before_the_kernels_are_compiled(count, cache, held):
    begun, go = held

    def stop(number, frame):
        raise StoppedError

    def interrupt():
        begun.wait(ENDLESS)
        signal.pthread_kill(main, signal.SIGUSR1)

    before, main = signal.signal(signal.SIGUSR1, stop), threading.get_ident()
    helper = threading.Thread(target=interrupt)
    try:
        helper.start()
        with pytest.raises(StoppedError):
            compiling.addresses_of(map(source, range(count)))
    finally:
        helper.join()
        signal.signal(signal.SIGUSR1, before)
    go.set()
    workers.finish()
    assert is_clean(cache)
    assert len(list(cache.iterdir())) <= 2  # each thread has finished its kernel
    found = compiling.addresses_of(map(source, range(count)))
    assert [result(found[source(i)]) for i in range(count)] == [[i] * 3 for i in range(count)]


_INTERRUPTED = """
import signal, time
import numpy as np
import fdbr
from fdbr.backends.cpu.runtime import compiling
compile, begun = compiling._compiled, []

def slow(source):
    begun.append(source)
    if len(begun) == 1:
        signal.raise_signal(signal.SIGINT)
    time.sleep(0.2)
    return compile(source)

compiling._compiled = slow
fdbr.jit(lambda x: np.sin(x) * 2 + np.cos(x).sum())(np.ones(5000))
"""


def test_the_end_of_python_waits_for_the_kernels_that_are_being_compiled(cache):
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=ENDLESS
    )
    assert done.stderr.strip().endswith("KeyboardInterrupt")
    assert done.stderr.count("Traceback") == 1
    assert list(cache.iterdir())
    assert is_clean(cache)


# --- forks -----------------------------------------------------------------------------


def in_child(work):
    """Return the exit status of a forked child that does some work."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(ENDLESS))  # ends a child that hangs
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@forks
@quiet
def test_a_process_forks_while_threads_compile(cache):
    ended = threading.Event()

    def compile():
        for number in range(10_000):
            if ended.is_set():
                return
            compiling.addresses_of([source(2 * number), source(2 * number + 1)])

    def work():
        for number in range(3):
            assert result(compiling.address_of(source(-number))) == [-number] * 3

    thread = threading.Thread(target=compile)
    thread.start()
    try:
        for _ in range(5):
            assert in_child(work) == 0
    finally:
        ended.set()
        thread.join()


@forks
@quiet
def test_a_signal_handler_forks_while_its_thread_waits(cache, monkeypatch):
    parent, statuses, compile = os.getpid(), [], compiling._compiled

    def slow(text):
        if text == source(1) and os.getpid() == parent and not statuses:
            signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.05)
        return compile(text)

    def fork(number, frame):
        child = os.fork()
        if child:
            statuses.append(child)
        else:
            signal.alarm(int(ENDLESS))

    monkeypatch.setattr(compiling, "_compiled", slow)
    before, main = signal.signal(signal.SIGUSR1, fork), threading.get_ident()
    try:
        found = compiling.addresses_of(map(source, range(4)))
        right = all(result(found[source(i)]) == [i] * 3 for i in range(4))
    finally:
        if os.getpid() != parent:
            os._exit(0 if right else 1)
        signal.signal(signal.SIGUSR1, before)
    assert right
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in statuses] == [0]


@forks
@quiet
def test_a_child_has_no_lock_of_its_parent(cache):
    """A lock that a child inherits would last as long as the child."""
    reading, writing = os.pipe()
    stop, seen = threading.Event(), []

    def compile():
        for number in range(1000):
            if stop.is_set():
                return
            compiling.address_of(source(number))

    thread = threading.Thread(target=compile)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in range(3, 64)]
                os.write(writing, b"1" if any(".lock" in link for link in links) else b"0")
                os._exit(0)
            os.waitpid(child, 0)
            seen.append(os.read(reading, 1))
    finally:
        stop.set()
        thread.join()
        os.close(reading)
        os.close(writing)
    assert seen == [b"0"] * 5


# --- processes that share a cache ------------------------------------------------------


@forks
@quiet
def test_processes_with_an_empty_cache_share_the_compilation(cache, tmp_path_factory, monkeypatch):
    log, compile = tmp_path_factory.mktemp("log") / "compiled", compiling._compiled
    waiting, start = os.pipe()
    texts = [source(i) for i in range(20)]

    def logged(text):
        with open(log, "a") as file:
            file.write(f"{texts.index(text)}\n")
        return compile(text)

    monkeypatch.setattr(compiling, "_compiled", logged)
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(start)
                os.read(waiting, 1)  # until all have been forked
                found = compiling.addresses_of(texts)
                status = [result(found[text]) for text in texts] != [[i] * 3 for i in range(20)]
            finally:
                os._exit(status)
        children.append(child)
    os.close(start)
    os.close(waiting)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    compiled = log.read_text().split()
    assert len(set(compiled)) == 20
    assert max(map(compiled.count, compiled)) <= 2
    assert len(compiled) < 30  # 80 without locks
    assert is_clean(cache)


@pytest.mark.skipif(os.name != "posix", reason="pipes and links are POSIX's")
@pytest.mark.parametrize("kind", ["a directory", "a pipe", "a link to itself", "an old file"])
def test_a_lock_that_is_no_file_of_ours_is_no_obstacle(kind, cache):
    name = machine.digest(source(1), compiling._library_version(), machine.processor())
    path = cache / f"{name}.lock"
    if kind == "a directory":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link to itself":
        path.symlink_to(path.name)
    else:
        path.write_bytes(b"of a process that was killed")
    assert result(compiling.address_of(source(1))) == [1] * 3
    assert machine.find(name)


def test_a_kernel_that_llvm_rejects_leaves_no_lock(cache):
    with pytest.raises(Exception, match="kernel"):
        compiling.address_of("def kernel(table, start, stop, thread):\n    unknown(1)\n")
    assert not list(cache.iterdir())


def test_the_first_call_of_a_jitted_function_compiles_all_its_kernels(cache, monkeypatch):
    f = fdbr.jit(lambda x: (np.sin(x) * 2).sum(axis=0) + np.cos(x).max(axis=1))
    x = np.linspace(0, 1, 90_000).reshape(300, 300)
    first = f(x)
    monkeypatch.setattr(compiling, "_compiled", None)  # nothing is left to compile
    np.testing.assert_allclose(f(x), first, rtol=1e-13)
