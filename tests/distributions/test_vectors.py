"""Distributions of vectors and categories, and of several numbers together."""

import numpy as np
import pytest
from scipy import stats

import fdbr
from fdbr import distributions, random
from fdbr.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Cauchy,
    Dirichlet,
    Exponential,
    Geometric,
    Independent,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    OneHotCategorical,
    Poisson,
    Uniform,
    kl_divergence,
)
from fdbr.testing import assert_allclose, check_grads

KEY = random.key(2)
FACTOR = np.array([[1.0, 0.0], [0.5, 2.0]])
LOC = np.array([[1.0, -1.0], [0.0, 0.5], [2.0, 2.0]])
VECTORS = np.array([[0.0, 0.0], [1.0, -2.0], [3.0, 0.5]])
CHANCES = np.array([[0.5, 0.25, 0.25], [0.125, 0.0, 0.875]])


def test_normal_vectors_are_scipys():
    d = MultivariateNormal(LOC, scale_tril=FACTOR)
    assert (d.batch_shape, d.event_shape) == ((3,), (2,))
    covariance = FACTOR @ FACTOR.T
    each = [stats.multivariate_normal(loc, covariance) for loc in LOC]
    expected = [one.logpdf(x) for one, x in zip(each, VECTORS, strict=True)]
    assert_allclose(d.log_prob(VECTORS), np.array(expected), rtol=1e-12)
    assert_allclose(d.entropy(), np.array([one.entropy() for one in each]), rtol=1e-12)
    assert_allclose(d.covariance, np.broadcast_to(covariance, (3, 2, 2)), rtol=1e-12)
    assert_allclose(d.variance, np.broadcast_to(np.diag(covariance), (3, 2)), rtol=1e-12)
    same = MultivariateNormal(LOC, covariance_matrix=covariance)
    assert_allclose(same.log_prob(VECTORS[0]), d.log_prob(VECTORS[0]), rtol=1e-12)
    draws = d.sample(KEY, 4000)
    assert draws.shape == (4000, 3, 2)
    assert_allclose(np.cov(draws[:, 0].T), covariance, rtol=0.1, atol=0.1)
    check_grads(lambda d: d.sample(KEY), d)
    check_grads(lambda d, x: d.log_prob(x), d, VECTORS)


def test_divergences_of_normal_vectors_are_those_of_the_formula():
    other = np.array([[2.0, 0.0], [-0.5, 1.0]])
    p, q = (
        MultivariateNormal(LOC, scale_tril=FACTOR),
        MultivariateNormal(np.zeros(2), scale_tril=other),
    )
    one, two = FACTOR @ FACTOR.T, other @ other.T
    inverse = np.linalg.inv(two)
    logs = np.log(np.linalg.det(two) / np.linalg.det(one))
    expected = [(np.trace(inverse @ one) + m @ inverse @ m - 2 + logs) / 2 for m in LOC]
    assert_allclose(kl_divergence(p, q), np.array(expected), rtol=1e-12)


def test_dirichlet_is_scipys():
    d = Dirichlet(np.array([[0.5, 1.0, 3.0], [2.0, 2.0, 2.0]]))
    x = np.array([0.25, 0.25, 0.5])
    each = [stats.dirichlet(row) for row in d.concentration]
    assert_allclose(d.log_prob(x), np.array([one.logpdf(x) for one in each]), rtol=1e-12)
    assert_allclose(d.entropy(), np.array([one.entropy() for one in each]), rtol=1e-11)
    assert_allclose(d.mean, np.array([one.mean() for one in each]), rtol=1e-12)
    assert_allclose(d.variance, np.array([one.var() for one in each]), rtol=1e-12)
    assert d.log_prob(np.array([1.5, -0.25, -0.25])).tolist() == [-np.inf, -np.inf]
    draws = d.sample(KEY, (4000,))
    assert_allclose(draws.sum(axis=-1), np.ones((4000, 2)), rtol=1e-12)
    assert_allclose(draws.mean(axis=0), d.mean, atol=0.02)
    q = Dirichlet(np.ones(3))
    estimate = (d.log_prob(draws) - q.log_prob(draws)).mean(axis=0)
    assert_allclose(kl_divergence(d, q), estimate, rtol=0.1, atol=0.05)
    check_grads(lambda d: (d.sample(KEY), d.entropy(), d.log_prob(x), kl_divergence(d, q)), d)


