"""A step down the likelihood of a Kalman filter: 2x2 matrices, 100 observations, float64."""

from typing import Any

import attrs
import numpy as np

TITLE = "Kalman filter, 2x2 matrices, 100 observations"
DTYPE = np.float64
RTOL = 1e-6


@attrs.frozen
class Sizes:
    """The number of observations."""

    observations: int = 100


TINY = Sizes(observations=3)


def start(sizes: Sizes) -> Any:
    """Motion, and the logarithms of its noise's and the observations' variances; observations."""
    generator = np.random.default_rng(0)
    parameters = {
        "motion": np.array([[1.0, 0.1], [-0.1, 0.95]]),
        "noise": np.full(2, -2.0),
        "error": np.full(2, -1.0),
    }
    return parameters, np.cumsum(generator.normal(0, 0.3, (sizes.observations, 2)), axis=0)


def _update(np: Any, parameters: Any, mean: Any, covariance: Any, seen: Any) -> Any:
    """Mean and covariance after an observation, and its negative log-likelihood."""
    motion = parameters["motion"]
    mean = motion @ mean
    covariance = motion @ covariance @ motion.T + np.diag(np.exp(parameters["noise"]))
    off = seen - mean
    spread = covariance + np.diag(np.exp(parameters["error"]))
    gain = np.linalg.solve(spread, covariance).T
    misfit = 0.5 * off @ np.linalg.solve(spread, off) + 0.5 * np.log(np.linalg.det(spread))
    return mean + gain @ off, covariance - gain @ covariance, misfit


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With ``for``."""

    def loss(parameters: Any, observations: Any) -> Any:
        mean, covariance, total = np.zeros(2), np.eye(2), 0.0
        for seen in observations:
            mean, covariance, misfit = _update(np, parameters, mean, covariance, seen)
            total = total + misfit
        return total

    return _training(fdbr, loss)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``scan``."""

    def loss(parameters: Any, observations: Any) -> Any:
        def body(carry: Any, seen: Any) -> Any:
            mean, covariance = carry
            mean, covariance, misfit = _update(np, parameters, mean, covariance, seen)
            return (mean, covariance), misfit

        return np.sum(jax.lax.scan(body, (np.zeros(2), np.eye(2)), observations)[1])

    return _training(jax, loss)


def _training(library: Any, loss: Any) -> Any:
    def step(parameters: Any, observations: Any) -> Any:
        value, slope = library.value_and_grad(loss)(parameters, observations)
        return library.tree.map(lambda p, g: p - 1e-4 * g, parameters, slope), value

    return step
