"""Learnt graphs as machine code: no Python from block to block, forward and back."""

import signal
from typing import Any

import numpy as np
import pytest

import fdbr
from control_flow.traced.drawing import random_function
from control_flow.traced.test_discovery import (
    adaptive,
    assert_close,
    backtracking,
    bisected,
    nested,
    points,
)
from fdbr import ops, tree
from fdbr.backends.cpu.exec import control_flow
from fdbr.compiler.engine import budget
from fdbr.control_flow.traced import batched_graph, graphs


@pytest.fixture(autouse=True)
def compiled_at_once() -> Any:
    before = budget.set_patience(0.0)
    yield
    budget.set_patience(before)


@pytest.mark.parametrize("f", [adaptive, backtracking, bisected, nested], ids=lambda f: f.__name__)
def test_python_goes_from_block_to_block_only_as_long_as_it_learns(
    f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = fdbr.value_and_grad(f, (0, 1))
    jitted = fdbr.jit(function)
    for point in points(20):
        assert_close(jitted(*point), function(*point))

    def run(self: Any, leaves: Any) -> Any:
        raise AssertionError("a block was run by Python")

    monkeypatch.setattr(graphs.Block, "run", run)
    for point in points(20):
        assert_close(jitted(*point), function(*point))


def test_logs_grow_with_the_trip_count() -> None:
    def f(x: Any, n: Any) -> Any:
        y = x
        while n > 0:
            y = y + 1e-3 * np.sin(y) if y > 1 else y + 1e-3 * np.cos(y)
            n = n - 1
        return y

    function = fdbr.value_and_grad(f)
    jitted = fdbr.jit(function)
    for n in (3, 5, 300, 2, 2000, 7):
        for x in (0.9, 1.5):
            args = np.float64(x), np.float64(n)
            assert_close(jitted(*args), function(*args))


def test_blocks_that_are_no_machine_code_are_run_one_by_one() -> None:
    def f(x: Any, y: Any) -> Any:
        while np.sum(x * x) > y:
            values, vectors = np.linalg.eigh(np.outer(x, x) + 0.1)
            x = 0.5 * vectors @ (values * 0.3) + 0.1 * x if x[0] > 1 else 0.8 * x
        return np.sum(x)

    function = fdbr.value_and_grad(f)
    jitted = fdbr.jit(function)
    for scale in (1.0, 3.0, 0.2, 2.0, 5.0):
        args = scale * np.arange(1.0, 4.0), np.float64(0.3)
        assert_close(jitted(*args), function(*args))


@pytest.mark.slow
@pytest.mark.parametrize("f", [adaptive, nested], ids=lambda f: f.__name__)
def test_examples_of_a_batch_go_alone_through_machine_code(
    f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batched = fdbr.vmap(f, (0, None))
    function = fdbr.value_and_grad(lambda x, y: ops.sum(batched(x, y) ** 2), (0, 1))
    jitted = fdbr.jit(function)
    rng = np.random.default_rng(0)
    starts = [rng.uniform(0.5, 3.0, 5) for _ in range(8)]
    for x in starts:
        assert_close(jitted(x, np.float64(1.5)), function(x, np.float64(1.5)))

    def run(self: Any, capturing: bool) -> Any:
        raise AssertionError("a batch was run by Python")

    monkeypatch.setattr(batched_graph.Lanes, "run", run)
    for x in starts:
        assert_close(jitted(x, np.float64(1.5)), function(x, np.float64(1.5)))


def test_large_batches_go_together() -> None:
    function = fdbr.value_and_grad(lambda x: ops.sum(fdbr.vmap(nested, (0, None))(x, 2.5)))
    jitted = fdbr.jit(function)
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.uniform(0.5, 3.0, 1500)
        assert_close(jitted(x), function(x))


@pytest.mark.parametrize("seed", range(4))
def test_code_runs_right_while_later_code_is_not_there_yet(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = fdbr.value_and_grad(random_function(4 * seed), (0, 1))
    jitted = fdbr.jit(function)
    rng = np.random.default_rng(seed)
    taken: Any = control_flow.ControlFlow.missing
    with np.errstate(all="ignore"):
        for number in range(12):
            late = number % 4 > 1
            missing = (lambda self, visits: ([], np.inf)) if late else taken
            monkeypatch.setattr(control_flow.ControlFlow, "missing", missing)
            x, y = map(np.float64, rng.uniform(-2, 2, 2))
            for ours, theirs in zip(
                tree.leaves(jitted(x, y)), tree.leaves(function(x, y)), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


def test_a_loop_that_does_not_end_hears_signals() -> None:
    def f(x: Any, y: Any) -> Any:
        while x > 0.5:
            x = x * y if x > 1 else x * y * 0.9
        return x

    jitted = fdbr.jit(lambda x, y: f(x, y) * 1.0)
    for x in (3.0, 5.0, 1.2, 9.0, 2.0, 30.0):
        jitted(np.float64(x), np.float64(0.7))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            jitted(np.float64(3.0), np.float64(1.0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
