"""Kernels of convolutions give what products with columns of windows give."""

import concurrent.futures

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.conv import planner
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import registry
from fdbr.ops.nn.convolution import im2col
from fdbr.ops.nn.windows import Geometry

NAMES = "conv", "conv_biased", "conv_kernel", "conv_input"
VALUES = {name: registry[name].host for name in NAMES}


@st.composite
def settings_of_axis(draw):
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2))
    padding = draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
    extent = dilation * (kernel - 1) + 1
    least = max(extent - sum(padding), 1)
    return kernel, stride, padding, dilation, draw(st.integers(least, least + 8))


@st.composite
def problems(draw):
    """A geometry with the three operands of a convolution, in whatever order in memory."""
    axes = draw(st.lists(settings_of_axis(), min_size=1, max_size=3))
    geometry = Geometry(*(tuple(part) for part in list(zip(*axes, strict=True))[:4]))
    size = tuple(axis[4] for axis in axes)
    groups = draw(st.integers(1, 3))
    channels, outputs = (groups * draw(st.integers(1, n)) for n in (9, 17))
    batch = draw(st.sampled_from([1, 3, 8, 16, 19]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    generator = np.random.default_rng(draw(st.integers(0, 99)))

    def array(*shape):
        order = draw(st.permutations(range(len(shape))))
        values = generator.standard_normal([shape[axis] for axis in order]).astype(dtype)
        return values.transpose(np.argsort(order))

    x = array(batch, channels, *size)
    weight = array(outputs, channels // groups, *geometry.kernel)
    y = array(batch, outputs, *geometry.counts(size))
    return geometry, groups, x, weight, y, array(outputs)


def assert_same(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    scale = max(np.abs(b).max(initial=0), 1)
    assert np.abs(a - b).max(initial=0) <= 500 * np.finfo(a.dtype).eps * scale


def assert_all_same(geometry, groups, x, weight, y, bias):
    settings = {"geometry": geometry, "groups": groups}
    size = tuple(x.shape[2:])
    assert_same(
        VALUES["conv"](np, x, weight, **settings),
        im2col.correlate(np, x, weight, None, geometry, groups),
    )
    assert_same(
        VALUES["conv_biased"](np, x, weight, bias, **settings),
        im2col.correlate(np, x, weight, bias, geometry, groups),
    )
    assert_same(
        VALUES["conv_kernel"](np, x, y, **settings),
        im2col.correlate_kernel(np, x, y, geometry, groups),
    )
    assert_same(
        VALUES["conv_input"](np, y, weight, size=size, **settings),
        im2col.correlate_transposed(np, y, weight, geometry, groups, size),
    )


@settings(max_examples=60)
@given(problems())
def test_kernels_do_what_columns_do(problem):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TUNING, "conv_kernel", 0)
        assert_all_same(*problem)


def large(batch=16, channels=40, outputs=70, length=24, kernel=3, stride=1, dtype=np.float32):
    pad = kernel // 2
    geometry = Geometry((kernel,) * 2, (stride,) * 2, ((pad, pad),) * 2, (1, 1))
    generator = np.random.default_rng(0)
    x, weight, y, bias = (
        generator.standard_normal(shape).astype(dtype)
        for shape in (
            (batch, channels, length, length),
            (outputs, channels, kernel, kernel),
            (batch, outputs, *geometry.counts((length, length))),
            (outputs,),
        )
    )
    return geometry, 1, x, weight, y, bias


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("length", "channels", "outputs"), [(24, 40, 70), (3, 300, 600), (7, 1, 3)]
)
def test_large_convolutions_are_divided_rightly(length, channels, outputs, stride):
    assert_all_same(*large(16, channels, outputs, length, 3, stride))


@pytest.mark.parametrize("examples_last", [False, True])
@pytest.mark.parametrize(("length", "stride"), [(24, 2), (25, 2), (20, 3)])
def test_strided_windows_of_single_elements_read_the_sampled_array(length, stride, examples_last):
    geometry, groups, *operands = large(length=length, kernel=1, stride=stride)
    if examples_last:
        order = (1, 2, 3, 0)
        operands = [
            np.ascontiguousarray(v.transpose(order)).transpose(3, 0, 1, 2) if v.ndim == 4 else v
            for v in operands
        ]
    assert_all_same(geometry, groups, *operands)


def test_small_convolutions_are_computed_without_kernels(monkeypatch):
    called = []
    for name in ("correlation", "inner_correlation", "transposed_correlation"):
        monkeypatch.setattr(planner, name, lambda *_: called.append(True))
    assert_all_same(*large(1, 2, 2, 3))
    assert not called
    assert_all_same(*large(16, 40, 70, 9))
    assert called


@pytest.mark.parametrize("dtype", [np.float16, np.complex64, np.int64])
def test_other_dtypes_go_through_columns(dtype):
    geometry, groups, x, weight, _, bias = (
        part.astype(dtype) if isinstance(part, np.ndarray) else part for part in large(2, 2, 3, 8)
    )
    out = VALUES["conv_biased"](np, x, weight, bias, geometry=geometry, groups=groups)
    assert np.array_equal(out, im2col.correlate(np, x, weight, bias, geometry, groups))


def test_what_is_not_a_number_spreads_no_further_than_its_windows():
    geometry, groups, x, weight, y, bias = large(16, 3, 4, 9)
    x[3, 1, 4, 4] = np.nan
    y[2, 1, 0, 0] = np.inf
    assert_nans = np.testing.assert_array_equal
    out = VALUES["conv_biased"](np, x, weight, bias, geometry=geometry, groups=groups)
    expected = im2col.correlate(np, x, weight, bias, geometry, groups)
    assert_nans(np.isnan(out), np.isnan(expected))
    ct = VALUES["conv_input"](np, y, weight, geometry=geometry, groups=1, size=(9, 9))
    expected = im2col.correlate_transposed(np, y, weight, geometry, 1, (9, 9))
    assert_nans(np.isfinite(ct), np.isfinite(expected))


def network(weights, x):
    first, bias, second, last, shift = weights
    x = ops.max_pool(ops.relu(ops.conv(x, first, bias, padding=1)), 2)
    x = ops.relu(ops.conv(x, second, stride=2, padding=1))
    return ops.sum(ops.linear(ops.reshape(x, (len(x), -1)), last, shift) ** 2)


def make_weights(dtype=np.float64):
    generator = np.random.default_rng(0)
    shapes = (6, 3, 3, 3), (6,), (9, 6, 3, 3), (4, 81), (4,)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def test_a_jitted_network_is_the_network():
    x = np.random.default_rng(1).standard_normal((17, 3, 12, 12))
    step = fdbr.value_and_grad(network)
    jitted = fdbr.jit(step)
    for _ in range(2):
        for a, b in zip(
            fdbr.tree.leaves(jitted(make_weights(), x)),
            fdbr.tree.leaves(step(make_weights(), x)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_several_threads_run_one_jitted_network():
    x = np.random.default_rng(1).standard_normal((17, 3, 12, 12))
    jitted = fdbr.jit(fdbr.value_and_grad(network))
    expected = jitted(make_weights(), x)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: jitted(make_weights(), x), range(12)))
    for result in found:
        for a, b in zip(fdbr.tree.leaves(result), fdbr.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
