"""What is cheap is computed again, and nothing changes but what kernels give out."""

import numpy as np
import pytest
from compiler.comparing import assert_as_eager
from compiler.recorded import kernels_around, normal

import fdbr
from fdbr import ops
from fdbr.compiler.ir import op
from fdbr.compiler.passes.rematerialize import rematerialize


def both(f, *args):
    """The kernels before and after the pass."""
    return kernels_around(rematerialize, f, *args)


def given_out(kernels):
    return sum(len(kernel.outs) for kernel in kernels)


def test_a_square_is_not_kept_where_what_is_squared_is_read_again():
    def f(x, w):
        y = x * x
        a = ops.tanh(y) + x
        return a @ w, (a @ w) * y * ops.exp(x)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(after) == given_out(before) - 1


def test_the_pullback_of_gelu_keeps_its_value_beside_what_it_was_given():
    def f(x, w):
        return fdbr.grad(lambda x: ((ops.gelu(x, approximate=True) @ w) ** 2).sum())(x @ w)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(before[:1]) == given_out(after[:1]) == 1


def test_the_pullback_of_a_product_keeps_its_expensive_factor_alone():
    def f(x, w):
        return fdbr.grad(lambda x: ((((x * x + 1) * ops.exp(-x)) @ w) ** 2).sum())(x @ w)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(before[:1]) > given_out(after[:1]) == 2


def test_what_is_expensive_is_kept():
    def f(x, w):
        y = ops.exp(x)
        a = y + x
        return a @ w, (a @ w) * y * x

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(before) == given_out(after)


def test_what_others_read_is_kept():
    def f(x, w):
        y = x * x
        return (ops.tanh(y) + x) @ w + y @ w, y * ops.exp(x) + (x @ w)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(before) == given_out(after)


def test_what_leaves_the_program_is_kept():
    def f(x, w):
        y = x * x
        a = (ops.tanh(y) + x) @ w
        return y, a * y + x

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(before) == given_out(after)


def test_one_array_is_read_in_the_place_of_another():
    def f(x, w):
        y = x * 2
        a = (ops.tanh(y) + x) @ w
        return a * y + 1

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert given_out(after) == given_out(before) - 1


def test_a_row_and_a_column_are_read_beside_it():
    """The rows of the kernel are then those that the row and the column have."""

    def f(x, row, column, w):
        y = x * row * column
        a = (ops.tanh(y) + x) @ w
        return a * y + 1

    before, after = both(f, normal(64, 64), normal(64), normal(64, 1), normal(64, 64))
    assert given_out(after) == given_out(before) - 1
    assert [kernel.split for kernel in before][-1:] == [2]
    assert [kernel.split for kernel in after][-1:] == [1]


def test_a_kernel_with_labels_for_its_rows_keeps_them():
    labels = np.arange(48)

    def f(x, w, shares):
        y = x * x
        a = (ops.tanh(y) + x) @ w
        return op.SUBTRACT_AT_LABELS.apply(a * y + x, shares, labels) * 2

    given = normal(48, 64), normal(64, 64), normal(48)
    before, after = both(f, *given)
    assert given_out(after) == given_out(before) - 1
    assert [kernel.split for kernel in after] == [kernel.split for kernel in before]
    assert_as_eager(f, given)


def test_several_arrays_are_not_read_in_the_place_of_one():
    def f(x, z, w):
        y = x * z
        a = (ops.tanh(y) + x) @ w
        return a * y + 1

    before, after = both(f, normal(64, 64), normal(64, 64), normal(64, 64))
    assert given_out(before) == given_out(after)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_chains_of_layers_give_what_they_gave(dtype):
    def loss(ws, x):
        for w in ws:
            x = ops.gelu(x @ w, approximate=True) + x * x
        return (x**2).mean()

    ws = [normal(64, 64, dtype=dtype) / 8 for _ in range(3)]
    f = fdbr.value_and_grad(loss)
    assert_as_eager(f, *[(ws, normal(64, 64, dtype=dtype))] * 3, ulps=64)
