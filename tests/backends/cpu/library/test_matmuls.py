"""Products on the threads of kernels are what NumPy's are, however operands lie in memory."""

import os

import numpy as np
import pytest
from compiler.recorded import normal, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library.matmul import matmuls
from fdbr.backends.cpu.library.matmul.matmuls import is_threaded, multiply
from fdbr.backends.cpu.tuning import TUNING
from fdbr.compiler.ir import op

LAYOUTS = {
    "in order": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "reversed": lambda x: x[..., ::-1, :][..., ::-1],
    "rows with gaps": lambda x: np.repeat(x, 2, axis=-2)[..., ::2, :],
    "gaps in rows": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "one row": lambda x: np.broadcast_to(x[..., :1, :], x.shape),
}


def assert_near(found, desired):
    assert found.dtype == desired.dtype
    assert found.shape == desired.shape
    scale = np.abs(desired).max(initial=1)
    assert np.allclose(found, desired, rtol=0, atol=64 * np.finfo(found.dtype).eps * scale)


@settings(max_examples=80)
@given(st.data())
def test_every_shape_and_layout_gives_the_product_on_every_number_of_threads(data):
    rows, depth, columns = (data.draw(st.sampled_from([1, 3, 17, 64, 90])) for _ in range(3))
    a_lead, b_lead = data.draw(
        st.sampled_from(
            [((), ()), ((3,), (3,)), ((2, 3), (2, 3)), ((2, 1), (1, 3)), ((), (2,)), ((2,), ())]
        )
    )
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    layouts = [LAYOUTS[data.draw(st.sampled_from(list(LAYOUTS)))] for _ in range(2)]
    a = layouts[0](normal(*a_lead, rows, depth, dtype=dtype))
    b = layouts[1](normal(*b_lead, depth, columns, dtype=dtype, seed=1))
    found = multiply(a, b)
    assert_near(found, a @ b)
    out = np.empty_like(found)
    assert multiply(a, b, out) is out
    np.testing.assert_array_equal(out, found)
    for threads in (1, 3):
        with pytest.MonkeyPatch.context() as patch:  # the same bits, on more threads
            patch.setattr(matmuls, "_ways", {})
            patch.setattr(TUNING, "matmul_thread", 0)
            patch.setattr(matmuls, "_ROWS", (7, 20))
            patch.setattr(matmuls, "thread_count", lambda threads=threads: threads)
            np.testing.assert_array_equal(multiply(a, b), found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("second", ["in order", "transposed"])
@pytest.mark.parametrize("depth", [63, 513, 1030])
def test_long_sums_are_added_up_in_parts(depth, second, dtype, monkeypatch):
    monkeypatch.setattr(matmuls, "_ways", {})
    monkeypatch.setattr(TUNING, "matmul_panel", 1 << 14)
    a, b = normal(70, depth, dtype=dtype), LAYOUTS[second](normal(depth, 150, dtype=dtype, seed=1))
    assert_near(multiply(a, b), a @ b)


def test_what_is_not_a_number_goes_no_further_than_its_row_and_column():
    a, b = normal(50, 600), normal(600, 70, seed=1)
    a[7, 3], b[599, 5] = np.nan, np.inf
    np.testing.assert_array_equal(np.isfinite(multiply(a, b)), np.isfinite(a @ b))


def test_a_matrix_times_its_transpose_is_symmetric():
    x = normal(300, 200)
    found = multiply(x, x.T)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.complex64])
def test_other_dtypes_are_left_to_numpy(dtype):
    x = (normal(70, 70) * 3).astype(dtype)
    np.testing.assert_array_equal(multiply(x, x), x @ x)
    program, _ = recorded(lambda x: x @ x, x)
    assert not any(map(is_threaded, program.steps))


def test_programs_leave_no_product_to_threads_of_the_blas(monkeypatch):
    def f(w, x):
        y = ops.tanh(x @ w)
        return ops.sum(ops.linear(y, w) ** 2)

    sizes = []

    def noted(a, b, out=None):
        sizes.append((len(a), *b.shape))
        return multiply(a, b, out)

    monkeypatch.setattr(matmuls, "multiply", noted)
    w, x = normal(160, 160) / 10, normal(140, 160)
    program, leaves = recorded(fdbr.grad(f, argnums=(0, 1)), w, x)
    outs = generate(program, products=True)(*leaves)
    for found, desired in zip(outs, fdbr.grad(f, argnums=(0, 1))(w, x), strict=True):
        assert_near(found, desired)
    assert len(sizes) == sum(map(is_threaded, program.steps)) > 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_products_are_computed_in_a_forked_process():
    a, b = normal(200, 200), normal(200, 200, seed=1)
    desired = multiply(a, b)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(multiply(a, b), desired) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (2000, 16), (1000, 10)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_rows_are_products_of_their_own(shape, dtype):
    x = normal(*shape, dtype=dtype)
    found = matmuls.VALUES[op.SUM_OF_ROWS](np, x)
    assert_near(found, x.sum(axis=0))
    for layout in LAYOUTS.values():
        assert_near(matmuls.VALUES[op.SUM_OF_ROWS](np, layout(x)), layout(x).sum(axis=0))
