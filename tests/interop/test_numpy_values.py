"""Values of NumPy's functions on traced arrays: spaced numbers, bits, dtypes and roots."""

import numpy as np
import pytest

import fdbr
from fdbr.testing import assert_allclose


@pytest.mark.parametrize("num", [0, 1, 2, 7])
@pytest.mark.parametrize("endpoint", [True, False])
def test_evenly_spaced_numbers_are_bitwise_those_of_numpy(num, endpoint):
    f = lambda x: np.linspace(x[0], x[1], num, endpoint)
    for seed in range(20):
        x = np.random.default_rng(seed).uniform(-1, 3, 2)
        np.testing.assert_array_equal(fdbr.vjp(f, x)[0], f(x))
    whole = np.array([[0, 7], [2, -3]])
    np.testing.assert_array_equal(fdbr.vmap(f)(whole), [f(x) for x in whole])


def test_the_largest_element_is_never_lost_from_a_histogram():
    for seed in range(50):
        x = np.random.default_rng(seed).uniform(0, 3, 5)
        counts = fdbr.vjp(lambda x: np.histogram2d(x, -x, 3, weights=x)[0], x)[0]
        assert_allclose(counts.sum(), x.sum(), rtol=1e-14)


@pytest.mark.parametrize(
    "numbers",
    [
        [0.0, 7e4, -1e39, np.inf, np.nan, 64999.0],
        np.array([1.0, 7e4, 1e38], np.float32),
        np.array([1.0, 6e4], np.float16),
        [1 + 1j, 1e39, 1e39j],
        [0, 255, 256, -1, -128, -129, 70000, -70000, 2**40, -(2**40)],
        np.array([1, 255], np.uint8),
        [True, False],
    ],
)
def test_the_smallest_dtype_of_a_number_is_what_numpy_says(numbers):
    numbers = np.array(numbers)
    found = []
    fdbr.vmap(lambda x: found.append(np.min_scalar_type(x)) or x)(numbers[:1])
    size = lambda x: np.min_scalar_type(x).itemsize
    assert found == [np.min_scalar_type(numbers[0])]
    assert fdbr.vmap(size)(numbers).tolist() == [size(x) for x in numbers]


@pytest.mark.parametrize("f", [np.rint, np.fabs, lambda x: np.multiply(*np.modf(x))])
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float32, np.float64])
def test_integers_become_floating_where_they_do_in_numpy(f, dtype):
    x = np.array([[-3, 0, 5]]).astype(dtype)
    found = fdbr.vmap(f)(x)
    np.testing.assert_array_equal(found, f(x))
    assert (found.dtype.kind, f(x).dtype.kind) == ("f", "f")


def test_the_fraction_of_an_infinite_number_is_zero():
    x = np.array([np.inf, -np.inf, 1.5, np.nan])
    for found, desired in zip(fdbr.vjp(np.modf, x)[0], np.modf(x), strict=True):
        np.testing.assert_array_equal(found, desired)


def test_operands_of_logaddexp2_are_not_rounded_in_the_narrower_dtype():
    x, y = np.array([1.1, -2.3]), np.array([0.7, 1.3], np.float32)
    assert_allclose(fdbr.vjp(np.logaddexp2, x, y)[0], np.logaddexp2(x, y), rtol=1e-15)


