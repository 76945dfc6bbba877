"""Transformations of transformed functions, in every order, against exact derivatives.

The functions here are made of terms c xᵃ yᵇ exp(px + qy), of which derivatives and rescalings are
such terms again, so what any chain of transformations must give is known to the last digits,
whatever the order of the derivative.  One of them branches on its argument.
"""

import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from garbage import no_garbage
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import numerical_grad

# --- exact functions of two variables with two components ---------------------------


class Exact:
    """Two components for ``x[0] > 0`` and two for the rest, each a dict from (a, b, p, q) to c."""

    def __init__(self, right, left=None):
        self.sides = (right, right if left is None else left)

    def __call__(self, x):
        side = self.sides[0] if x[0] > 0 else self.sides[1]
        return np.array([sum((_value(t, c, x) for t, c in part.items()), 0.0) for part in side])

    def each(self, change):
        return Exact(*[change(side) for side in self.sides])


def _value(term, c, x):
    a, b, p, q = term
    return (c * x[0] ** a * x[1] ** b * np.exp(p * x[0] + q * x[1])).real


def _sum(*parts):
    total = {}
    for factor, part in parts:
        for term, c in part.items():
            total[term] = total.get(term, 0) + factor * c
    return total


def _times(part, i):
    """x[i] times it."""
    move = lambda a, b, p, q: (a + (i == 0), b + (i == 1), p, q)
    return {move(*term): c for term, c in part.items()}


def _derivative(part, i):
    """The derivative by x[i]."""
    by_rate = {term: c * term[2 + i] for term, c in part.items()}
    lower = lambda a, b, p, q: (a - (i == 0), b - (i == 1), p, q)
    by_power = {lower(*term): c * term[i] for term, c in part.items() if term[i]}
    return _sum((1, by_rate), (1, by_power))


def _scaled(part, s):
    """It, of s x."""
    return {(a, b, p * s, q * s): c * s ** (a + b) for (a, b, p, q), c in part.items()}


def _along_x(side):
    """The derivative along x itself."""
    return [_sum(*[(1, _times(_derivative(part, j), j)) for j in range(2)]) for part in side]


def _gradient(side):
    weighed = _sum(*zip(W, side, strict=True))
    return [_derivative(weighed, i) for i in range(2)]


def _batched(f):
    """The sum of F(s x) over a batch of numbers s, some of them negative."""
    sides = []
    for same, other in (f.sides, f.sides[::-1]):
        of = [same if s > 0 else other for s in S]
        sides.append(
            [
                _sum(*[(c, _scaled(side[k], s)) for c, s, side in zip(C, S, of, strict=True)])
                for k in range(2)
            ]
        )
    return Exact(*sides)


W = np.array([0.7, -1.2])
C = np.array([1.0, -0.5, 0.8])
S = np.array([0.5, -0.9, 1.1])

# --- the transformations, of functions from vectors to vectors ----------------------


def weighed(f):
    return lambda x: W @ f(x)


def by_custom_vjp(f):
    return fdbr.custom_vjp(f, fwd=lambda x: (f(x), x), bwd=lambda x, ct: fdbr.vjp(f, x)[1](ct))


def by_custom_jvp(f):
    return fdbr.custom_jvp(f, jvp=lambda primals, tangents: fdbr.jvp(f, primals, tangents))


ALONG_X = lambda f: f.each(_along_x)
GRADIENT = lambda f: f.each(_gradient)
SECOND = lambda f: f.each(_gradient).each(_along_x)
SAME = lambda f: f

TRANSFORMATIONS = {
    "grad": (lambda f: fdbr.grad(weighed(f)), GRADIENT),
    "value_and_grad": (lambda f: lambda x: fdbr.value_and_grad(weighed(f))(x)[1], GRADIENT),
    "vjp": (lambda f: lambda x: fdbr.vjp(f, x)[1](W)[0], GRADIENT),
    "jvp": (lambda f: lambda x: fdbr.jvp(f, (x,), (x,))[1], ALONG_X),
    "linearize": (lambda f: lambda x: fdbr.linearize(f, x)[1](x), ALONG_X),
    "jacfwd": (lambda f: lambda x: fdbr.jacfwd(f)(x) @ x, ALONG_X),
    "jacrev": (lambda f: lambda x: W @ fdbr.jacrev(f)(x), GRADIENT),
    "hessian": (lambda f: lambda x: fdbr.hessian(weighed(f))(x) @ x, SECOND),
    "hvp": (lambda f: lambda x: fdbr.hvp(weighed(f), (x,), (x,)), SECOND),
    "vmap": (lambda f: lambda x: C @ fdbr.vmap(lambda s: f(s * x))(S), _batched),
    "vmap, last axis": (
        lambda f: lambda x: fdbr.vmap(f, in_axes=1, out_axes=-1)(x[:, None] * S) @ C,
        _batched,
    ),
    "checkpoint": (fdbr.checkpoint, SAME),
    "custom_vjp": (by_custom_vjp, SAME),
    "custom_jvp": (by_custom_jvp, SAME),
}

