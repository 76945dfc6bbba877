"""The kernel that puts examples last."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr.backends.cpu.library.conv import batch_last_copy
from fdbr.backends.cpu.library.conv.program_primitives import PUT_LAST
from fdbr.backends.cpu.tuning import TUNING

put_last = batch_last_copy.VALUES[PUT_LAST]


@settings(max_examples=60)
@given(
    shape=st.lists(st.integers(1, 20), min_size=2, max_size=4),
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.complex64]),
    order=st.sampled_from("CF"),
    threads=st.integers(1, 3),
)
def test_the_first_axis_becomes_the_last(shape, dtype, order, threads):
    x = np.asarray(np.arange(np.prod(shape)).reshape(shape).astype(dtype), order=order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TUNING, "extra_pass", 1)
        patch.setattr(TUNING, "batch_last_thread", 1)
        patch.setattr(batch_last_copy, "thread_count", lambda: threads)
        out = put_last(np, x)
    assert out.flags.c_contiguous
    assert out.dtype == x.dtype
    assert np.array_equal(out, np.moveaxis(x, 0, -1))


def test_nothing_at_all():
    assert put_last(np, np.empty((0, 3, 4))).shape == (3, 4, 0)
    assert put_last(np, np.empty((2, 3, 0), np.float32)).shape == (3, 0, 2)


@pytest.mark.parametrize("shape", [(1, 3, 4), (1, 64, 64, 2), (5, 1, 1)])
def test_the_result_is_new_memory(shape):
    x = np.ones(shape)
    assert not np.shares_memory(put_last(np, x), x)
