"""Numbers for which a kernel's formula does not hold are computed by NumPy, and nobody notices."""

import numpy as np
import pytest

import fdbr
from fdbr import ops

FUNCTIONS = {"sin": np.sin, "cos": np.cos, "tan": np.tan}
FAR = [1e30, -1e30, 1e300, 2.0**44 * 1.5, np.inf]


def _values(size, dtype, far):
    values = np.linspace(-3.0, 3.0, size)
    values[size // 2] = far
    return values.astype(dtype)


def _loop(x):
    while abs(x).max() > 1e3:
        x = ops.sin(x) * 1e3
    return x


def _python_loop(x):
    for _ in range(8):
        x = ops.sin(x) * 1e28
    return x


def _scan(x):
    return fdbr.scan(lambda c, y: (ops.sin(c) * 1e30 * y, ops.cos(c)), x, np.ones((5, 1)))[1]


def _while(x):
    def iteration(s):
        return s[0] + 1, ops.sin(s[1]) * 1e29

    return fdbr.while_loop(lambda s: s[0] < 9, iteration, (0, x))[1]


def _update(x):
    return x - 0.1 * ops.sin(x)


COMPOSED = [_loop, _python_loop, _scan, _while, _update]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [3, 5000, 100_000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_far_angles_have_numpys_answer_eagerly_jitted_and_compiled(name, size, dtype):
    function = FUNCTIONS[name]
    for far in FAR:
        x = _values(size, dtype, far)
        for f in (lambda x: function(x) * 2, lambda x: np.sum(function(x) * 2)):
            wanted = f(x)
            compiled, exact = fdbr.jit(f).compile(x), fdbr.jit(f)
            first = exact(x)
            close = {"rtol": 1e-5 if dtype is np.float32 else 1e-12, "atol": size * 1e-6}
            for found in (compiled(x), first):
                np.testing.assert_allclose(found, wanted, **close)
            assert np.array_equal(exact(x), first, equal_nan=True)
            for jitted in (compiled, exact):
                assert jitted.report().eager == 0
                assert len(jitted.report().traces) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", COMPOSED)
def test_programs_with_loops_go_on_with_far_angles(f):
    x = np.array([1e30, 0.5, 2.0] * 10)
    jitted = fdbr.jit(f).compile(x)
    for _ in range(4):
        np.testing.assert_allclose(jitted(x), f(x), rtol=1e-9)
    assert jitted.report().eager == 0
    slope = fdbr.grad(lambda x: f(x).sum())
    wanted = slope(x)
    through = fdbr.jit(f)
    for found in (fdbr.jit(slope), fdbr.grad(lambda x: through(x).sum())):
        for _ in range(3):
            np.testing.assert_allclose(found(x), wanted, rtol=1e-6)
    assert through.report().eager == 0


@pytest.mark.parametrize("size", [3, 100_000])
def test_donated_state_is_updated_by_far_angles_too(size):
    x = _values(size, np.float64, 1e30)
    step = fdbr.jit(lambda p: {"x": p["x"] - 0.1 * ops.sin(p["x"])}, donate_argnums=0)
    state, wanted = {"x": x.copy()}, x
    for _ in range(4):
        state, wanted = step(state), wanted - 0.1 * np.sin(wanted)
        np.testing.assert_allclose(state["x"], wanted, rtol=1e-12)


def test_effects_are_had_once_where_a_kernel_refuses():
    seen = []

    def f(x):
        fdbr.debug.callback(seen.append, x[0])
        return ops.sin(x)

    jitted = fdbr.jit(f)
    for number in (1e30, 1.0, 2e30):
        jitted(np.array([number, 0.5]))
    assert seen == [1e30, 1.0, 2e30]


def test_what_the_function_raises_is_raised_where_a_kernel_refuses():
    jitted = fdbr.jit(lambda x, i: (x * 2)[i] + 1)
    table = np.arange(6.0)
    assert jitted(table, np.array([1, 2])).tolist() == [3.0, 5.0]
    with pytest.raises(IndexError, match="out of bounds"):
        jitted(table, np.array([1, 9]))
    assert jitted(table, np.array([1, 2])).tolist() == [3.0, 5.0]
