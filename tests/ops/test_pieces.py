"""Arrays taken apart, and small compositions: what NumPy gives, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import ops


@given(st.integers(0, 7), st.integers(1, 4))
def test_parts_are_those_of_numpy(length, count):
    x = np.arange(length)
    for sections in (count, [count], [0, count]):
        try:
            expected = np.split(x, sections)
        except ValueError:
            with pytest.raises(ValueError, match=f"does not divide into {count} parts"):
                ops.split(x, sections)
            continue
        found = ops.split(x, sections)
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]


def test_strided_elements_are_those_of_numpys_view():
    x = np.arange(24.0).reshape(4, 6)
    view = np.lib.stride_tricks.as_strided(x, (3, 2, 4), (48, 8, 8))
    np.testing.assert_array_equal(ops.as_strided(x, (3, 2, 4), (6, 1, 1)), view)
    assert ops.as_strided(x, (), (), 7) == 7
    assert ops.as_strided(x, (0, 3), (100, 1)).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.as_strided(x, (2, 2), (1,)), "needs a stride for each axis"),
        (lambda x: ops.as_strided(x, (2, 2), (6, 1)), r"lead to elements 0 to 7 of x .* has 6"),
        (lambda x: ops.as_strided(x, (2,), (-1,)), "lead to elements -1 to 0"),
        (lambda x: ops.sum_to(x, (3, 2)), r"shape \(3, 2\) does not broadcast to that of"),
        (lambda x: ops.sum_to(x, (1, 2, 3)), "does not broadcast"),
        (lambda x: ops.average(x, 0, np.ones(3)), "must have the shape of x"),
        (lambda x: ops.split(x, 3), "does not divide into 3 parts"),
        (lambda x: ops.split(x, 2, 5), "axis 5 is out of range"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 3)))
