"""What a jitted function must not do: draw without a key, keep values, bind variables."""

import collections
import functools
import logging
import random
import threading
from typing import ClassVar

import numpy as np
import pytest
from compiler.comparing import assert_same

import fdbr
from fdbr import ImpureError
from fdbr.compiler.engine import lookup

X = np.array([1.0, -2.0, 3.0])


def count(jitted):
    return len(jitted.report().traces)


# --- random numbers -----------------------------------------------------------------


@pytest.fixture
def no_other_threads(monkeypatch):
    """No thread that an earlier test has left may have drawn the numbers."""
    monkeypatch.setattr(lookup, "_has_other_threads", lambda: False)


GENERATOR = np.random.default_rng(0)


class WithGenerator:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def noisy(self, x):
        return x + self.rng.normal()


def draws_by_default(x, rng=np.random.default_rng(0)):  # noqa: B008
    return x + rng.normal()


@pytest.mark.parametrize(("f", "name"), [
    (lambda x: x + np.random.normal(), "np.random"),
    (lambda x: x + np.random.rand(3), "np.random"),
    (lambda x: x + random.random(), "random"),
    (lambda x: x + GENERATOR.normal(), "a Generator"),
    (lambda x: x + {"rng": [GENERATOR]}["rng"][0].normal(), "a Generator"),
    (WithGenerator().noisy, "a Generator"),
    (draws_by_default, "a Generator"),
], ids="numpy rand python global inside attribute default".split())  # fmt: skip
def test_drawing_random_numbers_without_a_key_is_an_error(f, name, no_other_threads):
    jitted = fdbr.jit(f)
    for _ in range(2):
        with pytest.raises(ImpureError, match=f"drew from {name}.*Pass a key"):
            jitted(X)
    assert count(jitted) == 0


def test_drawing_from_closed_over_generators_is_an_error(no_other_threads):
    for rng in (np.random.default_rng(0), np.random.RandomState(0), random.Random(0)):
        with pytest.raises(ImpureError, match=f"drew from a {type(rng).__name__}"):
            fdbr.jit(lambda x: x + rng.uniform(0, 1))(X)  # noqa: B023


def test_drawing_from_a_generator_that_is_an_argument_is_an_error(no_other_threads):
    with pytest.raises(ImpureError, match="drew from a Generator"):
        fdbr.jit(lambda x, rng: x + rng.normal())(X, np.random.default_rng(0))


def test_a_generator_made_from_a_seed_within_the_function_is_pure():
    jitted = fdbr.jit(lambda x: x + np.random.default_rng(0).normal(size=3))
    assert_same(jitted(X), jitted(X))


def test_draws_elsewhere_between_calls_do_not_matter():
    jitted = fdbr.jit(lambda x: x * 2)
    for _ in range(3):
        np.random.rand()
        jitted(X)
    assert jitted.report().traces[0].runs == 2


def test_a_draw_of_another_thread_while_it_is_recorded_is_not_held_against_it():
    started, drawn = threading.Event(), threading.Event()

    def other():
        started.wait(5)
        np.random.rand()
        drawn.set()

    def f(x):
        started.set()
        drawn.wait(5)
        return x * 2

    thread = threading.Thread(target=other)
    thread.start()
    assert_same(fdbr.jit(f)(X), X * 2)
    thread.join()


# --- what is kept -------------------------------------------------------------------


@pytest.mark.unchecked
def test_a_print_runs_when_it_is_recorded_and_not_again(capsys):
    def f(x):
        print("recorded")
        return x * 2

    jitted = fdbr.jit(f)
    jitted(X)
    jitted(X)
    assert capsys.readouterr().out == "recorded\n"


@pytest.mark.unchecked
def test_appending_to_an_outside_list_happens_when_it_is_recorded_and_not_again():
    log = []

    def f(x):
        log.append(x.shape)
        return x * 2

    jitted = fdbr.jit(f)
    for _ in range(3):
        assert_same(jitted(X), X * 2)
    assert log == [(3,)]
    log.clear()
    jitted(X)
    assert log == [(3,)]  # it had changed, so it was traced again


