"""What jitted functions keep: memory, objects and texts have bounds."""

import collections
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.memory import workspaces
from fdbr.backends.cpu.runtime import compiling, machine

W = np.random.default_rng(0).normal(size=(64, 64))
W.flags.writeable = False


def make():
    """A function whose programs need memory of their own."""
    return fdbr.jit(fdbr.grad(lambda x: ops.sum(ops.tanh(ops.tanh(x @ W) @ W) ** 2)))


@pytest.fixture(autouse=True)
def nothing_idle():
    workspaces._idle.clear()


def in_use():
    """The bytes of blocks that there are, in use or not."""
    gc.collect()
    blocks = [value for value in gc.get_objects() if type(value) is workspaces.Block]
    return sum(block.memory.nbytes for block in blocks)


def test_programs_of_many_sizes_share_one_block_of_memory():
    f = make()
    f(np.ones((1040, 64)))
    f(np.ones((1040, 64)))
    one = in_use()
    assert one > 1 << 18
    for rows in range(1000, 1040):
        f(np.ones((rows, 64)))
        f(np.ones((rows, 64)))
    assert in_use() == one


def test_programs_that_grow_leave_no_smaller_blocks():
    f = make()
    for rows in range(1000, 1040):
        f(np.ones((rows, 64)))
        f(np.ones((rows, 64)))
    assert len(workspaces._idle) == 1


def test_threads_that_ended_keep_no_more_than_a_bound(monkeypatch):
    f, x = make(), np.ones((1000, 64))
    f(x)
    f(x)
    monkeypatch.setattr(workspaces, "_BOUND", 0)
    gate = threading.Barrier(8)

    def call():
        gate.wait()
        for _ in range(5):
            f(x)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    f(x)
    assert len(workspaces._idle) == 1


def test_results_are_right_when_programs_take_iterations_in_one_block():
    f, g = make(), make()
    for rows in (300, 900, 500, 900, 300):
        x = np.full((rows, 64), 0.01 * rows / 900)
        assert np.array_equal(f(x), g(x))
        assert np.allclose(f(x), f.__wrapped__(x), rtol=1e-12, atol=1e-12)


class Model:
    def __init__(self):
        self.w = np.ones(3)
        self.table = {"rate": [2.0]}

    @fdbr.jit
    def method(self, x):
        return x * self.w * self.table["rate"][0]


class Slotted:
    __slots__ = ("__weakref__", "w")

    def __init__(self):
        self.w = np.ones(3)

    @fdbr.jit
    def method(self, x):
        return x * self.w


@pytest.mark.parametrize("cls", [Model, Slotted])
def test_a_jitted_method_does_not_keep_its_object(cls):
    found = []
    for _ in range(5):
        model = cls()
        for _ in range(3):
            model.method(np.ones(3))
        found.append(weakref.ref(model))
        del model
    gc.collect()
    assert [one() for one in found] == [None] * 5
    assert len(cls.method._cache.specializations) == 0


@pytest.mark.parametrize("cls", [Model, Slotted])
def test_nor_does_it_when_attributes_have_become_inputs(cls):
    found = []
    for _ in range(5):
        model = cls()
        for step in range(4):
            model.w = np.full(3, float(step))
            scale = 2.0 if cls is Model else 1.0
            assert np.array_equal(model.method(np.ones(3)), model.w * scale)
        found.append((weakref.ref(model), weakref.ref(model.w)))
        del model
    gc.collect()
    assert all(one() is None for one, _ in found)
    assert all(array() is None for _, array in found[:-1])  # the last call is remembered
    assert not cls.method._cache.known


def test_machine_code_goes_with_the_last_program_that_uses_it(monkeypatch):
    monkeypatch.setattr(compiling, "_recent", collections.deque(maxlen=2))
    x = np.linspace(0.0, 1.0, 100)

    def jitted(number):
        f = fdbr.jit(lambda x: np.sin(x + number) * np.exp(x) + number)
        return f, f(x), f(x)

    gc.collect()
    before = len(compiling._loaded)
    kept = [jitted(number / 7) for number in range(3)]
    for number in range(10):
        jitted(number / 11)
    gc.collect()
    assert len(compiling._loaded) <= before + 3 + 2
    for f, first, _ in kept:  # whose code is still there
        assert np.array_equal(f(x), first)
    del kept, f
    gc.collect()
    assert len(compiling._loaded) <= before + 2


