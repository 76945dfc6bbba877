"""Choices between arrays and numbers, by NumPy, by bits and by kernels."""

import numpy as np
import pytest

from fdbr import ops
from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING


@pytest.mark.parametrize("count", [0, 8, TUNING.where_elements - 1, 9_000, 131_071, 262_144])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
def test_choices_of_numbers_are_numpys_bit_for_bit(count, dtype):
    x = np.random.default_rng(0).normal(size=count).astype(dtype)
    if x.dtype.kind == "f" and count:
        x[0], x[-1] = np.nan, -0.0
    for each in (x, x[::-1], x.reshape(-1, 2).T if count % 2 == 0 else x):
        condition = each > 0
        for number in (0.5, 2, np.float32(3), -0.0, float("nan")):
            for pair in ((number, each), (each, number), (number, 7.0)):
                found, expected = ops.where(condition, *pair), np.where(condition, *pair)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
                if found.dtype.kind == "f":
                    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_large_choices_of_numbers_are_made_by_a_kernel(monkeypatch):
    asked = []
    of_kernel = kernels.elementwise
    monkeypatch.setattr(
        kernels, "elementwise", lambda *args: asked.append(of_kernel(*args)) or asked[-1]
    )
    x = np.random.default_rng(0).normal(size=1 << 18).astype("float32")
    ops.where(x > 0, 0.5, x)
    assert asked[-1] is not None


def test_a_strided_array_is_a_copy_in_rows():
    x = np.arange(30.0).reshape(5, 6)
    for shape, steps, first in (((3, 2), (1, 1), 0), ((2, 3), (-6, 2), 7), ((0, 3), (1, 1), 0)):
        for each in (x, x.T, x[:, ::-1]):
            rows, columns = (np.arange(n) * step for n, step in zip(shape, steps, strict=True))
            places = first + np.add.outer(rows, columns)
            found = ops.as_strided(each, shape, steps, first)
            np.testing.assert_array_equal(found, each.reshape(-1)[places])
            assert not np.shares_memory(found, each)
            assert found.flags.writeable