@pytest.mark.parametrize("logits", [False, True])
def test_categories_are_drawn_by_their_probabilities(logits):
    with np.errstate(divide="ignore"):
        given = {"logits": np.log(CHANCES) + 3.0} if logits else {"probs": 4 * CHANCES}
    d, vectors = Categorical(**given), OneHotCategorical(**given)
    assert_allclose(d.prob(np.array([[0], [1], [2]])), CHANCES.T, rtol=1e-12)
    assert d.log_prob(3).tolist() == d.log_prob(-1).tolist() == [-np.inf, -np.inf]
    assert_allclose(d.cdf(np.array([[0], [2]])), CHANCES.cumsum(axis=1).T[::2], rtol=1e-12)
    assert d.icdf(np.array([0.5, 0.5])).tolist() == [0, 2]
    assert d.mode.tolist() == [0, 2]
    assert_allclose(d.entropy(), stats.entropy(CHANCES, axis=1), rtol=1e-12)
    draws = d.sample(KEY, (4000,))
    assert_allclose((draws[..., None] == np.arange(3)).mean(axis=0), CHANCES, atol=0.02)
    assert (vectors.sample(KEY, (9,)).argmax(axis=-1) == d.sample(KEY, (9,))).all()
    assert_allclose(vectors.log_prob(np.eye(3)[:2]), np.log([0.5, 1e-300])[:2] * [1, np.inf])
    assert (vectors.log_prob(np.array([0.5, 0.5, 0.0])) == -np.inf).all()
    q = Categorical(np.full(3, 1 / 3))
    assert_allclose(kl_divergence(d, q), np.log(3) - d.entropy(), rtol=1e-12)
    assert fdbr.vmap(lambda d: d.log_prob(0))(d).shape == (2,)


def test_independent_ones_add_up():
    base = Normal(LOC, 1.0)
    d = Independent(base)
    assert (d.batch_shape, d.event_shape) == ((3,), (2,))
    assert_allclose(d.log_prob(VECTORS), base.log_prob(VECTORS).sum(axis=-1), rtol=1e-12)
    assert_allclose(d.entropy(), base.entropy().sum(axis=-1), rtol=1e-12)
    q = Independent(Normal(np.zeros((3, 2)), 2.0))
    assert_allclose(kl_divergence(d, q), kl_divergence(base, q.base).sum(axis=-1), rtol=1e-12)
    assert d.sample(KEY, (4,)).shape == (4, 3, 2)
    assert Independent(base, 2).log_prob(VECTORS).shape == ()


def test_the_cdf_of_independent_ones_is_the_product_of_theirs():
    base, x = Normal(LOC, 1.0), LOC + 0.3
    d, whole = Independent(base), Independent(base, 2)
    assert_allclose(d.cdf(x), stats.norm(LOC).cdf(x).prod(axis=-1), rtol=1e-12)
    assert_allclose(d.log_cdf(x - 50), stats.norm(LOC).logcdf(x - 50).sum(axis=-1), rtol=1e-12)
    assert_allclose(whole.cdf(x), stats.norm(LOC).cdf(x).prod(), rtol=1e-12)
    assert_allclose(Independent(base, 0).cdf(x), base.cdf(x), rtol=0)
    drawn = d.sample(KEY, (20_000,))
    assert_allclose((drawn <= x).all(axis=-1).mean(axis=0), d.cdf(x), atol=0.02)
    fdbr.testing.check_grads(lambda loc, x: Independent(Normal(loc, 1.0)).cdf(x), LOC, x)
    fdbr.testing.check_grads(lambda loc, x: Independent(Normal(loc, 1.0)).log_cdf(x), LOC, x)
    with pytest.raises(NotImplementedError, match="cdf"):
        Independent(OneHotCategorical(CHANCES), 1).cdf(np.eye(3)[:2])


