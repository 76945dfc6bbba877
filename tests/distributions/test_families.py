"""Distributions of numbers: beside SciPy's, and by the laws that hold for all."""

import numpy as np
import pytest
from distributions.families import FAMILIES
from scipy import integrate, stats

import fdbr
from fdbr import random
from fdbr.distributions import cross_entropy, kl_divergence
from fdbr.testing import assert_allclose, check_grads

every = pytest.mark.parametrize("name", FAMILIES)
KEY = random.key(5)
QUANTILES = np.array([0.03125, 0.25, 0.5, 0.875, 0.984375])[:, None]


def both(name, which=0):
    family = FAMILIES[name]
    return family, family.make(*family.parameters[which]), family.scipys(*family.parameters[which])


@every
def test_probabilities_are_scipys(name):
    family, ours, scipys = both(name)
    x = family.values
    logs = scipys.logpmf(x) if family.discrete else scipys.logpdf(x)
    assert_allclose(ours.log_prob(x), logs, rtol=1e-12, atol=1e-13)
    assert_allclose(ours.prob(x), np.exp(logs), rtol=1e-12, atol=1e-14)
    assert_allclose(ours.cdf(x), scipys.cdf(x), rtol=1e-11, atol=1e-13)
    assert_allclose(ours.survival(x), scipys.sf(x), rtol=1e-11, atol=1e-13)
    with np.errstate(divide="ignore"):
        assert_allclose(ours.log_cdf(x), scipys.logcdf(x), rtol=1e-10, atol=1e-13)
        assert_allclose(ours.log_survival(x), scipys.logsf(x), rtol=1e-9, atol=1e-13)
    assert_allclose(ours.icdf(QUANTILES), scipys.ppf(QUANTILES), rtol=1e-9, atol=1e-12)


@every
def test_quantiles_are_scipys_in_the_tails_and_nan_of_what_is_no_probability(name):
    family, ours, scipys = both(name)
    q = np.array([0.0, 1e-10, 1e-4, 0.5, 1.0])[:, None]
    least = ours.icdf(np.float64(1e-300)) if family.discrete else -np.inf
    expected = np.maximum(scipys.ppf(q), least)
    with np.errstate(divide="ignore"):
        assert_allclose(ours.icdf(q), expected, rtol=1e-9, atol=1e-13)
    single = fdbr.tree.map(np.float32, ours)
    assert_allclose(single.icdf(q[1:4].astype(np.float32)), expected[1:4], rtol=2e-5, atol=1e-13)
    assert np.isnan(ours.icdf(np.array([-0.5, 1.5, np.nan])[:, None])).all()
    if family.discrete:
        counts = np.array([0.0, 1.0])[:, None] + least
        assert_allclose(ours.icdf(ours.cdf(counts)), np.broadcast_to(counts, (2, 3)))
    else:
        derivatives = fdbr.grad(lambda q: ours.icdf(q).sum())(np.full(3, 0.5))
        assert_allclose(derivatives * ours.prob(ours.icdf(0.5)), np.ones(3), rtol=1e-7)


@every
def test_nan_stays_what_it_is(name):
    _, ours, _ = both(name)
    x = np.full(3, np.nan)
    for function in (ours.log_prob, ours.prob, ours.cdf, ours.log_cdf, ours.survival):
        assert np.isnan(function(x)).all()
        assert np.isnan(fdbr.jit(function)(x)).all()


@every
def test_moments_and_entropies_are_scipys(name):
    _, ours, scipys = both(name)
    with np.errstate(all="ignore"):
        mean, variance = scipys.stats(moments="mv")
    assert_allclose(ours.mean, np.broadcast_to(mean, (3,)), rtol=1e-10)
    assert_allclose(ours.variance, np.broadcast_to(variance, (3,)), rtol=1e-10)
    assert_allclose(ours.stddev, np.sqrt(np.broadcast_to(variance, (3,))), rtol=1e-10)
    assert_allclose(ours.entropy(), scipys.entropy(), rtol=1e-9, atol=1e-10)
    assert_allclose(ours.perplexity(), np.exp(scipys.entropy()), rtol=1e-9, atol=1e-10)


@every
def test_no_value_near_the_mode_is_more_probable(name):
    _, ours, _ = both(name)
    mode = ours.mode
    for other in (mode + 1, mode - 1):
        here, there = ours.log_prob(mode), ours.log_prob(other)
        assert ((here >= there) | np.isnan(mode)).all()


