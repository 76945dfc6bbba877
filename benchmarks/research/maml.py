"""A step of MAML (Finn et al., 2017): sinusoids to fit from ten points, float32.

For each of 25 tasks the network makes five steps of gradient descent; the gradient of the loss
after them goes through all five.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks.research.layers import dense

TITLE = "MAML: 25 sinusoids, five inner steps each"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """Tasks, points of each for the inner steps and as many after them, the network's width."""

    tasks: int = 25
    points: int = 10
    width: int = 40
    inner: int = 5


TINY = Sizes(tasks=2, points=3, width=4, inner=1)


def start(sizes: Sizes) -> Any:
    """The network, and points of each task."""
    generator = np.random.default_rng(0)
    network = dense(generator, 1, sizes.width, sizes.width, 1)
    x = generator.uniform(-5, 5, (2, sizes.tasks, sizes.points, 1)).astype(DTYPE)
    height = generator.uniform(0.1, 5, (sizes.tasks, 1, 1)).astype(DTYPE)
    phase = generator.uniform(0, np.pi, (sizes.tasks, 1, 1)).astype(DTYPE)
    y = height * np.sin(x + phase)
    return network, (x[0], y[0], x[1], y[1])


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""

    def predict(network: Any, x: Any) -> Any:
        for weight, bias in network[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = network[-1]
        return x @ weight + bias

    def loss(network: Any, x: Any, y: Any) -> Any:
        return np.mean((predict(network, x) - y) ** 2)

    def adapted_loss(network: Any, task: Any) -> Any:
        x, y, x_new, y_new = task
        for _ in range(sizes.inner):
            slope = library.grad(loss)(network, x, y)
            network = library.tree.map(lambda p, g: p - 0.01 * g, network, slope)
        return loss(network, x_new, y_new)

    def meta_loss(network: Any, tasks: Any) -> Any:
        return np.mean(library.vmap(adapted_loss, in_axes=(None, 0))(network, tasks))

    def step(network: Any, tasks: Any) -> Any:
        value, slope = library.value_and_grad(meta_loss)(network, tasks)
        return library.tree.map(lambda p, g: p - 0.001 * g, network, slope), value

    return step


fdbr = jax = program
