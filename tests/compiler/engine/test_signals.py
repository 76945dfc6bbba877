"""What the handler of a signal raises reaches the caller, whatever it interrupts."""

import functools
import random
import signal
import sys
import time

import numpy as np
import pytest

import fdbr
from fdbr.errors.checks import is_interrupt

X = np.random.default_rng(0).normal(size=(40, 40))


class TimedOutError(Exception):
    pass


class LateValueError(ValueError):
    pass


def steps(x):
    for _ in range(10):
        x = np.tanh(x @ x / 40 + np.sin(x))
    return np.sum(x)


def loop(x):
    return np.sum(fdbr.fori_loop(0, 3000, lambda i, c: np.sin(c) + 0.1 * c, x[0]))


def calls(x):
    def body(c, _):
        fdbr.debug.callback(lambda value: None, c[0])
        return np.sin(c), None

    return np.sum(fdbr.scan(body, x[0], None, length=100)[0])


def batch(x):
    return np.sum(fdbr.vmap(lambda row: row * 2 if row[0] > 0 else np.sin(row))(x))


FUNCTIONS = {
    "steps": steps,
    "loop": loop,
    "callbacks": calls,
    "divided batch": batch,
    "gradient": fdbr.grad(steps),
    "gradient of a jitted function": fdbr.grad(fdbr.jit(steps)),
}

signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")


def interrupted(f, delay):
    """Interrupt a call after a delay; an error of the handler must reach the caller.

    Python itself ignores it where the handler interrupts a finalizer.
    """
    raised, ignored = [], []

    def handler(number, frame):
        raised.append(number)
        raise TimedOutError

    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
        try:
            f()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except TimedOutError:
        return
    finally:
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    assert len(raised) == len(ignored), "the error was swallowed"


@signals
@pytest.mark.unchecked
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_of_a_signal_handler_ends_a_replay(name):
    f = fdbr.jit(FUNCTIONS[name])
    expected = f(X)
    f(X)
    start = time.perf_counter()
    f(X)
    seconds = time.perf_counter() - start
    draws = random.Random(0)
    eager = f.report().eager
    for _ in range(40):
        interrupted(lambda: (f(X), f(X)), draws.random() * seconds)
    np.testing.assert_allclose(f(X), expected)
    assert f.report().eager == eager


@signals
@pytest.mark.unchecked
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_of_a_signal_handler_ends_tracing_and_compilation(name):
    def fresh():
        return fdbr.jit(functools.partial(FUNCTIONS[name]))

    start = time.perf_counter()
    expected = fresh()(X)
    seconds = time.perf_counter() - start
    draws = random.Random(0)
    for _ in range(5):
        f = fresh()
        interrupted(lambda f=f: f(X), draws.random() * seconds)
        for _ in range(2):
            np.testing.assert_allclose(f(X), expected)
        assert not f.report().eager


@signals
@pytest.mark.unchecked
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_callback_in_a_loop_is_interrupted_by_an_error_like_those_of_operations(call):
    count, late = 0, None

    def handler(number, frame):
        raise LateValueError

    def callback(value):
        nonlocal count
        count += 1
        if count == late:
            signal.raise_signal(signal.SIGALRM)

    def body(c, _):
        fdbr.debug.callback(callback, c)
        return np.sin(c), None

    f = fdbr.jit(lambda x: fdbr.scan(body, x, None, length=10)[0])
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(call):
            f(1.0)
        late = count + 5
        with pytest.raises(LateValueError):
            f(1.0)
        assert count == late
    finally:
        signal.signal(signal.SIGALRM, before)
    assert f(1.0) == f(1.0)


@signals
@pytest.mark.unchecked
def test_an_error_of_a_handler_of_any_kind_is_known():
    class Handler:
        def method(self, number, frame):
            raise TimedOutError

        def __call__(self, *args):
            raise TimedOutError

    def extra(text, number, frame):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        raise TimedOutError(text)

    for handler in (Handler().method, Handler(), functools.partial(extra, "late")):
        before = signal.signal(signal.SIGALRM, handler)
        try:
            with pytest.raises(TimedOutError) as raised:
                signal.raise_signal(signal.SIGALRM)
            assert is_interrupt(raised.value)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_an_error_of_the_function_is_no_interrupt():
    def f(number, frame):
        raise TimedOutError

    with pytest.raises(TimedOutError) as raised:
        f(1, None)
    assert not is_interrupt(raised.value)
