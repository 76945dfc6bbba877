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
    roots, slopes = fdbr.jvp(np.roots, (p,), (t,))
    assert_allclose(slopes, -np.polyval(t, roots) / np.polyval(np.polyder(p), roots), rtol=1e-10)
    again = fdbr.jvp(lambda p: np.real(np.poly(np.roots(p))), (p,), (t,))[1]
    assert_allclose(again, (t - p * t[0]) / p[0], rtol=1e-10, atol=1e-12)
