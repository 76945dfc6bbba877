"""Timers and memory profiles of jitted functions tell of the programs that run."""

import numpy as np
from numpy.testing import assert_allclose

import fdbr
from fdbr import debug, ops


def loss(w, x):
    h = ops.tanh(x @ w)
    return ops.sum(ops.exp(h) * 2.0)


W, X = np.full((40, 50), 0.01), np.ones((60, 40))


def test_a_timer_tells_of_the_kernels_of_a_jitted_function():
    step = fdbr.jit(fdbr.value_and_grad(loss))
    with debug.timer() as times:
        value, gradient = step(W, X)
    expected = fdbr.value_and_grad(loss)(W, X)
    assert_allclose(value, expected[0])
    assert_allclose(gradient, expected[1])
    ops_seen = [row.op for row in times.rows]
    kernel = next(op for op in ops_seen if op.startswith("kernel("))
    assert "tanh" in kernel
    assert "tanh" not in ops_seen  # it is a part of a kernel
    products = {row.direction: row for row in times.rows if row.op == "matmul"}
    assert products.keys() == {"forward", "backward"}
    for row in products.values():
        assert row.source.text == "h = ops.tanh(x @ w)"
    (program,) = step.programs()
    assert sum(row.calls for row in times.rows) == len(program.steps)


def test_calls_add_up_and_functions_outside_are_told_of_too():
    step = fdbr.jit(loss)
    with debug.timer() as times:
        for _ in range(3):
            ops.sin(step(W, X))
    assert {row.op: row.calls for row in times.rows}["sin"] == 3
    assert {row.calls for row in times.rows} == {3}


def test_the_memory_of_a_jitted_function_is_that_of_its_kernels():
    with debug.memory() as sizes:
        fdbr.jit(lambda x: ops.exp(ops.tanh(x)) + 1.0)(np.ones((100, 1000)))
    assert [row.total for row in sizes.rows if row.total] == [800_000]


def test_donated_arguments_are_not_written_over_and_effects_are_had_once(capsys):
    @fdbr.jit(donate_argnums=0)
    def step(state):
        debug.print("called")
        return {"w": ops.exp(state["w"]) * 0.5}

    with debug.timer():
        state = {"w": np.ones((1000, 100))}
        new = step(state)
    assert capsys.readouterr().out == "called\n"
    assert_allclose(new["w"], np.exp(1.0) * 0.5)


def test_other_observers_see_the_operations_of_the_function():
    with debug.timer(), debug.hook(before=lambda a: seen.append(a.op)):
        seen = []
        fdbr.jit(lambda x: ops.exp(ops.sin(x)))(1.0)
    assert seen == ["sin", "exp"]


def test_within_another_transformation_the_function_itself_is_measured():
    with debug.timer() as times:
        slope = fdbr.grad(fdbr.jit(lambda x: ops.exp(x)))(1.0)
    assert_allclose(slope, np.exp(1.0))
    assert {row.op for row in times.rows} == {"exp"}


def test_a_loop_is_one_row_and_decisions_are_followed():
    def f(x):
        x = fdbr.fori_loop(0, 5, lambda i, x: x * 1.5, x)
        return ops.sin(x) if x > 0 else ops.cos(x)

    jitted = fdbr.jit(f)
    with debug.timer() as times:
        assert_allclose(jitted(1.0), f(1.0))
        assert_allclose(jitted(-1.0), f(-1.0))
    assert {"sin", "cos"} <= {row.op for row in times.rows}
