"""Scans in compiled programs are loops of machine code, and give what they gave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.compiler.ir.loops import loops
from fdbr.testing import assert_allclose

WEIGHT = np.random.default_rng(0).normal(size=(4, 4)) / 3
ROWS = np.random.default_rng(1).normal(size=(6, 4))


def recurrent(h, x):
    h = ops.tanh(WEIGHT @ h + x)
    return h, h * x


def swapping(carry, x):
    a, b = carry
    return (b, a + x * b), a


def stopping(h, x):
    return fdbr.stop_gradient(h) * 0.5 + x, (h, ops.sum(x))


def nested(h, x):
    out, _ = fdbr.scan(lambda c, row: (c * 0.5 + row, None), h, ops.stack([x, h, x]))
    return out, None


CASES = {
    "recurrent": (recurrent, ROWS[0]),
    "swapping": (swapping, (ROWS[0], ROWS[1])),
    "stopping": (stopping, ROWS[0]),
    "nested": (nested, ROWS[0]),
}


def lowered(jitted):
    return [loop for _, loop in loops(jitted.programs()[0])]


@settings(max_examples=12)
@given(st.sampled_from(sorted(CASES)), st.booleans(), st.integers(1, 6))
def test_a_scan_is_a_loop_with_its_values_gradients_and_batches(name, reverse, length):
    body, init = CASES[name]
    xs = ROWS[:length]

    def f(init, xs):
        return fdbr.scan(body, init, xs, reverse=reverse)

    def loss(init, xs):
        return sum(ops.sum(leaf**2) for leaf in fdbr.tree.leaves(f(init, xs)))

    batch = np.stack([xs, -xs])
    for function, args in (
        (f, (init, xs)),
        (fdbr.grad(loss, argnums=(0, 1)), (init, xs)),
        (fdbr.vmap(f, (None, 0)), (init, batch)),
        (fdbr.vmap(fdbr.grad(loss, argnums=1), (None, 0)), (init, batch)),
    ):
        jitted = fdbr.jit(function)
        assert_allclose(jitted(*args), function(*args), rtol=1e-11)
        assert lowered(jitted)
        assert "scan(" not in str(jitted.programs()[0])


def test_the_index_of_an_iteration_is_a_constant_of_the_loop():
    def f(x):
        return fdbr.fori_loop(3, 40, lambda i, x: x * 0.5 + i, x)

    jitted = fdbr.jit(f)
    assert_allclose(jitted(np.ones(3)), f(np.ones(3)))
    (loop,) = lowered(jitted)
    assert [list(values) for values in loop.data] == [list(range(3, 40))]


def test_results_are_memory_of_their_own():
    def f(a, b):
        return fdbr.scan(swapping, (a, b), ROWS[:2])

    a, b = np.ones(4), np.full(4, 2.0)
    wanted = f(a, b)
    out = fdbr.jit(f)(a, b)
    a[...] = b[...] = 0
    assert_allclose(out, wanted)
    one = fdbr.jit(lambda a, b: fdbr.scan(lambda c, x: ((c[1], c[0]), None), (a, b), ROWS[:1])[0])
    one.compile(a, b)
    first, second = one(a, b)
    a[...] = 7
    assert second.tolist() == [0.0] * 4
    assert first.tolist() == [0.0] * 4


@pytest.mark.parametrize("length", [1, 5])
def test_what_states_its_derivative_stays_a_scan(length):
    @fdbr.custom_vjp
    def halved(x):
        return x * 0.5

    halved.defvjp(lambda x: (x * 0.5, None), lambda _, ct: (ct * 0.25,))

    def f(x):
        return fdbr.scan(lambda c, x: (halved(c) + x, None), x, ROWS[:length])[0]

    jitted = fdbr.jit(f)
    assert_allclose(jitted(ROWS[0]), f(ROWS[0]))
