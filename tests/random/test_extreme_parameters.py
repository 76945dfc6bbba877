"""Draws for extreme parameters: the right distribution, or an error that names the argument."""

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import fdbr
from fdbr import random

KEY = random.key(1)
MANY = 10_000
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.5, 1e3, 9e9, 1.1e10, 1e12, 1e15, 1e18])
def test_poisson_draws_of_every_rate(rate: float) -> None:
    draws = random.poisson(KEY, rate, (MANY,)).astype(float)
    assert (draws >= 0).all()
    away = (draws.mean() - rate) / np.sqrt(rate / MANY)
    assert abs(away) < 4
    if rate > 1e3:
        assert stats.kstest((draws - rate) / np.sqrt(rate), "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("n", "p"),
    [
        *[(10, 1e-17), (1, 1e-300), (1e17, 1e-17), (1e13, 1e-13), (1e12, 0.3), (1e15, 0.9)],
        *[(1e18, 0.5), (1e12, 1 - 2.0**-30), (10**9, 0.999), (5, 0.5), (1e9, 1e-8)],
    ],
)
def test_binomial_draws_of_every_size(n: float, p: float) -> None:
    draws = random.binomial(KEY, n, p, (MANY,))
    assert draws.min() >= 0
    assert draws.max() <= n
    failures = (n - draws).astype(float) if p > 0.5 else draws.astype(float)
    mean, sd = n * min(p, 1 - p), np.sqrt(n * p * (1 - p))
    assert abs(failures.mean() - mean) < 4 * sd / np.sqrt(MANY) + 1e-9
    if mean > 1:
        assert failures.std() / sd == pytest.approx(1, abs=0.05)


def test_mixed_parameters_give_the_draws_of_each() -> None:
    rates = np.array([0.0, 2.0, 1e12])
    draws = random.poisson(KEY, rates, (100, 3))
    assert (draws[:, 0] == 0).all()
    np.testing.assert_array_equal(draws[:, 1], random.poisson(KEY, np.full(3, 2.0), (100, 3))[:, 1])
    assert (abs(draws[:, 2] - 1e12) < 1e7).all()


