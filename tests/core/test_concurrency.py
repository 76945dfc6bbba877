"""Threads, generators and coroutines do not disturb each other, and exceptions leave nothing."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fdbr
from fdbr import ops

THREADS = 8


def power(n):
    def f(x):
        out = x
        for _ in range(n - 1):
            out = out * x
        return out.sum()

    return f


def in_threads(function, arguments):
    """The results of a function in as many threads, which all start at one time."""
    start = threading.Barrier(len(arguments))

    def task(argument):
        start.wait()
        return function(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(task, arguments))


# --- threads ------------------------------------------------------------------------


def test_different_functions_in_many_threads():
    x = np.linspace(0.5, 1.5, 10)

    def work(n):
        derivatives = [fdbr.grad(power(n))(x) for _ in range(30)]
        curves = [fdbr.grad(lambda x: fdbr.grad(power(n))(x).sum())(x) for _ in range(10)]
        return derivatives, curves

    for n, (derivatives, curves) in enumerate(in_threads(work, list(range(2, 2 + THREADS))), 2):
        for slope in derivatives:
            assert np.allclose(slope, n * x ** (n - 1))
        for curve in curves:
            assert np.allclose(curve, n * (n - 1) * x ** (n - 2))


def test_one_transformed_function_in_many_threads():
    gradient = fdbr.value_and_grad(lambda x, c: ops.sum(x * x * c))
    arguments = [np.full(5, float(i)) for i in range(THREADS)]
    results = in_threads(lambda c: gradient(np.ones(5), c), arguments)
    for i, (value, slope) in enumerate(results):
        assert value == 5.0 * i
        assert (slope == 2.0 * i).all()


def test_one_pullback_in_many_threads():
    x = np.random.default_rng(0).normal(size=(20, 20))
    _, pullback = fdbr.vjp(lambda x: np.tanh(x @ x) @ x + x[::-1], x)
    cotangents = [np.full((20, 20), float(i)) for i in range(THREADS)]
    expected = [pullback(ct)[0] for ct in cotangents]
    found = in_threads(lambda ct: [pullback(ct)[0] for _ in range(20)], cotangents)
    for one, many in zip(expected, found, strict=True):
        assert all(np.array_equal(one, other) for other in many)


def test_a_pullback_is_called_and_dropped_in_another_thread():
    _, pullback = fdbr.vjp(np.sin, np.zeros(3))
    found = []
    thread = threading.Thread(target=lambda pb: found.append(pb(np.ones(3))[0]), args=(pullback,))
    del pullback
    thread.start()
    thread.join()
    assert found[0].tolist() == [1.0, 1.0, 1.0]


def test_threads_inside_a_traced_function_take_part_in_it():
    def f(x):
        with ThreadPoolExecutor(4) as pool:
            parts = list(pool.map(lambda i: np.sin(x[i]) * x[i], range(4)))
        return ops.sum(ops.stack(parts))

    x = np.linspace(0.1, 1.0, 4)
    assert np.allclose(fdbr.grad(f)(x), np.cos(x) * x + np.sin(x))


def test_threads_inside_a_traced_function_run_transformations_of_their_own():
    def f(x):
        with ThreadPoolExecutor(3) as pool:
            derivatives = list(
                pool.map(lambda n: fdbr.grad(lambda y: y**n * x)(x), (2.0, 3.0, 4.0))
            )
        return derivatives[0] + derivatives[1] + derivatives[2]  # 2x², 3x³, 4x⁴

    x = 1.5
    assert np.isclose(fdbr.grad(f)(x), 4 * x + 9 * x**2 + 16 * x**3)


def test_a_traced_value_of_one_thread_does_not_slip_through_a_function_of_another():
    given, taken = [], threading.Event()
    ready = threading.Event()
    found = []

    def outer(x):
        ready.set()
        taken.wait(10)
        return given[0] * x

    def other():
        with pytest.raises(fdbr.EscapedTracerError, match=r"outside of grad\(.*inner\)"):
            fdbr.value_and_grad(outer)(2.0)
        found.append("refused")

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(10)

    def inner(y):
        given.append(y)
        taken.set()
        thread.join(10)
        return y * y

    assert fdbr.grad(inner)(3.0) == 6.0
    assert found == ["refused"]


def test_contexts_of_their_own_change_nothing():
    def f(x):
        return contextvars.Context().run(lambda: x * fdbr.grad(lambda y: y * y * x)(x))

    assert fdbr.grad(f)(2.0) == 24.0  # x · 2x²


# --- generators ---------------------------------------------------------------------


def descent(f, x):
    """A generator between whose steps anything may happen."""
    while True:
        value, pullback = fdbr.vjp(f, x)
        yield value
        (slope,) = pullback(1.0)
        yield slope
        x = x - 0.1 * slope


def test_generators_interleave():
    functions = [power(n) for n in (2, 3, 4)]
    alone = []
    for f in functions:
        steps = descent(f, np.ones(2))
        alone.append([np.array(next(steps)) for _ in range(10)])
    together = [descent(f, np.ones(2)) for f in functions]
    for i in range(10):
        for steps, expected in zip(together, alone, strict=True):
            assert np.array_equal(next(steps), expected[i])


def test_a_generator_that_is_dropped_halfway_leaves_nothing():
    steps = descent(power(2), np.ones(2))
    next(steps)
    steps.close()
    assert fdbr.grad(power(2))(np.ones(2)).tolist() == [2.0, 2.0]


def test_a_generator_advances_inside_traced_functions():
    def scaled(x):
        while True:
            yield x * x
            x = x * 2.0

    def f(x):
        terms = scaled(x)
        first = next(terms)
        slope = fdbr.grad(lambda y: y * next(terms))(1.0)  # 4x²
        return first + slope

    assert fdbr.grad(f)(3.0) == 30.0


def test_a_generator_that_outlives_its_transformation_gets_an_error():
    def f(x):
        return (x * i for i in range(3))

    terms, _ = fdbr.vjp(f, 2.0)
    with pytest.raises(fdbr.EscapedTracerError, match=r"traced value of vjp\(.*f\).*had returned"):
        next(terms)


def test_transformations_that_end_in_another_order_than_they_began():
    out_a, pull_a = fdbr.vjp(lambda x: x * x, 3.0)
    _, pull_b = fdbr.vjp(lambda x: x * out_a, 2.0)
    assert pull_a(1.0)[0] == 6.0
    assert pull_b(1.0)[0] == 9.0
    assert pull_a(2.0)[0] == 12.0


# --- coroutines ---------------------------------------------------------------------


def test_coroutines_interleave():
    async def work(n):
        x = np.ones(3)
        derivatives = []
        for _ in range(5):
            _, pullback = fdbr.vjp(power(n), x)
            await asyncio.sleep(0)
            derivatives.append(pullback(1.0)[0])
            await asyncio.sleep(0)
            curve = fdbr.grad(lambda x: fdbr.grad(power(n))(x).sum())(x)
            derivatives.append(curve)
        return n, derivatives

    async def main():
        return await asyncio.gather(*(work(n) for n in range(2, 7)))

    for n, derivatives in asyncio.run(main()):
        for slope, curve in zip(derivatives[::2], derivatives[1::2], strict=True):
            assert (slope == n).all()
            assert (curve == n * (n - 1)).all()


def test_a_coroutine_that_outlives_its_transformation_gets_an_error():
    async def f(x):
        return x * x

    coroutine, _ = fdbr.vjp(f, 2.0)
    with pytest.raises(fdbr.EscapedTracerError):
        asyncio.run(coroutine)


# --- exceptions ---------------------------------------------------------------------


class Interruption(BaseException):
    pass


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, Interruption])
def test_after_an_exception_everything_works(kind):
    kept = []

    def fails(x):
        kept.append(x)
        y = fdbr.grad(lambda z: z * x)(x)
        if y is not None:
            raise kind("inside")

    for _ in range(3):
        with pytest.raises(kind, match="inside"):
            fdbr.grad(lambda x: fdbr.grad(fails)(x))(1.0)
        assert fdbr.grad(fdbr.grad(lambda x: x**3))(2.0) == 12.0
    for leaked in kept:
        with pytest.raises(fdbr.EscapedTracerError):
            leaked + 1.0


def test_an_exception_of_an_inner_transformation_can_be_caught_in_the_outer_function():
    def f(x):
        try:
            fdbr.grad(lambda y: (y * x).missing)(x)
        except AttributeError:
            return x * x
        raise AssertionError

    assert fdbr.grad(f)(3.0) == 6.0


def test_the_exception_of_the_function_comes_out_as_it_is():
    error = KeyError("mine")

    def f(x):
        raise error

    with pytest.raises(KeyError) as caught:
        fdbr.value_and_grad(f)(1.0)
    assert caught.value is error
    assert caught.value.__cause__ is None


def test_a_pullback_that_failed_works_afterwards():
    _, pullback = fdbr.vjp(np.sin, np.zeros(3))
    with pytest.raises(ValueError, match="shape"):
        pullback(np.ones(4))
    assert pullback(np.ones(3))[0].tolist() == [1.0, 1.0, 1.0]