def test_machine_code_that_is_found_on_disk_stays_as_long_as_a_program_uses_it():
    x = np.linspace(0.0, 1.0, 100)
    make = lambda: fdbr.jit(lambda x: np.sin(x + 0.375) * np.exp(x * x) + 0.125)
    make().compile(x)
    f = make()
    for _ in range(5):
        f(x)
    (entry,) = f._cache.specializations.values()
    code = entry.traces[0].code
    compiling._recent.clear()
    gc.collect()
    assert code.sources
    assert all(source in compiling._loaded for source in code.sources)
    assert np.allclose(f(x), np.sin(x + 0.375) * np.exp(x * x) + 0.125)


def test_an_object_in_the_place_of_one_that_is_gone_is_another():
    for rate in (2.0, 3.0, 5.0):
        model = Model()
        model.table["rate"][0] = rate
        for _ in range(3):
            assert np.array_equal(model.method(np.ones(3)), np.full(3, rate))
        del model


def test_the_reason_for_not_trace_does_not_grow():
    factor = 0.0
    f = fdbr.jit(lambda x: x * factor)
    for step in range(30):
        factor = float(step)
        f(1.0)
    length = len(str(f.report()))
    for step in range(500):
        factor = float(step)
        f(1.0)
    assert len(str(f.report())) < length + 5


def test_kernels_on_disk_have_a_bound_and_those_used_last_stay(tmp_path):
    for i in range(10):
        path = tmp_path / f"{i}.kernel"
        path.write_bytes(bytes(100))
        os.utime(path, (i, i))
    machine._prune(tmp_path, most=350)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{i}.kernel" for i in (7, 8, 9)]


def test_a_full_disk_leaves_no_halves_and_no_errors(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.os, "replace", full)
    machine._write(tmp_path / "some.kernel", "kernel", b"code")
    assert list(tmp_path.iterdir()) == []


_HANDLER = """
import signal, threading, numpy as np, fdbr
x = np.linspace(0.0, 1.0, 400_000)
f = fdbr.jit(lambda x: np.sin(x) * np.exp(x) + np.cos(x))
want = f(x)
calls = []

class Dies:
    def __del__(self):
        calls.append(np.array_equal(f(x), want))

def handler(*_):
    calls.append(np.array_equal(f(x), want))
    Dies()

signal.signal(signal.SIGALRM, handler)
for step in range(80):
    signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + step % 20))  # once
    assert np.array_equal(f(x), want)
signal.setitimer(signal.ITIMER_REAL, 0)
assert calls and all(calls)
"""


def test_a_signal_handler_may_call_what_it_interrupts():
    # While a call is checked, a handler runs in a block of `disable_jit`, and gets NumPy's bits.
    unchecked = {k: v for k, v in os.environ.items() if k != "FDBR_CHECK_JIT"}
    subprocess.run([sys.executable, "-c", _HANDLER], check=True, timeout=600, env=unchecked)


def test_without_a_home_or_with_a_folder_that_cannot_be_written_kernels_run(tmp_path):
    program = (
        "import pathlib, numpy as np, fdbr\n"
        "def home(*_): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.home = home\n"
        "f = fdbr.jit(lambda x: np.sin(x) * np.exp(x))\n"
        "x = np.linspace(0.0, 1.0, 100)\n"
        "assert np.allclose(f(x), np.sin(x) * np.exp(x))\n"
    )
    plain = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    plain.pop("FDBR_CACHE_DIR", None)
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    for more in ({}, {"FDBR_CACHE_DIR": str(blocked)}):
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=plain | more)


def test_machine_code_that_is_being_given_back_is_not_found_any_more(monkeypatch):
    """While LLVM closes an engine, other threads run."""
    monkeypatch.setattr(compiling, "_loaded", weakref.WeakValueDictionary())
    monkeypatch.setattr(compiling, "_recent", collections.deque(maxlen=1))
    source = "def kernel(table, start, stop, thread):\n    pass\n"
    address = compiling.address_of(source)
    engine = type(address.owner.engine)
    found = []
    dispose = engine._dispose

    def disposed(self):
        found.append(compiling._loaded.get(source))
        dispose(self)

    monkeypatch.setattr(engine, "_dispose", disposed)
    assert compiling._loaded.get(source) is address.owner
    compiling._recent.clear()
    del address
    gc.collect()
    assert found == [None]
    assert compiling.address_of(source).owner.place[0]
