"""Large arrays are divided among threads, and nobody can tell by the results."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sizes import use_kernels_from, use_threads_from

import fdbr
from fdbr import ops
from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.library import elementwise, products, rows
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import registry
from fdbr.core.util import threads
from fdbr.core.util.threads import available, divide

PARAMS = {
    "elu": {"above": 1.0, "scale": 1.5, "alpha": 2.0},
    "gaussian": {"rate": 0.5},
    "leaky_relu": {"slope": 0.25},
    "softplus": {"beta": 1.0},
}
HEAVY = [
    *("elu", "erf", "gaussian", "gelu", "normal_cdf", "gelu_tanh", "hypot", "leaky_relu"),
    *(
        "logaddexp",
        "remainder",
        "sigmoid",
        "sigmoid_derivative",
        "silu",
        "softplus",
        "tanh_derivative",
    ),
]


@pytest.fixture
def four(monkeypatch):
    """Four threads, whatever the machine has."""
    monkeypatch.setattr(threads, "available", lambda: 4)
    threads._helpers.cache_clear()
    yield
    threads._helpers(os.getpid())[0].shutdown()
    threads._helpers.cache_clear()


@pytest.fixture
def small(monkeypatch):
    """Arrays of a few kilobytes are large, and no kernel computes them."""
    monkeypatch.setattr(kernels, "elementwise", lambda *_: None)
    monkeypatch.setattr(kernels, "reduced", lambda *_: None)
    # and none is too small for what large ones have
    monkeypatch.setattr(TUNING, "sigmoid_elements", 0)
    monkeypatch.setattr(TUNING, "ndtr_elements", 0)
    use_kernels_from(1 << 12, monkeypatch)
    use_threads_from(1 << 12, 1 << 10, monkeypatch)
    monkeypatch.setattr(TUNING, "outer_share", 1 << 8)
    monkeypatch.setattr(TUNING, "logits_bytes", 1 << 12)
    monkeypatch.setattr(TUNING, "logits_share", 1 << 10)


def refused(*args):
    raise AssertionError("divided")


# --- dividing -----------------------------------------------------------------------


def test_each_piece_is_worked_on_once(four):
    for count in (0, 1, 2, 3, 100):
        done = []
        divide(done.append, range(count))
        assert sorted(done) == list(range(count))


def test_pieces_are_worked_on_by_several_threads_and_by_the_caller(four):
    together = threading.Barrier(4)
    names = set()

    def work(piece):
        names.add(threading.current_thread())
        together.wait(10)  # until four of them are here

    divide(work, range(4))
    assert len(names) == 4
    assert threading.current_thread() in names


def test_with_one_thread_the_caller_does_everything(monkeypatch):
    monkeypatch.setattr(threads, "available", lambda: 1)
    threads._helpers.cache_clear()
    names = set()
    divide(lambda piece: names.add(threading.current_thread()), range(10))
    threads._helpers.cache_clear()
    assert names == {threading.current_thread()}


def test_pieces_may_be_divided_themselves(four):
    done = []

    def work(piece):
        divide(lambda part: divide(done.append, [(piece, part)] * 2), range(5))

    divide(work, range(20))
    assert len(done) == 200


def test_callers_in_many_threads_do_not_wait_for_each_other(four):
    def call(number):
        out = np.zeros(1000)
        divide(lambda i: out.__setitem__(i, number), range(1000))
        return out

    with ThreadPoolExecutor(16) as pool:
        for number, out in enumerate(pool.map(call, range(64))):
            assert (out == number).all()


def test_an_error_is_raised_in_the_caller_and_the_rest_is_left_undone(four):
    done = []

    def work(piece):
        if piece == 3:
            raise KeyError("piece 3")
        time.sleep(0.001)
        done.append(piece)

    with pytest.raises(KeyError, match="piece 3"):
        divide(work, range(1000))
    assert len(done) < 100
    count = len(done)
    time.sleep(0.01)
    assert len(done) == count  # nobody works on
    divide(done.append, range(3))
    assert len(done) == count + 3


def test_errors_leave_no_garbage(four):
    def attempt():
        with pytest.raises(ZeroDivisionError):
            divide(lambda piece: 1 / 0, range(10))

    attempt()
    gc.collect()
    gc.disable()
    try:
        attempt()
        assert not [o for o in gc.get_objects() if type(o) is threads._Job]
    finally:
        gc.enable()


def test_the_callers_context_holds_in_all_threads(four):
    x = np.full(10_000, 1e3)

    def work(piece):
        time.sleep(0.001)
        np.exp(x[piece])

    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        divide(work, [slice(i, i + 100) for i in range(0, 10_000, 100)])
    with np.errstate(over="ignore"):
        divide(work, [slice(i, i + 100) for i in range(0, 10_000, 100)])


@pytest.mark.parametrize(
    ("limit", "count"), [("1", 1), ("2", 2), ("3,2", 3), ("64", 8), ("", 8), ("all", 8), ("0", 8)]
)
def test_there_is_a_thread_a_core_and_no_more_than_openmp_may_have(monkeypatch, limit, count):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert available() == count


PROGRAM = """
import atexit, os
import numpy as np
from fdbr import ops
from fdbr.backends.cpu import kernels
from fdbr.core.util import threads
from fdbr.backends.cpu.tuning import TUNING

