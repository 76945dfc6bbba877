"""Derivatives at huge arguments, at infinities and at the ends of intervals."""

import math
import warnings

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops import special

HUGE = {"float64": (1e200, -1e200, 1.7e308, -1.7e308), "float32": (1e30, -1e30, 3.4e38, -3.4e38)}
inf = math.inf


def is_unary(function):
    try:
        with np.errstate(all="ignore"):
            out = function(np.float64(0.5))
        return np.shape(out) == () and np.asarray(out).dtype.kind == "f"
    except (TypeError, ValueError, IndexError):
        return False


UNARY = [
    name
    for name in ops.__all__
    if callable(getattr(ops, name)) and name not in np.sctypeDict and is_unary(getattr(ops, name))
]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", HUGE)
def test_a_derivative_at_a_huge_argument_is_finite(name, dtype):
    function = getattr(ops, name)
    for number in HUGE[dtype]:
        x = np.array(number, dtype)
        with np.errstate(all="ignore"):
            out = function(x)
        if not np.isfinite(out) or name in ("zeta", "item"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            slope = fdbr.grad(function)(x)
        assert np.isfinite(slope), (number, out, slope)


# The limits of derivatives at -inf and inf.
SLOPES = {
    **dict.fromkeys(
        "tanh sigmoid softsign erf erfc ndtr atan hard_sigmoid hard_tanh".split(), (0, 0)
    ),
    **dict.fromkeys("relu gelu silu softplus mish elu hard_silu squareplus".split(), (0, 1)),
    "log_sigmoid": (1, 0),
    "tanh_shrink": (1, 1),
    "asinh": (0, 0),
    "relu6": (0, 0),
}


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("dtype", HUGE)
def test_a_derivative_at_a_huge_argument_is_its_limit(name, dtype):
    function = getattr(ops, name)
    compiled = fdbr.jit(fdbr.grad(function))
    for number in HUGE[dtype]:
        x = np.array(number, dtype)
        limit = SLOPES[name][number > 0]
        np.testing.assert_allclose(fdbr.grad(function)(x), limit, atol=1e-25)
        np.testing.assert_allclose(compiled(x), limit, atol=1e-25)


def test_derivatives_of_tails_are_exact_far_out():
    np.testing.assert_allclose(fdbr.grad(ops.atan)(1e100), 1e-200)
    np.testing.assert_allclose(fdbr.grad(ops.softsign)(-1e100), 1e-200)
    np.testing.assert_allclose(fdbr.grad(ops.log1mexp)(700.0), math.exp(-700), rtol=1e-13)
    np.testing.assert_allclose(fdbr.grad(ops.log_ndtr)(-1e150), 1e150)
    # -1 / (sqrt(pi) * x**2), the first term of the asymptotic series
    np.testing.assert_allclose(fdbr.grad(ops.erfcx)(1e100), -1 / math.sqrt(math.pi) / 1e200)
    np.testing.assert_allclose(fdbr.grad(ops.log_ndtr)(8.0), math.exp(-32) / math.sqrt(2 * math.pi))


BORDERS = [
    (special.gammainc, (2.0, inf), (0, 0)),
    (special.gammainc, (0.5, inf), (0, 0)),
    (special.gammainc, (2.0, 0.0), (0, 0)),
    (special.gammainc, (1.0, 0.0), (0, 1)),
    (special.gammainc, (0.5, 1e300), (0, 0)),
    (special.gammaincc, (2.0, inf), (0, 0)),
    (special.gammaincc, (1.0, 0.0), (0, -1)),
    (special.betainc, (2.0, 2.0, 0.0), (0, 0, 0)),
    (special.betainc, (2.0, 2.0, 1.0), (0, 0, 0)),
    (special.betainc, (1.0, 1.0, 0.0), (0, 0, 1)),
    (special.erf, (inf,), (0,)),
    (special.erfc, (-inf,), (0,)),
    (special.erfcx, (inf,), (0,)),
    (special.erfinv, (1.0,), (inf,)),
    (special.ndtr, (-inf,), (0,)),
    (special.log_ndtr, (inf,), (0,)),
    (special.log_ndtr, (-inf,), (inf,)),
    (special.expit, (inf,), (0,)),
    (special.expit, (-inf,), (0,)),
    (special.digamma, (inf,), (0,)),
    (special.gammaln, (inf,), (inf,)),
    (special.rgamma, (inf,), (0,)),
    (special.kolmogorov, (inf,), (0,)),
    (special.exprel, (-inf,), (0,)),
    (special.xlogy, (0.0, 2.0), (math.log(2), 0)),
    (special.xlogy, (2.0, inf), (inf, 0)),
    (special.xlog1py, (0.0, 1.0), (math.log(2), 0)),
    (special.entr, (0.0,), (inf,)),
    (ops.atan2, (1.0, inf), (0, 0)),
    (ops.atan2, (-inf, 1.0), (0, 0)),
    (lambda x: ops.polygamma(1, x), (inf,), (0,)),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # poles divide by 0
@pytest.mark.parametrize(("function", "at", "slopes"), BORDERS)
def test_derivatives_at_borders_are_limits(function, at, slopes):
    at = tuple(map(np.float64, at))
    for i, slope in enumerate(slopes):
        by = fdbr.grad(function, argnums=i)
        np.testing.assert_array_equal(by(*at), slope)
        np.testing.assert_array_equal(fdbr.jit(by)(*at), slope)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: ops.logaddexp(v[0], v[1]),
        lambda v: np.logaddexp2(v[0], v[1]),
        lambda v: ops.logsumexp(v),
        lambda v: np.logaddexp.reduce(v),
        lambda v: np.logaddexp.accumulate(v)[-1],
    ],
)
@pytest.mark.parametrize(
    ("at", "weights"),
    [
        ((-inf, -inf), (0, 0)),
        ((inf, inf), (0.5, 0.5)),
        ((inf, 1.0), (1, 0)),
        ((-inf, 1.0), (0, 1)),
        ((-inf, inf), (0, 1)),
    ],
)
def test_sums_of_exponentials_share_one_rule_at_infinities(function, at, weights):
    at, weights = np.array(at), np.array(weights)
    gradient = fdbr.grad(function)
    compiled = fdbr.jit(gradient)
    np.testing.assert_array_equal(gradient(at), weights)
    np.testing.assert_array_equal(compiled(at), weights)
    np.testing.assert_array_equal(compiled(at), weights)
    tangent = fdbr.jvp(function, (at,), (np.array([1.0, 10.0]),))[1]
    np.testing.assert_array_equal(tangent, weights @ [1, 10])
    np.testing.assert_array_equal(fdbr.hessian(function)(at), np.zeros((2, 2)))


def test_terms_of_minus_infinity_have_no_slope():
    assert fdbr.grad(lambda s: ops.logaddexp(-inf + s, -inf + 2 * s))(0.3) == 0