@pytest.mark.parametrize("f", [
    lambda x: np.cov(x[:, :0]),
    lambda x: np.cov(x, ddof=4),
    lambda x: np.cov(x, ddof=4, aweights=[1.0, 2.0, 1.0]),
    lambda x: np.var(x, axis=1, ddof=4),
    lambda x: np.nanvar(x, axis=1, ddof=4),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_there_is_no_variance_with_too_few_elements(f):
    x = np.array([[1.0, 2.0, 4.0], [0.0, 1.0, 5.0]])
    np.testing.assert_array_equal(fdbr.vjp(f, x)[0], f(x))


def test_a_sample_of_one_dimension_is_one_variable_in_a_histogram():
    x = np.array([1.0, 2.0, 3.0, 9.0])
    counts, (edges,) = fdbr.vjp(lambda x: np.histogramdd(x, bins=3), x)[0]
    desired, (places,) = np.histogramdd(x, bins=3)
    np.testing.assert_array_equal(counts, desired)
    assert_allclose(edges, places, rtol=1e-15)


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 9), (0, 8), (5, 0), (8, 16)])
def test_bits_are_packed_and_unpacked_as_numpy_does_it(shape, axis, bitorder):
    bits = np.random.default_rng(0).integers(0, 2, (4, *shape)).astype(bool)
    pack = lambda x: np.packbits(x, axis=axis, bitorder=bitorder)
    packed = np.stack([pack(x) for x in bits])
    found = fdbr.vmap(pack)(bits)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, packed)
    for count in (
        (None, 0, 5, -3, 90) if bits.size else (None, 0)
    ):  # else NumPy gives what was there
        unpack = lambda x, n=count: np.unpackbits(x, axis=axis, count=n, bitorder=bitorder)
        found = fdbr.vmap(unpack)(packed)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, [unpack(x) for x in packed])


@pytest.mark.parametrize(
    "p",
    [
        [1.0, -3.0, 2.0],
        [0.0, 2.0, 1.0, 5.0, 0.0],
        [0.0, 0.0],
        [3.0],
        [1j, 2.0, 1.0],
        [0.0, 0.0, 3.0, 0.0],
    ],
)
def test_roots_are_those_of_numpy_as_complex_numbers(p):
    p = np.array(p)
    roots, desired = fdbr.vjp(np.roots, p)[0], np.roots(p)
    assert roots.dtype == np.complex128
    assert_allclose(np.sort(roots), np.sort(desired.astype(complex)), rtol=1e-12, atol=1e-12)


def test_roots_move_as_the_implicit_function_theorem_says():
    p, t = np.array([1.0, -6.0, 11.0, -6.0]), np.array([0.1, 0.2, -0.3, 0.4])
    roots, derivatives = fdbr.jvp(np.roots, (p,), (t,))
    assert_allclose(
        derivatives, -np.polyval(t, roots) / np.polyval(np.polyder(p), roots), rtol=1e-10
    )
    again = fdbr.jvp(lambda p: np.real(np.poly(np.roots(p))), (p,), (t,))[1]
    assert_allclose(again, (t - p * t[0]) / p[0], rtol=1e-10, atol=1e-12)


INTEGERS = {
    "fabs": np.fabs,
    "rint": np.rint,
    "deg2rad": np.deg2rad,
    "degrees": np.degrees,
    "logaddexp2": lambda x: np.logaddexp2(x, x),
    "modf": lambda x: np.modf(x)[1],
    "fmax": lambda x: np.fmax(x, x),
    "heaviside": lambda x: np.heaviside(x, x),
    "conj": np.conj,
    "isclose": lambda x: np.isclose(x, x[::-1]),
    "nan_to_num": np.nan_to_num,
    "histogram": lambda x: np.histogram(x, 3)[1],
    "matrix_power": lambda x: np.linalg.matrix_power(np.stack([x[:2], x[1:]]), 3),
    "matrix_power of 0": lambda x: np.linalg.matrix_power(np.stack([x[:2], x[1:]]), 0),
    "bincount": lambda x: np.bincount([0, 1, 1], weights=x),
}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_give_numpys_dtypes_and_values_under_jit_and_vmap(name, dtype):
    f, x = INTEGERS[name], np.array([3, 0, 1]).astype(dtype)
    expected = f(x)
    for found in (fdbr.jit(f)(x), fdbr.vmap(f)(np.stack([x, x]))[1]):
        assert found.dtype == expected.dtype
        assert_allclose(found, expected, rtol=2e-3 if expected.dtype == "f2" else 1e-6)
    if dtype not in ("bool", "int8", "uint8"):
        for digits in (1, -1):
            found = fdbr.jit(lambda x, digits=digits: np.round(x * 7, digits))(x)
            assert found.dtype == x.dtype
            assert found.tolist() == np.round(x * 7, digits).tolist()


HALF, PLACE = np.array([0.5, -2.0, 3.0], np.float16), np.array([2, 0, 1], np.int8)
SINGLE, FAR = np.array([1, -2, 3], np.float32), complex(0, -np.inf)

