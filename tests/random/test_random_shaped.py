"""Draws of distributions with parameters of their own."""

import numpy as np
import pytest
from scipy import stats

import fdbr
from fdbr import random
from fdbr.testing import assert_allclose, check_grads

KEY = random.key(3)
COUNT = 5000

CONTINUOUS = {
    "gamma": ([0.05], [1.0], [3.0], [1e4]),
    "chisquare": ([0.5], [3.0]),
    "beta": ([0.3, 0.2], [2.0, 3.0], [100.0, 1.0]),
    "pareto": ([3.0],),
    "t": ([1.0], [7.0]),
}
SCIPYS = {"chisquare": "chi2", "poisson": "poisson", "binomial": "binom", "geometric": "geom"}
COUNTS = {
    "poisson": ([0.1], [7.5], [400.0]),
    "binomial": ([10, 0.3], [1, 0.5], [1000, 0.01], [7, 0.999]),
    "geometric": ([0.3], [0.95]),
}


@pytest.mark.parametrize(
    ("name", "parameters"), [(n, p) for n, many in CONTINUOUS.items() for p in many]
)
def test_draws_have_scipys_distribution(name, parameters):
    draws = getattr(random, name)(KEY, *parameters, (COUNT,))
    cdf = getattr(stats, SCIPYS.get(name, name))(*parameters).cdf
    assert stats.kstest(draws, cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "parameters"), [(n, p) for n, many in COUNTS.items() for p in many]
)
def test_counts_have_scipys_distribution(name, parameters):
    draws = getattr(random, name)(KEY, *parameters, (COUNT,))
    assert draws.dtype == np.int64
    counts = np.arange(1100)
    expected = COUNT * getattr(stats, SCIPYS[name])(*parameters).pmf(counts)
    many = expected > 5
    found = np.bincount(draws, minlength=1100)[:1100]
    square = ((found - expected)[many] ** 2 / expected[many]).sum()
    assert stats.chi2.sf(square, many.sum()) > 1e-3


def test_counts_at_the_bounds_are_certain():
    assert random.poisson(KEY, 0.0, (3,)).tolist() == [0, 0, 0]
    assert random.binomial(KEY, 5, np.array([0.0, 1.0])).tolist() == [0, 5]
    assert random.binomial(KEY, 0, 0.5, (2,)).tolist() == [0, 0]
    assert random.geometric(KEY, 1.0, (2,)).tolist() == [1, 1]


def test_vectors_have_their_means_and_covariances():
    alpha, cov = np.array([1.0, 2.0, 3.0]), np.array([[2.0, 1.0], [1.0, 3.0]])
    assert_allclose(random.dirichlet(KEY, alpha, (COUNT,)).mean(axis=0), alpha / 6, atol=0.02)
    draws = random.multivariate_normal(KEY, np.ones(2), cov, (COUNT,))
    assert_allclose(draws.mean(axis=0), np.ones(2), atol=0.1)
    assert_allclose(np.cov(draws.T), cov, atol=0.2)
    assert abs(random.rademacher(KEY, (COUNT,)).mean()) < 0.05


def test_small_shapes_have_logarithms_where_they_have_no_numbers():
    logs = random.loggamma(KEY, 1e-5, (9,))
    assert np.isfinite(logs).all()
    assert (random.gamma(KEY, 1e-5, (9,)) == np.exp(logs)).all()
    many = random.dirichlet(KEY, np.full(4, 1e-6), (9,))
    assert_allclose(many.sum(axis=-1), np.ones(9), rtol=1e-12)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "chisquare", "pareto", "t", "dirichlet"])
def test_draws_are_differentiable_by_the_parameter(name):
    check_grads(lambda a: getattr(random, name)(KEY, a), np.array([0.3, 2.0, 50.0]))


def test_draws_of_two_parameters_are_differentiable_by_both():
    a, b = np.array([0.3, 2.0]), np.array([1.0, 5.0])
    check_grads(lambda a, b: random.beta(KEY, a, b), a, b)
    check_grads(
        lambda m, c: random.multivariate_normal(KEY, m, c + c.T + 4 * np.eye(2)), a, np.eye(2)
    )


@pytest.mark.parametrize("name", ["gamma", "poisson", "geometric"])
def test_mapped_over_and_jitted_the_draws_are_those_of_each_key(name):
    draw = getattr(random, name)
    keys, parameters = random.split(KEY, 3), np.array([0.5, 0.25, 0.75])
    expected = [float(draw(key, p)) for key, p in zip(keys, parameters, strict=True)]
    assert fdbr.vmap(draw)(keys, parameters).tolist() == expected
    jitted = fdbr.jit(fdbr.vmap(draw))(keys, parameters)
    assert_allclose(jitted, fdbr.vmap(draw)(keys, parameters), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random.gamma(KEY, -1.0), "a must be positive"),
        (lambda: random.gamma(KEY, np.ones(2), (3,)), "broadcast to shape"),
        (lambda: random.dirichlet(KEY, 1.0), "must have an axis"),
        (lambda: random.poisson(KEY, -1.0), "lam must not be negative"),
        (lambda: random.poisson(KEY, 1.0, dtype="float32"), "dtype must be an integer dtype"),
        (lambda: random.binomial(KEY, 3, 1.5), r"p lie in \[0, 1\]"),
        (lambda: random.geometric(KEY, 0.0), r"p must lie in \(0, 1\]"),
        (lambda: random.multivariate_normal(KEY, np.ones(2), np.eye(3)), "mean and cov must have"),
    ],
)
def test_parameters_that_are_none_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=rf"^fdbr\.random\..*{message}"):
        call()