@every
def test_outside_the_support_the_probability_is_zero_and_has_no_derivative(name):
    family, ours, _ = both(name)
    if family.outside is None:
        return
    x = np.float64(family.outside)
    assert (ours.log_prob(x) == -np.inf).all()
    slope = fdbr.grad(lambda d: d.log_prob(x)[0])(ours)
    assert all((np.nan_to_num(leaf, nan=9.0) == 0).all() for leaf in fdbr.tree.leaves(slope))


@every
def test_samples_are_distributed_as_scipy_says(name):
    family, ours, _ = both(name)
    draws = ours.sample(KEY, (3000,))
    assert draws.shape == (3000, 3)
    assert (draws == ours.sample(KEY, (3000,))).all()
    for i in range(3):
        one = family.scipys(*(p[i] for p in family.parameters[0]))
        if not family.discrete:
            assert stats.kstest(draws[:, i], one.cdf).pvalue > 1e-3
            continue
        counts = np.arange(12)
        expected = 3000 * one.pmf(counts)
        many = expected > 5
        found = (draws[:, i, None] == counts).sum(axis=0)
        square = ((found - expected)[many] ** 2 / expected[many]).sum()
        assert stats.chi2.sf(square, many.sum()) > 1e-3


@every
def test_derivatives_of_everything_are_right(name):
    family, ours, _ = both(name)
    x = family.values
    check_grads(lambda d: d.log_prob(x), ours)
    check_grads(lambda d: d.entropy(), ours)
    if family.discrete:
        assert not ours.reparametrized
        return
    check_grads(lambda d, x: (d.log_prob(x), d.cdf(x)), ours, x[:2], order=1)
    check_grads(lambda d: d.sample(KEY, (2,)), ours)
    assert ours.reparametrized


@every
def test_a_batch_of_distributions_is_mapped_over(name):
    family, ours, _ = both(name)
    x = family.values[0, 0]
    one_by_one = fdbr.vmap(lambda d: (d.log_prob(x), d.entropy(), d.mean))(ours)
    assert_allclose(one_by_one, (ours.log_prob(x), ours.entropy(), ours.mean), rtol=1e-12)
    keys = random.split(KEY, 3)
    draws = fdbr.vmap(lambda d, key: d.sample(key))(ours, keys)
    assert draws.shape == (3,)
    again = [fdbr.tree.map(lambda p, i=i: p[i], ours).sample(keys[i]) for i in range(3)]
    assert_allclose(draws, np.array(again), rtol=1e-12)


@every
def test_float32_stays_and_jitted_it_is_the_same(name):
    _, ours, _ = both(name)
    x = FAMILIES[name].values.astype("float32")
    short = fdbr.tree.map(lambda p: p.astype("float32"), ours)
    for compute in (lambda d: d.log_prob(x), lambda d: d.entropy(), lambda d: d.sample(KEY, (4,))):
        value = compute(short)
        assert value.dtype == np.float32
        assert_allclose(value, np.float32(compute(ours)), rtol=2e-4, atol=2e-5)
        jitted = fdbr.jit(compute)(short)
        assert_allclose(jitted, value, rtol=1e-5, atol=1e-6)


@every
def test_the_divergence_is_the_expected_difference_of_log_probabilities(name):
    family, p, _ = both(name)
    _, q, _ = both(name, 1)
    found = kl_divergence(p, q)
    assert_allclose(kl_divergence(p, p), np.zeros(3), atol=1e-12)
    assert_allclose(cross_entropy(p, q), p.entropy() + found, rtol=1e-12)
    for i in range(3):
        one, other = (fdbr.tree.map(lambda leaf, i=i: leaf[i], d) for d in (p, q))
        if family.discrete:
            x = np.arange(200.0)
            x = x[one.prob(x) > 0]
            expected = (one.prob(x) * (one.log_prob(x) - other.log_prob(x))).sum()
        else:  # over the quantiles

            def integrand(u, one=one, other=other):
                x = one.icdf(u)
                return one.log_prob(x) - other.log_prob(x)

            expected, _ = integrate.quad(integrand, 1e-12, 1 - 1e-12, limit=400)
        assert float(found[i]) == pytest.approx(expected, rel=2e-4, abs=1e-6)
    if "Uniform" not in name:
        check_grads(kl_divergence, p, q, order=1)
