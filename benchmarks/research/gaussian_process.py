"""A step up the marginal likelihood of a Gaussian process of 200 points, float64."""

from typing import Any

import attrs
import numpy as np

TITLE = "marginal likelihood of a Gaussian process, 200 points"
DTYPE = np.float64
RTOL = 1e-6


@attrs.frozen
class Sizes:
    """Points, and their coordinates."""

    points: int = 200
    features: int = 5


TINY = Sizes(points=4, features=2)


def start(sizes: Sizes) -> Any:
    """The logarithms of length scales, height and noise; and the data."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(sizes.points, sizes.features))
    y = np.sin(x.sum(1)) + 0.1 * generator.normal(size=sizes.points)
    parameters = {
        "scales": np.zeros(sizes.features),
        "height": np.zeros(()),
        "noise": np.full((), -2.0),
    }
    return parameters, (x, y)


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        x = x / np.exp(parameters["scales"])
        squares = np.sum(x**2, axis=1)
        away = squares[:, None] + squares[None, :] - 2 * x @ x.T
        kernel = np.exp(2 * parameters["height"] - 0.5 * away)
        lower = np.linalg.cholesky(kernel + np.exp(2 * parameters["noise"]) * np.eye(len(y)))
        white = np.linalg.solve(lower, y)
        return 0.5 * white @ white + np.sum(np.log(np.diag(lower))) + len(y) / 2 * np.log(2 * np.pi)

    def step(parameters: Any, batch: Any) -> Any:
        value, slope = library.value_and_grad(loss)(parameters, *batch)
        return library.tree.map(lambda p, g: p - 1e-4 * g, parameters, slope), value

    return step


fdbr = jax = program
