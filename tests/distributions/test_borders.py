"""Distributions at infinity, off their support, of integers, and of extreme parameters."""

from typing import Any

import numpy as np
import pytest
from distributions.families import FAMILIES
from scipy import stats

import fdbr
from fdbr import distributions as d
from fdbr.distributions import kl_divergence

every = pytest.mark.parametrize("name", FAMILIES)
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def ours(name: str) -> Any:
    family = FAMILIES[name]
    return family.make(*family.parameters[0])


@quiet
@every
def test_infinite_values_have_density_zero_and_all_probability_between_them(name: str) -> None:
    x = np.array([-np.inf, np.inf])[:, None]
    for transformed in (lambda f: f, lambda f: fdbr.jit(f)):
        assert (transformed(ours(name).log_prob)(x) == -np.inf).all()
        assert (transformed(ours(name).prob)(x) == 0).all()
        assert (transformed(ours(name).cdf)(x) == [[0], [1]]).all()
        assert (transformed(ours(name).survival)(x) == [[1], [0]]).all()
        assert (transformed(ours(name).log_cdf)(x) == [[-np.inf], [0]]).all()
        assert (transformed(ours(name).log_survival)(x) == [[0], [-np.inf]]).all()


@quiet
@every
def test_distribution_functions_rise_from_0_to_1(name: str) -> None:
    x = np.concatenate([-np.logspace(300, -300, 300), [0.0], np.logspace(-300, 300, 300)])[:, None]
    lower, upper = ours(name).cdf(x), ours(name).survival(x)
    assert (np.diff(lower, axis=0) >= 0).all()
    assert (np.diff(upper, axis=0) <= 0).all()
    assert lower.min() >= 0
    assert lower.max() <= 1
    np.testing.assert_allclose(lower + upper, 1, rtol=1e-12)


@quiet
@every
def test_quantiles_of_no_probability_are_nan(name: str) -> None:
    q = np.array([-np.inf, -1e-300, np.nextafter(1, 2), 1.1, np.inf, np.nan])[:, None]
    assert np.isnan(ours(name).icdf(q)).all()
    assert not np.isnan(ours(name).icdf(np.array([0.0, 1.0])[:, None])).any()


@every
def test_counts_between_two_integers_have_probability_zero(name: str) -> None:
    if FAMILIES[name].discrete:
        x = np.array([-1.0, 0.5, 1.5, 1e15 + 0.5])[:, None]
        assert (ours(name).log_prob(x) == -np.inf).all()


