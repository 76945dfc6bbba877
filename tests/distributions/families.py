"""The families of distributions, with what SciPy has of each."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from scipy import stats

from fdbr import distributions as d

__all__ = ["FAMILIES", "Family"]


@attrs.frozen(repr=False)
class Family:
    """One family.

    Attributes
    ----------
    make
        A distribution from arrays of parameters.
    parameters
        Two settings: arrays of three values each.
    scipys
        SciPy's distribution of the same parameters.
    values
        Within the support, where nothing is special; and outside, if there is an outside.
    """

    make: Callable[..., Any]
    parameters: tuple[Any, Any]
    scipys: Callable[..., Any]
    values: Any
    outside: Any = None
    discrete: bool = False


def _a(*values: float) -> Any:
    return np.array(values)


LOC, SCALE = _a(0.5, -1.0, 2.0), _a(1.0, 0.5, 3.0)
OTHER = _a(0.0, 0.25, 1.0), _a(2.0, 1.5, 0.75)
CHANCES = _a(0.25, 0.5, 0.875)
REAL = _a(-2.0, -0.75, 0.25, 1.5, 4.0)[:, None]
ABOVE = _a(0.125, 0.75, 1.5, 4.0)[:, None]
COUNTS = _a(0.0, 1.0, 2.0, 5.0)[:, None]
POSITIVE = _a(0.75, 2.0, 5.0), _a(1.0, 2.0, 0.5)
POSITIVE2 = _a(1.5, 1.0, 3.0), _a(0.5, 3.0, 1.0)

FAMILIES: dict[str, Family] = {
    "Normal": Family(d.Normal, ((LOC, SCALE), OTHER), stats.norm, REAL),
    "LogNormal": Family(
        d.LogNormal,
        ((LOC, SCALE), OTHER),
        lambda m, s: stats.lognorm(s, scale=np.exp(m)),
        ABOVE,
        -1.0,
    ),
    "Cauchy": Family(d.Cauchy, ((LOC, SCALE), OTHER), stats.cauchy, REAL),
    "Gumbel": Family(d.Gumbel, ((LOC, SCALE), OTHER), stats.gumbel_r, REAL),
    "Laplace": Family(d.Laplace, ((LOC, SCALE), OTHER), stats.laplace, REAL),
    "Uniform": Family(
        d.Uniform,
        ((LOC, LOC + SCALE), (LOC - 1.0, LOC + SCALE + 0.5)),
        lambda low, high: stats.uniform(low, high - low),
        LOC + _a(0.125, 0.25, 0.375)[:, None],
        -9.0,
    ),
    "Exponential": Family(
        d.Exponential, ((SCALE,), (OTHER[1],)), lambda r: stats.expon(scale=1 / r), ABOVE, -1.0
    ),
    "Gamma": Family(
        d.Gamma, (POSITIVE, POSITIVE2), lambda a, b: stats.gamma(a, scale=1 / b), ABOVE, -1.0
    ),
    "Chi2": Family(d.Chi2, ((POSITIVE[0],), (POSITIVE2[0],)), stats.chi2, ABOVE, -1.0),
    "Pareto": Family(
        d.Pareto,
        ((_a(1.0, 2.0, 0.5), _a(3.0, 2.5, 4.0)), (_a(0.5, 1.5, 0.25), _a(2.0, 3.0, 2.5))),
        lambda scale, alpha: stats.pareto(alpha, scale=scale),
        _a(2.5, 3.0, 9.0)[:, None],
        0.125,
    ),
    "Beta": Family(d.Beta, (POSITIVE, POSITIVE2), stats.beta, _a(0.125, 0.5, 0.875)[:, None], 1.5),
    "Bernoulli": Family(
        d.Bernoulli,
        ((CHANCES,), (CHANCES[::-1].copy(),)),
        stats.bernoulli,
        COUNTS[:2],
        2.0,
        discrete=True,
    ),
    "Bernoulli of logits": Family(
        lambda p: d.Bernoulli(logits=p),
        ((LOC,), (SCALE,)),
        lambda logits: stats.bernoulli(1 / (1 + np.exp(-logits))),
        COUNTS[:2],
        0.5,
        discrete=True,
    ),
    "Geometric": Family(
        d.Geometric,
        ((CHANCES,), (CHANCES[::-1].copy(),)),
        lambda p: stats.geom(p, loc=-1),
        COUNTS,
        0.5,
        discrete=True,
    ),
    "Geometric from one on": Family(
        lambda p: d.Geometric(logits=p, start=1),
        ((LOC,), (SCALE,)),
        lambda logits: stats.geom(1 / (1 + np.exp(-logits))),
        COUNTS + 1,
        0.0,
        discrete=True,
    ),
    "Poisson": Family(
        d.Poisson, ((POSITIVE[0],), (POSITIVE2[0],)), stats.poisson, COUNTS, 1.5, discrete=True
    ),
}