PROMOTED = {
    "select": (lambda x: np.select([x > 0, x < -1], [2.0, x], 0), HALF),
    "choose": (lambda i: np.choose(i, [300, SINGLE, True]), PLACE),
    "union1d": (lambda x: np.union1d(x, 2.5), HALF),
    "append": (lambda x: np.append(x, 2.5), HALF),
    "common_type": (lambda x: np.ones(2, np.common_type(x, PLACE)) + x[:2], HALF),
    "vecdot": (lambda x: np.linalg.vecdot(x, PLACE.astype("i4")), HALF),
    "quantile": (lambda i: np.quantile(i, np.array([0.25, 0.5], "f4")), PLACE),
    "polydiv": (lambda x: np.polydiv(x, SINGLE[:2] + 1j), np.float32(3)),
    "resize": (lambda x: np.resize(x[:0], (2, 2)), HALF),
    "scimath": (np.lib.scimath.log2, HALF),
    "variance about": (lambda x: np.var(x, mean=np.zeros(1), keepdims=True), HALF),
    "mean of the chosen": (lambda where: np.nanmean(PLACE, where=where), PLACE > 0),
    "convolve with a number": (lambda x: np.convolve(x, 2.0), HALF),
    "ravel_multi_index": (lambda i: np.ravel_multi_index((i, i), (3, 200)), PLACE),
    "unravel_index": (lambda i: np.stack(np.unravel_index(i, (2, 200))), PLACE),
    "piecewise": (lambda i: np.piecewise(SINGLE, [i], [np.cos, np.sin]), PLACE),
    "close to what overflows": (lambda x: np.isclose(x, 1e300), SINGLE),
    "close to a Python number": (lambda x: np.isclose(x, 3.0001, atol=0.0), HALF),
    "sign": (np.sign, np.array([FAR, 3 - 4j, np.nan, complex(np.inf, np.inf), 5e-324])),
    "whole numbers": (lambda x: np.copysign(1, np.modf(x)[0]), HALF),
    "logaddexp2": (lambda x: np.logaddexp2(x, [[-745.0], [1e300]]), np.array([-142.6, -745.0])),
    "geomspace": (lambda x: np.geomspace(x, x * 7, 4)[[0, -1]], np.array([0.3, 1e-300])),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", PROMOTED)
def test_values_and_dtypes_are_numpys_whatever_stands_beside_the_traced_array(name):
    f, x = PROMOTED[name]
    as_tuple = lambda out: out if isinstance(out, tuple) else (out,)
    found = [fdbr.jit(f)(x), fdbr.tree.map(lambda out: out[1], fdbr.vmap(f)(np.stack([x, x])))]
    if x.dtype.kind in "fc":
        found.append(fdbr.vjp(lambda x: f(x), x)[0])
    for out in found:
        for got, wanted in zip(as_tuple(out), as_tuple(f(x)), strict=True):
            assert np.asarray(got).dtype == np.asarray(wanted).dtype
            for part in (np.real, np.imag) if wanted.dtype.kind != "b" else ():
                np.testing.assert_array_max_ulp(part(got), part(wanted), 2)
            assert wanted.dtype.kind != "b" or np.array_equal(got, wanted)
            assert (np.signbit(np.real(got)) == np.signbit(np.real(wanted))).all()


@pytest.mark.parametrize(
    ("f", "x", "error"),
    [
        *((f, np.ones(2, complex), TypeError) for f in (np.fabs, np.deg2rad, np.degrees, np.modf)),
        (lambda x: np.heaviside(x, 1j), np.ones(2), TypeError),
        (lambda x: np.fmin(x, 300), np.ones(2, np.uint8), OverflowError),
        (lambda i: np.choose(i, [1.0, 2.0]), np.array([0, -1]), ValueError),
        (lambda i: np.ravel_multi_index((i, i), (3, 2)), np.array([0, 2]), ValueError),
        (lambda i: np.unravel_index(i, (3, 2)), np.array([0, 6]), ValueError),
    ],
)
def test_what_numpy_refuses_is_refused_of_traced_values(f, x, error):
    with pytest.raises(error):
        f(x)
    with pytest.raises(error):
        fdbr.vmap(f)(x[None])
