"""A step of Adam for 100 parameters of four elements each, float32."""

from typing import Any

import attrs
import numpy as np

TITLE = "Adam, 100 parameters of four elements"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """Parameters."""

    parameters: int = 100


TINY = Sizes(parameters=3)


def start(sizes: Sizes) -> Any:
    """Parameters and Adam's memory of them; factors and what shall come out."""
    generator = np.random.default_rng(0)
    drawn = generator.normal(size=(sizes.parameters, 4)).astype(DTYPE)
    zeros = [np.zeros(4, DTYPE) for _ in drawn]
    return ([*drawn], zeros, zeros, np.zeros((), DTYPE)), (
        np.arange(4, dtype=DTYPE),
        np.ones(4, DTYPE),
    )


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return sum(np.sum((np.tanh(p) * x - y) ** 2) for p in parameters)

    def step(state: Any, batch: Any) -> Any:
        parameters, mean, square, count = state
        map = library.tree.map
        value, slope = library.value_and_grad(loss)(parameters, *batch)
        count = count + 1
        mean = map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
        square = map(lambda s, g: 0.999 * s + 0.001 * g**2, square, slope)
        rate = 0.001 * np.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        change = lambda p, m, s: p - rate * m / (np.sqrt(s) + 1e-8)
        return (map(change, parameters, mean, square), mean, square, count), value

    return step


fdbr = jax = program
