"""NaN and infinities reach the outputs whose windows have them, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.ops.nn.resampling.interpolation import resize_linearly
from fdbr.ops.nn.window_products import matmul_within_windows

RNG = np.random.default_rng(0)
GRID = RNG.uniform(-1.2, 1.2, (1, 5, 6, 2))
KERNEL = RNG.normal(size=(2, 2, 3, 3))
INTERPOLATIONS = {
    "linear": {"mode": "bilinear"},
    "corners": {"mode": "bilinear", "align_corners": True},
    "cubic": {"mode": "bicubic"},
    "smooth cubic": {"mode": "bicubic", "antialias": True},
    "lanczos": {"mode": "lanczos", "antialias": True},
    "area": {"mode": "area"},
    "nearest": {"mode": "nearest"},
}


def regions(function, count, size):
    """Apply a function to ``count`` regions of one image."""
    rng = np.random.default_rng(1)
    low = rng.uniform(0, size / 2, (count, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, size / 2, (count, 2))], 1)
    return lambda x: function(x, boxes, (3, 2), batch_index=np.zeros(count, int))


# Functions, and the shapes of their operands: below and above the sizes at which they change.
LINEAR = {
    **{
        f"{name} {size}": ((lambda x, s=size, k=kind: ops.interpolate(x, s, **k)), (2, 2, 8, 9))
        for name, kind in INTERPOLATIONS.items()
        for size in ((5, 13), (12, 4))
    },
    "long linear": (lambda x: ops.interpolate(x, 190, mode="linear"), (2, 2, 230)),
    "long cubic": (lambda x: ops.interpolate(x, (400, 3), mode="bicubic"), (1, 2, 230, 2)),
    "long smooth": (
        lambda x: ops.interpolate(x, 190, mode="lanczos", antialias=True),
        (2, 2, 230),
    ),
    "as OpenCV": (lambda x: resize_linearly(x, (5, 13)), (2, 8, 9)),
    "adaptive pooling": (lambda x: ops.adaptive_avg_pool(x, (3, 4)), (2, 2, 8, 9)),
    "average pooling": (lambda x: ops.avg_pool(x, 3, 2, 1), (2, 2, 8, 9)),
    "wide average pooling": (lambda x: ops.avg_pool(x, 9, 1, 4), (1, 2, 20, 21)),
    "grid": (lambda x: ops.grid_sample(x, GRID), (1, 2, 4, 5)),
    "cubic grid": (lambda x: ops.grid_sample(x, GRID, mode="bicubic"), (1, 2, 4, 5)),
    "few regions": (regions(ops.roi_average_align, 3, 8), (1, 2, 8, 9)),
    "many regions": (regions(ops.roi_average_align, 20, 8), (1, 2, 8, 9)),
    "regions of large images": (regions(ops.roi_average_align, 20, 60), (1, 2, 60, 61)),
    "regions of many channels": (regions(ops.roi_average_align, 17, 20), (1, 16, 20, 21)),
    "regions of whole pixels": (regions(ops.roi_average_pool, 20, 8), (1, 2, 8, 9)),
    "convolution": (lambda x: ops.conv(x, KERNEL, padding=1), (1, 2, 8, 9)),
}
NOT_FINITE = st.sampled_from([np.nan, np.inf, -np.inf])


def a_unit(data, shape):
    index = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    unit = np.zeros(shape)
    unit[index] = 1
    return index, unit


@pytest.mark.parametrize("name", LINEAR)
@given(st.data())
def test_an_element_reaches_the_windows_that_have_it(name, data):
    function, shape = LINEAR[name]
    x = np.random.default_rng(2).normal(size=shape)
    index, unit = a_unit(data, shape)
    x[index] = 0
    whole, weights = function(x), function(unit)
    bad = data.draw(NOT_FINITE)
    x[index] = bad
    with np.errstate(invalid="ignore"):
        expected = np.where(weights == 0, whole, bad * weights)
    np.testing.assert_allclose(function(x), expected, rtol=1e-6, atol=1e-12)

    _, pull = fdbr.vjp(function, unit)
    ct = np.random.default_rng(3).normal(size=whole.shape)
    index, unit = a_unit(data, whole.shape)
    ct[index] = 0
    (whole,), (weights,) = pull(ct), pull(unit)
    ct[index] = bad
    with np.errstate(invalid="ignore"):
        expected = np.where(weights == 0, whole, bad * weights)
        found = pull(ct)[0]  # points outside of the grid have the weight 0
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["linear (5, 13)", "long linear", "area (12, 4)", "many regions"])
def test_elements_do_not_spread_in_compiled_programs_and_batches(name):
    function, shape = LINEAR[name]
    x = RNG.normal(size=(3, *shape))
    x[(1, *(n // 2 for n in shape))] = np.nan
    expected = np.stack([function(one) for one in x])
    assert np.isnan(expected).any()
    compiled = fdbr.jit(function)
    for one, out in zip(x, expected, strict=True):
        np.testing.assert_allclose(compiled(one), out, rtol=1e-9)
    np.testing.assert_allclose(fdbr.vmap(function)(x), expected, rtol=1e-9)
    tangents = np.stack([fdbr.jvp(function, (one * 0,), (one,))[1] for one in x])
    np.testing.assert_allclose(tangents, expected, rtol=1e-9)


@given(st.data(), st.sampled_from(["float32", "float64", "complex128"]))
def test_products_of_weights_leave_out_weights_of_0(data, dtype):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    weights = rng.integers(-1, 2, (4, 6)).astype(dtype)
    x = rng.normal(size=(2, 6, 3)).astype(dtype)
    if dtype == "complex128":
        x = x + 1j * rng.normal(size=x.shape)
    chosen = rng.random(x.shape) < 0.2
    x[chosen] = rng.choice([np.nan, np.inf, -np.inf], chosen.sum())
    parts = (x.real, x.imag) if dtype == "complex128" else (x,)
    found = matmul_within_windows(np, weights, x)
    found = (found.real, found.imag) if dtype == "complex128" else (found,)
    with np.errstate(invalid="ignore"):
        for part, out in zip(parts, found, strict=True):
            terms = np.where(weights.real[:, :, None] == 0, 0, 1)
            terms = np.where(terms, weights.real[:, :, None] * part[:, None], 0)
            np.testing.assert_allclose(out, terms.sum(-2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", [(0, 0, 2, 2), (0, 1, 7, 1)])
def test_the_gradient_by_boxes_outside_of_nan_is_finite(where):
    boxes = np.array([[4.0, 0.5, 8.0, 5.0], [3.5, 3.0, 7.0, 6.5]])
    x = RNG.normal(size=(1, 2, 8, 9))
    x[where] = np.nan
    gradient = fdbr.grad(lambda boxes: ops.roi_average_align(x, boxes, (3, 2)).sum())
    assert np.isfinite(gradient(boxes)).all()