@pytest.mark.parametrize("rate", [1e-3, 0.5, 20.0, 1e3, 1e5])
def test_the_entropy_of_counts_is_right_for_small_and_large_rates(rate):
    k = np.arange(max(0, rate - 60 * rate**0.5 - 60), rate + 60 * rate**0.5 + 60).round()
    logs = stats.poisson(rate).logpmf(k)
    expected = -(np.exp(logs) * logs).sum()
    assert float(Poisson(rate).entropy()) == pytest.approx(expected, rel=1e-8)


def test_what_is_certain_has_its_quantiles_and_probabilities():
    once = Geometric(np.array([1.0, 0.5]))
    np.testing.assert_array_equal(once.cdf(-1.0), [0.0, 0.0])
    np.testing.assert_array_equal(once.survival(-3.0), [1.0, 1.0])
    np.testing.assert_array_equal(once.icdf(1.0), [0.0, np.inf])
    np.testing.assert_array_equal(Poisson(np.array([0.0, 2.0])).icdf(1.0), [0.0, np.inf])
    many = np.arange(200.0)
    slow = Geometric(0.03, start=1)
    np.testing.assert_array_equal(slow.icdf(slow.cdf(many + 1)), many + 1)


def test_what_is_left_of_a_beta_distribution_near_zero_keeps_its_digits():
    a, b, x = (
        np.array([0.01, 0.02, 30.0]),
        np.array([200.0, 1.0, 0.5]),
        np.array([2e-28, 1e-11, 0.9]),
    )
    assert_allclose(Beta(a, b).survival(x), stats.beta(a, b).sf(x), rtol=1e-10)


RARE = np.array([1e-10, 1e-3])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: Geometric(RARE).log_survival(3.0), 4 * np.log1p(-RARE)),
        (lambda: Geometric(RARE).icdf(0.5), np.ceil(np.log(0.5) / np.log1p(-RARE)) - 1),
        (lambda: Geometric(logits=np.array([30.0])).mean, np.exp([-30.0])),
        (lambda: Bernoulli(RARE).survival(0.0), RARE),
        (lambda: Bernoulli(RARE).log_cdf(0.0), np.log1p(-RARE)),
        (lambda: Bernoulli(RARE * 1e-300).log_survival(0.0), np.log(RARE * 1e-300)),
        (lambda: Exponential(1.0).log_cdf(50.0), -np.exp(-50.0)),
        (lambda: Laplace(0.0, 1.0).log_survival(-50.0), -np.exp(-50.0) / 2),
        (lambda: Beta(1.0, 1.0).log_survival(RARE), np.log1p(-RARE)),
        (lambda: Poisson(RARE).log_cdf(0.0), -RARE),
        (lambda: LogNormal(-30.0, 1.0).log_cdf(1e-60), stats.norm.logcdf(np.log(1e-60) + 30)),
        (lambda: LogNormal(5.0, 1.0).log_survival(1e60), stats.norm.logsf(np.log(1e60) - 5)),
        (lambda: LogNormal(0.0, 1.0).log_cdf(np.array([-1.0, 0.0])), [-np.inf, -np.inf]),
        (lambda: Cauchy(0.0, 1e-8).log_prob(1e200), np.log(1e-8 / np.pi) - 2 * np.log(1e200)),
    ],
)
def test_what_is_rare_and_what_is_almost_certain_keep_their_digits(found, expected):
    assert_allclose(found(), expected, rtol=1e-13)


