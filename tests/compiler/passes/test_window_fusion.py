"""Steps around windows become one step."""

import numpy as np
import pytest
from compiler.recorded import check, names, recorded

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library.conv.batch_last_layout import lay_batch_last
from fdbr.backends.cpu.library.conv.window_fusion import fuse_windows
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.passes import optimise


def after(f, *args, before=lambda program: program):
    """The program after the pass, which gives what the program gave."""
    program, leaves = recorded(f, *args)
    program = optimise(before(program))
    joined = fuse_windows(program)
    check(joined)
    for run in (
        lambda leaves: interpret(joined, leaves),
        lambda leaves: generate(joined)(*leaves),
    ):
        for a, b in zip(run(leaves), interpret(program, leaves), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    return names(joined)


x = np.random.default_rng(0).standard_normal((16, 2, 8, 8))
weight = np.random.default_rng(1).standard_normal((3, 2, 3, 3))
bias = np.array([0.5, -1.0, 0.0])


def test_relu_joins_the_convolution_before_it():
    assert after(lambda x, w: ops.relu(ops.conv(x, w)), x, weight) == {"conv_relu": 1}
    found = after(lambda x, w, b: ops.relu(ops.conv(x, w, b)), x, weight, bias)
    assert found == {"conv_biased_relu": 1}


def test_relu_stays_where_others_read_the_convolution():
    def f(x, w):
        out = ops.conv(x, w)
        return ops.relu(out), out

    assert after(f, x, weight) == {"conv": 1, "relu": 1}
    assert after(lambda x, w: ops.relu(ops.conv(x, w)[0]), x, weight)["relu"] == 1


def test_relu_alone_stays():
    assert after(lambda x: ops.relu(x), x) == {"relu": 1}


def test_steps_with_examples_last_join_too():
    def f(x, w):
        return ops.sum(ops.max_pool(ops.relu(ops.conv(x, w)), 2) ** 2)

    found = after(fdbr.grad(f, argnums=(0, 1)), x, weight, before=lay_batch_last)
    assert found["conv_last_relu"] == found["pulled_windows_last"] == 1
    assert not found["relu"]
    assert not found["greater"]


def pooled(x):
    return ops.sum(ops.max_pool(x, 2) ** 2)


def test_the_pull_of_max_pool_is_one_step():
    found = after(fdbr.grad(pooled), x)
    assert found["pulled_windows"] == 1
    assert not found["window_winners"]
    assert not found["to_winners"]


@pytest.mark.parametrize("kernel", [2, 3])
def test_the_pull_of_relu_joins_that_of_max_pool(kernel):
    def f(x):
        return ops.sum(ops.max_pool(ops.relu(x), kernel, stride=2) ** 2)

    found = after(fdbr.grad(f), x)
    assert found["pulled_windows"] == 1
    assert not found["greater"]


def test_the_pull_of_another_relu_does_not():
    def f(x, y):
        return ops.sum(ops.max_pool(x, 2)) + ops.sum(ops.relu(y) ** 2)

    found = after(fdbr.grad(f, argnums=(0, 1)), x, 2 * x)
    assert found["pulled_windows"] == 1


def test_winners_that_others_read_stay():
    def f(x):
        return fdbr.jvp(fdbr.grad(pooled), (x,), (x + 1,))

    found = after(f, x)
    assert found["window_winners"]


def test_a_program_without_windows_stays():
    program, _ = recorded(lambda x: x + 1, x)
    assert fuse_windows(program) is program
