"""Loops of small steps are one kernel, and give what they gave in Python."""

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, ops
from fdbr.backends.cpu.codegen.loop_kernels import write_loop
from fdbr.compiler.ir.loops import loops
from fdbr.testing import assert_allclose

EXPRESSIONS = [
    lambda a, b, i: ops.tanh(a) + 0.5 * b,
    lambda a, b, i: 0.5 * a + i * 0.25,
    lambda a, b, i: b,
    lambda a, b, i: a[::-1] * 0.5,
    lambda a, b, i: ops.where(a > b, a, 0.5 * b),
    lambda a, b, i: ops.tanh(ops.sum(a * b)) * a,
    lambda a, b, i: ops.concat([b[1:], a[:1]]),
    lambda a, b, i: 0.5 * a + 0.25 * ops.max(b),
    lambda a, b, i: ops.where(i > 2, a, b * 0.5),
    lambda a, b, i: a * 0.5 + b[i * 0],
    lambda a, b, i: ops.at(a * 0.5)[i * 0].set(b[0]),
    lambda a, b, i: ops.at(a * 0.5)[i * 0].add(ops.sin(b[0])),
    lambda a, b, i: ops.stack([a, b])[i * 0 + 1] * 0.75,
    lambda a, b, i: a[ops.argmax(b)] * 0.5 + b[i % len(b)],
    lambda a, b, i: a / (1 + ops.linalg.vector_norm(b)) + i // 2,
]

CONDITIONS = [
    lambda i, values: i < 0,
    lambda i, values: i < 5,
    lambda i, values: (i < 9) & ops.any(abs(values[0]) > 0.125),
    lambda i, values: (i < 7) & ops.all(ops.isfinite(values[1])),
    lambda i, values: ops.logical_not((i >= 4) | (ops.sum(values[0] > 0) > 2)),
]

statement = st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from(EXPRESSIONS))


@st.composite
def whiles(draw: Any) -> tuple[Any, Any]:
    """A while loop over an integer and two vectors, and its first vectors."""
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    body = draw(st.lists(statement, min_size=1, max_size=3))
    condition = draw(st.sampled_from(CONDITIONS))
    inner = draw(st.sampled_from([None, "while", "scan"]))
    start = np.random.default_rng(0).normal(size=(2, draw(st.integers(2, 4)))).astype(dtype)

    def iteration(carry: Any) -> Any:
        i, *values = carry
        for target, other, expression in body:
            values[target] = ops.astype(expression(values[target], values[other], i), dtype)
        if inner == "while":
            halved = fdbr.while_loop(
                lambda v: ops.max(abs(v)) > 1, lambda v: v * v[0].dtype.type(0.5), values[0]
            )
            values[0] = halved
        if inner == "scan":
            values[0], rows = fdbr.scan(lambda c, x: (c * x, c + x), values[0], ops.stack(values))
            values[1] = ops.tanh(ops.sum(rows, axis=0))
        return (i + 1, *values)

    def f(start: Any) -> Any:
        carry = (np.int64(0), start[0] * 1, start[1] * 1)
        return fdbr.while_loop(lambda c: condition(c[0], c[1:]), iteration, carry)

    return f, start


def is_kernel(jitted: Any) -> bool:
    """Whether a function has a loop, and all its loops are kernels."""
    program = jitted.programs()[0]
    found = [write_loop(step) is not None for step, _ in loops(program)]
    assert "while_loop" not in str(program)
    return bool(found) and all(found)


def compared(f: Any, *args: Any, dtype: Any = np.float64) -> Any:
    """The jitted function, after its results were compared with the function's."""
    jitted = fdbr.jit(f)
    tolerance = 2e-5 if dtype == np.float32 else 1e-11
    with np.errstate(all="ignore"):
        expected = f(*args)
    for ours, theirs in zip(
        fdbr.tree.leaves(jitted(*args)), fdbr.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, strict=True)
    return jitted


@settings(max_examples=12)
@given(whiles())
def test_a_while_loop_is_a_kernel_with_the_values_of_python(case: Any) -> None:
    f, start = case
    assert is_kernel(compared(f, start, dtype=start.dtype))


@settings(max_examples=8)
@given(whiles())
def test_the_gradient_of_a_while_loop_is_that_of_its_iterations(case: Any) -> None:
    f, start = case
    gradient = fdbr.grad(lambda start: sum(ops.sum(ops.sin(v)) for v in f(start)[1:]))
    compared(gradient, start, dtype=start.dtype)


@settings(max_examples=6)
@given(whiles(), st.booleans())
def test_a_batch_of_while_loops_gives_what_each_gives(case: Any, backward: bool) -> None:
    f, start = case
    if backward:
        values = f
        f = fdbr.grad(lambda start: sum(ops.sum(ops.sin(v)) for v in values(start)[1:]))
    batch = np.stack([start, -start, 2 * start, 0 * start])
    compared(fdbr.vmap(f), batch, dtype=start.dtype)


def newton(x: Any) -> Any:
    return fdbr.while_loop(lambda y: abs(y * y - x) > 1e-12, lambda y: (y + x / y) / 2, x)


