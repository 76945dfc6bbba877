"""Special functions: values over their whole range, conventions at edges, errors."""

import math

import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.ops.special import library
from fdbr.testing import assert_allclose

UNARY = (
    *("erf", "erfc", "erfcinv", "erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri"),
    *("digamma", "gamma", "gammaln", "entr", "expit", "logit", "i0", "i0e", "i1", "i1e"),
)
BINARY = ("beta", "betaln", "xlogy", "xlog1py", "rel_entr", "kl_div", "gammainc", "gammaincc")
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -0.5, 1e-300, 30.0, -30.0, np.inf, -np.inf, np.nan]
)


@pytest.mark.parametrize("name", UNARY)
def test_values_are_those_of_scipy_everywhere(name):
    assert_allclose(getattr(ops, name)(EDGES), getattr(sp, name)(EDGES), rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", BINARY)
def test_values_of_two_arguments_are_those_of_scipy_everywhere(name):
    x, y = EDGES[:, None], EDGES
    assert_allclose(getattr(ops, name)(x, y), getattr(sp, name)(x, y), rtol=1e-15, atol=0)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_dtype_stays(name, dtype):
    x = np.array([0.25, 0.5], dtype=dtype)
    f = getattr(ops, name)
    assert f(x).dtype == dtype
    assert fdbr.grad(lambda x: f(x).sum())(x).dtype == dtype


@pytest.mark.parametrize("name", [*UNARY, "cbrt", "sinc"])
def test_integers_become_floating_and_numbers_stay_numbers(name):
    f = getattr(ops, name)
    assert f(np.array([0, 1])).dtype == np.float64
    assert type(f(0.5)) is float


# --- derivatives where they are hard to compute -------------------------------------


def gradients(f, x):
    """The first and the second derivative at a number."""
    return fdbr.grad(f)(x), fdbr.grad(fdbr.grad(f))(x)


@pytest.mark.parametrize(
    ("x", "first", "second"),
    [
        (8.0, -0.0086165078814177303, 0.0021062062990781701),
        (12.0, -0.003877862738062271, 0.00063973631629302061),
        (100.0, -5.6410497625993185e-5, 1.1280407802288336e-6),
        (1e6, -5.6418958354691e-13, 1.1283791670921274e-18),
    ],
)
def test_derivatives_of_erfcx_keep_their_digits_far_out(x, first, second):
    assert_allclose(gradients(ops.erfcx, x), (first, second), rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("x", "first", "second"),
    [
        (-1000.0, 1000.000999998, -0.99999900000599995),
        (-40.0, 40.024968847207264, -0.99937733162140861),
        (-5.0, 5.1865039671258421, -0.96730356538288777),
        (5.0, 1.4867199409049057e-6, -7.4336019148607112e-6),
        (35.0, 3.9403962771359995e-267, -1.3791386969975997e-265),
        (100.0, 0.0, 0.0),
    ],
)
def test_derivatives_of_log_ndtr_keep_their_digits_in_both_tails(x, first, second):
    assert_allclose(gradients(ops.log_ndtr, x), (first, second), rtol=1e-8, atol=0)


def test_derivatives_of_expit_keep_their_digits_in_both_tails():
    for x in (-300.0, 300.0):
        assert_allclose(fdbr.grad(ops.expit)(x), math.exp(-abs(x)), rtol=1e-14, atol=0)


@pytest.mark.parametrize("x", [0.0, 1e-5, 0.2, 1.0, -2.5, 30.0])
def test_sinc_has_four_derivatives_anywhere(x):
    """By the integral of ``s**n * cos(pi * x * s + n * pi / 2)`` over s in [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    s = (nodes + 1) / 2
    f = ops.sinc
    for n in range(5):
        integrand = (math.pi * s) ** n * np.cos(math.pi * x * s + n * math.pi / 2)
        assert_allclose(f(x), (weights / 2 * integrand).sum(), rtol=1e-9, atol=1e-9 * math.pi**n)
        f = fdbr.grad(f)


def test_bessel_functions_have_derivatives_at_0():
    derivatives, f = [], ops.i0
    for _ in range(5):
        derivatives.append(float(f(0.0)))
        f = fdbr.grad(f)
    assert derivatives == [1, 0, 0.5, 0, 0.375]


@given(st.integers(0, 5), st.floats(0.3, 30))
def test_polygamma_is_a_chain_of_derivatives(n, x):
    assert_allclose(ops.polygamma(n, x), sp.polygamma(n, x), rtol=1e-12)
    slope = fdbr.grad(lambda x: ops.polygamma(n, x))(x)
    assert_allclose(slope, sp.polygamma(n + 1, x), rtol=1e-12)


@pytest.mark.parametrize("name", ["erf", "erfc", "erfcx", "ndtr"])
def test_holomorphic_functions_take_complex_numbers(name):
    z = np.array([0.5 + 0.25j, 1.5 - 0.5j])
    f = getattr(ops, name)
    np.testing.assert_array_equal(f(z), getattr(sp, name)(z))
    _, pullback = fdbr.vjp(f, z)
    step = 1e-5
    differences = (f(z + step) - f(z - step)) / (2 * step)
    assert_allclose(pullback(np.ones(2, dtype=complex))[0], differences, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["gamma", "digamma", "softplus", "softsign"])
def test_functions_with_real_derivatives_refuse_complex_numbers(name):
    with pytest.raises(TypeError, match=rf"{name}: x must be real, not complex128\[2\]"):
        getattr(ops, name)(np.ones(2) * 1j)


# --- edges --------------------------------------------------------------------------


def test_products_with_logarithms_have_derivative_0_by_what_0_is_multiplied_with():
    for f, at in ((ops.xlogy, 0.0), (ops.xlog1py, -1.0)):
        assert fdbr.grad(f, argnums=1)(0.0, at) == 0
        assert fdbr.grad(f, argnums=1)(2.0, at + 0.5) == 4
    assert fdbr.grad(ops.rel_entr, argnums=1)(0.0, 0.0) == 0
    assert fdbr.grad(ops.kl_div, argnums=1)(0.0, 0.0) == 1


def test_scaled_bessel_functions_have_derivative_0_and_half_at_0():
    assert fdbr.grad(ops.i0e)(0.0) == 0
    assert fdbr.grad(ops.i1e)(0.0) == 0.5


# --- incomplete integrals -----------------------------------------------------------

# By differences of 60-digit values.
GAMMA = [
    (1, 0.01, 0.01, -3.8933098765184421),
    (1, 0.5, 0.125, -0.83144003435038886),
    (1, 2.5, 6.0, -0.04392923998836797),
    (1, 1000.0, 990.0, -0.012057749285283054),
    (2, 2.5, 3.5, -0.062610104556382502),
    (3, 0.75, 0.25, -0.40533135462818757),
]
BETA = [
    (1, 0, 0.5, 0.5, 0.25, -0.64613189443890103),
    (0, 1, 2.5, 3.5, 0.75, 0.047940042906256654),
    (1, 0, 1000.0, 900.0, 0.5, -0.00064036399580904756),
    (2, 0, 0.25, 2.0, 0.125, 0.96976647116724317),
    (1, 1, 2.0, 3.0, 0.25, -0.044644732263860358),
    (0, 2, 100.0, 0.5, 0.996, -0.35174602036019727),
]


def repeated(f, *argnums):
    for argnum in argnums:
        f = fdbr.grad(f, argnums=argnum)
    return f


@pytest.mark.parametrize(("n", "a", "x", "desired"), GAMMA)
def test_gammainc_is_differentiated_by_its_shape(n, a, x, desired):
    assert_allclose(repeated(ops.gammainc, *[0] * n)(a, x), desired, rtol=1e-11, atol=0)
    assert_allclose(repeated(ops.gammaincc, *[0] * n)(a, x), -desired, rtol=1e-11, atol=0)


@pytest.mark.parametrize(("i", "j", "a", "b", "x", "desired"), BETA)
def test_betainc_is_differentiated_by_both_shapes(i, j, a, b, x, desired):
    slope = repeated(ops.betainc, *[0] * i, *[1] * j)
    assert_allclose(slope(a, b, x), desired, rtol=1e-10, atol=0)


@given(st.floats(0.05, 200), st.floats(0.05, 200), st.floats(0.01, 0.99))
def test_betainc_mirrors_its_derivatives(a, b, x):
    by_a = fdbr.grad(ops.betainc, argnums=0)(a, b, x)
    mirrored = fdbr.grad(ops.betainc, argnums=1)(b, a, 1 - x)
    assert_allclose(by_a, -mirrored, rtol=1e-9, atol=1e-12)


@given(st.floats(0.05, 50), st.floats(0.01, 60))
def test_derivatives_by_shape_and_place_commute(a, x):
    one = repeated(ops.gammainc, 0, 1)(a, x)
    other = repeated(ops.gammainc, 1, 0)(a, x)
    assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_derivatives_by_shape_are_0_at_the_ends_and_nan_outside():
    by_a = fdbr.grad(lambda a, x: ops.gammainc(a, x).sum())
    found = by_a(np.array([2.0, 2.0, -1.0, 2.0]), np.array([0.0, np.inf, 1.0, -1.0]))
    np.testing.assert_array_equal(found, [0, 0, np.nan, np.nan])
    by_b = fdbr.grad(lambda a, b, x: ops.betainc(a, b, x).sum(), argnums=1)
    ends = np.array([0.0, 1.0, 1.5])
    np.testing.assert_array_equal(by_b(2.0, np.full(3, 2.0), ends), [0, 0, np.nan])


# --- SciPy's own functions ----------------------------------------------------------


@pytest.mark.parametrize("name", [*UNARY, "psi", "log_expit", "cbrt"])
def test_ufuncs_of_scipy_differentiate(name):
    x, f = np.array([0.25, 0.5]), getattr(sp, name)
    op = getattr(ops, {"psi": "digamma", "log_expit": "log_sigmoid"}.get(name, name))
    assert_allclose(fdbr.vmap(fdbr.grad(f))(x), fdbr.vmap(fdbr.grad(op))(x))


def test_ufuncs_of_scipy_take_traced_and_plain_arguments_mixed():
    assert fdbr.grad(lambda x: sp.xlogy(x, 2.0))(3.0) == math.log(2)
    assert_allclose(fdbr.grad(lambda x: sp.betainc(2.0, 3.0, x))(0.5), 1.5)


def test_what_scipy_has_and_fdbr_has_not_is_named():
    with pytest.raises(TypeError, match=r"scipy\.special\.jv: no derivative in v is known"):
        fdbr.grad(lambda x: sp.jv(x, 1.0))(0.5)
    with pytest.raises(TypeError, match=r"scipy\.special\.polygamma .*Use ops\.special\.polygamma"):
        fdbr.grad(lambda x: sp.polygamma(1, x))(0.5)


# --- errors -------------------------------------------------------------------------


def test_polygamma_takes_one_order_that_is_not_negative():
    with pytest.raises(TypeError, match=r"polygamma: n must be an integer, got float64\[2\]"):
        ops.polygamma(np.ones(2), 1.0)
    with pytest.raises(ValueError, match="polygamma: n must be at least 0, got -1"):
        ops.polygamma(-1, 1.0)


def test_zeta_refuses_a_derivative_by_its_exponent():
    with pytest.raises(TypeError, match=r"zeta: no derivative in x is known, .*stop_gradient"):
        fdbr.grad(ops.zeta)(2.0)
    assert_allclose(
        fdbr.grad(lambda x: ops.zeta(fdbr.stop_gradient(x), x))(3.0), -3 * sp.zeta(4, 3)
    )
    assert_allclose(fdbr.vmap(ops.zeta)(np.array([2.0, 4.0])), sp.zeta([2.0, 4.0], 1))


def test_what_a_module_lacks_is_computed_in_host_memory(xp, to_numpy, monkeypatch):
    lookup = library.function_of
    monkeypatch.setattr(library, "function_of", lambda m, n: lookup(m, n) if m is np else None)
    x = xp.asarray(np.array([0.5, 1.5]))
    out = ops.i0(x)
    assert type(out) is type(x)
    np.testing.assert_array_equal(to_numpy(out), sp.i0([0.5, 1.5]))
