"""What is written past the caches is what would be written into them."""

import concurrent.futures

import numpy as np
import pytest
from compiler.comparing import assert_same
from compiler.recorded import functions, normal, treat_as_large
from hypothesis import given

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.codegen import nest_kernels
from fdbr.backends.cpu.codegen.loop_nest import read
from fdbr.backends.cpu.exec import native_forms


def replayed(f, args):
    """What kernels give: the first call is the function itself."""
    jitted = fdbr.jit(f)
    jitted(*args)
    return jitted(*args)


def assert_streamed(f, *args):
    """Check that a function gives the same to the bit if its results are taken to be large."""
    kernels = []
    write = nest_kernels.write_nest

    with pytest.MonkeyPatch.context() as patch:
        treat_as_large(patch)
        plain = replayed(f, args)
        patch.setattr(nest_kernels, "_LARGE", 1)
        patch.setattr(nest_kernels, "_ROW", (1, 1 << 16))
        written = lambda *a: kernels.append(write(*a)) or kernels[-1]
        patch.setattr(native_forms, "write_nest", written)
        streamed = replayed(f, args)
    assert_same(streamed, plain, ulps=0)
    return [bool(read(kernel.source)[0].streamed) for kernel in kernels]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7, 13, 1), (3, 5, 17), (40, 1, 784), (1, 1, 1), (5, 7, 785)])
def test_rows_of_any_length(dtype, shape):
    a = (normal(*shape[:-1], 1) * 9).astype(dtype)
    b = (normal(shape[0], 1, shape[-1], seed=1) * 9).astype(dtype)
    assert assert_streamed(lambda a, b: a * b + a, a, b) == [True]


@pytest.mark.parametrize("size", [1, 3, 1023, 1024, 1025, 5000, 300_001])
def test_without_rows(size):
    x = normal(size)
    f = lambda x: (ops.tanh(x) * 2, x > x * x, ops.exp(x) + 1)
    assert assert_streamed(f, x) == [True]


def test_with_sums_along_and_across_the_rows():
    def f(x, b):
        y = ops.softmax(x + b, axis=-1) * 2
        return y, y.sum(axis=0), y.sum(), ops.tanh(x - x.max(axis=1, keepdims=True))

    assert any(assert_streamed(f, normal(300, 77), normal(77)))


def test_truth_values():
    f = lambda x, b: (x > b, (x + b) * 2)
    assert assert_streamed(f, normal(50, 33), normal(33)) == [True]


def test_large_results_are_streamed_as_they_are():
    f = lambda a, b: a * b
    a, b = normal(90, 90, 1), normal(90, 1, 900, seed=1)
    jitted = fdbr.jit(f)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: jitted(a, b), range(4)):
            assert np.array_equal(found, a * b)


@pytest.mark.slow
@given(functions(decisions=False))
def test_random_programs(case):
    f, args = case
    with np.errstate(all="ignore"):
        assert_streamed(lambda *a: tree.map(lambda out: ops.tanh(out) * 2, f(*a)), *args)
