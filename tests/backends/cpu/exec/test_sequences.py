"""What runs in one native call gives what its steps give, one after the other."""

import threading

import numpy as np
import pytest
from compiler.comparing import assert_as_eager, assert_same
from compiler.recorded import normal, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library.matmul import matmuls
from fdbr.compiler.passes import PASSES


def source_of(f, *args):
    """The source of the program of a function."""
    program, _ = recorded(f, *args)
    for run in PASSES:
        program = run(program)
    return generate(program, products=True).source


# --- products of matrices that lie in any way ----------------------------------------

SIDES = st.integers(1, 5)
ITERATIONS = st.sampled_from(["as it is", "transposed", "backward", "every other", "broadcast"])


def seen(x, iteration):
    if iteration == "transposed":
        return (x.T + 0.0).T
    if iteration == "backward":
        return x[::-1]
    if iteration == "every other":
        return ops.concat([x, x], axis=-1)[..., ::2]
    return ops.broadcast_to(x[:1], x.shape) if iteration == "broadcast" else x


@given(SIDES, SIDES, SIDES, ITERATIONS, ITERATIONS, st.sampled_from(["f4", "f8"]), st.booleans())
@settings(max_examples=40)
def test_products_take_matrices_as_they_lie(m, k, n, one, other, dtype, large):
    scale = 9 if large else 1
    a, b = normal(scale * m, scale * k, dtype=dtype), normal(scale * k, scale * n, dtype=dtype)

    def f(a, b):
        a, b = a * 2, b + 1
        c = seen(a, one) @ seen(b, other)
        return c + 1, seen(a, one) @ b[:, 0], a[0] @ seen(b, other), c.T @ c

    jitted = fdbr.jit(f)
    for _ in range(2):
        assert_same(jitted(a, b), f(a, b), ulps=64 * scale)


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(
    "size", [(500, 20), (20, 500), (101, 96), (997, 20), (30000, 1), (300, 300)]
)
def test_products_with_vectors_are_parts_of_a_sequence(size, threads, monkeypatch):
    monkeypatch.setenv("FDBR_NUM_THREADS", threads)
    called = []
    multiply = matmuls.multiply
    monkeypatch.setattr(matmuls, "multiply", lambda *a: called.append(a) or multiply(*a))
    w, x, y = normal(*size), normal(size[1]), normal(size[0])

    def f(w, x, y):
        w = w[:, ::-1] if size[1] > 1 else w
        return (w @ (x + 1)) * 2, (w.T @ (y + 1)) * 2, ((y + 1) @ w) * 2

    assert_same(fdbr.jit(f)(w, x, y), f(w, x, y), ulps=1 << 12)
    if size == (500, 20):
        assert not called


@given(SIDES, SIDES, st.integers(1, 3), st.booleans(), st.booleans())
@settings(max_examples=20)
def test_products_of_stacks(m, n, count, one, other):
    a = normal(count if one else 1, m, 3)
    b = normal(count if other else 1, 3, n)

    def f(a, b):
        return (a * 2) @ (b * 3) + 1, ops.permute_dims(b * 2, (0, 2, 1)) @ ops.swapaxes(a, 1, 2)

    jitted = fdbr.jit(f)
    for _ in range(2):
        assert_same(jitted(a, b), f(a, b), ulps=64)


# --- copies --------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3) | st.just([2] * 6),
    st.integers(-1, 2),
    st.sampled_from(["f4", "f8", "i4", "i8", "?"]),
)
@settings(max_examples=40)
@pytest.mark.filterwarnings("error:.*is not compiled:RuntimeWarning")
def test_what_is_joined_padded_cut_and_turned_is_what_numpy_makes(shape, axis, dtype):
    x = (normal(*shape) * 4).astype(dtype)
    axis = max(-1, min(axis, len(shape) - 1))

    def f(x):
        y = ops.where(x == x, x, x)
        both = ops.concat([y, ops.flip(y, axis=axis), y], axis=axis)
        turned = ops.permute_dims(both, tuple(range(both.ndim))[::-1])
        padded = ops.pad(turned, 1)
        return both, turned.reshape(-1), padded[1:, ...], ops.stack([y, y], axis=axis), padded

    assert_as_eager(f, (x,), (x[::-1],), ulps=0)


