"""Sorting, searching, sets, padding, segments and sequences: laws, edges and errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from ops.cases_arrays import OWN
from ops.laws import check_laws

TIED = np.array([2.0, 1.0, 2.0, 1.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("case", OWN, ids=repr)
def test_derivatives_and_batches_obey_the_laws(case):
    @settings(max_examples=3)
    @given(case.arguments)
    def check(args):
        check_laws(case, args)

    check()


# --- sorting ------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?", "c16"])
def test_raw_and_traced_arrays_sort_alike(dtype, descending, xp, to_numpy):
    generator = np.random.default_rng(0)
    host = (generator.integers(0, 4, (3, 5)) - (dtype[0] in "if")).astype(dtype)
    x = xp.asarray(host)
    for axis in (0, -1):
        out = ops.sort(x, axis=axis, descending=descending)
        ordered = np.sort(host, axis=axis)
        assert_allclose(out, np.flip(ordered, axis) if descending else ordered)
        order = ops.argsort(x, axis=axis, descending=descending)
        assert_allclose(xp.take_along_axis(x, order, axis), out)
        if xp is np:
            batched = fdbr.vmap(lambda x, a=axis: ops.sort(x, axis=a, descending=descending))(
                x[None]
            )
            assert_allclose(batched[0], out)


def test_equal_elements_keep_their_order_up_and_down():
    assert ops.argsort(TIED).tolist() == [1, 3, 0, 2, 4]
    assert ops.argsort(TIED, descending=True).tolist() == [0, 2, 4, 1, 3]
    assert ops.top_k(TIED, 2)[1].tolist() == [0, 2]
    zeros = ops.sort(np.array([0.0, -0.0]))
    assert np.signbit(zeros).tolist() == [False, True]


def test_of_equal_elements_the_first_have_the_derivative():
    gradient = fdbr.grad(lambda x: ops.sort(x) @ np.arange(5.0))(TIED)
    assert gradient.tolist() == [2.0, 0.0, 3.0, 1.0, 4.0]
    assert fdbr.grad(lambda x: ops.top_k(x, 1)[0].sum())(TIED).tolist() == [1, 0, 0, 0, 0]
    assert fdbr.grad(ops.median)(TIED).tolist() == [1, 0, 0, 0, 0]


def test_nan_is_the_largest():
    x = np.array([1.0, np.nan, 0.0])
    assert_allclose(ops.sort(x), np.array([0.0, 1.0, np.nan]))
    assert ops.argsort(x, descending=True).tolist() == [1, 0, 2]
    assert np.isnan(ops.median(x))
    assert np.isnan(ops.quantile(x, 0.1))


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(("f8", "i4", "?", "u1")))
def test_few_of_many_are_the_first_of_the_whole_order(seed, dtype):
    generator = np.random.default_rng(seed)
    x = generator.integers(0, generator.integers(2, 30), (2, 40, 3)).astype(dtype)
    if dtype == "f8":
        x[generator.random(x.shape) < 0.05] = np.nan
        x[x == 1.0] = -0.0
    for axis, k in ((1, 3), (1, 1), (0, 1), (1, 40)):
        order = ops.argsort(x, axis=axis, descending=True)
        values, places = ops.top_k(x, k, axis=axis)
        np.testing.assert_array_equal(places, np.take(order, range(k), axis=axis))
        np.testing.assert_array_equal(values, np.take_along_axis(x, places, axis))
    assert_allclose(fdbr.vmap(lambda x: ops.top_k(x, 2, axis=0))(x)[1], ops.top_k(x, 2, axis=1)[1])


def test_zeros_keep_their_order_whatever_their_sign():
    x = np.array([[1.0, 0.0, -0.0, -1.0, 0.0], [-0.0, 2.0, 0.0, -0.0, -2.0]])
    many = np.tile(x, (3, 400))
    for axis, y in ((1, x), (0, x.T), (1, many), (0, many.T)):
        desired = np.signbit(np.sort(y, axis=axis, kind="stable"))
        np.testing.assert_array_equal(np.signbit(ops.sort(y, axis=axis)), desired)


def test_nothing_is_sorted_into_nothing():
    assert ops.sort(np.ones((2, 0))).shape == (2, 0)
    assert ops.argsort(np.ones((0, 2)), axis=0, descending=True).shape == (0, 2)
    assert fdbr.grad(lambda x: ops.sort(x).sum())(np.ones((0, 3))).shape == (0, 3)
    values, places = ops.top_k(np.ones((2, 3)), 0)
    assert values.shape == places.shape == (2, 0)


def test_quantiles_of_parts_that_are_traced_have_derivatives():
    x = np.array([0.0, 1.0, 4.0])
    assert fdbr.grad(lambda q: ops.quantile(x, q))(0.75) == 6.0
    assert fdbr.grad(lambda q: ops.quantile(x.astype(np.float32), q))(0.25) == 2.0
    assert ops.quantile(x.astype(np.float32), 0.25).dtype == np.float32
    found = fdbr.vmap(lambda q: ops.quantile(x, q))(np.array([0.0, 0.5, 1.0]))
    assert_allclose(found, x)


# --- searching ----------------------------------------------------------------------


@settings(max_examples=25)
@given(st.data())
def test_places_in_sorted_batches_are_those_in_each(data):
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    x = np.sort(generator.integers(0, 5, (3, data.draw(st.integers(0, 5)))), axis=1) / 2.0
    y = generator.integers(-1, 6, (3, 2, data.draw(st.integers(0, 3)))) / 2.0
    if x.size and y.size:
        x[0, -1] = y[0, 0, 0] = np.nan
    for side in ("left", "right"):
        f = lambda x, y, side=side: ops.searchsorted(x, y, side=side)
        pairs = zip(x, y, strict=True)
        assert_allclose(fdbr.vmap(f)(x, y), np.stack([np.searchsorted(*p, side) for p in pairs]))
        one = np.stack([np.searchsorted(row, y[0], side) for row in x])
        assert_allclose(fdbr.vmap(f, in_axes=(0, None))(x, y[0]), one)
        other = np.stack([np.searchsorted(x[0], part, side) for part in y])
        assert_allclose(fdbr.vmap(f, in_axes=(None, 0))(x[0], y), other)


def test_a_sorter_brings_the_elements_into_order():
    x, y = np.array([3.0, 1.0, 2.0]), np.array([1.5, 9.0])
    desired = np.searchsorted(x, y, sorter=np.argsort(x))
    assert_allclose(ops.searchsorted(x, y, sorter=np.argsort(x)), desired)
    f = lambda x: ops.searchsorted(x, y, sorter=ops.argsort(x))
    assert_allclose(fdbr.vmap(f)(np.stack([x, x]))[1], desired)


def test_places_on_every_array_module(xp, to_numpy):
    x = np.array([[0.0, 2.0], [1.0, 0.0]])
    for mine, desired in zip(ops.nonzero(xp.asarray(x)), np.nonzero(x), strict=True):
        assert_allclose(mine, desired)
    places = ops.searchsorted(xp.asarray(np.array([0.5, 1.5])), xp.asarray(x))
    assert_allclose(places, np.array([[0, 2], [1, 0]]))
    assert_allclose(ops.isin(xp.asarray(x), xp.asarray(np.array([2.0]))), x == 2)
    assert_allclose(ops.unique_all(xp.asarray(x)).counts, np.array([2, 1, 1]))
    assert_allclose(ops.unique_inverse(xp.asarray(x)).inverse_indices, np.array([[0, 2], [1, 0]]))


# --- padding ------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [((0, 3), (2, 0)), ((1, 1),), 4, {-1: (0, 5)}])
@pytest.mark.parametrize(
    "mode",
    "constant edge linear_ramp maximum mean median minimum reflect symmetric wrap".split(),
)
def test_padding_is_numpys_along_several_axes(mode, widths):
    x = np.random.default_rng(0).normal(size=(2, 3))
    params = {"constant": {"constant_values": ((1, 2), (3, 4))}}.get(mode, {})
    params |= {"linear_ramp": {"end_values": (5, -5)}, "mean": {"stat_length": 2}}.get(mode, {})
    host = [(0, 0), (0, 5)] if isinstance(widths, dict) else widths
    desired = np.pad(x, host, mode, **params)
    assert_allclose(ops.pad(x, widths, mode, **params), desired)
    assert_allclose(fdbr.vmap(lambda x: ops.pad(x, widths, mode, **params))(x[None])[0], desired)


def test_padding_keeps_the_dtype():
    assert ops.pad(np.array([1, 2]), 1, constant_values=7).tolist() == [7, 1, 2, 7]
    assert ops.pad(np.array([1, 2]), 1, constant_values=7).dtype == np.int64
    assert ops.pad(np.float32([1, 2]), 1, "linear_ramp").dtype == np.float32
    assert ops.pad(np.zeros((2, 0)), ((0, 0), (1, 1))).shape == (2, 2)
    assert ops.pad(np.array(3.0), ()).shape == ()


# --- repeating ----------------------------------------------------------------------


def test_repeats_that_differ_between_examples_of_one_length_are_vectorised():
    x, repeats = np.arange(6.0).reshape(2, 3), np.array([[2, 0, 1], [1, 1, 1]])
    f = lambda x, r: ops.repeat(x, r)
    desired = np.stack([np.repeat(*pair) for pair in zip(x, repeats, strict=True)])
    assert_allclose(fdbr.vmap(f)(x, repeats), desired)
    assert ops.repeat(x, np.array([2])).tolist() == np.repeat(x, 2).tolist()
    assert ops.repeat(x, [1, 0], axis=0).tolist() == [[0, 1, 2]]
    assert ops.repeat(x, 0, axis=1).shape == (2, 0)


def test_truth_values_differ_or_do_not():
    flags = np.array([True, True, False])
    assert ops.diff(flags).tolist() == [False, True]
    assert fdbr.vmap(ops.diff)(flags[None]).tolist() == [[False, True]]
    assert ops.diff(np.array([1.0, 2.0]), n=3).shape == (0,)
    assert ops.diff(np.array([1.0, 2.0]), n=0).tolist() == [1.0, 2.0]


# --- segments -----------------------------------------------------------------------


def test_rows_of_no_segment_are_left_out_and_have_no_derivative():
    ids = np.array([0, -1, 3, 0])
    f = lambda x: ops.segment_sum(x, ids, 2)
    assert f(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [9.0, 0.0]
    assert fdbr.grad(lambda x: f(x).sum())(np.ones(4)).tolist() == [1, 0, 0, 1]
    assert ops.segment_sum(np.ones((0, 2)), np.zeros(0, int), 3).tolist() == [[0, 0]] * 3
    assert ops.segment_sum(np.ones(3), np.array([0, 4, 0])).shape == (5,)
    assert ops.segment_sum(np.ones(3, np.float32), np.array([0, 0, 0])).dtype == np.float32


def test_extremes_that_come_to_one_place_share_the_derivative():
    index, src = np.array([0, 0, 0]), np.array([1.0, 3.0, 3.0])
    f = lambda x, src: ops.scatter(x, 0, index, src, reduce="amax")
    gradients = fdbr.grad(lambda *args: f(*args).sum(), argnums=(0, 1))(np.array([3.0, 5.0]), src)
    assert_allclose(gradients[0], np.array([1 / 3, 1.0]))
    assert_allclose(gradients[1], np.array([0.0, 1 / 3, 1 / 3]))
    alone = lambda x: ops.scatter(x, 0, index, src, reduce="amax", include_self=False).sum()
    assert fdbr.grad(alone)(np.array([3.0, 5.0])).tolist() == [0.0, 1.0]


def test_of_elements_scattered_to_one_place_the_last_stays():
    x, index = np.zeros(2), np.array([1, 1])
    f = lambda src: ops.scatter(x, 0, index, src)
    assert f(np.array([3.0, 4.0])).tolist() == [0.0, 4.0]
    assert fdbr.grad(lambda src: f(src).sum())(np.ones(2)).tolist() == [0.0, 1.0]
    assert ops.scatter(x, 0, index, 7.0, reduce="sum").tolist() == [0.0, 14.0]
    assert ops.scatter(np.array([5, 1]), 0, index, 3, reduce="amin").tolist() == [5, 1]
    lowest = ops.scatter(np.array([5, 1]), 0, index, 3, reduce="amin", include_self=False)
    assert lowest.tolist() == [5, 3]


@pytest.mark.parametrize(("reduce", "best"), [("amax", 2 + 3j), ("amin", 1 + 5j)])
@pytest.mark.parametrize("include_self", [True, False])
def test_extremes_of_complex_numbers_are_those_by_real_and_then_imaginary_part(
    reduce, best, include_self
):
    x, index = np.array([1.5, 7j]), np.array([0, 0, 0])
    src = np.array([2 + 1j, 2 + 3j, 1 + 5j])
    f = lambda src: ops.scatter(x, 0, index, src, reduce=reduce, include_self=include_self)
    assert f(src).tolist() == [best, 7j]
    slope = fdbr.grad(lambda src: ops.real(f(src)[0]))(src)
    assert slope.tolist() == (src == best).tolist()


@pytest.mark.parametrize("reduce", [None, "sum", "mean", "amax", "amin"])
def test_scattering_into_integers_does_not_lose_a_derivative(reduce):
    x, index, src = np.array([1, 5, 3]), np.array([0, 2, 2]), np.array([2.7, 2.9, 4.1])
    f = lambda src: ops.scatter(x, 0, index, src, reduce=reduce)
    for transformed in (fdbr.vjp, lambda f, src: fdbr.jvp(f, (src,), (src,))):
        with pytest.raises(
            TypeError, match=r"src is float64\[3\], .* x int64\[3\]; make x floating"
        ):
            transformed(f, src)
    assert (fdbr.vmap(f)(src[None])[0] == f(src)).all()  # nothing is lost
    assert (fdbr.jit(f)(src) == f(src)).all()


def test_extremes_of_truth_values_scattered_to_one_place():
    x, index, src = np.array([True, False]), np.array([0, 0]), np.array([False, False])
    either = lambda **own: ops.scatter(x, 0, index, src, reduce="amax", **own).tolist()
    assert either() == [True, False]
    assert either(include_self=False) == [False, False]


# --- sequences ----------------------------------------------------------------------


@settings(max_examples=20)
@given(st.integers(1, 7), st.integers(1, 7), st.sampled_from(("full", "same", "valid")))
def test_convolutions_of_complex_sequences_are_numpys(n, m, mode):
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=(2, k)) + 1j * generator.normal(size=(2, k)) for k in (n, m))
    for f, g in ((ops.convolve, np.convolve), (ops.correlate, np.correlate)):
        desired = np.stack([g(a, b, mode) for a, b in zip(x, y, strict=True)])
        assert_allclose(f(x[0], y[0], mode), desired[0])
        assert_allclose(fdbr.vmap(lambda x, y, f=f: f(x, y, mode))(x, y), desired)


def test_interpolation_at_the_samples_and_beyond():
    places, values = np.array([0.0, 1.0, 2.0]), np.array([0.0, 10.0, 40.0])
    f = lambda x: ops.interp(x, places, values)
    x = np.array([-1.0, 0.0, 1.0, 2.0, 3.0, np.nan])
    assert_allclose(f(x), np.interp(x, places, values))
    assert_allclose(fdbr.vmap(f)(x), f(x))
    derivatives = fdbr.vmap(fdbr.grad(f))(x[:5])
    assert derivatives.tolist() == [0.0, 10.0, 30.0, 30.0, 0.0]
    at_ends = fdbr.grad(lambda v: ops.interp(np.array([-1.0, 3.0]), places, v).sum())(values)
    assert at_ends.tolist() == [1.0, 0.0, 1.0]
    assert_allclose(ops.interp(x, places[:1], values[1:2]), np.array([10.0] * 5 + [np.nan]))
    assert ops.interp(np.float32(0.5), places.astype("f4"), values.astype("f4")).dtype == "f4"
    assert_allclose(ops.interp(0.5, places, values * 1j), 5j)


# --- errors -------------------------------------------------------------------------

X = np.ones((2, 3))


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: ops.sort(x, axis=2), ValueError, "ops.sort: axis 2"),
        (lambda x: ops.sort(x[0, 0]), ValueError, "ops.sort: axis -1"),
        (lambda x: ops.argsort(x, axis=-3), ValueError, "ops.argsort: axis -3"),
        (lambda x: ops.top_k(x, 4), ValueError, r"k is 4.*float64\[2,3\] has 3"),
        (lambda x: ops.median(x[:0]), ValueError, r"ops.median: x float64\[0,3\] has no element"),
        (lambda x: ops.quantile(x, 1.5), ValueError, "ops.quantile: q must lie between 0 and 1"),
        (lambda x: ops.quantile(x, 0.5, method="best"), ValueError, "method is 'best'"),
        (lambda x: ops.median(x + 1j), TypeError, "complex numbers have no order"),
        (lambda x: ops.nonzero(x[0, 0]), ValueError, "ops.nonzero: x is .* no dimension"),
        (lambda x: ops.searchsorted(x, x), ValueError, "one dimension, not .*2,3"),
        (lambda x: ops.searchsorted(x[0], x, side="up"), ValueError, "side is 'up'"),
        (lambda x: ops.pad(x, -1), ValueError, "ops.pad: a width is -1"),
        (lambda x: ops.pad(x, 1.5), ValueError, "ops.pad: a width is 1.5"),
        (lambda x: ops.pad(x, (1, 2, 3)), ValueError, r"pad_width is \(1, 2, 3\)"),
        (lambda x: ops.pad(x, 1, "sideways"), ValueError, "mode is 'sideways'"),
        (lambda x: ops.pad(x, 1, "reflect", reflect_type="x"), ValueError, "reflect_type is 'x'"),
        (lambda x: ops.pad(x[:0], 1, "edge"), ValueError, "axis 0 .* no element"),
        (
            lambda x: ops.pad(np.ones(2, int), 1, constant_values=x[0, 0]),
            TypeError,
            "cut off from its derivative",
        ),
        (lambda x: ops.tril(x[0]), ValueError, "ops.tril: needs two dimensions"),
        (lambda x: ops.repeat(x, -1), ValueError, "repeats is -1"),
        (lambda x: ops.repeat(x, [1, 2], axis=1), ValueError, "one integer for each of 3"),
        (lambda x: ops.repeat(x, [1, -2], axis=0), ValueError, "must not be negative"),
        (lambda x: ops.meshgrid(x, x), ValueError, "arrays of one dimension"),
        (lambda x: ops.meshgrid(x[0], indexing="yx"), ValueError, "indexing is 'yx'"),
        (lambda x: ops.diff(x, n=-1), ValueError, "n is -1"),
        (lambda x: ops.segment_sum(x, x[:, 0], 3), TypeError, "segment_ids must be integers"),
        (lambda x: ops.segment_sum(x, np.zeros(3, int), 3), ValueError, "one number for each row"),
        (lambda x: ops.segment_sum(x, [0, 1], 1.5), TypeError, "num_segments must be an int"),
        (lambda x: ops.segment_sum(x, [0, 1], -1), ValueError, "num_segments must be at least"),
        (lambda x: ops.gather(x, 0, x), TypeError, "ops.gather: index must be of integers"),
        (lambda x: ops.gather(x, 0, np.zeros(3, int)), ValueError, "as many dimensions as x"),
        (lambda x: ops.gather(x, 0, np.full((1, 1), 2)), IndexError, "out of bounds"),
        (lambda x: ops.scatter(x, 0, np.zeros((3, 4), int), 1.0), ValueError, "be no longer"),
        (lambda x: ops.scatter(x, 0, np.zeros((3, 3), int), x), ValueError, "nowhere shorter"),
        (
            lambda x: ops.scatter(x, 0, np.zeros((1, 1), int), x, reduce="prod"),
            ValueError,
            "reduce is 'prod'",
        ),
        (
            lambda x: ops.scatter(x, 0, np.zeros((2, 3), int), x * 1j, reduce="amin"),
            TypeError,
            r"ops.scatter: src is complex128\[2,3\].* x float64\[2,3\]; make x complex",
        ),
        (lambda x: ops.convolve(x[0], x), ValueError, "ops.convolve: two sequences"),
        (lambda x: ops.correlate(x[0, :0], x[0]), ValueError, "ops.correlate: two sequences"),
        (lambda x: ops.convolve(x[0], x[1], "some"), ValueError, "mode is 'some'"),
        (lambda x: ops.interp(x, x[0], x[:, 0]), ValueError, "equally many"),
        (lambda x: ops.interp(x, x[0], x[0], period=0), ValueError, "period must not be 0"),
    ],
)
def test_errors_say_what_is_wrong(f, error, words):
    with pytest.raises(error, match=words):
        fdbr.vjp(lambda x: (f(x), x)[1], X)


# --- many elements --------------------------------------------------------------------


def many(dtype, shape=(40, 200)):
    """Numbers with many equal ones among them, and with what is special to their dtype."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 30, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[1] = generator.normal(size=shape[1])
        x[2, 5:9] = np.nan
        x[3] = np.nan
        x[4, ::2], x[4, 1::2] = np.inf, -np.inf
        x[5], x[6, :-1] = -np.inf, -np.inf
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
@pytest.mark.parametrize("k", [1, 3, 16, 17, 199, 200])
def test_the_largest_of_many_are_the_same_as_by_sorting(dtype, k):
    x = many(dtype)
    places = 199 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)
    values, found = ops.top_k(x, k)
    np.testing.assert_array_equal(found, places[:, :k])
    np.testing.assert_array_equal(values, np.take_along_axis(x, found, -1))


@pytest.mark.parametrize("count", [199, 200])
def test_of_many_elements_the_median_and_its_derivative_are_those_by_sorting(count):
    x = many("f8")[:, :count]
    with np.errstate(invalid="ignore"):  # between infinities of both signs
        found, pullback = fdbr.vjp(lambda x: ops.median(x, axis=1), x)
        np.testing.assert_array_equal(found, ops.median(x, axis=1))
    order = np.argsort(x, axis=1, kind="stable")
    expected = np.zeros_like(x)
    middle = sorted({(count - 1) // 2, count // 2})
    np.put_along_axis(expected, order[:, middle], 1 / len(middle), 1)
    whole = ~np.isnan(found)
    np.testing.assert_array_equal(pullback(np.ones_like(found))[0][whole], expected[whole])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?", "c8"])
def test_unique_elements_of_many_are_those_of_numpy(dtype):
    x = many(dtype)
    values, counts = np.unique(x, return_counts=True, equal_nan=False)
    np.testing.assert_array_equal(ops.unique_values(x), values)
    found = ops.unique_counts(x)
    np.testing.assert_array_equal(found.values, values)
    np.testing.assert_array_equal(found.counts, counts)
    assert found.values.dtype == x.dtype
