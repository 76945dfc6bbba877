"""A batched while loop: examples that have ended contribute nothing to derivatives.

The functions in the bodies have no finite value where an example has ended.
"""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("compiled_at_once")

COUNTS = np.array([1.0, 0.0, 2.0, 4.0])
W, WS = np.float64(1.3), np.array([1.3, 0.9, 0.7, 2.1])


def summed(term):
    """The sum of ``term(w, left)`` for ``left`` from ``count`` down to 1."""

    def loop(w, count):
        body = lambda s: (s[0] - 1.0, s[1] + term(w, s[0]))
        return fdbr.while_loop(lambda s: s[0] > 0.5, body, (count, 0.0 * count))[1]

    return loop


def counted(w, count):
    """The sum of ``w / (count - i)``, with an integer as the carry."""
    body = lambda s: (s[0] + 1, s[1] + w / (count - s[0]))
    return fdbr.while_loop(lambda s: s[0] < count, body, (0, 0.0 * w))[1]


def inner_while(w, left):
    body = lambda s: (s[0] + 1.0, s[1] + np.log(w * (left - s[0])))
    return fdbr.while_loop(lambda s: s[0] < left, body, (0.0, 0.0 * w))[1]


def inner_scan(w, left):
    step = lambda c, x: (c + w * np.log(x * left), None)
    return fdbr.scan(step, 0.0 * w, np.array([1.0, 2.0]))[0]


LOOPS = {
    "log": summed(lambda w, left: w * np.log(left)),
    "quotient": summed(lambda w, left: w / left),
    "root": summed(lambda w, left: np.sqrt(w * left) / left),
    "integer": counted,
    "while": summed(inner_while),
    "scan": summed(inner_scan),
    "cg": summed(lambda w, left: ops.linalg.cg(lambda v: w * left * v, np.ones(2))[0].sum()),
    "matrix": summed(lambda w, left: ops.sum((w * np.eye(2)) @ ops.stack([1 / left, left]))),
}


def whole(f):
    return lambda w: fdbr.vmap(lambda count: f(w, count))(COUNTS)


HOW = {
    "grad": (lambda f: fdbr.grad(lambda w: whole(f)(w).sum()), W),
    "jvp": (lambda f: lambda w: fdbr.jvp(whole(f), (w,), (1.0,))[1], W),
    "jacrev": (lambda f: fdbr.jacrev(whole(f)), W),
    "vmap(grad)": (lambda f: lambda w: fdbr.vmap(fdbr.grad(f))(w, COUNTS), WS),
    "vmap(grad), one w": (lambda f: lambda w: fdbr.vmap(fdbr.grad(f), (None, 0))(w, COUNTS), W),
    "hessian": (lambda f: fdbr.hessian(lambda w: whole(f)(w).sum()), W),
    "vmap(vmap(grad))": (
        lambda f: (
            lambda w: fdbr.vmap(
                fdbr.grad(lambda w: whole(f)(w).sum()),
            )(w)
        ),
        WS,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("loop", LOOPS)
def test_an_ended_example_contributes_nothing_to_a_derivative(loop, how):
    transformed, at = HOW[how]
    f = transformed(LOOPS[loop])
    expected = f(at)
    assert np.isfinite(expected).all()
    assert_allclose(fdbr.jit(f)(at), expected, rtol=1e-5)


def test_the_derivative_of_a_batched_loop_is_the_closed_form():
    gradient = fdbr.jit(fdbr.grad(lambda w: whole(LOOPS["log"])(w).sum()))
    assert_allclose(gradient(W), np.log(2.0) + np.log(24.0))


def test_a_batch_without_examples_has_no_derivative():
    f = fdbr.jit(fdbr.grad(lambda w, n: fdbr.vmap(lambda n: LOOPS["log"](w, n))(n).sum()))
    assert f(W, np.zeros(0)) == 0.0
