"""A step of Hamiltonian Monte Carlo for logistic regression, 500 examples of 20, float64.

Ten leapfrogs.  For fdbr a proposal is accepted by a Python ``if``.
"""

from typing import Any

import attrs
import numpy as np

TITLE = "Hamiltonian Monte Carlo, ten leapfrogs"
DTYPE = np.float64
RTOL = 1e-6
RANDOM = True


@attrs.frozen
class Sizes:
    """The data's, the number of leapfrogs, and how long they are."""

    examples: int = 500
    features: int = 20
    leapfrogs: int = 10
    length: float = 0.08


TINY = Sizes(examples=5, features=2, leapfrogs=2)


def start(sizes: Sizes) -> Any:
    """The position, and the data."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(sizes.examples, sizes.features))
    truth = generator.normal(size=sizes.features)
    y = (generator.random(sizes.examples) < 1 / (1 + np.exp(-x @ truth))).astype(DTYPE)
    return np.zeros(sizes.features), (x, y)


def potential(np: Any, weights: Any, x: Any, y: Any) -> Any:
    """The negative logarithm of the posterior density."""
    logits = x @ weights
    return np.sum(np.logaddexp(0, logits) - y * logits) + 0.5 * np.sum(weights**2)


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With ``for`` and ``if``."""

    def step(state: Any, batch: Any) -> Any:
        energy = lambda q: potential(np, q, *batch)
        slope = fdbr.grad(energy)
        key, q = state
        key, one, other = random.split(key, 3)
        p = first = random.normal(one, q.shape, q.dtype)
        new = q
        p = p - 0.5 * sizes.length * slope(new)
        for _ in range(sizes.leapfrogs):
            new = new + sizes.length * p
            p = p - sizes.length * slope(new)
        p = p + 0.5 * sizes.length * slope(new)
        gain = energy(q) + 0.5 * first @ first - energy(new) - 0.5 * p @ p
        if np.log(random.uniform(other)) < gain:
            q = new
        return (key, q), (q, gain)

    return step


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``fori_loop`` and ``where``."""

    def step(state: Any, batch: Any) -> Any:
        energy = lambda q: potential(np, q, *batch)
        slope = jax.grad(energy)
        key, q = state
        key, one, other = random.split(key, 3)
        first = random.normal(one, q.shape, q.dtype)

        def leapfrog(_: Any, carry: Any) -> Any:
            q, p = carry
            q = q + sizes.length * p
            return q, p - sizes.length * slope(q)

        p = first - 0.5 * sizes.length * slope(q)
        new, p = jax.lax.fori_loop(0, sizes.leapfrogs, leapfrog, (q, p))
        p = p + 0.5 * sizes.length * slope(new)
        gain = energy(q) + 0.5 * first @ first - energy(new) - 0.5 * p @ p
        q = np.where(np.log(random.uniform(other)) < gain, new, q)
        return (key, q), (q, gain)

    return step