def test_the_pullback_of_a_while_loop_is_a_kernel() -> None:
    jitted = compared(fdbr.grad(newton), np.float64(3.0))
    assert is_kernel(jitted)
    assert_allclose(jitted(np.float64(1.0)), 1.0)  # no iteration


def test_a_gradient_goes_back_over_many_iterations() -> None:
    def f(x: Any, count: Any) -> Any:
        out = fdbr.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, c[1] * x), (0.0, x / x))
        return out[1]

    jitted = fdbr.jit(fdbr.grad(f))
    x, count = np.float64(1.0 + 1e-6), 100_000.0
    assert_allclose(jitted(x, count), count * x ** (count - 1), rtol=1e-9)
    assert is_kernel(jitted)


def test_values_that_are_nan_end_a_loop_as_in_python() -> None:
    def f(x: Any) -> Any:
        return fdbr.while_loop(lambda y: y < 100, lambda y: y * y - x, x * 1)

    jitted = fdbr.jit(f)
    for x in (np.nan, np.inf, -np.inf, 2.5, 200.0):
        np.testing.assert_array_equal(jitted(np.float64(x)), f(np.float64(x)))


def test_integers_and_booleans_are_carried() -> None:
    def f(n: Any) -> Any:
        def body(carry: Any) -> Any:
            i, total, odd, wide = carry
            return i + 1, total + i * i, ops.logical_not(odd), wide * np.int32(3)

        first = (np.int64(0), np.int64(0), np.bool_(False), np.int32(1))
        return fdbr.while_loop(lambda c: c[0] < n, body, first)

    jitted = fdbr.jit(f)
    for n in (0, 1, 50):
        with np.errstate(over="ignore"):
            for ours, theirs in zip(jitted(np.int64(n)), f(np.int64(n)), strict=True):
                np.testing.assert_array_equal(ours, theirs, strict=True)
    assert is_kernel(jitted)


def test_python_numbers_are_carried_as_python_computes_them() -> None:
    def f(x: Any) -> Any:
        def body(carry: Any) -> Any:
            i, power, half, y = carry
            return i + 1, power * 3, half * 0.5 - i, y * half + power

        return fdbr.while_loop(lambda c: c[0] < 30, body, (0, 1, 1.0, x))

    jitted = compared(f, np.float32(0.5))
    assert is_kernel(jitted)
    assert list(map(type, jitted(np.float32(0.5)))) == [int, int, float, np.float32]


def test_integers_that_no_machine_word_holds_are_exact() -> None:
    def f(count: Any) -> Any:
        body = lambda c: (c[0] + 1, c[1] * 3)
        return fdbr.while_loop(lambda c: c[0] < count, body, (0, 1))

    jitted = fdbr.jit(f)
    for count in (0, 5, 50, 200):
        assert jitted(count) == (count, 3**count)
    g = fdbr.jit(lambda n: fdbr.while_loop(lambda c: c > 7, lambda c: c - n, n))
    assert g(8) == 0
    assert g(1 << 70) == 0


def test_an_index_out_of_bounds_raises_the_error_of_python() -> None:
    def f(x: Any, n: Any) -> Any:
        body = lambda c: (c[0] + 1, c[1] + x[c[0]])
        return fdbr.while_loop(lambda c: c[0] < n, body, (np.int64(0), np.float64(0.0)))

    jitted = fdbr.jit(f)
    x = np.arange(3.0)
    assert jitted(x, np.int64(3))[1] == 3.0
    assert is_kernel(jitted)
    with pytest.raises(IndexError):
        jitted(x, np.int64(4))


def test_a_counted_loop_computes_with_its_numbers() -> None:
    def f(x: Any) -> Any:
        return fdbr.fori_loop(0, 40, lambda i, c: c * 0.5 + 0.25 * i * x, x * 1)

    assert is_kernel(compared(f, np.float64(0.5)))
    assert is_kernel(compared(f, np.array(0.5)))


VALUES = [
    np.array([1.0, np.nan, 3.0, np.nan]),
    np.array([2.0, 2.0, -1.0, -1.0]),
    np.array([[3, -1, 3], [0, 5, -1]]),
    np.array([[False, True], [False, False]]),
    np.array([[0.5, -0.0], [0.0, 0.5]], np.float32),
]


@settings(max_examples=10)
@given(st.sampled_from(VALUES), st.sampled_from([None, 0, -1]))
def test_extremes_are_found_where_numpy_finds_them(x: Any, axis: int | None) -> None:
    def f(x: Any) -> Any:
        body = lambda i, c: c * 7 + ops.argmax(x, axis=axis) - 3 * ops.argmin(x, axis=axis)
        return fdbr.fori_loop(0, 2, body, 0 * ops.argmax(x, axis=axis))

    assert is_kernel(compared(f, x))


