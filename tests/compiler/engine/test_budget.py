"""What is spent on traces and their compilation has been earned, whatever a function does."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unseen import unseen_queue

import fdbr
from fdbr import ops
from fdbr.compiler.engine import function, pullback, tiers
from fdbr.compiler.engine.budget import (
    Budget,
    Estimate,
    capturing,
    compiling,
    passing,
    set_patience,
)
from fdbr.compiler.engine.call_stub import NO_FIT
from fdbr.compiler.engine.specializations import Specialization
from fdbr.compiler.engine.tiers import Code

seconds = st.floats(1e-5, 1.0)


class Clock:
    """Time that passes only where a test says so, which `jit` does not see."""

    def __init__(self) -> None:
        self.passed = unseen_queue()
        self.passes = self.passed.put
        self._now = 0.0

    @property
    def now(self) -> float:
        while self.passed.qsize():
            self._now += self.passed.get()
        return self._now


@pytest.fixture(autouse=True)
def captured_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Not here, where everything takes what it is taken to take."""
    before = set_patience(1.0)
    for estimate in (capturing, compiling, passing):
        monkeypatch.setattr(estimate, "_factor", 1.0)
    yield
    set_patience(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (function, pullback, tiers):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


def traces(jitted: Any) -> int:
    return len(jitted.report().traces)


def test_a_function_that_is_called_a_few_times_is_not_recorded(clock: Clock) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(1e-3)
        return x * 2

    jitted = fdbr.jit(f)
    assert [jitted(float(i)) for i in range(5)] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert traces(jitted) == 0
    assert jitted.report().eager == 5
    assert "had taken less time than tracing it takes" in str(jitted.report())


@pytest.mark.unchecked
@pytest.mark.parametrize("takes", [1e-4, 1e-2, 10.0])
def test_a_function_is_recorded_once_its_runs_have_paid_for_that(
    clock: Clock, takes: float
) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(takes)
        return x * 2

    jitted = fdbr.jit(f)
    while not traces(jitted):
        before = clock.now
        assert jitted(1.5) == 3.0
        assert before <= max(2.0, takes)
    assert before >= 0.02  # ten times the least that a trace takes
    replays = clock.now
    assert jitted(1.5) == 3.0
    assert clock.now == replays  # the function was not run


def test_calls_with_ever_other_arguments_cost_what_the_function_costs(clock: Clock) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(1e-2)
        return np.tanh(x)

    jitted = fdbr.jit(f)
    for size in range(40):
        for _ in range(3):
            assert jitted(np.zeros(size)).shape == (size,)
    assert traces(jitted) == 0


def test_a_capture_that_takes_more_than_was_earned_is_broken_off(clock: Clock) -> None:
    """The run goes on without, and gives what it gives; a later one is whole."""
    passes = clock.passes

    def f(x: Any, weight: Any) -> Any:
        passes(4e-3)  # one would not guess so many steps from that
        for i in range(1500):
            x = x * weight + i if np.sum(x) < 1e6 else x - weight
        return {"x": x, "weight": weight, "rest": np.ones(3)}

    jitted = fdbr.jit(f)
    x, weight = np.linspace(0.0, 1.0, 3), np.full(3, 0.99)
    desired = f(x, weight)
    cut = False
    for _ in range(1000):
        entries = jitted._cache.specializations.values()
        before = sum(entry.budget.steps for entry in entries)
        found = jitted(x, weight)
        cut |= 0 < before < sum(entry.budget.steps for entry in entries)
        for name, value in desired.items():
            np.testing.assert_array_equal(found[name], value)
            assert type(found[name]) is np.ndarray
        if traces(jitted):
            break
    assert cut
    assert traces(jitted) == 1
    for name, value in desired.items():
        np.testing.assert_allclose(jitted(x, weight)[name], value, rtol=1e-12)


@pytest.mark.parametrize("transformation", [fdbr.grad, fdbr.vmap, lambda f: f])
def test_a_capture_that_is_broken_off_gives_what_the_function_gives(
    transformation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "steps_to_capture", lambda self: limit)

    def g(x: Any) -> Any:
        y = ops.exp(x) * 2
        size = (
            float(fdbr.stop_gradient(np.sum(y)))
            if x.ndim and transformation is not fdbr.vmap
            else 3.0
        )
        y = ops.where(y > 1, y, -x) + size
        for i in (0, 1):
            y = ops.at(y)[..., i : i + 1].add(x[..., i : i + 1])
        return np.sum(np.log(abs(y) + 1) @ np.ones((4, 2)))

    x = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
    f = transformation(g)
    for limit in range(1, 30):  # noqa: B007
        np.testing.assert_allclose(fdbr.jit(f)(x), f(x), rtol=1e-14)


@pytest.mark.parametrize("inner", [lambda f: f, fdbr.grad, fdbr.value_and_grad])
def test_batches_that_disagree_go_on_where_a_capture_is_broken_off(
    inner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "steps_to_capture", lambda self: limit)

    def g(x: Any, n: Any) -> Any:
        y = ops.sin(x) if x > 0.1 else ops.cos(x) * 2
        for _ in range(int(n)):
            y = y * 1.5 if y < x else y - 0.25
        return y * x

    x, n = np.linspace(-1.0, 1.0, 6), np.array([0, 1, 2, 1, 0, 2])
    f = fdbr.vmap(inner(g))
    for limit in range(1, 120, 3):  # noqa: B007
        for got, wanted in zip(
            fdbr.tree.leaves(fdbr.jit(f)(x, n)), fdbr.tree.leaves(f(x, n)), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_effects_are_had_once_where_a_capture_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Budget, "steps_to_capture", lambda self: 2)
    seen = []

    def f(x: Any) -> Any:
        for i in range(4):
            x = x + i
            fdbr.debug.callback(lambda x: seen.append(float(x)), x)
        return x

    assert fdbr.jit(f)(1.0) == 7.0
    assert seen == [1.0, 2.0, 4.0, 7.0]


def test_replays_that_take_longer_than_the_function_are_few(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(1e-2)
        return x * 2

    replays = 0
    run = Code._start

    def slow(self: Code, function: Any) -> None:
        def slowed(*leaves: Any) -> Any:
            nonlocal replays
            replays += 1
            clock.passes(0.5)
            return function(*leaves)

        run(self, slowed)

    monkeypatch.setattr(Code, "_start", slow)
    jitted = fdbr.jit(f)
    calls = 3000
    for _ in range(calls):
        assert jitted(1.5) == 3.0
    assert 0 < replays < 24
    assert clock.now < calls * 1e-2 * 1.4
    assert "replays take longer than the function itself" in str(jitted.report())


@given(
    eager=seconds,
    steps=st.integers(1, 3000),
    step=st.floats(1e-6, 7.9e-6),
    replay=st.floats(0.1, 4.0),
    kernels=st.lists(st.integers(100, 5000), max_size=20),
)
def test_all_calls_take_little_longer_than_without(
    eager: float, steps: int, step: float, replay: float, kernels: list[int]
) -> None:
    """Of any function, of any number of steps, whose replays may be faster or slower.

    A tenth at first, and half as long again once it has run 128 times or for half a second.
    """
    budget, spent, calls = Budget(), 0.0, 0
    captured = optimised = False

    def pays(seconds: float) -> None:
        nonlocal spent
        spent += seconds

    for calls in range(1, 500):
        limit = budget.steps_to_capture()
        if captured and not budget.overdrawn:
            pays(replay * eager)
            budget.replayed(replay * eager)
            if not optimised and budget.affords(passing.of(steps)):
                optimised = True
                pays(passing.of(steps))
                budget.spend(passing.of(steps))
            elif optimised and kernels and budget.affords(compiling.of(kernels[-1])):
                pays(compiling.of(kernels[-1]))
                budget.spend(compiling.of(kernels.pop()))
        elif limit and not captured:
            took = eager + 2e-3 + min(limit, steps) * step
            pays(took)
            budget.replayed(took)
            if limit < steps:
                budget.cut(limit)
            captured = limit >= steps
        else:
            pays(eager)
            budget.ran(eager)
        share = 0.1 if calls < 128 else 0.5
        later = 0.4 * max(0.0, calls * eager - 0.5) if calls < 128 else 0.0
        assert spent <= (1 + share) * calls * eager + later + (replay + 1) * eager + 1e-9


def test_calls_that_are_not_looked_up_are_counted_once(clock: Clock) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(1e-3)
        return x * 2

    entry = Specialization("f", None)
    call_stub = fdbr.jit(f)._eager_stub(entry, 5e-3)
    while call_stub((1.5,), {}) is not NO_FIT:
        pass
    paid = entry.budget.balance
    assert paid > 0
    assert call_stub((1.5,), {}) is NO_FIT
    assert entry.budget.balance == paid


def test_a_tenth_is_spent_on_a_function_that_branches_on_many_values(clock: Clock) -> None:
    passes = clock.passes

    def halved(x: Any) -> Any:
        passes(0.2)
        while x > 1:
            x = x / 2 + 1e-9
        return x

    jitted = fdbr.jit(halved)
    while not traces(jitted):
        jitted(np.float64(1e12))
    (entry,) = jitted._cache.specializations.values()
    assert entry.budget.doubtful
    assert entry.budget.balance < 0.1 * clock.now


def test_the_report_says_what_to_write_instead_of_a_loop_that_runs_eagerly(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = clock.passes

    def halved(x: Any) -> Any:
        passes(1e-2)
        while x > 1:
            x = x / 2 + 1e-9
        return x

    start = Code._start

    def slow(self: Code, function: Any) -> None:
        def slowed(*leaves: Any) -> Any:
            clock.passes(0.5)
            return function(*leaves)

        start(self, slowed)

    monkeypatch.setattr(Code, "_start", slow)
    jitted = fdbr.jit(halved)
    for _ in range(300):
        assert jitted(np.float64(1e12)) == halved(np.float64(1e12))
    assert "write loops on data with fdbr.while_loop" in str(jitted.report())


def test_what_was_seen_decides_what_is_thought_to_come() -> None:
    estimate = Estimate(1e-3, 1e-5)
    assert estimate.of(100) == pytest.approx(2e-3)
    assert estimate.size(2e-3) == 100
    for _ in range(20):
        estimate.saw(100, 6e-3)
    assert estimate.of(100) == pytest.approx(6e-3)
    assert estimate.size(6e-3) == 100
    estimate.saw(100, 1e9)
    assert estimate.of(100) < 0.1


@given(st.floats(1e-3, 1.0), st.floats(0.1, 5.0))
def test_the_next_capture_is_thought_to_take_what_the_last_one_took(
    seconds: float, took: float
) -> None:
    budget = Budget()
    budget.ran(seconds, 10)
    budget.captured(took)
    budget.replayed(seconds + took)
    spent = 0.0
    while not budget.steps_to_capture():
        budget.ran(seconds, 10)
        spent += seconds
    assert (
        spent + seconds > 2 * took
    )  # half of the time is paid at most: for this one, and for that


def test_a_function_with_many_guards_that_hold_is_compiled_like_any_other(clock: Clock) -> None:
    """The guards of a language model check labels at each step, and always hold."""
    passes = clock.passes

    def checked(x: Any) -> Any:
        passes(0.05)
        for i in range(40):
            if np.sum(x) < -1.0:
                raise ValueError("negative")
            x = x * 0.5 + i
        return x

    jitted = fdbr.jit(checked)
    for _ in range(40):
        jitted(np.ones(3))
    (entry,) = jitted._cache.specializations.values()
    assert not entry.budget.doubtful
    assert entry.traces[0].code.optimised


def test_a_new_size_is_compiled_at_its_second_call_where_compiled_code_is_in_use(
    clock: Clock,
) -> None:
    passes = clock.passes

    def f(x: Any) -> Any:
        passes(1e-2)
        return np.tanh(x) * 2

    def entry() -> Any:
        return list(jitted._cache.specializations.values())[-1]

    jitted, x = fdbr.jit(f), np.ones(8)
    while not traces(jitted):
        jitted(x)
    entry().traces[0].code.finish()
    for _ in range(200):  # the time that they save pays for traces of other sizes
        jitted(x)
    for number, size in enumerate((9, 10, 11), 1):
        np.testing.assert_allclose(jitted(np.ones(size)), np.tanh(np.ones(size)) * 2)
        assert traces(jitted) == number
        np.testing.assert_allclose(jitted(np.ones(size)), np.tanh(np.ones(size)) * 2)
        assert traces(jitted) == number + 1
        assert entry().traces[0].code.optimised
    for size in range(20, 40):  # sizes that occur once are not worth a trace
        jitted(np.ones(size))
    assert traces(jitted) == 4


def test_a_new_size_is_paid_by_what_compiled_code_for_other_sizes_has_saved() -> None:
    rich, poor, new = Budget(), Budget(), Budget()
    for budget in (rich, poor, new):
        budget.ran(1e-2)
    rich.replayed(0.0, runs=100)
    before = rich.balance
    new.borrow(poor, steps=10)
    assert not new.steps_to_capture()
    new.borrow(rich, steps=10)
    assert new.steps_to_capture()
    assert new.affords(passing.of(10))
    assert rich.balance < before
    before = rich.balance
    new.borrow(rich, steps=10)  # it has what it needs
    assert rich.balance == before
