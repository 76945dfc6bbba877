"""Loops that carry Python numbers: compiled, with the types of the eager loop."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import ops

BODIES = {
    "s + 1": lambda s, w: s + 1,
    "s * 0.5": lambda s, w: s * 0.5,
    "s + w": lambda s, w: s + w,
    "s * w + w": lambda s, w: s * w + w,
    "quotient": lambda s, w: (s + 1) / (s + 2.5),
    "power": lambda s, w: abs(s) ** 0.5 + s**2,
    "abs": lambda s, w: abs(-s) + 1,
    "integers": lambda s, w: (s * 7) // 3 + s % 3,
    "comparison": lambda s, w: (s > 1) * 2.0,
    "where": lambda s, w: np.where(s > 0, s, w),
    "constant": lambda s, w: 0.5,
    "sum": lambda s, w: np.sum(np.ones(2, np.float32) * s),
}
STARTS = [0.0, 1.5, 2, True, np.float32(1.5), np.float64(1.5)]
FACTORS = [1.25, np.float32(1.25), np.float64(1.25), 2]
LOOPS = {
    "fori_loop": lambda body, s, n: fdbr.fori_loop(0, n, lambda i, c: body(c), s),
    "scan": lambda body, s, n: fdbr.scan(lambda c, x: (body(c), c), s, length=n),
    "while_loop": lambda body, s, n: fdbr.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, body(c[1])), (0, s)
    ),
}


def outcome(f, *args):
    """The leaves of a result, each with its dtype, or the type of a Python number."""
    try:
        leaves = fdbr.tree.leaves(f(*args))
        return [(getattr(leaf, "dtype", type(leaf).__name__), leaf) for leaf in leaves]
    except TypeError:  # the shape or dtype of the carry changes
        return TypeError


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_result_has_the_type_of_the_eager_loop(loop, body, count):
    for start, w in itertools.product(STARTS, FACTORS):
        f = lambda s, w: LOOPS[loop](lambda c: BODIES[body](c, w), s, count)
        g = lambda w, f=f, s=start: f(s, w)
        for jitted, args in ((fdbr.jit(f), (start, w)), (fdbr.jit(g), (w,))):
            expected = outcome(f, start, w)
            found = outcome(jitted, *args)
            if expected is TypeError:
                assert found is TypeError
                continue
            for (kind, a), (other, b) in zip(found, expected, strict=True):
                assert str(kind) == str(other)
                np.testing.assert_allclose(a, b, rtol=1e-6)


def filtered(start):
    def step(state, z):
        mean, variance = state
        variance = variance + 0.1
        gain = variance / (variance + 1.0)
        mean = mean + gain * (z - mean)
        return (mean, (1 - gain) * variance), mean

    return lambda zs: ops.sum(fdbr.scan(step, start, zs)[1])


NUMBERS = {
    "filter": (filtered((0.0, 1.0)), np.linspace(0, 1, 20)),
    "quotient": (lambda c: fdbr.fori_loop(0, 9, lambda i, s: 1 / (s + 2.0), c), 1.0),
    "functions": (lambda c: fdbr.fori_loop(0, 9, lambda i, s: abs(np.sin(s)) ** 0.5, c), 1.0),
    "captured": (lambda w: fdbr.fori_loop(0, 9, lambda i, s: s * w + 1.0, 0.0), np.float64(0.5)),
    "weak": (lambda w: fdbr.fori_loop(0, 9, lambda i, s: s * w + 1.0, 0.0), 0.5),
    "while": (
        lambda x: fdbr.while_loop(lambda s: s < 100.0, lambda s: s * 1.5 + 1.0 / (1 + s), x),
        1.0,
    ),
}


@pytest.mark.parametrize("how", ["value", "gradient", "tangent"])
@pytest.mark.parametrize("loop", NUMBERS)
def test_a_python_number_is_carried_by_the_kernel_of_a_loop(loop, how):
    f, x = NUMBERS[loop]
    g = {
        "value": f,
        "gradient": fdbr.grad(f),
        "tangent": lambda x: fdbr.jvp(f, (x,), (x,))[1],
    }[how]
    jitted = fdbr.jit(g)
    for _ in range(3):
        np.testing.assert_allclose(jitted(x), g(x))
    (trace,) = jitted.report().traces
    assert not trace.unrolled
    assert not trace.defect
    assert "kernel" in str(jitted.report())


def decides(c, x):
    return (c if c > 0 else -c) + x, c


def converts(c, x):
    return c + float(c) + x, c


@pytest.mark.parametrize("body", [decides, converts])
def test_the_report_names_the_line_that_keeps_a_loop_from_being_compiled(body):
    jitted = fdbr.jit(lambda xs: fdbr.scan(body, 0.5, xs))
    xs = np.ones(3)
    for found, expected in zip(jitted(xs), fdbr.scan(body, 0.5, xs), strict=True):
        np.testing.assert_allclose(found, expected)
    line = body.__code__.co_firstlineno + 1
    assert f"at {__file__}:{line}" in str(jitted.report())
