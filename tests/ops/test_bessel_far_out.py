"""Scaled modified Bessel functions keep their digits far out, and so do their derivatives."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops import special

GROWING = {
    "i0e": (special.i0e, 0),
    "i1e": (special.i1e, 1),
    "ive": (lambda x: special.ive(2.5, x), 2.5),
    "ive of large order": (lambda x: special.ive(40, x), 40),
}
FALLING = {
    "k0e": (special.k0e, 0),
    "k1e": (special.k1e, 1),
    "kve": (lambda x: special.kve(np.int8(12), x), 12),
}
NAMES = [*GROWING, *FALLING]
POINTS = np.concatenate([np.geomspace(0.5, 100.0, 200), np.geomspace(100.0, 1e30, 200)])


def slope(f):
    return fdbr.grad(lambda x: ops.sum(f(x)))


@pytest.mark.parametrize("name", NAMES)
def test_they_solve_their_differential_equation(name):
    """``x² w" + (x ± 2 x²) w' + (±x - v²) w = 0``, from that of the functions without a scale."""
    sign = 1 if name in GROWING else -1
    f, order = (GROWING | FALLING)[name]
    x = POINTS[np.isfinite(f(POINTS))]  # SciPy gives up on some beyond 1e9
    value = f(x)
    first, second = slope(f)(x), slope(slope(f))(x)
    terms = [second * x, first, sign * 2 * x * first, (sign - order**2 / x) * value]
    residual = sum(terms) / np.max(np.abs(terms), axis=0)
    assert np.max(np.abs(residual)) < 1e-12


@pytest.mark.parametrize("name", ["i0e", "i1e", "k0e", "k1e"])
def test_far_out_they_fall_as_a_root_does(name):
    f, order = (GROWING | FALLING)[name]
    x = POINTS[((1 + order**2) / POINTS < 1e-13) & np.isfinite(f(POINTS))]
    value = f(x)
    for power in (0.5, 1.5, 2.5, 3.5):
        f, value = slope(f), -power * value / x
        np.testing.assert_allclose(f(x), value, rtol=1e-12)


@pytest.mark.parametrize("name", ["i0e", "i1e"])
def test_derivatives_of_even_and_odd_ones_are_odd_and_even(name):
    f = GROWING[name][0]
    parity = 1 if name == "i0e" else -1
    np.testing.assert_array_equal(slope(f)(-POINTS), -parity * slope(f)(POINTS))


@pytest.mark.parametrize(("f", "way"), [(special.hankel1e, 1), (special.hankel2e, -1)])
def test_hankels_functions_solve_their_differential_equation_far_out(f, way):
    """``z² w" + (z ± 2i z²) w' + (±i z - v²) w = 0``, from Bessel's for ``exp(±1j z) w``."""
    x = np.geomspace(0.5, 1e8, 200)
    turned = [x * np.exp(1j * angle) for angle in (1.2, -1.4, 2.8, -2.8)]
    near = x[x < 1e4]  # beside the negative axis SciPy's values lose the phase of large numbers
    turned += [near * np.exp(1j * angle) for angle in (3.14159, -3.14159)]
    for z in (x.astype(complex), -near + 0j, *turned, 1j * x[x < 1e3]):
        for order in (0.0, 2.5, -1.5):
            one = np.ones_like(z)
            first = lambda z, v=order, one=one: fdbr.jvp(lambda z: f(v, z), (z,), (one,))[1]
            value, (derivative_, second) = f(order, z), fdbr.jvp(first, (z,), (one,))
            iteration = 1j * way
            terms = [
                second * z,
                derivative_,
                2 * iteration * z * derivative_,
                (iteration - order**2 / z) * value,
            ]
            residual = sum(terms) / np.max(np.abs(terms), axis=0)
            assert np.max(np.abs(residual)) < 1e-10


def test_complex_arguments_are_taken_as_before():
    z = np.array([2.0 + 1j, 50.0 - 3j])
    _, tangent = fdbr.jvp(lambda z: special.kve(0.5, z), (z,), (np.ones_like(z),))
    np.testing.assert_allclose(tangent, -0.5 * np.sqrt(np.pi / 2) * z**-1.5, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_in_float32_and_jitted_they_are_the_same(name):
    f, _ = (GROWING | FALLING)[name]
    x = POINTS.astype("float32")
    exact = slope(f)(x.astype("float64")).astype("float32")
    np.testing.assert_allclose(slope(f)(x), exact, rtol=3e-7, atol=1e-37)
    np.testing.assert_allclose(fdbr.jit(slope(f))(x), exact, rtol=3e-7, atol=1e-37)