threads.available = lambda: 4
TUNING.divide_bytes, TUNING.divide_share = 1 << 12, 1 << 10
x = np.linspace(-3.0, 3.0, 10_000)
expected = ops.softplus(x)

def check():
    for _ in range(20):
        assert (ops.softplus(x) == expected).all()

check()
{}
print("done")
"""
AFTER_FORK = """
child = os.fork()
if child == 0:
    check()
    os._exit(7)
check()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_threads_of_its_own():
    assert _run(PROGRAM.format(AFTER_FORK)) == "done"


def test_the_end_of_python_is_no_obstacle():
    assert _run(PROGRAM.format("atexit.register(check)")) == "done"


def _run(program):
    command = [sys.executable, "-W", "ignore", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    return ended.stdout.strip()


# --- operations ---------------------------------------------------------------------


def layouts(dtype):
    x = np.random.default_rng(0).normal(size=(60, 70)).astype(dtype) * 4
    x.flat[:6] = [0, -0.0, np.inf, -np.inf, np.nan, 300]
    yield from (x, x.T, x[:, ::2], x[::3], np.broadcast_to(x[:1], (40, 70)), x.reshape(1, -1))
    yield from (x.reshape(-1, 1), np.stack([x, x], axis=1), np.resize(x, (3, 5_001)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", HEAVY)
def test_values_and_gradients_are_the_same_to_the_last_bit(name, dtype, four, small, monkeypatch):
    primitive = registry[name]
    others = range(1, len(primitive.rules))  # which broadcast

    def op(x):
        return primitive.apply(x, *(k / 2 + x[:1] for k in others), **PARAMS.get(name, {}))

    def both(x):
        with np.errstate(all="ignore"):
            ct = np.cos(x)
            return op(x), fdbr.vjp(op, x)[1](ct)[0], fdbr.jvp(op, (x,), (ct,))[1]

    for x in layouts(dtype):
        divided = both(x)
        with monkeypatch.context() as whole:
            for module in (elementwise, rows):
                whole.setattr(module, "divide", refused)
            use_threads_from(sys.maxsize, 1, whole)
            expected = both(x)
        for one, other in zip(divided, expected, strict=True):
            assert one.dtype == other.dtype == dtype
            if len(primitive.rules) == 1 or one is divided[0]:
                assert one.tobytes() == other.tobytes()
            else:  # cotangents of what was repeated add up in the order of memory
                np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize("name", HEAVY)
def test_transformations_of_large_arrays_give_what_they_give_for_small_ones(
    name, four, small, monkeypatch
):
    primitive = registry[name]
    others = range(1, len(primitive.rules))

    def loss(x):
        y = primitive.apply(x, *(k / 2 + x[:1] for k in others), **PARAMS.get(name, {}))
        return ops.sum(y * np.arange(x.size).reshape(x.shape))

    def transformed(x):
        with np.errstate(all="ignore"):
            slope = fdbr.grad(loss)
            return (
                fdbr.grad(lambda x: ops.sum(slope(x) ** 2))(x),
                *fdbr.jvp(slope, (x,), (x,)),
                fdbr.vmap(slope)(x.reshape(2, -1)),
                fdbr.jit(slope)(x),
            )

    x = np.linspace(0.1, 0.9, 2000)
    divided = transformed(x)
    use_threads_from(sys.maxsize, 1, monkeypatch)
    for one, other in zip(divided, transformed(x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_small_arrays_are_not_divided(monkeypatch):
    monkeypatch.setattr(elementwise, "divide", refused)
    monkeypatch.setattr(products, "divide", refused)
    x = np.ones((70, 70))
    fdbr.grad(lambda x: ops.sum(ops.gelu(x)))(x)
    ops.matmul(x[:, :, None], x[:, None, :])


def test_large_arrays_are_divided(monkeypatch):
    monkeypatch.setattr(elementwise, "divide", refused)
    monkeypatch.setattr(products, "divide", refused)
    with pytest.raises(AssertionError, match="divided"):
        ops.erfinv(np.ones((1024, 512)))  # a kernel computes it in float32
    x = np.ones((200, 100))
    with pytest.raises(AssertionError, match="divided"):
        ops.matmul(x[:, :, None], x[:, None, :])


OUTER = [
    *[((40, 7, 1), (40, 1, 9)), ((6, 40, 7, 1), (6, 40, 1, 9)), ((5, 8, 70, 1), (5, 1, 1, 9))],
    *[((40, 700, 1), (1, 1, 9)), ((40, 70, 1), (1, 9)), ((6, 1, 200, 1), (6, 5, 1, 9))],
]


@pytest.mark.parametrize(("left", "right"), OUTER)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float64")])
def test_outer_products_are_the_same_to_the_last_bit(left, right, dtypes, four, small):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(d) for s, d in zip((left, right), dtypes, strict=True))
    found, expected = ops.matmul(x, y), np.matmul(x, y)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(40, 100), (7, 5, 300), (500, 3), (1, 2000), (2000,)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_losses_of_many_examples_are_the_same_to_the_last_bit(shape, dtype, four, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(dtype)
    labels = rng.integers(0, shape[-1], shape[:-1])
    both = []
    for long in (1 << 40, 1 << 10):
        monkeypatch.setattr(TUNING, "logits_bytes", long)
        monkeypatch.setattr(TUNING, "logits_share", long)
        loss = fdbr.value_and_grad(lambda x: ops.sum(ops.softmax_cross_entropy(x, labels)))
        both.append(loss(x))
    assert both[0][0].dtype == both[1][0].dtype == dtype
    assert both[0][0] == both[1][0]
    assert both[0][1].tobytes() == both[1][1].tobytes()


@pytest.mark.parametrize("wide", [1, 1 << 30], ids=["by einsum", "by products"])
def test_outer_products_keep_infinity_and_nan_where_they_are(wide, four, small, monkeypatch):
    monkeypatch.setattr(TUNING, "outer_blas", wide)
    x, y = np.ones((20, 30)), np.ones((20, 40))
    x[3, 4], y[3, 5], y[7, 1], x[9, 2], y[9, 3] = np.inf, 0.0, np.nan, 1e-300, 1e-300
    with np.errstate(invalid="ignore"):
        expected = x[:, :, None] * y[:, None, :]
        found = ops.matmul(x[:, :, None], y[:, None, :])
    np.testing.assert_array_equal(found, expected)


def test_per_example_gradients_are_the_same_from_many_threads_at_once(four, small):
    rng = np.random.default_rng(0)
    weight, x = rng.normal(size=(30, 20)), rng.normal(size=(50, 20))
    gradients = fdbr.vmap(
        fdbr.grad(lambda w, x: ops.sum(ops.gelu(ops.linear(x, w)))), in_axes=(None, 0)
    )
    expected = np.stack([fdbr.grad(lambda w, r=r: ops.sum(ops.gelu(w @ r)))(weight) for r in x])
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: gradients(weight, x), range(16)))
    np.testing.assert_allclose(results[0], expected, rtol=1e-12, atol=1e-14)
    assert all(result.tobytes() == results[0].tobytes() for result in results)


def test_finished_work_keeps_no_arrays_while_a_helper_is_busy():
    executor, count = threads._helpers(os.getpid())
    if not count:
        pytest.skip("there are no helper threads")
    done = threading.Event()
    for _ in range(count):
        executor.submit(done.wait)
    try:
        array = np.zeros(10)

        def work(piece, array=array):
            array[piece] += 1

        divide(work, [slice(5), slice(5, 10)])
        np.testing.assert_array_equal(array, 1)
        gone = weakref.ref(array)
        del array, work
        assert gone() is None
    finally:
        done.set()
