"""Derivatives of loops in half precision, whose sums over iterations are accumulated in float32."""

import ml_dtypes
import numpy as np
import pytest

import fdbr
from fdbr import ops

pytestmark = pytest.mark.usefixtures("compiled_at_once")

LENGTH = 5000
F32 = np.float32(0)


def rows(w):
    xs = np.ones(LENGTH, w.dtype)
    return fdbr.scan(lambda c, x: (c, ops.astype(w * x, "float32").sum()), F32, xs)[1].sum()


def segments(w):
    xs = np.ones(LENGTH, w.dtype)
    step = lambda c, x: (c + ops.astype(w * x, "float32").sum(), None)
    return fdbr.scan(step, F32, xs, checkpoint=100)[0]


def some_at_once(w):
    xs = np.ones(LENGTH, w.dtype)
    step = lambda c, x: (c + ops.astype(w * x, "float32").sum(), None)
    return fdbr.scan(step, F32, xs, unroll=3)[0]


def numbers(w):
    return fdbr.fori_loop(0, LENGTH, lambda i, c: c + ops.astype(w * w, "float32").sum() / 2, F32)


def condition(w):
    def body(s):
        return s[0] + 1, s[1] + ops.astype(w * ops.astype(s[0] >= 0, w.dtype), "float32").sum()

    return fdbr.while_loop(lambda s: s[0] < LENGTH, body, (np.int64(0), F32))[1]


def nested(w):
    xs = np.ones(50, w.dtype)
    inner = lambda x: fdbr.scan(
        lambda d, y: (d, ops.astype(w * x * y, "float32").sum()), F32, np.ones(100, w.dtype)
    )[1].sum()
    return fdbr.scan(lambda c, x: (c, inner(x)), F32, xs)[1].sum()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("loop", [rows, segments, some_at_once, numbers, condition, nested])
def test_the_gradient_of_a_weight_used_in_many_iterations_is_rounded_once(loop, shape, dtype):
    w = np.ones(shape, dtype)[()]
    right = np.full(shape, LENGTH).astype(dtype)
    for gradient in (fdbr.jit(fdbr.grad(loop)), fdbr.grad(fdbr.jit(loop))):
        found = gradient(w)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, right)
    batched = fdbr.jit(fdbr.grad(lambda w: fdbr.vmap(lambda a: a * loop(w))(np.ones(2)).sum()))
    np.testing.assert_array_equal(batched(w), np.full(shape, 2 * LENGTH).astype(dtype))
