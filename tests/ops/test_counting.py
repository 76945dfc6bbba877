"""Long arrays that are counted are NumPy's."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fdbr import ops
from fdbr.ops.shape import iota

LONG = st.integers(1 << 17, (1 << 17) + 3000)
ENDS = st.floats(-1e300, 1e300) | st.integers(-9, 9)


@given(LONG, ENDS, ENDS, st.booleans())
@example(1 << 17, 0, 1, True)
@example(1 << 17, -1e308, 1e308, True)
@example(1 << 17, 2.0, 2.0, True)
def test_equal_distances_are_numpys_to_the_last_bit(num, start, stop, endpoint):
    with np.errstate(all="ignore"):
        found = ops.linspace(start, stop, num, endpoint=endpoint)
        exact = np.linspace(start, stop, num, endpoint=endpoint)
    assert found.dtype == exact.dtype
    assert np.array_equal(found, exact, equal_nan=True)


@given(LONG, st.sampled_from([1.0, 0.25, 3, -2.0]))
def test_frequencies_are_numpys(n, d):
    for name in ("fftfreq", "rfftfreq"):
        found = getattr(ops.fft, name)(n, d=d)
        np.testing.assert_allclose(found, getattr(np.fft, name)(n, d), rtol=3e-16)
        assert getattr(ops.fft, name)(n, d=d, dtype="float32").dtype == np.float32


def _absolute(xp, i):
    return abs(i)


@pytest.mark.parametrize("count", [1 << 17, 200_001])
def test_what_is_counted_can_be_written_to_and_lies_in_a_row(count):
    found = iota.apply_to_iota.host(np, _absolute, count)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert (found == np.arange(count)).all()
    assert np.array_equal(found, iota.apply_to_iota.definition(np, _absolute, count))