# --- the functions ------------------------------------------------------------------


def waves(x):
    return ops.stack([np.sin(x[0]) * x[1], x[0] ** 2 * np.exp(-x[1])])


def cubic(x):
    matrix = ops.outer(x, x) + np.array([[0.0, 1.0], [2.0, 0.0]])
    return (matrix @ x) * x[::-1]


def branching(x):
    if x[0] > 0:
        return waves(x)
    y = x
    while x[0] < 0:
        x, y = x + 10.0, y * x[1]
    return y * y[0]


_WAVES = [{(0, 1, 1j, 0): -1j}, {(2, 0, 0, -1): 1}]
_CUBIC = [{(3, 1, 0, 0): 1, (1, 3, 0, 0): 1, (0, 2, 0, 0): 1}]
_CUBIC += [{(3, 1, 0, 0): 1, (1, 3, 0, 0): 1, (2, 0, 0, 0): 2}]
_LEFT = [{(2, 2, 0, 0): 1}, {(1, 3, 0, 0): 1}]

FUNCTIONS = {
    "waves": (waves, Exact(_WAVES)),
    "cubic": (cubic, Exact(_CUBIC)),
    "branching": (branching, Exact(_WAVES, _LEFT)),
}
POINTS = [np.array([0.6, 0.8]), np.array([-0.4, 1.3])]


def check(names, function):
    """Compare a chain of transformations, the outermost first, with what it must give."""
    f, exact = FUNCTIONS[function]
    for name in reversed(names):
        transform, meaning = TRANSFORMATIONS[name]
        f, exact = transform(f), meaning(exact)
    for x in POINTS:
        expected = exact(x)
        np.testing.assert_allclose(f(x), expected, rtol=1e-9, atol=1e-9, err_msg=f"{names}")


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_each_transformation(name, function):
    check([name], function)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("outer", TRANSFORMATIONS)
def test_each_transformation_of_each(outer, function):
    for inner in TRANSFORMATIONS:
        check([outer, inner], function)


DIFFERENT = ["grad", "jvp", "linearize", "jacfwd", "jacrev", "hvp", "vmap"]
DIFFERENT += ["checkpoint", "custom_vjp", "custom_jvp"]


@pytest.mark.slow
@pytest.mark.parametrize("outer", DIFFERENT)
def test_three_of_them(outer):
    for inner in itertools.product(DIFFERENT, repeat=2):
        check([outer, *inner], "branching")


# How many derivatives each takes; beyond some seven the numbers no longer tell anything.
ORDERS = {"hessian": 2, "hvp": 2, **dict.fromkeys(["vmap", "vmap, last axis", "checkpoint"], 0)}
ORDERS |= {"custom_vjp": 0, "custom_jvp": 0}


@given(st.lists(st.sampled_from([*TRANSFORMATIONS]), min_size=4, max_size=6), st.data())
def test_longer_chains(names, data):
    while sum(ORDERS.get(name, 1) for name in names) > 6:
        names.pop()
    check(names, data.draw(st.sampled_from([*FUNCTIONS])))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_exact_derivatives_are_what_differences_say(function):
    f, exact = FUNCTIONS[function]
    for x in POINTS:
        np.testing.assert_allclose(f(x), exact(x), rtol=1e-12)
        slope = numerical_grad(lambda x: float(W @ f(x)), x)
        np.testing.assert_allclose(slope, GRADIENT(exact)(x), rtol=1e-8, atol=1e-9)
        second = numerical_grad(lambda x: float(x @ GRADIENT(exact)(x)), x)
        np.testing.assert_allclose(
            second, GRADIENT(exact)(x) + SECOND(exact)(x), rtol=1e-8, atol=1e-9
        )


# --- on any value, in any thread, without garbage -----------------------------------


def shaped(x):
    """Three results: an array, one without elements, and one that is no array."""
    return {"y": np.tanh(x) * x.sum(), "none": x[:0], "n": 3}


