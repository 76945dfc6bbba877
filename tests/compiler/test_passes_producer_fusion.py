"""What a later kernel makes of an earlier one's results is made there, if less is kept for it."""

import numpy as np
import pytest

import fdbr
from compiler.comparing import ULPS, assert_as_eager, distance
from compiler.recorded import kernels_around, normal
from fdbr import ops
from fdbr.compiler.passes.producer_fusion import fuse_producers
from fdbr.compiler.passes.rematerialize import rematerialize


def both(f, *args):
    """The kernels before and after the pass, beside which others do their work."""
    kernels_around(lambda program: rematerialize(fuse_producers(program)), f, *args)
    assert_as_eager(f, args, args)
    return kernels_around(fuse_producers, f, *args)


def kept(kernel):
    return sum(out.kind.size * out.kind.dtype.itemsize for out in kernel.outs)


def gelu_gradient(x, w, b):
    def loss(x, b):
        return ((ops.gelu(x @ w + b, approximate=True) @ w) ** 2).sum()

    return fdbr.grad(loss, argnums=(0, 1))(x, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_gelu_the_value_and_what_its_slope_is_made_of_are_kept_and_nothing_else(dtype):
    x, w, b = normal(64, 64, dtype=dtype), normal(64, 64, dtype=dtype), normal(64, dtype=dtype)
    before, after = both(gelu_gradient, x, w, b)
    # One operation makes the slope out of one array, so that there is nothing left to save.
    assert kept(before[0]) == kept(after[0]) == 2 * x.nbytes


def later_product(x, w, b):
    y = x @ w + b
    e, t = ops.exp(-y), ops.tanh(y)
    return ((e * t) @ w) * (y + e * t + t)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_is_kept_and_nothing_that_it_is_made_of(dtype):
    x, w, b = normal(64, 64, dtype=dtype), normal(64, 64, dtype=dtype), normal(64, dtype=dtype)
    before, after = both(later_product, x, w, b)
    assert kept(before[0]) > kept(after[0]) == 2 * x.nbytes  # the value is needed, too


def test_nothing_is_moved_that_would_not_save_memory():
    def f(x, w):
        y = ops.exp(x)
        return y @ w, (y @ w) * (ops.tanh(y) + x)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert before == after


def test_what_others_read_is_kept_for_them():
    def f(x, w):
        y, z = ops.exp(x), ops.tanh(x)
        a = (y + z) @ w
        return a * (y * z), y @ w, z @ w

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert before == after


def test_what_leaves_the_program_is_kept():
    def f(x, w):
        y, z = ops.exp(x), ops.tanh(x)
        return (y + z) @ w * (y * z), y, z

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert before == after


def test_what_a_later_kernel_gives_out_stays_there():
    def f(x, w):
        y, z = ops.exp(x), ops.tanh(x)
        product = y * z
        return (y + z) @ w * product, product

    both(f, normal(64, 64), normal(64, 64))


def test_sums_over_rows_are_used_by_later_kernels_only():
    def f(x, w):
        y, z = ops.exp(x), ops.tanh(x)
        total = y.sum(axis=0)
        return (y + z) @ w * ((y - z) * total + y * z)

    both(f, normal(64, 64), normal(64, 64))
    x, w = normal(500, 70), normal(70, 70)
    kernels_around(fuse_producers, f, x, w)
    # Sums over many rows differ by their rounding, so they are compared with the right ones.
    exact, jitted = f(np.float64(x), np.float64(w)), fdbr.jit(f)
    for _ in range(2):
        assert distance(jitted(x, w), exact.astype(np.float32)) <= ULPS


def test_means_of_rows_may_be_used_too():
    def f(x, w):
        y, z = ops.exp(x), ops.tanh(x)
        mean = y.mean(axis=1, keepdims=True)
        return (y + z - mean) @ w * ((y - mean) * z + y)

    both(f, normal(64, 64), normal(64, 64))


def test_several_later_kernels_each_have_their_own():
    def f(x, w):
        a, b, c, d = ops.exp(x), ops.tanh(x), ops.sin(x), ops.cos(x)
        first = (a + b + c + d) @ w * (a * b + b)
        return (first @ w) * (c * d - d)

    before, after = both(f, normal(64, 64), normal(64, 64))
    assert kept(after[0]) < kept(before[0])
