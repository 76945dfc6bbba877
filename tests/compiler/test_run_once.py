"""A call of a jitted function runs the function once, or replays it: never twice."""

import collections
import io
import itertools
import os
import queue

import numpy as np
import pytest
from unseen import unseen_queue

import fdbr
from fdbr import ImpureError
from fdbr.core import tracer

X = np.array([1.0, -2.0, 3.0])
CALLS = 12


def _impure(tick):
    """Functions with side effects of every kind, each made anew; ``tick`` tells of each run."""
    numbers = [float(i) for i in range(10 * CALLS)]
    simple, locked = queue.SimpleQueue(), queue.Queue()
    for number in numbers:
        simple.put(number)
        locked.put(number)
    left, ring, names = list(numbers), collections.deque(numbers), set()
    table, memo, counter = {"n": 0}, {}, itertools.count()
    drawn, file, out = iter(numbers), io.StringIO("1\n" * len(numbers)), io.StringIO()
    buffer, calls, made, built = np.zeros(3), 0, None, False
    holder = type("Holder", (), {})()
    holder.calls = 0

    def prints(x):
        return x * 2

    def gets(x):
        return x * simple.get()

    def gets_with_locks(x):
        return x * locked.get()

    def pops(x):
        return x * left.pop()

    def pops_left(x):
        return x * ring.popleft()

    def grows(x):
        names.add(len(names))
        return x * len(names)

    def counts(x):
        table["n"] += 1
        return x * table["n"]

    def counts_on(x):
        return x * next(counter)

    def sets_environment(x):
        os.environ["FDBR_TEST"] = str(int(os.environ.get("FDBR_TEST", "0")) + 1)
        return x * int(os.environ["FDBR_TEST"])

    def draws(x):
        return x * next(drawn)

    def reads(x):
        return x * float(file.readline())

    def writes(x):
        out.write("a")
        return x * 2

    def writes_text(x):
        out.write(f"{x}")
        return x * 2

    def calls_back(x):
        fdbr.debug.callback(lambda y: None, x)
        return x * left.pop()

    def catches(x):
        try:
            np.linalg.inv(np.zeros((2, 2)) * x[0])
        except np.linalg.LinAlgError:
            return x * 2
        return x

    def sets_errors(x):
        with np.errstate(all="raise"):
            return x * 2

    def binds(x):
        nonlocal calls
        calls += 1
        return x * calls

    def binds_attribute(x):
        holder.calls += 1
        return x * holder.calls

    def sets_up(x):
        nonlocal made
        if made is None:
            made = np.arange(3.0)
        return x * made

    def sets_flag(x):
        nonlocal built
        if not built:
            built = True
        return x * 2

    def sets_attribute(x):
        if not hasattr(holder, "weights"):
            holder.weights = np.arange(3.0)
        return x * holder.weights

    def remembers(x):
        if "w" not in memo:
            memo["w"] = np.arange(3.0)
        return x * memo["w"]

    def draws_at_random(x):
        return x * np.random.rand()

    def writes_buffer(x):
        buffer[0] += 1
        return x * 2

    def fills_buffer(x):
        if buffer[1] == 0:
            buffer[:] = 1
        return x * buffer

    def far(x):
        return np.sin(x * 1e30)

    def ticking(f):
        def run(x):
            tick()
            return f(x)

        return run

    local = dict(locals())
    return {
        name: ticking(f)
        for name, f in local.items()
        if callable(f) and name not in ("tick", "ticking")
    }


NAMES = sorted(_impure(lambda: None))
WAYS = {
    "jit": fdbr.jit,
    "of a gradient": lambda f: fdbr.jit(fdbr.grad(lambda x: f(x).sum())),
    "in jit": lambda f: fdbr.jit(fdbr.jit(f)),
}


def _in_gradient(f):
    jitted = fdbr.jit(f)
    return fdbr.grad(lambda x: jitted(x).sum())


WAYS["in a gradient"] = _in_gradient


@pytest.fixture
def alone(monkeypatch):
    """A process without ranks, whatever the tests before have made in it.

    Where ranks communicate, a first call runs twice, as docs/jit.md says.
    """
    monkeypatch.setattr(tracer, "_followed", False)


@pytest.mark.unchecked
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_no_call_runs_the_function_twice(name, way, monkeypatch):
    monkeypatch.setenv("FDBR_TEST", "0")
    ticks = unseen_queue()
    f = WAYS[way](_impure(lambda: ticks.put(None))[name])
    for _ in range(CALLS):
        try:
            f(X.copy())
        except ImpureError:
            assert ticks.qsize() == 1
        assert ticks.qsize() <= 1
        while ticks.qsize():
            ticks.get()


CHANGING = "gets gets_with_locks pops pops_left grows counts counts_on draws reads".split()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", CHANGING)
def test_what_each_call_changes_is_as_without_jit(name):
    f, ours = _impure(lambda: None)[name], _impure(lambda: None)[name]
    jitted = fdbr.jit(ours)
    for i in range(CALLS):
        assert np.array_equal(jitted(X * (i + 1)), f(X * (i + 1)))


def test_an_error_of_the_function_itself_is_traced_twice_at_most_once():
    ticks = []

    def f(x):
        ticks.append(None)
        if x.ndim:
            raise ValueError("no vectors")
        return x

    jitted = fdbr.jit(f)
    counts = []
    for _ in range(6):
        before = len(ticks)
        with pytest.raises(ValueError, match="no vectors"):
            jitted(X)
        counts.append(len(ticks) - before)
    assert counts[0] <= 2
    assert counts[1:] == [1] * 5


def test_callbacks_are_made_once_though_a_run_is_repeated():
    seen = []

    def f(x):
        fdbr.debug.callback(seen.append, x.sum())
        return x * len(x.strides)  # which a traced value does not have

    jitted = fdbr.jit(f)
    for i in range(4):
        assert np.array_equal(jitted(X * i), X * i)
    assert seen == [2.0 * i for i in range(4)]


def _set_up(left):
    made = None

    def f(x):
        nonlocal made
        if made is None:
            made = np.linspace(0.0, 1.0, 10_000)
        return np.sum(np.exp(x + made) / 3)

    return f


def _popping(left):
    def f(x):
        left.pop()
        if left:
            return np.sum(np.exp(x) / 3)
        return x

    return f


def _text(left):
    def f(x):
        str(x)
        return np.sum(np.exp(x) / 3)

    return f


def _far(left):
    return lambda x: np.sum(np.sin(x * 1e30) * np.exp(x) / 3)


@pytest.mark.parametrize("make", [_set_up, _popping, _text, _far])
def test_calls_give_the_same_bits_though_the_function_is_run(make):
    jitted = fdbr.jit(make(list(range(1000))))
    values = np.linspace(0.0, 1.0, 10_000)
    assert len({float(jitted(values)).hex() for _ in range(CALLS)}) == 1


def test_compile_runs_a_function_that_sets_something_up_once_more():
    made = None

    def f(x):
        nonlocal made
        if made is None:
            made = np.arange(3.0)
        return x * made

    jitted = fdbr.jit(f).compile(X)
    assert np.array_equal(jitted(X), X * made)
    assert jitted.report().traces[0].runs == 1