INTEGERS = tuple(map(np.dtype, ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")))


@quiet
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@every
def test_values_of_integer_dtypes_are_those_numbers(name: str, dtype: Any) -> None:
    least = {"b": 0, "u": 0, "i": -128}[dtype.kind]
    x = np.array([least, 0, 1, 1 if dtype.kind == "b" else 100]).astype(dtype)[:, None]
    for method in ("log_prob", "prob", "cdf", "log_cdf", "survival", "log_survival"):
        function = getattr(ours(name), method)
        expected = function(x.astype(float))
        np.testing.assert_array_equal(function(x), expected)
        np.testing.assert_allclose(fdbr.jit(function)(x), expected, rtol=1e-13)
        np.testing.assert_array_equal(fdbr.vmap(function)(x), expected)
    q = np.array([0, 1]).astype(dtype)[:, None]
    np.testing.assert_array_equal(ours(name).icdf(q), ours(name).icdf(q.astype(float)))


@quiet
@pytest.mark.parametrize("dtype", ["i1", "u1", "u2", "i8"])
@every
def test_parameters_of_integer_dtypes_are_those_numbers(name: str, dtype: str) -> None:
    family = FAMILIES[name]
    numbers = [np.array(p).astype(dtype) for p in ([1, 1, 1], [1, 100, 120])]
    numbers = numbers[: len(family.parameters[0])]
    numbers[-1] = numbers[-1] + (1 if name == "Uniform" else 0)
    if name in ("Bernoulli", "Geometric"):
        numbers = [np.ones(3, dtype)]
    found, expected = family.make(*numbers), family.make(*(p.astype(float) for p in numbers))
    x = np.array([1, 100], dtype)[:, None]
    for method in ("log_prob", "cdf", "survival"):
        values = getattr(expected, method)(x.astype(float))
        np.testing.assert_array_equal(getattr(found, method)(x), values)
    np.testing.assert_array_equal(found.variance, expected.variance)
    np.testing.assert_array_equal(found.entropy(), expected.entropy())
    np.testing.assert_array_equal(kl_divergence(found, found), kl_divergence(expected, expected))
    key = fdbr.random.key(0)
    np.testing.assert_array_equal(found.sample(key), expected.sample(key))


def test_an_image_of_bytes_has_the_density_of_its_numbers() -> None:
    image = np.arange(256, dtype=np.uint8).reshape(16, 16)
    found = d.Independent(d.Normal(np.full((16, 16), 128), 64), 2).log_prob(image)
    np.testing.assert_allclose(found, stats.norm(128, 64).logpdf(image.astype(float)).sum())
    single = d.Normal(np.float32(128), np.float32(64)).log_prob(image)
    assert single.dtype == "float32"


def test_vectors_off_the_simplex_have_density_zero() -> None:
    dirichlet = d.Dirichlet(np.array([1.0, 2.0, 3.0]))
    for off in ([0.3, 0.3, 0.3], [1, 1, 1], [0.5, 0.6, -0.1], [0.5, 0.25, 0.2499], [0, 0, 0]):
        assert dirichlet.log_prob(np.array(off)) == -np.inf
    assert np.isnan(dirichlet.log_prob(np.array([0.5, np.nan, 0.2])))
    for dtype in ("f4", "f8"):
        draws = d.Dirichlet(np.ones(1000, dtype)).sample(fdbr.random.key(0), (50,))
        assert np.isfinite(d.Dirichlet(np.ones(1000, dtype)).log_prob(draws)).all()
        assert draws.dtype == dtype


def test_categories_are_integers_in_range() -> None:
    categorical = d.Categorical(np.array([0.25, 0.75]))
    found = categorical.log_prob(np.array([0.5, -1, 2, np.inf, -np.inf, 1e300, 1]))
    np.testing.assert_allclose(found, [-np.inf] * 6 + [np.log(0.75)])
    assert np.isnan(categorical.log_prob(np.nan))
    assert categorical.log_prob(np.uint8(1)) == np.log(0.75)
    q = np.array([-0.1, 0.0, 0.25, 0.3, 1.0, 1.1, np.nan])
    np.testing.assert_array_equal(categorical.icdf(q), [np.nan, 0, 0, 1, 1, np.nan, np.nan])


ORDERS = 10.0 ** np.arange(-20, 21, 2.0)
HALF_LOG = 0.5 * np.log(2 * np.pi * np.e)


def poissons(rate: Any) -> Any:
    """Entropies of Poisson distributions, by sums, or by the series for large rates."""
    k = np.arange(40_000)
    mass = stats.poisson.pmf(k, np.minimum(rate, 1e3)[:, None])
    sums = -(mass * np.log(np.where(mass > 0, mass, 1))).sum(axis=1)
    series = HALF_LOG + 0.5 * np.log(rate) - 1 / (12 * rate) - 1 / (24 * rate**2)
    return np.where(rate > 1e3, series, sums)


@quiet
@pytest.mark.parametrize(
    ("distribution", "reference", "parameters"),
    [
        (d.Poisson, poissons, ORDERS),
        (d.Poisson, poissons, np.linspace(90, 110, 9)),  # at the beginning of the series
        (lambda a: d.Gamma(a, 2.0), lambda a: stats.gamma(a, scale=0.5).entropy(), ORDERS),
        (d.Chi2, lambda a: stats.chi2(a).entropy(), ORDERS),
        (d.Chi2, lambda a: stats.chi2(a).entropy(), np.linspace(150, 250, 9)),
        (lambda a: d.Beta(a, a), lambda a: stats.beta(a, a).entropy(), ORDERS),
        (lambda a: d.Beta(a, 1.0), lambda a: stats.beta(a, 1.0).entropy(), ORDERS),
        (
            lambda a: d.Dirichlet(np.stack([a, 2 * a], -1)),
            lambda a: stats.beta(a, 2 * a).entropy(),
            ORDERS,
        ),
        (lambda a: d.Pareto(1.0, a), lambda a: 1 + 1 / a - np.log(a), ORDERS),
        (d.Exponential, lambda a: 1 - np.log(a), ORDERS),
        (lambda a: d.Normal(0.0, a), lambda a: HALF_LOG + np.log(a), ORDERS),
        (
            lambda a: d.Geometric(logits=np.log(a)),
            lambda a: np.log1p(1 / a) + np.log1p(a) / a,
            ORDERS,
        ),
        (
            lambda a: d.Bernoulli(logits=np.log(a)),
            lambda a: (np.log1p(a) + a * np.log1p(1 / a)) / (1 + a),
            ORDERS,
        ),
    ],
)
def test_entropies_of_parameters_of_many_orders(
    distribution: Any, reference: Any, parameters: Any
) -> None:
    found = distribution(parameters).entropy()
    np.testing.assert_allclose(found, reference(parameters), rtol=1e-8, atol=1e-14)
    slopes = fdbr.grad(lambda a: distribution(a).entropy().sum())(parameters)
    assert np.isfinite(slopes).all()


def longs(function: Any) -> Any:
    """Compute a divergence in long double, and by its series near equal parameters."""

    def reference(p: Any, q: Any) -> Any:
        return function(p.astype(np.longdouble), q.astype(np.longdouble)).astype(float)

    return reference


PAIRS = np.meshgrid(10.0 ** np.arange(-20, 21, 5.0), 10.0 ** np.arange(-20, 21, 5.0))


@quiet
@pytest.mark.parametrize(
    ("distribution", "reference"),
    [
        (d.Exponential, longs(lambda p, q: q / p - 1 - np.log(q / p))),
        (d.Poisson, longs(lambda p, q: q - p - p * np.log(q / p))),
        (lambda s: d.Laplace(0.5, s), longs(lambda p, q: p / q - 1 - np.log(p / q))),
        (lambda s: d.Pareto(1.0, s), longs(lambda p, q: q / p - 1 - np.log(q / p))),
        (lambda s: d.Normal(1.0, s), longs(lambda p, q: (p / q) ** 2 / 2 - 0.5 - np.log(p / q))),
        (lambda s: d.Cauchy(1.0, s), longs(lambda p, q: np.log((p + q) / q * (p + q) / p / 4))),
        (lambda r: d.Gamma(3.0, r), longs(lambda p, q: 3 * (q / p - 1 - np.log(q / p)))),
        (lambda s: d.Chi2(2 * s), None),
        (lambda s: d.Beta(s, s), None),
        (lambda s: d.Dirichlet(ops_stack(s)), None),
    ],
)
def test_divergences_of_parameters_of_many_orders(distribution: Any, reference: Any) -> None:
    p, q = (x.ravel() for x in PAIRS)
    found = kl_divergence(distribution(p), distribution(q))
    assert (found[p == q] == 0).all()
    if reference is None:
        assert (found >= 0).all()
    else:
        np.testing.assert_allclose(found, reference(p, q), rtol=1e-9)
    near = 10.0 ** np.arange(-3, 20, 3.0)
    slightly = near * (1 + 1e-5)
    both = kl_divergence(distribution(near), distribution(slightly))
    fisher = fdbr.vmap(
        lambda a, x: fdbr.hessian(lambda b: kl_divergence(distribution(a), distribution(b)))(x)
    )
    if reference is not None:
        expected = 0.5 * fisher(near, near) * (slightly - near) ** 2
        np.testing.assert_allclose(both, expected, rtol=1e-3)


def ops_stack(s: Any) -> Any:
    return fdbr.ops.stack([s, s, 2 * s], axis=-1)


def test_divergences_of_large_concentrations_are_those_of_normal_distributions() -> None:
    a = np.array([1e4, 1e8, 1e12, 1e16])
    b = a + 3 * np.sqrt(a)
    np.testing.assert_allclose(
        kl_divergence(d.Gamma(a, 1.0), d.Gamma(b, 1.0)), (b - a) ** 2 / (2 * a), rtol=3e-2
    )
    np.testing.assert_allclose(
        kl_divergence(d.Gamma(a, 1.0), d.Gamma(b, 1.0))[1:],
        (b - a)[1:] ** 2 / (2 * a[1:]),
        rtol=1e-3,
    )


@quiet
def test_divergences_of_large_logits() -> None:
    logits = np.array([-1000.0, -800, -40, -1, 0, 1, 40, 800, 1000])
    p, q = (x.ravel() for x in np.meshgrid(logits, logits))
    by_p = np.logaddexp(0, -q) - np.logaddexp(0, -p)
    by_q = np.logaddexp(0, q) - np.logaddexp(0, p)
    chance, rest = 1 / (1 + np.exp(-p)), 1 / (1 + np.exp(p))
    expected = chance * by_p + rest * by_q
    found = kl_divergence(d.Bernoulli(logits=p), d.Bernoulli(logits=q))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    assert (found >= 0).all()
    slopes = fdbr.grad(
        lambda p, q: kl_divergence(d.Bernoulli(logits=p), d.Bernoulli(logits=q)).sum(), (0, 1)
    )(p, q)
    np.testing.assert_allclose(slopes[1], 1 / (1 + np.exp(-q)) - chance, rtol=1e-9, atol=1e-15)
    assert np.isfinite(slopes[0]).all()
    two = lambda x: d.Categorical(logits=np.stack([0 * x, x], -1))
    np.testing.assert_allclose(kl_divergence(two(p), two(q)), expected, rtol=1e-12, atol=1e-15)
    trials = kl_divergence(d.Geometric(logits=logits[2:]), d.Geometric(logits=logits[2:]))
    assert (trials == 0).all()


def test_divergences_of_certain_events() -> None:
    chances = np.array([0.0, 0.25, 1.0])
    p, q = (x.ravel() for x in np.meshgrid(chances, chances))
    found = kl_divergence(d.Bernoulli(p), d.Bernoulli(q))
    inf, half = np.inf, np.log(4 / 3)
    np.testing.assert_allclose(found, [0, inf, inf, half, 0, np.log(4), inf, inf, 0])
