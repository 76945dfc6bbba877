"""Places of all shapes, dtypes and layouts: kernels read, write and add as NumPy does."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import fdbr
from fdbr import ops
from fdbr.backends.cpu.library.gather_scatter import gather_scatter
from fdbr.backends.cpu.runtime import pool
from fdbr.backends.cpu.tuning import TUNING

DTYPES = [
    "float32",
    ">f4",
    "float64",
    "float16",
    "complex64",
    "complex128",
    "int8",
    "int64",
    "bool",
]
INTEGERS = ["int64", "int32", "uint8", ">i8", "int16"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Arrays of any size are large, and there are several threads for what is not tiny."""
    monkeypatch.setattr(TUNING, "kernel_bytes", 0)
    monkeypatch.setattr(TUNING, "gather_part", 4)
    monkeypatch.setattr(gather_scatter, "_GRAIN", 1)
    monkeypatch.setattr(gather_scatter, "thread_count", lambda: 3)
    monkeypatch.setattr(gather_scatter, "part_count", lambda most: max(1, min(24, most)))


@st.composite
def arrays_and_places(draw):
    """An array, an axis, places on it, and whether they name each element; some are not there."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    shape = (*shape[:-1], shape[-1] * draw(st.sampled_from([1, 4, 30])))
    axis = draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x = (rng.normal(size=shape) * 4).astype(draw(st.sampled_from(DTYPES)))
    layout = draw(st.sampled_from(["C", "C", "F", "steps", "turned"]))
    if layout == "F":
        x = np.asfortranarray(x)
    elif layout == "steps":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    elif layout == "turned":
        x = x[::-1]
    each = draw(st.booleans())
    number = draw(st.sampled_from([0, 1, 3, 40, 1100]))
    region = (*shape[:axis], number, *shape[axis + 1 :]) if each else (number,)
    kind = np.dtype(draw(st.sampled_from(INTEGERS)))
    kind = kind if np.iinfo(kind).max > shape[axis] else np.dtype(int)
    index = rng.integers(0 if kind.kind == "u" else -shape[axis], shape[axis], region).astype(kind)
    if draw(st.integers(0, 5)) == 0 and index.size:
        index.flat[draw(st.integers(0, index.size - 1))] = shape[axis]
    return x, axis, index, each


def key_of(x, axis, index, each):
    if not each:
        return (slice(None),) * axis + (index,)
    grid = [np.arange(n).reshape((-1,) + (1,) * (x.ndim - 1 - i)) for i, n in enumerate(x.shape)]
    return (*grid[:axis], index, *grid[axis + 1 :])


def outcome(function):
    """What a function returns, or the message of its error."""
    try:
        return function()
    except IndexError as error:
        return str(error).partition("is out of bounds")[0].split()[-2:]


def assert_same(found, desired):
    if isinstance(desired, list):
        assert found == desired
        return
    assert found.dtype == desired.dtype
    assert found.shape == desired.shape
    np.testing.assert_array_equal(found, desired)


@given(arrays_and_places())
@settings(max_examples=300)
def test_elements_are_read_as_numpy_reads_them(case):
    x, axis, index, each = case
    desired = outcome(lambda: x[key_of(*case)])
    if each:
        assert_same(outcome(lambda: ops.take_along_axis(x, index, axis=axis)), desired)
        assert_same(outcome(lambda: ops.gather(x, axis, index)), desired)
    else:
        assert_same(outcome(lambda: ops.take(x, index, axis=axis)), desired)
        assert_same(outcome(lambda: ops.getitem(x, key_of(*case))), desired)


@given(arrays_and_places(), st.booleans(), st.integers(0, 99))
@settings(max_examples=300)
def test_values_are_written_and_added_in_their_order(case, one, seed):
    x, key = case[0], key_of(*case)
    _, axis, index, each = case
    shape = index.shape if each else (*x.shape[:axis], len(index), *x.shape[axis + 1 :])
    values = np.random.default_rng(seed).normal(size=() if one else shape).astype(x.dtype)

    def put():
        out = x.copy()
        out[key] = values
        return out

    def added():
        out = x.copy()
        np.add.at(out, key, values)
        return out

    assert_same(outcome(lambda: ops.at(x)[key].set(values)), outcome(put))
    if x.dtype != np.float16:  # whose sums are rounded once
        assert_same(outcome(lambda: ops.at(x)[key].add(values)), outcome(added))


@given(arrays_and_places())
def test_what_is_moved_has_the_derivative_of_what_it_was(case):
    x, axis, index, each = case
    if x.dtype not in (np.float32, np.float64) or isinstance(
        outcome(lambda: x[key_of(*case)]), list
    ):
        return
    read = ops.take_along_axis if each else ops.take
    y, pullback = fdbr.vjp(lambda x: read(x, index, axis=axis), x)
    ct = np.random.default_rng(0).integers(-4, 5, y.shape).astype(x.dtype)
    desired = np.zeros(x.shape, x.dtype)
    np.add.at(desired, key_of(*case), ct)
    np.testing.assert_array_equal(pullback(ct)[0], desired)


@given(arrays_and_places(), st.booleans())
def test_what_was_written_has_the_derivative_of_its_place(case, one):
    x, key = case[0], key_of(*case)
    region = outcome(lambda: x[key])
    if x.dtype not in (np.float32, np.float64) or isinstance(region, list):
        return
    values = np.asarray(x.dtype.type(3)) if one else region
    _, pullback = fdbr.vjp(lambda x, y: ops.at(x)[key].set(y), x, values)
    ct = np.random.default_rng(0).integers(-4, 5, x.shape).astype(x.dtype)
    of_x, of_values = pullback(ct)
    last, order = np.full(x.shape, -1), np.arange(region.size).reshape(region.shape)
    last[key] = order
    np.testing.assert_array_equal(of_x, np.where(last < 0, ct, 0))
    share = np.where(last[key] == order, ct[key], 0)
    np.testing.assert_array_equal(of_values, share.sum() if one else share)


@pytest.mark.parametrize("shape", [(1, 50, 1), (1, 50, 40), (9, 50, 1), (2, 50, 7)])
@pytest.mark.parametrize("each", [False, True])
def test_sums_have_the_same_bits_on_every_number_of_threads(monkeypatch, shape, each):
    rng = np.random.default_rng(0)
    number = 3000
    index = rng.integers(0, 50, (shape[0], number, shape[2]) if each else number)
    values = rng.normal(size=(shape[0], number, shape[2])).astype(np.float32)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(gather_scatter, "thread_count", lambda threads=threads: threads)
        out = np.zeros(shape, np.float32)
        assert gather_scatter.scattered(out, index, shape, each, values, add=True)
        found.append(out)
    assert pool.thread_count() > 1
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
