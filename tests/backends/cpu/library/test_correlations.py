"""Convolutions by blocks in the cache are what their definition says, whatever their windows."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr.backends.cpu.library.conv import plans
from fdbr.backends.cpu.library.conv.correlations import (
    Axis,
    axes_of,
    correlation,
    inner_correlation,
    transposed_correlation,
)


def defined(x, weight, axes, groups):
    """The definition, element by element of the windows."""
    count = len(x)
    outputs, inputs = weight.shape[:2]
    out = np.zeros((count, outputs, *[a.windows for a in axes]))
    for k in itertools.product(*[range(a.taps) for a in axes]):
        for p in itertools.product(*[range(a.windows) for a in axes]):
            at = tuple(
                q * a.stride - a.before + i * a.apart for q, i, a in zip(p, k, axes, strict=True)
            )
            if not all(0 <= i < a.length for i, a in zip(at, axes, strict=True)):
                continue
            here = x[(..., *at)].reshape(count, groups, inputs).astype(float)
            there = weight[(..., *k)].reshape(groups, outputs // groups, inputs).astype(float)
            out[(..., *p)] += np.einsum("ngc,goc->ngo", here, there).reshape(count, outputs)
    return out


@st.composite
def axis(draw, most):
    taps, apart, stride = (draw(st.integers(1, n)) for n in (4, 3, 3))
    extent = apart * (taps - 1) + 1
    before, after = draw(st.integers(-1, 3)), draw(st.integers(-1, 3))
    length = max(1, extent - before - after) + draw(st.integers(0, most))
    count = (length + before + after - extent) // stride + 1
    return Axis(taps, apart, before, stride, count, length)


@st.composite
def problems(draw):
    axes = tuple(draw(st.sampled_from([[70], [12, 20], [3, 4, 5]]).flatmap(_axes)))
    groups, count = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    inputs, outputs = draw(st.integers(1, 5)), draw(st.integers(1, 15))
    return axes, groups, count, groups * inputs, groups * outputs


def _axes(lengths):
    return st.tuples(*map(axis, lengths))


def arranged(x, order):
    """An array with its examples first in memory, last, or with gaps."""
    if order == "last":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    return np.repeat(x, 2, axis=0)[::2] if order == "apart" else x


@given(
    problem=problems(),
    dtype=st.sampled_from(["float32", "float64"]),
    orders=st.tuples(*[st.sampled_from(["first", "last", "apart"])] * 2),
    biased=st.booleans(),
    positive=st.booleans(),
)
@settings(max_examples=40)
def test_the_three_correlations_are_their_definition_and_transposes(
    problem, dtype, orders, biased, positive
):
    axes, groups, count, channels, outputs = problem
    generator = np.random.default_rng(0)
    x = generator.standard_normal((count, channels, *[a.length for a in axes])).astype(dtype)
    y = generator.standard_normal((count, outputs, *[a.windows for a in axes])).astype(dtype)
    shape = outputs, channels // groups, *[a.taps for a in axes]
    weight = generator.standard_normal(shape).astype(dtype)
    bias = generator.standard_normal(outputs).astype(dtype) if biased else None
    x, y = (arranged(v, order) for v, order in zip((x, y), orders, strict=True))
    plain = defined(x, weight, axes, groups)
    expected = plain
    if biased:
        expected = expected + bias.reshape(-1, *(1,) * len(axes))
    expected = np.maximum(expected, 0) if positive else expected
    accurate = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-10}
    )
    found = correlation(x, weight, bias, axes, groups, positive)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, **accurate)
    # Each is linear in what it is given: the inner products of all three agree.
    total = np.vdot(plain, y)
    scale = {"rtol": accurate["rtol"], "atol": accurate["atol"] * (1 + np.abs(plain).sum())}
    cotangents_in = transposed_correlation(y, weight, axes, groups)
    assert cotangents_in.shape == x.shape
    np.testing.assert_allclose(np.vdot(cotangents_in.astype(float), x), total, **scale)
    of_weight = inner_correlation(x, y, axes, groups)
    assert of_weight.shape == weight.shape
    np.testing.assert_allclose(np.vdot(of_weight.astype(float), weight), total, **scale)


@pytest.mark.parametrize(("channels", "outputs", "size"), [(40, 70, 40), (300, 9, 12), (5, 130, 6)])
def test_many_blocks_of_taps_windows_and_outputs_add_up(channels, outputs, size):
    axes = axes_of((3, 3), (1, 1), (1, 1), (1, 1), (size, size), (size, size))
    generator = np.random.default_rng(0)
    x = generator.standard_normal((3, channels, size, size))
    y = generator.standard_normal((3, outputs, size, size))
    weight = generator.standard_normal((outputs, channels, 3, 3))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True)
    np.testing.assert_allclose(correlation(x, weight, None, axes, 1), expected, atol=1e-9)
    expected = np.einsum("nchwij,nohw->ocij", windows, y, optimize=True)
    np.testing.assert_allclose(inner_correlation(x, y, axes, 1), expected, atol=1e-9)
    padded = np.pad(y, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nohwij,ocij->nchw", windows, weight[..., ::-1, ::-1], optimize=True)
    np.testing.assert_allclose(transposed_correlation(y, weight, axes, 1), expected, atol=1e-9)


def test_what_is_not_a_number_stays_where_it_is():
    axes = axes_of((3,), (1,), (1,), (1,), (40,), (40,))
    x = np.ones((1, 4, 40))
    x[0, 0, 20] = np.nan
    found = correlation(x, np.ones((8, 4, 3)), None, axes, 1, True)
    assert np.isnan(found).sum() == 3 * 8
    y = np.ones((1, 2, 40))
    y[0, 0, 20] = np.inf
    of_weight = inner_correlation(np.ones((1, 4, 40)), y, axes, 1)
    assert np.isposinf(of_weight[0]).all()
    assert np.isfinite(of_weight[1]).all()


def test_results_have_the_same_bits_on_any_number_of_threads(monkeypatch):
    axes = axes_of((3, 3), (2, 1), (1, 1), (1, 1), (20, 40), (40, 40))
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 24, 40, 40)).astype("float32")
    y = generator.standard_normal((2, 40, 20, 40)).astype("float32")
    weight = generator.standard_normal((40, 24, 3, 3)).astype("float32")
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(plans, "thread_count", lambda threads=threads: threads)
        for planning in (plans.plan, plans.inner_plan):
            planning.cache_clear()
        forward, back = (
            correlation(x, weight, None, axes, 1),
            transposed_correlation(y, weight, axes, 1),
        )
        found.append([v.tobytes() for v in (forward, back, inner_correlation(x, y, axes, 1))])
    assert found[0] == found[1] == found[2]


def test_other_numbers_are_left_to_others():
    axes = axes_of((3,), (1,), (1,), (1,), (40,), (40,))
    x, weight = np.ones((1, 4, 40), int), np.ones((8, 4, 3), int)
    assert correlation(x, weight, None, axes, 1) is None
    assert correlation(x * 1.0, weight, None, axes, 1) is None
