"""Pooling by kernels: the largest elements of windows, and their places."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.codegen import eager_kernels
from fdbr.backends.cpu.library.pool import pooling
from fdbr.backends.cpu.runtime import pool
from fdbr.backends.cpu.tuning import TUNING

SPECIAL = [-np.inf, np.inf, np.nan, -0.0]


@st.composite
def pools(draw):
    rank = draw(st.integers(1, 3))
    numbers = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]
    kernel, stride, dilation = numbers(1, 4), numbers(1, 4), numbers(1, 2)
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = [(draw(st.integers(0, e - 1)), draw(st.integers(0, e - 1))) for e in extents]
    axes = zip(extents, padding, [*numbers(1, 5)[1:], draw(st.integers(1, 40))], strict=True)
    sizes = [max(1, e - sum(pad), n) for e, pad, n in axes]
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x = rng.normal(size=(draw(st.integers(1, 3)), 2, *sizes))
    if draw(st.booleans()):
        x = np.round(x)
    for value in draw(st.lists(st.sampled_from(SPECIAL), max_size=2)):
        x.flat[rng.integers(0, x.size, 1 + x.size // 9)] = value
    dtype = draw(st.sampled_from(["float32", "float64"]))
    return x.astype(dtype), (tuple(kernel), tuple(stride), padding, tuple(dilation))


def everything(x, setting):
    """Values, places, gradient and directional derivative."""
    f = lambda x: ops.max_pool(x, *setting)
    out, pull = fdbr.vjp(f, x)
    ct, tangent = (np.cos(np.arange(v.size, dtype=x.dtype)).reshape(v.shape) for v in (out, x))
    ct.flat[0] = np.inf
    places = ops.max_pool(x, *setting, return_indices=True)[1]
    return out, places, pull(ct)[0], fdbr.jvp(f, (x,), (tangent,))[1]


@given(pools())
@settings(max_examples=70)
def test_a_kernel_finds_the_same_elements_and_places(case):
    found = []
    for least in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TUNING, "kernel_bytes", least)
            found.append(everything(*case))
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "setting", [((2, 2),), ((3, 3), 2, 1), ((4, 1), (5, 3)), ((2, 3), 1, 0, 2)]
)
def test_kernels_do_it_for_large_arrays_and_have_the_same_bits_on_any_number_of_threads(
    setting, monkeypatch
):
    x = np.random.default_rng(0).normal(size=(16, 8, 45, 51)).astype("float32")
    ran = []
    for name in ("largest", "winners", "to_winners", "at_winners"):
        function = getattr(pooling, name)
        monkeypatch.setattr(
            pooling, name, lambda *args, f=function: ran.append(f(*args)) or ran[-1]
        )
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(pool, "thread_count", lambda n=threads: n)
        eager_kernels._plans.clear()
        found.append(everything(x, setting))
    eager_kernels._plans.clear()
    assert len(ran) >= 8
    assert not any(out is None for out in ran)
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_row_that_is_too_long_for_a_threads_memory_is_left_to_numpy():
    x = np.random.default_rng(0).normal(size=(1, 1, 1 << 18)).astype("float32")
    assert pooling.largest(x, pooling.Windows((2,), (2,), (0,), (1,)), (1 << 17,)) is None
    np.testing.assert_array_equal(ops.max_pool(x, 2), x.reshape(1, 1, -1, 2).max(-1))


def test_an_infinite_cotangent_stays_at_the_place_of_the_largest():
    pull = fdbr.vjp(lambda x: ops.max_pool(x, 2), np.array([[[1.0, 3.0, 2.0, 0.0]]]))[1]
    assert pull(np.array([[[np.inf, 1.0]]]))[0].tolist() == [[[0.0, np.inf, 1.0, 0.0]]]
