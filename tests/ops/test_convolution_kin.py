"""Convolutions and their kin by what one says of the other, over all settings."""

import math

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume, given

import fdbr
from fdbr import ops
from ops.cases import few


def numbers(seed, *shape):
    """Quarters, so that sums of products are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape) / 4


@st.composite
def geometries(draw):
    """The lengths of spatial axes, and settings by which at least one window fits into them."""
    rank = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    size, kernel = each(1, (9, 6, 4)[rank - 1]), each(1, (4, 3, 2)[rank - 1])
    found = {"stride": each(1, 3), "dilation": each(1, 3)}
    found["padding"] = draw(
        st.one_of(
            st.sampled_from(["same", "valid"]),
            st.just(each(0, 2)),
            st.just(tuple(zip(each(0, 2), each(0, 2), strict=True))),
        )
    )
    pads = found["padding"]
    if pads == "valid":
        pads = (0,) * rank
    if pads != "same":
        sums = [sum(p) if isinstance(p, tuple) else 2 * p for p in pads]
        extents = [d * (k - 1) + 1 for d, k in zip(found["dilation"], kernel, strict=True)]
        assume(all(n + p >= e for n, p, e in zip(size, sums, extents, strict=True)))
    return size, kernel, found


@given(geometries(), st.integers(1, 3), st.integers(0, 3))
@few()
def test_a_transposed_convolution_of_a_given_size_is_the_transpose(geometry, groups, seed):
    size, kernel, found = geometry
    x, weight = numbers(seed, 2, 2 * groups, *size), numbers(1, groups, 2, *kernel)
    y, pullback = fdbr.vjp(lambda x: ops.conv(x, weight, groups=groups, **found), x)
    ct = numbers(2, *y.shape)
    back = ops.conv_transpose(ct, weight, groups=groups, output_size=size, **found)
    np.testing.assert_array_equal(back, pullback(ct)[0])


@given(geometries(), st.booleans())
@few()
def test_a_convolution_is_a_product_with_unfolded_windows(geometry, cover_all):
    size, kernel, found = geometry
    x, weight = numbers(0, 2, 3, *size), numbers(1, 4, 3, *kernel)
    y = ops.conv(x, weight, cover_all=cover_all, **found)
    columns = ops.unfold(x, kernel, cover_all=cover_all, **found)
    product = weight.reshape(4, -1) @ columns
    np.testing.assert_array_equal(product.reshape(y.shape), y)
    back, pullback = fdbr.vjp(lambda x: ops.unfold(x, kernel, cover_all=cover_all, **found), x)
    folded = ops.fold(back, size, kernel, cover_all=cover_all, **found)
    np.testing.assert_array_equal(folded, pullback(columns)[0])


@given(geometries())
@few()
def test_a_local_convolution_of_equal_weights_is_a_convolution(geometry):
    size, kernel, found = geometry
    x, weight = numbers(0, 2, 3, *size), numbers(1, 4, 3, *kernel)
    y, pullback = fdbr.vjp(lambda x, w: ops.conv(x, w, **found), x, weight)
    counts = y.shape[2:]
    every = np.broadcast_to(
        weight.reshape(4, *(1,) * len(counts), 3, *kernel), (4, *counts, 3, *kernel)
    )
    local, local_pullback = fdbr.vjp(lambda x, w: ops.local_conv(x, w, **found), x, every)
    np.testing.assert_array_equal(local, y)
    ct = numbers(2, *y.shape)
    mine, others = local_pullback(ct), pullback(ct)
    np.testing.assert_array_equal(mine[0], others[0])
    windows = tuple(range(1, 1 + len(counts)))
    np.testing.assert_array_equal(mine[1].sum(axis=windows), others[1])


@given(geometries(), st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 4)]), st.integers(-2, 2))
@few()
def test_windows_deformed_by_nothing_or_by_whole_steps_are_those_of_a_convolution(
    geometry, groups, step
):
    size, kernel, found = geometry
    parts, offset_groups = groups
    step *= found["padding"] == "valid"  # a window that is moved may see less of the padding
    rank = len(size)
    x, weight = numbers(0, 2, 4, *size), numbers(1, 4, 4 // parts, *kernel)
    moved = np.zeros((2, 4, *size))  # by so many steps along the last axis
    inside = [slice(max(step, 0), size[-1] + min(step, 0)), slice(max(-step, 0), None)]
    if abs(step) < size[-1]:
        inside[1] = slice(max(-step, 0), size[-1] - max(step, 0))
        moved[..., inside[1]] = x[..., inside[0]]
    y, pullback = fdbr.vjp(lambda x, w: ops.conv(x, w, groups=parts, **found), moved, weight)
    offset = np.zeros((2, offset_groups, math.prod(kernel), rank, *y.shape[2:]))
    offset[:, :, :, -1] = step
    offset = offset.reshape((2, -1, *y.shape[2:]))
    deformed, back = fdbr.vjp(lambda x, w: ops.deform_conv(x, offset, w, **found), x, weight)
    np.testing.assert_array_equal(deformed, y)
    np.testing.assert_array_equal(back(y)[1], pullback(y)[1])
