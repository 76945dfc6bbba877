"""Convolutions with few channels, by kernels: the sums that the others compute by columns."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.codegen import eager_kernels
from fdbr.backends.cpu.library.conv import planner, windows
from fdbr.backends.cpu.runtime import pool
from fdbr.backends.cpu.tuning import TUNING


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 3))
    numbers = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]
    kernel, stride, dilation = numbers(1, 3), numbers(1, 3), numbers(1, 2)
    padding = [(draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(rank)]
    least = [d * (k - 1) + 1 - sum(p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    sizes = [max(1, low, n) for low, n in zip(least, [*numbers(1, 5)[1:], 40], strict=True)]
    groups, inputs, outputs = (draw(st.integers(1, 4)) for _ in range(3))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    shapes = (
        (draw(st.integers(1, 3)), groups * inputs, *sizes),
        (groups * outputs, inputs, *kernel),
        (groups * outputs,),
    )
    settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return [rng.normal(size=shape).astype(dtype) for shape in shapes], settings


def _with_gradients(values, settings):
    out, pull = fdbr.vjp(lambda x, w, b: ops.conv(x, w, b, **settings), *values)
    return out, *pull(np.cos(np.arange(out.size, dtype=out.dtype)).reshape(out.shape))


@given(convolutions(), st.booleans())
@settings(max_examples=80)
def test_values_and_gradients_are_those_by_columns(case, spoiled):
    values, settings = case
    if spoiled:
        values[0].flat[0] = np.inf
    found = []
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "is_small", lambda *_: False)
        for least in (0, 1 << 60):
            patch.setattr(TUNING, "kernel_bytes", least)
            found.append(_with_gradients(values, settings))
    tolerance = 1e-3 if values[0].dtype == "float32" else 1e-11
    for one, other in zip(*found, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_kernels_compute_them_and_have_the_same_bits_on_any_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=s).astype("float32") for s in ((8, 32, 33, 37), (32, 1, 3, 3), 32)]
    ran = []
    for name in ("over_windows", "by_position"):
        function = getattr(windows, name)
        monkeypatch.setattr(
            f"fdbr.backends.cpu.library.conv.planner.{name}",
            lambda *a, f=function: ran.append(f) or f(*a),
        )
    first = _with_gradients(values, {"groups": 32, "padding": 1})
    assert len(ran) == 3
    eager_kernels._plans.clear()
    monkeypatch.setattr(pool, "thread_count", lambda: 1)
    second = _with_gradients(values, {"groups": 32, "padding": 1})
    eager_kernels._plans.clear()
    assert [part.tobytes() for part in first] == [part.tobytes() for part in second]


@pytest.mark.parametrize("change", ["dtype", "layout", "kernel", "empty"])
def test_what_kernels_cannot_do_is_left_to_columns(change):
    x, weight = np.ones((2, 4, 12, 12)), np.ones((4, 1, 3, 3))
    if change == "dtype":
        weight = weight.astype("float32")
    elif change == "layout":
        x = np.asfortranarray(x)
    elif change == "kernel":
        weight = np.ones((4, 1, 9, 9))
    else:
        x = x[:0]
    kind = windows.Windows(weight.shape[2:], (1, 1), (0, 0), (1, 1))
    counts = tuple(13 - n for n in weight.shape[2:])
    assert windows.over_windows(x, weight, None, kind, counts, 4) is None