@pytest.mark.parametrize("kind", [Geometric, Bernoulli, lambda p: Beta(1 / p, 2.0)])
def test_logarithms_of_what_is_possible_have_finite_derivatives(kind):
    assert np.isfinite(fdbr.grad(lambda p: kind(p).log_survival(0.0) + kind(p).log_cdf(0.5))(0.25))


def test_logarithms_of_what_is_almost_certain_have_the_right_derivatives():
    of = lambda x: Exponential(2.0).log_cdf(x) + Laplace(0.0, 1.0).log_survival(-x)
    x = np.array([0.1, 1.0, 40.0])
    exact = 2 / np.expm1(2 * x) + np.exp(-x) / 2 / (1 - np.exp(-x) / 2)
    assert_allclose(fdbr.grad(lambda x: of(x).sum())(x), exact, rtol=1e-12)


@pytest.mark.parametrize(
    "unknown",
    [
        lambda nan: Categorical(np.ones(2)).log_prob(nan),
        lambda nan: Categorical(np.ones(2)).cdf(nan),
        lambda nan: OneHotCategorical(np.ones(2)).log_prob(np.array([1.0, nan])),
        lambda nan: Dirichlet(np.ones(2)).log_prob(np.array([0.5, nan])),
        lambda nan: Independent(Poisson(np.ones(2)), 1).log_prob(np.array([0.0, nan])),
    ],
)
def test_vectors_with_nan_have_no_probability(unknown):
    assert np.isnan(unknown(np.nan))
    assert not np.isnan(unknown(0.0))


def test_numbers_of_python_are_parameters_too():
    for d in (Normal(0.0, 1.0), Uniform(), Bernoulli(0.5), Geometric(0.5), Poisson(2.0)):
        assert d.batch_shape == ()
        assert d.sample(KEY, (3,)).shape == (3,)
        assert np.isfinite(float(d.entropy()))
    for d in (Normal(0.0, 1.0), Uniform()):
        assert d.log_prob(np.zeros(2, "float32")).dtype == np.float32
    assert Normal(0.0, 1.0).sample(KEY).dtype == np.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(), "exactly one of probs and logits"),
        (lambda: Categorical(np.ones(2), np.ones(2)), "exactly one of probs and logits"),
        (lambda: Categorical(0.5), "probs must have 1 axes or more, got float 0.5"),
        (lambda: Dirichlet(2.0), "concentration must have 1 axes"),
        (lambda: Geometric(0.5, start=2), "start must be 0 or 1, got 2"),
        (lambda: MultivariateNormal(np.zeros(2)), "exactly one of scale_tril and"),
        (
            lambda: MultivariateNormal(np.zeros(2), scale_tril=np.eye(3)),
            r"scale_tril must have shape",
        ),
        (lambda: Independent(Normal(0.0, 1.0), 1), "between 0 and the 0 axes"),
        (lambda: kl_divergence(Normal(), Uniform()), "no rule for Normal and Uniform"),
        (lambda: OneHotCategorical(np.ones(2)).cdf(0), "OneHotCategorical has no cdf"),
        (
            lambda: kl_divergence(Geometric(0.5), Geometric(0.5, start=1)),
            "must have one start, got 0 and 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(make, message):
    with pytest.raises((ValueError, NotImplementedError), match=f"^fdbr.distributions.*{message}"):
        make()


def test_a_covariance_and_its_factor_are_told_apart_by_name():
    with pytest.raises(TypeError, match="positional"):
        MultivariateNormal(np.zeros(2), np.eye(2))


def test_a_rule_for_further_classes_can_be_registered():
    @fdbr.frozen
    class Shifted(Normal):
        pass

    @distributions.register_kl(Shifted, Uniform)
    def rule(p, q):
        return 7.0

    assert kl_divergence(Shifted(0.0, 1.0), Uniform()) == 7.0
    assert float(kl_divergence(Shifted(0.0, 1.0), Shifted(0.0, 1.0))) == 0.0
