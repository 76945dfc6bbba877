"""The distributions of `scipy.stats`: SciPy's values, and the derivatives of those."""

import numpy as np
import pytest
import scipy.stats

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

CONTINUOUS = {
    "norm": (),
    "expon": (),
    "uniform": (),
    "logistic": (),
    "gumbel_r": (),
    "gamma": (2.5,),
    "beta": (2.0, 3.5),
    "t": (4.0,),
    "lognorm": (0.7,),
    "weibull_min": (1.8,),
    "invgauss": (0.8,),
}
METHODS = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf")
DISCRETE = {"poisson": (2.5,), "binom": (6, 0.3), "nbinom": (4.0, 0.6), "geom": (0.3,)}
QUANTILES = ("norm", "gamma", "beta", "t", "lognorm", "logistic", "weibull_min")


def check(f, x, direction):
    """Value, slope, batch and program of a function of one array, beside SciPy's own."""
    expected, step = f(x), 1e-6 * direction
    inside = np.isfinite(expected)
    with np.errstate(invalid="ignore"):  # beside the support a logarithm is -inf, and its slope 0
        differences = np.where(inside, (f(x + step) - f(x - step)) / 2e-6, 0.0)
    value, slope = fdbr.jvp(f, (x,), (direction,))
    assert_allclose(value, expected, rtol=1e-10, atol=1e-14)
    assert_allclose(slope, differences, rtol=2e-6, atol=2e-7)
    gradient = fdbr.grad(lambda x: ops.sum(ops.where(inside, f(x), 0.0)))(x)
    assert_allclose(np.sum(gradient * direction), differences[inside].sum(), rtol=2e-6, atol=2e-7)
    rows = fdbr.vmap(f)(np.stack([x, x + step]))
    assert_allclose(rows, np.stack([expected, f(x + step)]), rtol=1e-10, atol=1e-14)
    assert_allclose(fdbr.jit(f)(x), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CONTINUOUS)
def test_densities_and_distribution_functions_have_scipys_values_and_their_derivatives(name):
    dist, shapes = getattr(scipy.stats, name), CONTINUOUS[name]
    inside = dist.ppf([0.2, 0.45, 0.9], *shapes, loc=0.3, scale=1.5)
    low, high = dist.support(*shapes, loc=0.3, scale=1.5)
    x = np.array([max(low - 1.0, -50.0), *inside, min(high + 1.0, 50.0)])
    for method in METHODS:
        check(lambda x, m=method: getattr(dist, m)(x, *shapes, loc=0.3, scale=1.5), x, np.cos(x))
    parameters = np.array([0.31, 1.52])
    check(
        lambda p: dist.logpdf(inside, *shapes, loc=p[0] - 0.01, scale=p[1]), parameters, parameters
    )


@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles_have_scipys_values_and_their_derivatives(name):
    dist, shapes = getattr(scipy.stats, name), CONTINUOUS[name]
    q = np.array([0.1, 0.4, 0.8])
    for method in ("ppf", "isf"):
        check(lambda q, m=method: getattr(dist, m)(q, *shapes, loc=0.3, scale=2.0), q, 1 - q)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions_have_derivatives_in_their_parameters(name):
    dist, (*first, last) = getattr(scipy.stats, name), DISCRETE[name]
    k = np.array([-1.0, 1.0, 2.0, 2.5, 4.0])
    for method in ("pmf", "logpmf", "cdf", "sf"):
        check(lambda p, m=method: getattr(dist, m)(k, *first, p), np.full(5, last), np.full(5, 0.1))


def test_frozen_distributions_and_arguments_by_name_work_too():
    x = np.array([0.5, 1.5])
    named = fdbr.grad(lambda m: np.sum(scipy.stats.norm.logpdf(x=x, loc=m, scale=2.0)))(0.3)
    frozen = fdbr.grad(lambda m: np.sum(scipy.stats.norm(m, 2.0).logpdf(x)))(0.3)
    assert named == frozen == pytest.approx(np.sum(x - 0.3) / 4)
    second = fdbr.grad(fdbr.grad(lambda m: scipy.stats.norm.logpdf(0.5, m, 2.0)))(0.3)
    assert second == pytest.approx(-0.25)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_parameters_that_a_distribution_does_not_have_give_nan():
    value, slope = fdbr.jvp(
        lambda s: scipy.stats.norm.logpdf(0.5, 0.0, s), (np.array([-1.0, 2.0]),), (np.ones(2),)
    )
    assert np.isnan(value).tolist() == np.isnan(slope).tolist() == [True, False]
