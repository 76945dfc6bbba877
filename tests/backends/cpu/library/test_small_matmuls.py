"""Small products in kernels are what NumPy's are, whatever their operands look like."""

import numpy as np
import pytest
from compiler.recorded import normal, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.exec.programs import generate
from fdbr.backends.cpu.library.matmul.small import is_small_product
from fdbr.compiler.ir.program import Instruction


def products(f, *args):
    """The products of a function that a kernel does; the results are right."""
    program, leaves = recorded(f, *args)
    outs = generate(program, products=True)(*leaves)
    for found, desired in zip(outs, fdbr.tree.leaves(f(*args)), strict=True):
        assert found.dtype == desired.dtype
        assert found.shape == desired.shape
        scale = np.abs(desired).max(initial=1)
        assert np.allclose(found, desired, rtol=0, atol=64 * np.finfo(found.dtype).eps * scale)
    steps = [step for step in program.steps if isinstance(step, Instruction)]
    return sum(is_small_product(step) for step in steps if "matmul" in step.primitive.name)


LAYOUTS = {
    "in order": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "reversed": lambda x: x[..., ::-1, :][..., ::-1],
    "in Fortran's order": np.asfortranarray,
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_operands_are_taken_as_they_lie(left, right, dtype):
    a = LAYOUTS[left](normal(6, 35, 17, dtype=dtype))
    b = LAYOUTS[right](normal(6, 17, 35, dtype=dtype, seed=1))
    assert products(lambda a, b: (a @ b).sum(axis=0), a, b) == 1


@settings(max_examples=15)
@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(16, 70),
    st.sampled_from([((3, 2), (3, 2)), ((3, 2), (2,)), ((2,), (3, 1)), ((1, 2), (3, 1))]),
)
def test_every_shape_is_filled(rows, depth, columns, leads):
    a, b = normal(*leads[0], rows, depth), normal(*leads[1], depth, columns, seed=1)
    products(lambda a, b: (a @ b).sum(axis=0) * 2, a, b)


def test_a_transposed_operand_is_taken_as_it_lies():
    def f(q, k):
        return ops.tanh(ops.matmul(q, ops.matrix_transpose(k)))

    assert products(f, normal(2, 3, 20, 8), normal(2, 3, 24, 8, seed=1)) == 1


def test_large_products_are_left_to_the_blas():
    assert (
        products(lambda a, b: ops.tanh(a @ b / 16), normal(2, 200, 200), normal(2, 200, 200)) == 0
    )


def test_products_of_integers_and_of_nothing_are_none():
    x = np.arange(2 * 32 * 32).reshape(2, 32, 32)
    assert products(lambda x: x @ x, normal(2, 32, 32)[:0]) == 0
    program, _ = recorded(lambda x: x @ x, x)
    assert not any(map(is_small_product, program.steps))


@pytest.mark.parametrize("rows", [2, 7, 20, 32])
def test_few_rows_go_through_a_weight_many_times(rows):
    def f(w, x):
        for _ in range(10):
            x = ops.tanh(ops.linear(x, w)) + x
        return (x**2).sum()

    w, x = normal(200, 200) / 20, normal(rows, 200)
    g = fdbr.value_and_grad(f)
    found, desired = fdbr.jit(g), g(w, x)
    for _ in range(3):
        value, slope = found(w, x)
    assert np.allclose(value, desired[0], rtol=1e-4)
    assert np.allclose(slope, desired[1], rtol=1e-3, atol=1e-4 * np.abs(desired[1]).max())


def test_a_weight_that_changes_is_laid_out_again():
    f = fdbr.jit(lambda w, x: sum(ops.tanh(ops.linear(x + i, w)).sum() for i in range(9)))
    x = normal(16, 128)
    for seed in range(3):
        w = normal(128, 128, seed=seed) / 10
        expected = sum(np.tanh((x + i) @ w.T).sum() for i in range(9))
        assert np.allclose(f(w, x), expected, rtol=1e-4, atol=1e-2)