# --- loops, in one call -------------------------------------------------------------


def diffused(u, speed, steps=12):
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u = np.pad(inner + speed * (around - 4 * inner), 1)
    return np.mean(u**2)


@pytest.mark.parametrize("side", [8, 40])
def test_a_stencil_and_its_gradient_are_one_call(side):
    f = fdbr.value_and_grad(diffused, argnums=(0, 1))
    args = normal(side, side), np.full((), 0.2)
    assert_as_eager(f, args, (args[0] + 1, args[1]), args, ulps=256)
    source = source_of(f, *args)
    assert source.count("tables[0].words") == 1
    assert "(np, " not in source


def growing(x, w, limit):
    states = []
    for _ in range(9):
        x = ops.tanh(w @ x) + 0.5 * x
        if (x**2).sum() > limit:
            x = x / 2
        states.append(x)
    return ops.stack(states), x


@pytest.mark.parametrize("size", [3, 40])
def test_guards_end_a_call_wherever_they_fail(size):
    w, x = normal(size, size) / size**0.5, normal(size, seed=1)
    f = fdbr.jit(growing)
    for limit in (1e9, 1e9, 0.0, 1.0, 5.0, 1e9, 5.0, 1.0):
        for scale in (1.0, 0.5):
            args = x * scale, w, np.float64(limit)
            assert_same(f(*args), growing(*args), ulps=256)


# --- calls at the same time ----------------------------------------------------------


def test_threads_have_their_own_memory():
    f = fdbr.jit(lambda x: fdbr.grad(diffused)(x, np.float64(0.1)) + growing(x[0], x, 4.0)[1])
    inputs = [normal(16, 16, seed=seed) / 4 for seed in range(4)]
    desired = [f.__wrapped__(x) for x in inputs]
    found = [None] * 4

    def call(number):
        found[number] = [f(inputs[number]) for _ in range(30)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for several, right in zip(found, desired, strict=True):
        for one in several:
            assert_same(one, right, ulps=512)


def test_a_call_within_a_call_has_memory_of_its_own():
    inner = fdbr.jit(lambda x: growing(x, np.eye(3), 9.0)[1])

    @fdbr.jit
    def outer(x):
        y = x * 2 + 1
        fdbr.debug.callback(lambda y: inner(y), y)
        return y * 3 - x, growing(y, np.eye(3), 9.0)[0]

    x = normal(3)
    for _ in range(4):
        assert_same(outer(x), outer.__wrapped__(x), ulps=64)


def test_errors_are_those_of_the_function():
    f = fdbr.jit(lambda x, i: (x * 2)[i] + ops.tanh(x)[i] * 3 + 1)
    x = normal(4)
    assert_same(f(x, np.array([1, 2])), f.__wrapped__(x, np.array([1, 2])))
    assert_same(f(x, np.array([3, 0])), f.__wrapped__(x, np.array([3, 0])))
    with pytest.raises(IndexError, match="4"):
        f(x, np.array([1, 4]))
    assert_same(f(x, np.array([-1, 0])), f.__wrapped__(x, np.array([-1, 0])))


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.sampled_from(["sum", "mean", "max", "min"]),
    st.sampled_from(["first", "last", "all", "middle"]),
    st.booleans(),
)
@settings(max_examples=30)
def test_reductions_between_other_kernels(shape, name, which, keepdims):
    x = normal(*shape, dtype=np.float32)
    axes = {"first": (0,), "last": (-1,), "all": None, "middle": (len(shape) // 2,)}[which]

    def f(x):
        y = ops.pad(x, 1)
        return getattr(ops, name)(y[1:] @ y[:-1].T, axis=axes if axes in (None, (0,)) else -1), (
            getattr(ops, name)(y, axis=axes, keepdims=keepdims)
        )

    def g(x):
        return getattr(ops, name)(ops.pad(x, 1), axis=axes, keepdims=keepdims) * 2

    chosen = f if len(shape) == 2 else g
    assert_same(fdbr.jit(chosen)(x), chosen(x), ulps=64)
