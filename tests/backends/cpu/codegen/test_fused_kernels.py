"""Kernels do what the interpreter does, whatever is fused."""

import concurrent.futures
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest
from compiler.recorded import check, normal, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.runtime import compiling
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.ir.program import Fused, Small
from fdbr.compiler.passes import dce
from fdbr.compiler.passes.decompose import decompose, expand
from fdbr.compiler.passes.fuse_small import fuse_small
from fdbr.compiler.passes.loop_fusion import fuse_loops

ULPS = 16


def assert_near(a, b, ulps=ULPS):
    """Two results are of one kind, and equal to some units in the last place of the largest."""
    assert type(a) is type(b)
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    if a.dtype.kind != "f":
        assert np.array_equal(a, b)
        return
    assert np.array_equal(np.isnan(a), np.isnan(b))
    finite = np.isfinite(a)
    assert np.array_equal(a[~finite & ~np.isnan(a)], b[~finite & ~np.isnan(a)])
    largest = np.abs(a[finite]).max(initial=0)
    assert np.all(np.abs(a[finite] - b[finite]) <= ulps * np.finfo(a.dtype).eps * largest)


def run_both_ways(f, *args, fused=1, ulps=ULPS):
    """The kernels' results against the reference; ``fused`` is how many kernels there must be."""
    with np.errstate(all="ignore"):
        program, leaves = recorded(f, *args)
    new = fuse_small(fuse_loops(dce(decompose(expand(program)))))
    check(new)
    kernels = [step for step in new.steps if isinstance(step, Fused | Small)]
    assert fused is None or len(kernels) == fused, new
    with np.errstate(all="ignore"):
        expected = interpret(program, leaves)
        again = interpret(new, leaves)
        found = generate(new)(*leaves)
    for a, b, c in zip(expected, again, found, strict=True):
        assert_near(a, b, 4)
        assert_near(a, c, ulps)
    return new


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def test_a_chain_of_elementwise_steps_is_one_kernel(dtype):
    x, y = normal(80, 60, dtype=dtype), normal(80, 60, dtype=dtype, seed=1)
    run_both_ways(lambda x, y: ops.exp(x) * y + x / 2 - ops.sqrt(abs(y)), x, y)


def test_operands_that_broadcast_are_read_where_they_belong(dtype):
    x = normal(6, 5, 20, 8, dtype=dtype)
    for shape in [(8,), (20, 8), (5, 1, 1), (6, 1, 1, 1), (5, 20, 8), (6, 1, 1, 8), (1,), ()]:
        y = normal(*shape, dtype=dtype, seed=1)
        new = run_both_ways(lambda x, y: ops.tanh(x * y) + x, x, y, fused=None)
        assert any(isinstance(step, Fused) for step in new.steps)


def test_one_product_of_repeated_operands_is_a_kernel_where_it_is_large(dtype):
    x, y = normal(60, 50, 1, dtype=dtype), normal(60, 1, 40, dtype=dtype, seed=1)
    run_both_ways(lambda x, y: x * y, x, y)
    run_both_ways(lambda x, y: x * y, x[:2], y[:2], fused=0)
    run_both_ways(lambda x: x * 2, np.ones((60, 50, 40), dtype), fused=0)


def test_softmax_and_its_derivative_are_kernels(dtype):
    x = normal(4, 30, 40, dtype=dtype)
    run_both_ways(lambda x: ops.softmax(x), x)
    run_both_ways(fdbr.grad(lambda x: ops.sum(ops.softmax(x) * x)), x, fused=None)
    run_both_ways(lambda x: ops.log_softmax(x, axis=-1), x)
    run_both_ways(lambda x: ops.softmax(ops.where(x > 0, x, -np.inf)), x)


def test_layer_norm_and_its_derivatives_are_kernels(dtype):
    x, w, b = (normal(*s, dtype=dtype, seed=i) for i, s in enumerate([(50, 64), (64,), (64,)]))
    run_both_ways(ops.layer_norm, x, w, b)
    loss = fdbr.grad(lambda *a: ops.sum(ops.layer_norm(*a) ** 2), argnums=(0, 1, 2))
    run_both_ways(loss, x, w, b, fused=None)


def test_sums_over_rows_columns_and_all_come_out_of_one_kernel(dtype):
    x, y = normal(70, 40, dtype=dtype), normal(70, 40, dtype=dtype, seed=1)

    def f(x, y):
        z = x * y
        return z, ops.sum(z, axis=0), ops.mean(z, axis=1), ops.sum(z), ops.mean(ops.exp(z), axis=0)

    run_both_ways(f, x, y, ulps=1000)  # of sums, whose terms cancel


def test_what_a_row_sum_needs_is_kept_for_the_next_pass_over_the_row(dtype):
    x = normal(50, 60, dtype=dtype)

    def f(x):
        e = ops.exp(ops.tanh(x))
        return e / ops.sum(e, axis=-1, keepdims=True) - ops.max(e, axis=-1, keepdims=True)

    run_both_ways(f, x)


