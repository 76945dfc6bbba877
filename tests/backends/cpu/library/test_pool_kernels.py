"""Kernels of pooling give what the primitives give."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fdbr.backends.cpu.library.conv.program_primitives import VJP
from fdbr.backends.cpu.library.pool import compiled
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import registry
from fdbr.ops.nn.windows import Geometry

VALUES = {primitive.name: value for primitive, value in compiled.VALUES.items()}


@st.composite
def problems(draw, ranks=(1, 2, 2, 2, 3)):
    """A geometry and an array, whose numbers often are equal, in whatever order in memory."""
    rank = draw(st.sampled_from(ranks))
    axes = []
    for _ in range(rank):
        kernel, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
        extent = dilation * (kernel - 1) + 1
        padding = draw(st.tuples(*[st.integers(0, extent - 1)] * 2))
        least = max(extent - sum(padding), 1)
        axes.append(
            (
                kernel,
                draw(st.integers(1, 3)),
                padding,
                dilation,
                draw(st.sampled_from([least, least + 3])),
            )
        )
    kernel, stride, padding, dilation, size = zip(*axes, strict=True)
    geometry = Geometry(kernel, stride, padding, dilation)
    shape = (draw(st.sampled_from([1, 8, 13])), draw(st.integers(1, 5)), *size)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(-2, 3, shape).astype(dtype)
    special = draw(st.sampled_from([None, np.nan, np.inf, -np.inf]))
    if special is not None:
        values[..., 0] = special
    order = draw(st.sampled_from([tuple(range(len(shape))), (*range(1, len(shape)), 0)]))
    x = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(order))
    return geometry, x


@settings(max_examples=30)
@given(problems())
def test_the_largest_of_each_window(problem):
    geometry, x = problem
    expected = registry["max_windows"].value(np, x, geometry=geometry)
    found = VALUES["max_windows"](np, x, geometry=geometry)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=30)
@given(problem=problems(), positive=st.booleans(), turned=st.booleans())
def test_the_first_of_the_largest_has_the_cotangent(problem, positive, turned):
    geometry, x = problem
    out = registry["max_windows"].value(np, x, geometry=geometry)
    ct = np.random.default_rng(0).integers(-3, 4, out.shape).astype(x.dtype)
    ct = np.asfortranarray(ct) if turned else ct
    params = {"geometry": geometry, "size": x.shape[2:], "positive": positive}
    expected = VJP[registry["to_winners"]].value(np, ct, x, out, **params)
    found = VALUES["pulled_windows"](np, ct, x, out, **params)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", [2, 3])
def test_large_arrays_are_divided_among_threads(monkeypatch, kernel):
    geometry = Geometry((kernel,) * 2, (2, 2), ((kernel // 3,) * 2,) * 2, (1, 1))
    x = np.random.default_rng(0).standard_normal((7, 20, 20, 64), np.float32).transpose(3, 0, 1, 2)
    monkeypatch.setattr(TUNING, "pool_thread", 1)
    monkeypatch.setattr(compiled, "thread_count", lambda: 3)
    out = VALUES["max_windows"](np, x, geometry=geometry)
    np.testing.assert_array_equal(out, registry["max_windows"].value(np, x, geometry=geometry))
    params = {"geometry": geometry, "size": x.shape[2:], "positive": True}
    np.testing.assert_allclose(
        VALUES["pulled_windows"](np, out, x, out, **params),
        VJP[registry["to_winners"]].value(np, out, x, out, **params),
        rtol=1e-6,
    )


@settings(max_examples=15)
@given(problems(ranks=(2,)))
def test_results_lie_in_memory_as_what_they_are_of(problem):
    geometry, x = problem
    assume(compiled._order(x, geometry) is not None)
    out = VALUES["max_windows"](np, x, geometry=geometry)
    order = compiled._order(x, geometry)
    assert out.transpose(order).flags.c_contiguous
