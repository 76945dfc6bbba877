"""Biases are added in kernels where there are any, and nowhere else."""

import numpy as np
import pytest
from compiler.comparing import assert_as_eager
from compiler.recorded import assert_close, check, names, recorded

import fdbr
from fdbr import ops
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.bias_fusion import fuse_biases
from fdbr.compiler.passes.decompose import decompose
from fdbr.testing import assert_allclose

RNG = np.random.default_rng(0)
X, W, B = (RNG.normal(size=s).astype(np.float32) for s in ((512, 16), (256, 16), (256,)))


def after(f, *args):
    """What is done after the pass, which gives the same but for rounding."""
    program, leaves = recorded(f, *args)
    before = optimise(decompose(program))
    new = fuse_biases(before)
    check(new)
    assert_close(before, new, leaves, 1e-5)
    return names(new)


def test_a_bias_before_an_elementwise_function_is_free():
    found = after(lambda x, w, b: ops.tanh(ops.linear(x, w, b)), X, W, B)
    assert found["affine"] == 0
    assert found["add"] == found["matmul_transposed"] == 1


def test_so_it_is_through_other_shapes():
    def f(x, w, b):
        return ops.tanh(ops.linear(x, w, b).reshape(8, 64, 256)).sum()

    assert after(f, X, W, B)["affine"] == 0


def test_so_it_is_in_parts_that_are_large():
    def f(x, w, b):
        return [ops.exp(part) for part in ops.linear(x, w, b).reshape(2, 256, 256)]

    found = after(f, X, W, B)
    assert found["affine"] == 0
    assert found["add"] == 2


def test_parts_of_the_bias_are_none_of_it():
    def f(x, w, b):
        return [ops.exp(part) for part in ops.linear(x, w, b).reshape(512, 2, 128).swapaxes(0, 1)]

    assert after(f, X, W, B)["affine"] == 1


def test_a_bias_that_others_read_stays():
    def f(x, w, b):
        y = ops.linear(x, w, b)
        return ops.tanh(y), y @ w

    assert after(f, X, W, B)["affine"] == 1


def test_a_bias_of_a_result_stays():
    assert after(lambda x, w, b: (ops.linear(x, w, b), 1.0), X, W, B)["affine"] == 1


def test_a_bias_of_few_elements_stays():
    assert after(lambda x, w, b: ops.tanh(ops.linear(x[:1], w, b)), X, W, B)["affine"] == 1


@pytest.mark.parametrize("labels", [np.arange(512) % 256, np.arange(512, dtype=np.int32) // 2])
def test_elements_at_labels_get_their_biases(labels):
    def f(w, b, x, labels):
        return fdbr.value_and_grad(lambda w: ops.softmax_cross_entropy(ops.linear(x, *w), labels))(
            (w, b)
        )

    found = after(lambda w, b, x: f(w, b, x, labels), W, B, X)
    assert found["affine"] == 0
    jitted = assert_as_eager(f, (W, B, X, labels), (W, B, X, labels[::-1].copy()), ulps=64)
    assert_allclose(jitted(W, B, X, labels)[0], f(W, B, X, labels)[0], rtol=1e-6)