OVERFLOWS = {
    "poisson": lambda most, dtype: random.poisson(KEY, 4.0 * most, (3,), dtype),
    "binomial": lambda most, dtype: random.binomial(KEY, 4.0 * most, 0.75, (3,), dtype),
    "geometric": lambda most, dtype: random.geometric(KEY, 1e-3 / most, (3,), dtype),
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_counts_that_the_dtype_does_not_hold_are_an_error(name: str, dtype: str) -> None:
    most = float(np.iinfo(dtype).max)
    message = rf"random\.{name}: .*draws above .*dtype {np.dtype(dtype)} does not hold"
    with pytest.raises(ValueError, match=message):
        OVERFLOWS[name](most, dtype)
    with pytest.raises(ValueError, match=message):
        fdbr.jit(lambda most: OVERFLOWS[name](most, dtype))(most)
    wide = "u8" if most > 1e18 else "i8"
    if most < 1e18:
        assert (OVERFLOWS[name](most, wide) > most).any()


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.poisson(KEY, np.inf),
        lambda: random.poisson(KEY, np.nan),
        lambda: random.binomial(KEY, np.inf, 0.5),
        lambda: random.geometric(KEY, 0.0),
        lambda: random.gamma(KEY, np.inf),
        lambda: random.chisquare(KEY, np.inf),
        lambda: random.beta(KEY, 1.0, np.inf),
        lambda: random.t(KEY, np.inf),
        lambda: random.pareto(KEY, np.inf),
        lambda: random.dirichlet(KEY, np.array([1.0, np.inf])),
        lambda: random.uniform(KEY, (), "f2", -1e5, 1e5),
        lambda: random.uniform(KEY, (), "f4", 0.0, 1e39),
        lambda: random.uniform(KEY, (), "f8", -np.inf, 0.0),
        lambda: random.truncated_normal(KEY, 1.0, np.nan),
        lambda: random.rademacher(KEY, (), "u1"),
        lambda: random.rademacher(KEY, (), "bool"),
    ],
)
def test_parameters_without_a_distribution_are_an_error(draw: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^fdbr\.random\."):
        draw()


@pytest.mark.parametrize(
    ("dtype", "most"), [("f2", 6e4), ("f2", 65504.0), ("f4", 3e38), ("f8", 1.7e308)]
)
def test_uniform_draws_between_bounds_whose_distance_overflows(dtype: str, most: float) -> None:
    draws = random.uniform(KEY, (MANY,), dtype, -most, most)
    assert draws.dtype == dtype
    assert draws.max() < np.asarray(most, dtype)
    assert stats.kstest(draws.astype(float) / most, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    bounds = np.asarray([-most, most], dtype)
    np.testing.assert_array_equal(random.uniform(KEY, (MANY,), dtype, *bounds), draws)
    by_high = fdbr.grad(lambda high: random.uniform(KEY, (), dtype, bounds[0], high))
    assert 0 < by_high(bounds[1]) < 1


TAILS = [(38, 39), (40, np.inf), (37.6, 38), (34.9, 36), (35.1, 35.2), (1e3, np.inf), (38, 1e300)]


@pytest.mark.parametrize(("low", "high"), TAILS + [(-high, -low) for low, high in TAILS])
def test_normal_draws_far_in_a_tail(low: float, high: float) -> None:
    draws = random.truncated_normal(KEY, low, high, (MANY,))
    assert draws.min() >= low
    assert draws.max() <= high
    near, far = (low, high) if low > 0 else (-high, -low)
    left = np.exp(special.log_ndtr(-abs(draws)) - special.log_ndtr(-near))
    least = np.exp(special.log_ndtr(-far) - special.log_ndtr(-near))
    assert stats.kstest((left - least) / (1 - least), "uniform").pvalue > 1e-3
    bound, other = (low, high) if low > 0 else (high, low)

    def total(bound: Any) -> Any:
        ends = (bound, other) if low > 0 else (other, bound)
        return random.truncated_normal(KEY, *ends, (50,)).sum()

    step = 1e-6 * abs(bound)
    numerical = (total(bound + step) - total(bound - step)) / (2 * step)
    np.testing.assert_allclose(fdbr.grad(total)(float(bound)), numerical, rtol=1e-5)


def test_tails_and_ordinary_bounds_together() -> None:
    low, high = np.array([-2.0, 38.0, -39.0]), np.array([2.0, 39.0, -38.0])
    draws = random.truncated_normal(KEY, low, high, (100, 3))
    ordinary = random.truncated_normal(KEY, np.full(3, -2.0), np.full(3, 2.0), (100, 3))
    np.testing.assert_array_equal(draws[:, 0], ordinary[:, 0])
    assert ((low <= draws) & (draws <= high)).all()
    assert len(np.unique(draws[:, 1:])) == 200


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        *[(0, 3 * 2**61, "i8"), (-(2**63), 2**62, "i8"), (0, 2**63 + 1, "u8")],
        *[(0, 2**64 - 1, "u8"), (0, 2**32 + 1, "i8"), (-5, 5, "i1"), (0, 2**33, "u8")],
    ],
)
def test_integers_of_large_ranges_are_equally_probable(low: int, high: int, dtype: str) -> None:
    high = np.uint64(high) if dtype == "u8" else high
    draws = random.randint(KEY, (MANY,), low, high, dtype)
    share = (draws.astype(float) - low) / (float(high) - low)
    assert stats.kstest(share, "uniform").pvalue > 1e-3 or high == 5
    jitted = fdbr.jit(lambda key: random.randint(key, (MANY,), low, high, dtype))
    np.testing.assert_array_equal(jitted(KEY), draws)
    np.testing.assert_array_equal(
        fdbr.vmap(lambda key: random.randint(key, (20,), low, high, dtype))(KEY[None])[0],
        random.randint(KEY, (20,), low, high, dtype),
    )