def test_integers_are_divided_as_numpy_divides_them() -> None:
    def f(n: Any, m: Any) -> Any:
        body = lambda c: (c[0] + 1, c[1] * 3 // m + c[0] % 4 - (-c[1]) // 5 % m)
        return fdbr.while_loop(lambda c: c[0] < 9, body, (0, n))

    jitted = fdbr.jit(f)
    with np.errstate(all="ignore"):
        for n in (5, -17, 0):
            for m in (3, -7, 1, -1, 0):
                assert jitted(np.int64(n), np.int64(m)) == f(np.int64(n), np.int64(m))
    assert is_kernel(jitted)


def endless(x: Any) -> Any:
    return fdbr.while_loop(lambda y: y > 0, lambda y: ops.minimum(y + 1, 5.0), x)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_a_loop_that_never_ends_can_be_interrupted() -> None:
    jitted = fdbr.jit(endless)
    assert jitted(np.float64(-1.0)) == -1.0
    assert is_kernel(jitted)
    main = threading.get_ident()
    ran = []

    def interrupt() -> None:
        time.sleep(0.3)
        ran.append(True)  # other threads run Python meanwhile
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        jitted(np.float64(1.0))
    thread.join()
    assert ran
    assert jitted(np.float64(-2.0)) == -2.0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads")
def test_a_loop_inside_of_another_one_can_be_interrupted() -> None:
    def f(xs: Any) -> Any:
        return fdbr.scan(lambda c, x: (c + endless(x), c), np.float64(0.0), xs)

    jitted = fdbr.jit(f)
    assert jitted(-np.ones(3))[0] == -3.0
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        jitted(np.ones(3))
    timer.join()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 1, 4)])
def test_a_loop_of_linear_layers_is_a_kernel(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    w, b, x = (rng.normal(size=s).astype(dtype) / 2 for s in [(4, 4), (4,), shape])

    def f(x: Any) -> Any:
        return fdbr.fori_loop(0, 20, lambda i, c: np.tanh(ops.linear(c, w, b)), x)

    assert is_kernel(compared(f, x, dtype=dtype))
    assert is_kernel(compared(fdbr.grad(lambda x: ops.sum(f(x))), x, dtype=dtype))


MIXED = {
    "product": lambda c, w, b: w @ c * 0.5,
    "affine": lambda c, w, b: w @ c * 0.5 + b,
    "a row times a matrix": lambda c, w, b: ops.tanh(c @ w),
    "batch": lambda c, w, b: ops.tanh(ops.reshape(c, (1, -1)) @ w)[0],
    "dot": lambda c, w, b: c * 0.5 + b @ c * 0.1,
    "sum": lambda c, w, b: c * 0.5 + ops.tanh(ops.sum(w * c)) * 0.1,
    "concat": lambda c, w, b: ops.concat([c[1:], b[:1]]) * 0.5,
    "stack": lambda c, w, b: ops.sum(ops.stack([c, b]), axis=0) * 0.5,
    "where": lambda c, w, b: ops.where(c > 0, c * 0.5, b),
    "maximum": lambda c, w, b: ops.maximum(c * 0.5, b),
    "variance": lambda c, w, b: c / (1 + ops.var(c + b)),
    "deviation": lambda c, w, b: c / (1 + ops.std(w * c)),
}


@pytest.mark.parametrize("carry", ["float32", "float64"])
@pytest.mark.parametrize("weights", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", MIXED)
def test_loops_of_several_dtypes_are_kernels(name: str, weights: str, carry: str) -> None:
    generator = np.random.default_rng(0)
    w = generator.normal(size=(3, 3)).astype(weights)
    b = generator.normal(size=3).astype(weights)
    start = generator.normal(size=3).astype(carry)

    def f(w: Any, b: Any, start: Any) -> Any:
        def step(i: Any, c: Any) -> Any:
            return ops.astype(MIXED[name](c, w, b), carry)

        return fdbr.fori_loop(0, 6, step, start)

    jitted = compared(f, w, b, start, dtype=np.float32)
    assert is_kernel(jitted) or (name in ("concat", "stack") and weights == "int64")
    gradient = fdbr.grad(lambda start: ops.sum(ops.sin(f(w, b, start))))
    compared(gradient, start, dtype=np.float32)
    compared(
        fdbr.vmap(f, in_axes=(None, None, 0)), w, b, np.stack([start, -start]), dtype=np.float32
    )


@pytest.mark.parametrize("weights", ["float32", "float64"])
@pytest.mark.parametrize("data", ["float32", "float64"])
@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells_of_several_dtypes_are_kernels(kind: Any, data: str, weights: str) -> None:
    cell = fdbr.tree.map(lambda x: x.astype(weights), kind.init(fdbr.random.key(0), 3, 3))
    xs = np.random.default_rng(0).normal(size=(5, 3)).astype(data)
    dtype = np.result_type(data, weights)

    def f(cell: Any, xs: Any) -> Any:
        first = fdbr.tree.map(lambda x: x.astype(dtype), cell.initial_state())
        return fdbr.fori_loop(0, len(xs), lambda i, state: cell(state, xs[i])[0], first)

    jitted = fdbr.jit(f)
    for ours, theirs in zip(
        fdbr.tree.leaves(jitted(cell, xs)), fdbr.tree.leaves(f(cell, xs)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5, strict=True)
    assert is_kernel(jitted)