def test_nan_and_infinity_pass_through_kernels(dtype):
    x = normal(60, 50, dtype=dtype)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = np.nan, np.inf, -np.inf, -0.0
    for f in (
        ops.exp,
        ops.log,
        ops.log1p,
        ops.tanh,
        ops.sigmoid,
        ops.relu,
        ops.sqrt,
        ops.abs,
        ops.sign,
    ):
        run_both_ways(lambda x, f=f: f(x) * 2 + x, x)
    run_both_ways(lambda x: ops.maximum(x, 0.5) + ops.minimum(x, -x), x)
    run_both_ways(lambda x: ops.max(x * 2, axis=1), x)
    run_both_ways(lambda x: (ops.isfinite(x) & (x > 0), x != x), x, fused=None)


@pytest.mark.parametrize("odd", [[np.inf], [-np.inf], [np.inf, -np.inf], [np.nan], [np.inf] * 900])
@pytest.mark.parametrize("shape", [(5000,), (60, 50)])
def test_infinite_totals_are_infinite(dtype, shape, odd):
    x = normal(*shape, dtype=dtype)
    x.reshape(-1)[300 : 300 + len(odd)] = odd
    with np.errstate(all="ignore"):
        run_both_ways(lambda x: (ops.sum(x * 2), ops.mean(x + 1)), x, fused=None)
        largest = np.finfo(dtype).max
        run_both_ways(lambda x: ops.sum(x * 0 + largest), np.zeros(shape, dtype), fused=None)


@pytest.mark.parametrize("shape", [(60, 50), (3, 4)])
@pytest.mark.parametrize("name", [
    *("silu", "gelu", "softplus", "softsign", "leaky_relu", "elu", "sigmoid", "log_sigmoid"),
    *("softmax", "log_softmax", "logsumexp", "mish", "selu", "celu"),
])  # fmt: skip
def test_activations_large_and_small_are_taken_apart_into_kernels(dtype, name, shape):
    f = lambda x: getattr(ops, name)(x * 2)
    for g in (f, fdbr.grad(lambda x: (f(x) ** 2).sum())):
        run_both_ways(g, normal(*shape, dtype=dtype), fused=None, ulps=64)


def test_truth_values_are_read_and_written(dtype):
    x = normal(60, 50, dtype=dtype)
    mask = x > 0.3
    run_both_ways(lambda x, m: (ops.where(m, x * 2, -x) * m, (x * 3 > 1) & m), x, mask, fused=None)


def test_a_row_of_columns_that_is_not_laid_out_in_order_is_copied_first(dtype):
    x = normal(60, 50, dtype=dtype)
    whole = normal(100, 120, dtype=dtype, seed=1)
    f = lambda x, y: ops.exp(x) * y + y
    run_both_ways(f, x, whole[::1, :100].T[:60, :50])
    run_both_ways(f, np.asfortranarray(x), whole[20:80, 30:80])


def test_operands_in_one_order_that_is_not_c_are_taken_as_they_are(dtype):
    x, y = (normal(3, 40, 50, dtype=dtype, seed=i).transpose(0, 2, 1) for i in (0, 1))
    f = lambda x, y: (ops.exp(x) * y + y, (x > y) & (x < 1), ops.sum(x * y))
    run_both_ways(f, x, y, fused=None, ulps=1000)
    run_both_ways(f, x, y.copy(), fused=None, ulps=1000)
    run_both_ways(f, x[:, ::2], y[:, ::2], fused=None, ulps=1000)
    run_both_ways(
        lambda x, y: (lambda z: (z, ops.sum(z, axis=0), z @ z.mT))(x * y - x), x, y, fused=None
    )


def test_numbers_and_scalars_are_operands_too(dtype):
    x = normal(60, 50, dtype=dtype)
    run_both_ways(lambda x, c, n, s: (x * c + n) * s - x, x, 0.3, 2, dtype(1.5))


def test_the_order_of_steps_outside_is_kept():
    x, w = normal(64, 64), 0.1 * normal(64, 64, seed=1)

    def f(x, w):
        a = ops.tanh(x) * 2
        b = a @ w
        c = ops.exp(b) + a
        return c @ w, ops.sum(c * a, axis=0), b

    run_both_ways(f, x, w, fused=None)


def test_large_kernels_run_on_several_threads_with_the_same_result(dtype):
    x = normal(512, 300, dtype=dtype)
    run_both_ways(
        lambda x: (ops.tanh(x) * x, ops.sum(ops.exp(x), axis=0), ops.sum(x * x)), x, ulps=1000
    )


# --- small arrays -------------------------------------------------------------------


def test_a_program_on_small_arrays_is_one_kernel(dtype):
    def rosenbrock(x):
        return ops.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    x = normal(10, dtype=dtype)
    new = run_both_ways(fdbr.value_and_grad(rosenbrock), x)
    assert len(new.steps) == 1