def _changing():
    """Functions that change what they read, each made anew: what there is at the next call."""

    class Counter:
        seen: ClassVar[list[int]] = []

        def __init__(self):
            self.own = {"n": 0}

        def of_class(self, x):
            self.seen.append(0)
            return x * len(self.seen)

        def of_object(self, x):
            self.own["n"] += 1
            return x * self.own["n"]

    log, table, members, ring = [], {"n": 0}, set(), collections.deque(range(9))
    stack, deep = list(range(20)), {"a": [{"b": []}]}

    def grows(x):
        log.append(1)
        return x * len(log)

    def by_default(x, kept=[]):  # noqa: B006
        kept.append(1)
        return x * len(kept)

    def counts(x):
        table["n"] += 1
        return x * table["n"]

    def joins(x):
        members.add(len(members))
        return x * len(members)

    def iterations(x):
        ring.rotate(1)
        return x * ring[0]

    def pops(x):
        return x * stack.pop()

    def digs(x):
        deep["a"][0]["b"].append(1)
        return x * len(deep["a"][0]["b"])

    def aliased(x, again=log):
        log.append(1)
        return x * len(again)

    def within(x):
        return sum(x[i] * counts(1.0) for i in range(2))

    counter = Counter()
    return {
        f.__name__: f
        for f in (grows, by_default, counts, joins, iterations, pops, digs, aliased, within)
    } | {"of_class": counter.of_class, "of_object": counter.of_object}


@pytest.mark.parametrize("name", _changing())
def test_a_container_that_a_function_changes_and_reads_is_read_at_every_call(name):
    f, jitted = _changing()[name], fdbr.jit(_changing()[name])
    for _ in range(6):
        assert_same(jitted(X), f(X))
    assert "it changes a captured list or dict, which it reads" in str(jitted.report())


def test_what_a_function_fills_once_is_no_reason_to_run_it_at_every_call():
    kept = {}

    def f(x):
        if "w" not in kept:
            kept["w"] = np.arange(3.0)
        return x * kept["w"]

    jitted = fdbr.jit(f)
    for _ in range(4):
        assert_same(jitted(X), X * np.arange(3.0))
    assert sum(trace.runs for trace in jitted.report().traces) >= 2


def test_keeping_a_traced_value_in_an_outside_list_is_an_error():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x

    with pytest.raises(ImpureError, match="stores a traced value in a captured list or dict"):
        fdbr.jit(f)(X)


def test_binding_a_variable_around_it_is_an_error():
    last = calls = 0

    def keeps(x):
        nonlocal last
        last = x
        return x * 2

    def counts(x):
        nonlocal calls
        calls += 1
        return x * calls

    class Sum:
        total = 0.0
        count = 0

        def method(self, x):
            self.total = self.total + x.sum()
            return self.total

        def counting(self, x):
            self.count += 1
            return x

    with pytest.raises(ImpureError, match="stores a traced value in last"):
        fdbr.jit(keeps)(X)
    with pytest.raises(ImpureError, match="rebinds calls"):
        fdbr.jit(counts)(X)
    with pytest.raises(ImpureError, match=r"stores a traced value in Sum\.total"):
        fdbr.jit(Sum().method)(X)
    counting = fdbr.jit(Sum().counting)
    counting(X)  # which may have set it up
    with pytest.raises(ImpureError, match=r"rebinds Sum\.count"):
        counting(X)
    del last


def test_a_variable_that_is_set_up_at_the_first_run_is_fine():
    made = None

    def f(x):
        nonlocal made
        if made is None:
            made = np.arange(3.0)
        return x * made

    jitted = fdbr.jit(f)
    for _ in range(3):
        assert_same(jitted(X), X * np.arange(3.0))
    assert jitted.report().traces[0].runs == 1


@pytest.mark.unchecked
def test_a_traced_value_that_was_stored_away_is_known_when_it_is_used():
    def f(x):
        logging.getLogger("a_keeper").kept = x  # in a variable of the library
        return x * 2

    for use in (bool, int, float, range, lambda v: v.item(), lambda v: v + 1, lambda v: v > 0):
        jitted = fdbr.jit(f)
        assert (jitted(3), jitted(4)) == (6, 8)
        stored = logging.getLogger("a_keeper").kept
        with pytest.raises(fdbr.EscapedTracerError, match=r"after jit\(.*Return it"):
            use(stored)
        with pytest.raises(fdbr.EscapedTracerError):
            fdbr.jit(lambda x: x + stored)(X)  # noqa: B023
        with pytest.raises(fdbr.EscapedTracerError):
            fdbr.jit(lambda x: (x, stored))(X)  # noqa: B023
        with pytest.raises(fdbr.EscapedTracerError):
            fdbr.jit(f)(stored)


def test_memoisation_of_what_is_no_traced_value_is_fine():
    @functools.cache
    def grid(n):
        return np.arange(float(n))

    jitted = fdbr.jit(lambda x: x * grid(len(x)))
    assert_same(jitted(X), jitted(X))
