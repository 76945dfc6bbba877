"""The method of conjugate gradients, and derivatives of what it finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing import shared

import fdbr
from fdbr import ops, tree
from fdbr.ops.linalg import cg
from fdbr.testing import assert_allclose, check_grads

TIGHT = {"tol": 1e-13}


def positive(seed, n, dtype=float, *batch):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(*batch, n, n))
    x = x + 1j * generator.normal(size=x.shape) if np.dtype(dtype).kind == "c" else x
    return (x @ x.conj().swapaxes(-1, -2) / n + np.eye(n)).astype(dtype)


def vector(seed, n, dtype=float, *batch):
    x = np.random.default_rng(seed).normal(size=(*batch, n))
    return (x + 1j * x[..., ::-1] if np.dtype(dtype).kind == "c" else x).astype(dtype)


def solved(a, b, **settings):
    return cg(lambda v: a @ v, b, **TIGHT | settings)[0]


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([float, complex]))
def test_it_solves_what_a_factorization_solves(seed, n, dtype):
    a, b = positive(seed, n, dtype), vector(seed, n, dtype)
    desired = np.linalg.solve(a, b)
    for operator in (a, lambda v: a @ v):
        for more in ({}, {"x0": b}, {"M": np.diag(1 / np.diag(a))}, {"M": lambda v: 0.5 * v}):
            x, info = cg(operator, b, **TIGHT, **more)
            assert_allclose(x, desired, rtol=1e-9, atol=1e-10)
            assert info == 0


@pytest.mark.parametrize("dtype", shared([float, complex]))
def test_derivatives_of_every_mode_and_two_orders_by_everything(dtype):
    a, b = positive(0, 3, dtype), vector(1, 3, dtype)

    def f(a, b):
        return solved((a + ops.conj(a.mT)) / 2, b, M=lambda v: v / 2)

    check_grads(f, a, b, rtol=1e-5)
    check_grads(lambda b: solved(a, b, x0=b), b)
    check_grads(lambda s: solved(a * s**2 + np.eye(3), b), 1.5, order=3, rtol=1e-5)


def test_operators_of_trees():
    a = {"x": positive(0, 2), "y": positive(1, 3)}
    mixed = vector(2, 2)[:, None] * vector(3, 3) / 9

    def operator(v, p):
        return {
            "x": p["x"] @ v["x"] + mixed @ v["y"],
            "y": p["y"] @ v["y"] + mixed.T @ v["x"],
        }

    b = {"x": vector(4, 2), "y": vector(5, 3)}

    def f(p, b):
        p = tree.map(lambda x: (x + x.T) / 2, p)
        return cg(lambda v: operator(v, p), b, **TIGHT)[0]

    found = operator(f(a, b), a)
    assert_allclose(found, b, rtol=1e-10)
    check_grads(f, a, b, rtol=1e-5)


def test_examples_of_a_batch_converge_each_by_itself_in_one_loop():
    a, b = positive(0, 5, float, 4), vector(1, 5, float, 4)
    b[2] = 0
    calls = []

    def one(a, b):
        return cg(lambda v: calls.append(1) or a @ v, b, **TIGHT)

    x, info = fdbr.vmap(one)(a, b)
    assert len(calls) <= 12
    assert info.tolist() == [0] * 4
    assert_allclose(x, np.linalg.solve(a, b[..., None])[..., 0], rtol=1e-9)
    assert_allclose(fdbr.vmap(one, (None, 0))(a[0], b)[0][1], np.linalg.solve(a[0], b[1]))
    gradient = fdbr.grad(lambda a, b: ops.sum(solved(a, b) ** 2), argnums=(0, 1))
    each = [gradient(*pair) for pair in zip(a, b, strict=True)]
    desired = tree.map(lambda *parts: np.stack(parts), *each)
    assert_allclose(fdbr.vmap(gradient)(a, b), desired, rtol=1e-8, atol=1e-11)
    total = fdbr.grad(lambda a, b: ops.sum(fdbr.vmap(solved)(a, b) ** 2), argnums=(0, 1))
    assert_allclose(total(a, b), desired, rtol=1e-8, atol=1e-11)
    nested = fdbr.vmap(fdbr.vmap(solved, (None, 0)), (0, None))(a[:2], b[:3])
    assert_allclose(nested[1, 1], np.linalg.solve(a[1], b[1]), rtol=1e-9)


def test_jit_gives_what_the_function_gives():
    a, b = positive(0, 2), vector(1, 2)

    def loss(s, b):
        return ops.sum(solved(a * s, b) ** 2)

    for f in (loss, fdbr.grad(loss)):
        jitted = fdbr.jit(f)
        for s in (1.0, 2.0, 1.0):
            assert_allclose(jitted(s, b * s), f(s, b * s), rtol=1e-9)
    assert_allclose(fdbr.grad(fdbr.jit(loss))(1.5, b), fdbr.grad(loss)(1.5, b), rtol=1e-9)


def test_second_derivatives_in_every_order_of_modes():
    a, b = positive(0, 3), vector(1, 3)

    def f(p):
        return ops.sum(solved(a + np.eye(3) * p**2, b * p) ** 2)

    p = np.array([0.5, 1.0, 2.0])
    found = [
        outer(inner(f))(p)
        for outer in (fdbr.jacfwd, fdbr.jacrev)
        for inner in (fdbr.jacfwd, fdbr.jacrev)
    ]
    for other in found[1:]:
        assert_allclose(other, found[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_stays_single(dtype):
    a, b = positive(0, 4, dtype), vector(1, 4, dtype)
    x, info = cg(a, b)
    gradient = fdbr.grad(lambda b: ops.sum(ops.real(cg(a, b)[0])))(b)
    assert x.dtype == gradient.dtype == dtype
    assert info == 0
    assert_allclose(x, np.linalg.solve(a, b), rtol=1e-3, atol=1e-4)


def test_other_array_modules(xp, to_numpy):
    a, b = xp.asarray(positive(0, 4)), xp.asarray(vector(1, 4))
    x, pullback = fdbr.vjp(solved, a, b)
    assert_allclose(to_numpy(x), np.linalg.solve(to_numpy(a), to_numpy(b)), rtol=1e-9)
    assert_allclose(to_numpy(pullback(b)[1]), to_numpy(x), rtol=1e-9)


def test_it_says_when_the_iterations_were_not_enough():
    a, b = np.diag([1.0, 10.0, 100.0]), np.ones(3)
    assert cg(a, b, maxiter=1)[1] == 1
    assert cg(a, b, maxiter=0)[0].tolist() == [0, 0, 0]
    assert cg(a, b, maxiter=2, tol=1.0)[1] == 0
    assert cg(a, 0 * b)[1] == 0
    assert cg(a * np.nan, b)[1] > 0
    assert fdbr.vmap(lambda b: cg(a, b, maxiter=1)[1])(np.stack([b, 0 * b])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: cg(None, b), "A must be a function of trees or a square matrix, not NoneType"),
        (lambda b: cg(np.ones((2, 3)), b), "A must be a function of trees or a square matrix"),
        (lambda b: cg(lambda v: v[:1], b), "A must return what has the shapes of b"),
        (lambda b: cg(lambda v: (v, v), b), "A must return a tree of the structure of b"),
        (lambda b: cg(lambda v: v, b, M="abc"), "M must be a function"),
        (lambda b: cg(lambda v: v, "abc"), "b must be an array of numbers"),
        (lambda b: cg(lambda v: v, {}), "b has no leaves"),
        (lambda b: cg(lambda v: v, b, b[:1]), "x0 is float64[1], but b is float64[2]"),
        (lambda b: cg(lambda v: v, b, [b]), "x0 must have the structure of b"),
        (lambda b: cg(lambda v: v, b, tol=-1), "tol must be a number that is not negative"),
        (lambda b: cg(lambda v: v, b, tol=None), "tol must be a number that is not negative"),
        (lambda b: cg(lambda v: v, b, atol=np.nan), "atol must be a number that is not negative"),
        (lambda b: cg(lambda v: v, b, maxiter=-1), "maxiter must be at least 0"),
        (lambda b: cg(lambda v: v, b, maxiter=1.5), "maxiter must be an integer"),
    ],
)
def test_errors_begin_with_the_name_and_say_what_is_wanted(call, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(np.ones(2))
    assert str(caught.value).startswith("fdbr.ops.linalg.cg: ")
    assert message in str(caught.value)