def test_small_arrays_are_sliced_reshaped_permuted_and_joined(dtype):
    x, y = normal(3, 4, 5, dtype=dtype), normal(4, dtype=dtype, seed=1)

    def f(x, y):
        a = ops.permute_dims(x, (2, 0, 1)) * y
        b = ops.reshape(a[::2], (3, 3, 4)) + ops.broadcast_to(y, (3, 3, 4))
        c = ops.concat([b, b * 2], axis=1) - ops.sum(b, axis=1, keepdims=True)
        d = ops.stack([c[0], c[1]], axis=1)
        e = ops.reshape(ops.matrix_transpose(d[:, 0]), (-1,))
        return ops.max(c, axis=(0, 2)), ops.mean(d, axis=0), e, ops.min(c), c[-1, 1:, None], y > 0

    run_both_ways(f, x, y, fused=None)
    run_both_ways(fdbr.grad(lambda x, y: ops.sum(f(x, y)[0] * 2) + f(x, y)[3]), x, y, fused=None)


STEPS = [
    lambda x, y: (x + y, x),
    lambda x, y: (x * y, y),
    lambda x, y: (ops.tanh(x), y - x),
    lambda x, y: (ops.maximum(x, y), ops.exp(-abs(y))),
    lambda x, y: (x - ops.mean(x), y),
    lambda x, y: (x / 2, y),
    lambda x, y: (ops.where(x > y, x, y), x),
    lambda x, y: (ops.reshape(ops.reshape(x, (-1,)), x.shape), ops.sum(y) + x),
]


@settings(max_examples=8)  # each compiles a kernel
@given(st.data())
def test_random_small_programs_equal_the_reference(data):
    shape = data.draw(st.sampled_from([(), (3,), (2, 3), (1, 4), (2, 2, 2)]))
    values = [normal(*shape, dtype=np.float64), normal(*shape, dtype=np.float64, seed=1)]
    choices = data.draw(st.lists(st.integers(0, 7), min_size=4, max_size=9))

    def f(x, y):
        for choice in choices:
            x, y = STEPS[choice](x, y)
        return x, y

    run_both_ways(f, *values, fused=None)


# --- machine code on disk -----------------------------------------------------------

SOURCE = """def kernel(table, start, stop, thread):
    a = data(table, 0, f4(0))
    for r in range(start, stop):
        a[r] = f4({})
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_loaded", {})
    return tmp_path


def fill(source):
    from array import array

    from fdbr.backends.cpu.runtime.launching import launch_alone

    out = np.zeros(3, np.float32)
    table = array("q", (id(out),))
    launch_alone(compiling.address_of(source), table.buffer_info()[0], 3)
    return out.tolist()


def test_a_kernel_is_read_from_disk_the_next_time(cache, monkeypatch):
    assert fill(SOURCE.format(1)) == [1, 1, 1]
    assert len(list(cache.iterdir())) == 1
    compiling._loaded.clear()
    monkeypatch.setattr(compiling, "_compiled", None)  # it must not be compiled again
    assert fill(SOURCE.format(1)) == [1, 1, 1]


@pytest.mark.parametrize("damage", [b"", b"nonsense", "half", "flipped"])
def test_a_damaged_entry_is_made_again(cache, damage):
    fill(SOURCE.format(2))
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    if damage == "half":
        damage = whole[: len(whole) // 2]
    elif damage == "flipped":
        damage = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
    path.write_bytes(damage)
    compiling._loaded.clear()
    assert fill(SOURCE.format(2)) == [2, 2, 2]
    assert path.read_bytes()[:14] == whole[:14]
    assert len(path.read_bytes()) > 100


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("FDBR_CACHE_DIR", str(file))
    monkeypatch.setattr(compiling, "_loaded", {})
    assert fill(SOURCE.format(3)) == [3, 3, 3]


def test_processes_share_the_cache_at_the_same_time(tmp_path):
    code = (
        "import numpy as np, fdbr\n"
        "f = fdbr.jit(lambda x: fdbr.ops.tanh(x) * 2 + x)\n"
        "x = np.ones((80, 80)); f(x)\n"
        "assert np.allclose(f(x), np.tanh(x) * 2 + x)\n"
    )
    environment = {"FDBR_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    runs = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(3)]
    assert [run.wait() for run in runs] == [0, 0, 0]
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".kernel"]


# --- threads and processes ----------------------------------------------------------


def test_threads_run_one_jitted_function_at_once():
    f = fdbr.jit(lambda x: (ops.sum(ops.exp(x) * x, axis=0), ops.tanh(x) + 1))
    inputs = [normal(400, 300, seed=i) for i in range(8)]
    f(inputs[0])
    expected = [f(x) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(f, inputs * 3), expected * 3, strict=True):
            assert all(map(np.array_equal, found, wanted))


def _in_child(queue):
    f = fdbr.jit(lambda x: ops.tanh(x) * x + 1)
    x = normal(400, 300)
    f(x)
    queue.put(float(f(x).sum()))


def test_kernels_run_after_a_fork():
    x = normal(400, 300)
    f = fdbr.jit(lambda x: ops.tanh(x) * x + 1)
    f(x)
    wanted = float(f(x).sum())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == wanted
    child.join(timeout=60)
    assert child.exitcode == 0
