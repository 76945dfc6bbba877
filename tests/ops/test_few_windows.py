"""Convolutions of few windows are those of many, though small arrays take another path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr.backends.cpu.library.conv import planner
from fdbr.ops.nn.windows import Geometry
from fdbr.testing import assert_allclose


@st.composite
def convolutions(draw):
    """Windows over an array, how many groups there are, and an output for each window."""
    rank = draw(st.integers(1, 3))
    each = st.integers(1, 3)
    kernel, stride, dilation = (draw(st.tuples(*[each] * rank)) for _ in range(3))
    pads = draw(st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * rank))
    geometry = Geometry(kernel, stride, pads, dilation)
    more = draw(st.tuples(*[st.integers(0, 3)] * rank))
    size = tuple(
        max(extent - sum(pad), 1) + n
        for extent, pad, n in zip(geometry.extents(), pads, more, strict=True)
    )
    groups, inputs, outputs = (draw(st.integers(1, 2)) for _ in range(3))
    dtype = draw(st.sampled_from(["float32", "float64", "complex64"]))
    numbers = np.random.default_rng(draw(st.integers(0, 99)))

    def drawn(*shape):
        return numbers.integers(-4, 5, shape).astype(dtype)

    count = draw(st.integers(1, 3))
    x = drawn(count, groups * inputs, *size)
    weight = drawn(groups * outputs, inputs, *kernel)
    y = drawn(count, groups * outputs, *geometry.counts(size))
    return geometry, groups, x, weight, drawn(groups * outputs), y


@given(convolutions())
def test_few_windows_are_convolved_as_many_are(case):
    geometry, groups, x, weight, bias, y = case
    size = tuple(x.shape[2:])

    def every():
        return (
            planner.correlate(x, weight, bias, geometry, groups),
            planner.correlate_transposed(y, weight, geometry, groups, size),
            planner.correlate_kernel(x, y, geometry, groups),
        )

    few = every()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planner, "is_small", lambda *given: False)
        many = every()
    for ours, theirs in zip(few, many, strict=True):
        assert ours.dtype == theirs.dtype
        assert_allclose(ours, theirs, rtol=0, atol=0)


def test_columns_that_are_kept_belong_to_their_shapes():
    geometry = Geometry((2,), (1,), ((1, 0),), (1,))
    weight = np.array([[[1.0, 10.0]]])
    found = [
        planner.correlate(x, weight, None, geometry, 1).tolist()
        for x in (np.array([[[1.0, 2.0]]]), np.array([[[1.0, 2.0, 3.0]]]), np.array([[[5.0, 6.0]]]))
    ]
    assert found == [[[[10.0, 21.0]]], [[[10.0, 21.0, 32.0]]], [[[50.0, 65.0]]]]
