"""A step of a physics-informed network (Raissi et al., 2019) for Burgers' equation, float32.

The network is a function of time and place; ``u_t + u u_x = 0.01/pi u_xx`` is asked of it
at 256 points, and its beginning at 64.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks.research.layers import dense

TITLE = "physics-informed network for Burgers' equation"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """The network's width and hidden layers, and points in the inside and at the beginning."""

    width: int = 32
    depth: int = 3
    inside: int = 256
    first: int = 64


TINY = Sizes(width=3, depth=1, inside=4, first=2)


def start(sizes: Sizes) -> Any:
    """The network, and the points: times and places inside, places at the beginning."""
    generator = np.random.default_rng(0)
    network = dense(generator, 2, *[sizes.width] * sizes.depth, 1)
    t = generator.uniform(0, 1, sizes.inside).astype(DTYPE)
    x = generator.uniform(-1, 1, sizes.inside).astype(DTYPE)
    return network, (t, x, generator.uniform(-1, 1, sizes.first).astype(DTYPE))


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""
    grad, vmap = library.grad, library.vmap

    def u(network: Any, t: Any, x: Any) -> Any:
        h = np.stack([t, x])
        for weight, bias in network[:-1]:
            h = np.tanh(h @ weight + bias)
        weight, bias = network[-1]
        return (h @ weight + bias)[0]

    def residual(network: Any, t: Any, x: Any) -> Any:
        u_t, u_x = grad(u, argnums=(1, 2))(network, t, x)
        u_xx = grad(grad(u, argnums=2), argnums=2)(network, t, x)
        return u_t + u(network, t, x) * u_x - 0.01 / np.pi * u_xx

    def loss(network: Any, batch: Any) -> Any:
        t, x, x_first = batch
        inside = vmap(residual, in_axes=(None, 0, 0))(network, t, x)
        first = vmap(u, in_axes=(None, None, 0))(network, 0.0, x_first)
        return np.mean(inside**2) + np.mean((first + np.sin(np.pi * x_first)) ** 2)

    def step(network: Any, batch: Any) -> Any:
        value, slope = library.value_and_grad(loss)(network, batch)
        return library.tree.map(lambda p, g: p - 0.01 * g, network, slope), value

    return step


fdbr = jax = program
