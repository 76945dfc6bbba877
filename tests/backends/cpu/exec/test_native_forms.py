"""An operation is a kernel as soon as it has a native form."""

import numpy as np
import pytest

import fdbr
from fdbr.backends.cpu.codegen.written import Output, Written
from fdbr.backends.cpu.exec.native_forms import NATIVE
from fdbr.core.primitive import registry

TWICE = """
def kernel(table, start, stop, thread):
    x, out = address(data(table, 0, f8(0))), data(table, 1, f8(0))
    wrong = data(table, 2, u1(0))
    for i in range(start, stop):
        value = at(x + i * stride(table, 0, 0), f8(0))
        wrong[0] = u1((wrong[0] != 0) | (value < 0))
        out[i] = 2 * value
"""


@pytest.fixture
def doubles():
    """`np.cumulative_sum` as a kernel: it gives twice its operand, and refuses numbers below 0."""

    def written(step):
        (out,) = step.outs
        if len(out.kind.shape) != 1:
            return None
        outputs = (
            Output(out, out.kind.shape, out.kind.dtype, False, 1),
            Output(None, (1,), np.dtype(bool), False, 1),
        )
        rows = out.kind.size
        return Written(TWICE, step.operands, outputs, rows, 1, True, frozenset({0}))

    NATIVE[registry["cumsum"]] = written
    yield
    del NATIVE[registry["cumsum"]]


@pytest.mark.parametrize("length", [1, 5, 3000])
def test_it_is_called_on_operands_as_they_lie(doubles, length):
    x = np.arange(2.0 * length)[::2]
    f = fdbr.jit(lambda x: np.cumulative_sum(x) + 1)
    f(x)
    assert np.array_equal(f(x), 2 * x + 1)


def test_where_it_declines_the_primitives_value_stands(doubles):
    x = np.ones((2, 3))
    f = fdbr.jit(lambda x: np.cumulative_sum(x, axis=1))
    assert np.array_equal(f(x), f(x))
    assert np.array_equal(f(x), np.cumsum(x, axis=1))


def test_the_function_itself_is_run_where_it_refuses(doubles):
    x = np.array([1.0, -2.0])
    f = fdbr.jit(lambda x: np.cumulative_sum(x))
    f(np.abs(x))
    assert np.array_equal(f(x), np.cumsum(x))
