"""Values of which there is one a row, where their shape might mean one a column as well."""

import numpy as np
import pytest
from compiler.comparing import assert_as_eager
from compiler.recorded import normal

import fdbr
from fdbr import ops
from fdbr.compiler.ir.program import Fused


def test_a_row_value_from_outside_is_one_of_a_row_in_a_square():
    def f(x, v):
        least = v - x.max(axis=1)
        return (ops.exp(x - least[:, None]) * 2).sum(axis=1) * least

    assert_as_eager(f, *[(normal(64, 64), normal(64, seed=1))] * 3, ulps=64)


def test_in_a_square_the_same_array_may_be_a_row_and_a_column():
    def f(x, v):
        rows = v * x.sum(axis=1)
        return x * v + rows[:, None] * ops.tanh(x + v)

    assert_as_eager(f, *[(normal(64, 64), normal(64, seed=1))] * 3, ulps=64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(100, 100), (10, 10, 30), (300, 2), (2, 3000), (7, 500)])
@pytest.mark.parametrize("labels", [np.int32, np.int64, np.uint8])
def test_labels_are_columns(shape, labels, dtype):
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, min(shape[-1], 250), shape[:-1]).astype(labels)

    def f(x, chosen):
        return fdbr.value_and_grad(lambda x: ops.softmax_cross_entropy(x, chosen))(x)

    assert_as_eager(f, *[(normal(*shape, dtype=dtype), chosen)] * 3, ulps=64)


def test_the_pullback_of_cross_entropy_is_one_kernel_with_its_sum_of_rows():
    def f(w, b, x, labels):
        def loss(b):
            return ops.softmax_cross_entropy(ops.linear(x, w, b), labels)

        return fdbr.grad(loss)(b)

    args = normal(300, 20), normal(300), normal(500, 20), np.arange(500) % 300
    jitted = assert_as_eager(f, *[args] * 3, ulps=256)
    steps = jitted.programs()[0].steps
    names = {step.primitive.name for step in steps if not isinstance(step, Fused) and step.outs}
    assert not names & {"subtract_at_labels", "sum"}
