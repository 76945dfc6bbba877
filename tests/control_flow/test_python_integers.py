"""Python integers of any size in jitted loops: exact, as in the loop of Python."""

import numpy as np
import pytest

import fdbr

LARGE = [2**62, 2**63, 2**64, 2**70, -(2**63), -(2**63) - 1, -(2**64)]
CAPTURED = 2**70


def repeated(body):
    return lambda c: fdbr.fori_loop(0, 3, lambda i, c: body(c), c)


LOOPS = {
    "sum": (repeated(lambda c: c + 2**70), 1),
    "sum of a captured integer": (repeated(lambda c: c + CAPTURED), 1),
    "difference": (repeated(lambda c: c - 2**64), 1),
    "product": (repeated(lambda c: c * 2**64), 1),
    "product of floats": (repeated(lambda c: c * 2**64), 1.0),
    "product of floats and 2**63": (repeated(lambda c: c * 2**63), 1.0),
    "quotient": (repeated(lambda c: c * 2**70 // 2**69), 1),
    "overflow of a sum": (lambda c: fdbr.fori_loop(0, 64, lambda i, c: c + c, c), 1),
    "overflow of a product": (lambda c: fdbr.fori_loop(0, 70, lambda i, c: c * -3, c), 1),
    "factorial": (lambda c: fdbr.fori_loop(1, 30, lambda i, c: c * i, c), 1),
    "powers": (lambda c: fdbr.fori_loop(0, 70, lambda i, c: c + 2**i, c), 0),
    "nested": (repeated(repeated(lambda c: c * 2**20)), 1),
    "while": (lambda c: fdbr.while_loop(lambda c: c < 10**60, lambda c: c * 2**64, c), 1),
    "while of floats": (lambda c: fdbr.while_loop(lambda c: c < 1e60, lambda c: c * 2**64, c), 1.0),
    "stacked": (lambda c: fdbr.scan(lambda c, x: (c * 2**64, c * 2.0**-64), c, length=3), 1.0),
    "gradient": (fdbr.grad(lambda x: repeated(lambda c: c * x + 2**64)(x)), 1.5),
    "gradient of a product": (fdbr.grad(lambda x: repeated(lambda c: c * x * 2**64)(1.0)), 1.5),
    "tangent": (lambda x: fdbr.jvp(repeated(lambda c: c * x + 2**64), (x,), (1.0,)), 1.5),
}


def check(f, *args):
    jitted = fdbr.jit(f)
    for _ in range(3):
        found, expected = fdbr.tree.leaves(jitted(*args)), fdbr.tree.leaves(f(*args))
        for a, b in zip(found, expected, strict=True):
            assert type(a) is type(b)
            assert a == b if type(b) is int else np.allclose(a, b, rtol=1e-14, atol=0)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_large_integer_in_a_body_is_exact(loop):
    f, start = LOOPS[loop]
    check(f, start)
    check(lambda zero: f(start + zero), 0)


@pytest.mark.parametrize("start", LARGE)
def test_a_loop_may_begin_with_a_large_integer(start):
    for step in (lambda n: n, lambda n: n + 1, lambda n: n - 1, lambda n: n * 2):
        beside = lambda x, s=step: fdbr.fori_loop(
            0, 3, lambda i, c: (s(c[0]), c[1] + x), (start, x)
        )
        check(beside, np.float64(1.5))
        check(repeated(step), start)


def test_one_trace_holds_for_integers_of_all_sizes():
    def f(n, x):
        return fdbr.fori_loop(0, 3, lambda i, s: (s[0] * n + i, s[1] + x), (1, x))

    jitted, x = fdbr.jit(f), np.float64(1.5)
    for n in (3, *LARGE, 2**40, -(2**31), 2**31, 7):
        assert jitted(n, x) == f(n, x)