ANYTHING = {
    "grad": lambda x: fdbr.grad(lambda x: shaped(x)["y"].sum())(x),
    "vjp": lambda x: fdbr.vjp(shaped, x)[1]({"y": x, "none": x[:0], "n": None}),
    "jvp": lambda x: fdbr.jvp(shaped, (x,), (x,)),
    "linearize": lambda x: fdbr.linearize(shaped, x)[1](x),
    "jacfwd": lambda x: fdbr.jacfwd(shaped)(x),
    "jacrev": lambda x: fdbr.jacrev(shaped)(x),
    "hessian": lambda x: fdbr.hessian(lambda x: shaped(x)["y"].sum())(x),
    "hvp": lambda x: fdbr.hvp(lambda x: shaped(x)["y"].sum(), (x,), (x,)),
    "vmap": lambda x: fdbr.vmap(shaped)(ops.stack([x, -x])),
    "vmap that divides": lambda x: fdbr.vmap(lambda x: x**2 if x > 0 else -x)(x),
    "vmap of grad that divides": lambda x: fdbr.vmap(fdbr.grad(lambda x: x**2 if x > 0 else -x))(x),
    "grad of vmap that divides": lambda x: fdbr.grad(
        lambda x: ops.sum(fdbr.vmap(lambda x: x**2 if x > 0 else -x)(x))
    )(x),
    "nested vmap that divides": lambda x: fdbr.vmap(
        lambda a: fdbr.vmap(lambda b: a if a > b else b * a)(x)
    )(x),
    "checkpoint": lambda x: fdbr.grad(lambda x: fdbr.checkpoint(shaped)(x)["y"].sum())(x),
    "nested checkpoint": lambda x: fdbr.grad(
        fdbr.checkpoint(lambda x: fdbr.checkpoint(shaped)(x * 2)["y"].sum() * x[0])
    )(x),
    "hvp of checkpoint": lambda x: fdbr.hvp(
        lambda x: fdbr.checkpoint(shaped)(x)["y"].sum(), (x,), (x,)
    ),
    "custom_vjp": lambda x: fdbr.grad(lambda x: by_custom_vjp(np.sin)(x).sum())(x),
    "jvp of custom_vjp": lambda x: fdbr.jvp(by_custom_vjp(np.sin), (x,), (x,)),
    "grad of vmap of custom_vjp": lambda x: fdbr.grad(
        lambda x: fdbr.vmap(by_custom_vjp(np.sin))(x).sum()
    )(x),
    "custom_jvp": lambda x: fdbr.grad(lambda x: by_custom_jvp(np.sin)(x).sum())(x),
    "grad of vmap of custom_jvp": lambda x: fdbr.grad(
        lambda x: fdbr.vmap(by_custom_jvp(np.sin))(x).sum()
    )(x),
}

# What ends in an error must leave nothing either.
FAILURES = {
    "an exception under jvp": lambda x: fdbr.jvp(lambda x: 1 / 0, (x,), (x,)),
    "an exception under vmap": lambda x: fdbr.vmap(lambda x: x if x > 0 else 1 / 0)(x),
    "an exception in a checkpoint": lambda x: fdbr.grad(fdbr.checkpoint(lambda x: 1 / 0))(x),
    "an exception in a rule": lambda x: fdbr.grad(
        fdbr.custom_vjp(np.sum, fwd=lambda x: (np.sum(x), x), bwd=lambda x, ct: 1 / 0)
    )(x),
    "too many paths": lambda x: fdbr.vmap(lambda x: x if x > 0 else -x, max_paths=1)(x),
    "a question that was caught": lambda x: fdbr.vmap(caught)(x),
    "an axis that is not there": lambda x: fdbr.vmap(np.sin, in_axes=3)(x),
    "axes that do not fit": lambda x: fdbr.vmap(np.sin, in_axes=({"a": 0},))(x),
    "a tangent that does not fit": lambda x: fdbr.jvp(np.sin, (x,), (x[:1],)),
    "an escaped value": lambda x: fdbr.jvp(lambda y: KEPT.append(y) or y, (x,), (x,)),
}
KEPT = []


def caught(x):
    try:
        return x if x > 0 else -x
    except BaseException:
        raise ValueError from None


@pytest.mark.parametrize("name", [*ANYTHING, *FAILURES])
def test_nothing_is_left_to_the_garbage_collector(name):
    use = (ANYTHING | FAILURES)[name]
    x = np.array([0.6, -0.8, 0.3])

    def attempt():
        with contextlib.suppress(TypeError, ValueError, RuntimeError, ZeroDivisionError):
            use(x)
        KEPT.clear()

    attempt()
    with no_garbage():
        for _ in range(50):
            attempt()


def test_all_of_them_in_threads_at_once():
    points = [np.array([0.6, -0.8, 0.3]) * (1 + i / 10) for i in range(8)]
    expected = [[use(x) for use in ANYTHING.values()] for x in points]
    start = threading.Barrier(len(points))

    def task(x):
        start.wait()
        return [[use(x) for use in ANYTHING.values()] for _ in range(3)]

    with ThreadPoolExecutor(len(points)) as pool:
        found = list(pool.map(task, points))
    for one, many in zip(expected, found, strict=True):
        for again in many:
            for a, b in zip(tree.leaves(one), tree.leaves(again), strict=True):
                assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ANYTHING)
def test_results_are_read_only(name):
    for leaf in tree.leaves(ANYTHING[name](np.array([0.6, -0.8, 0.3]))):
        assert not getattr(leaf, "flags", None) or not leaf.flags.writeable or not leaf.shape
