"""Learnt graphs as machine code: no Python from block to block, forward and back."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.compiler import budget
from fdbr.flow import graphs, lanes
from flow.test_learnt import adaptive, assert_close, backtracking, bisected, nested, points


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


def test_logs_grow_with_the_number_of_turns() -> None:
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

    monkeypatch.setattr(lanes.Lanes, "run", run)
    for x in starts:
        assert_close(jitted(x, np.float64(1.5)), function(x, np.float64(1.5)))


def test_large_batches_go_together() -> None:
    function = fdbr.value_and_grad(lambda x: ops.sum(fdbr.vmap(nested, (0, None))(x, 2.5)))
    jitted = fdbr.jit(function)
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.uniform(0.5, 3.0, 1500)
        assert_close(jitted(x), function(x))
