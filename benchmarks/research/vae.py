"""A step of a variational autoencoder, 784-256-20, batch 100, with explicit keys, float32."""

from typing import Any

import attrs
import numpy as np

TITLE = "variational autoencoder 784-256-20, batch 100"
DTYPE = np.float32
RTOL = 1e-3
RANDOM = True


@attrs.frozen
class Sizes:
    """The lengths of everything."""

    batch: int = 100
    inputs: int = 784
    width: int = 256
    code: int = 20


TINY = Sizes(batch=3, inputs=6, width=4, code=2)


def start(sizes: Sizes) -> Any:
    """The network's layers, and images."""
    generator = np.random.default_rng(0)

    def layer(n: int, m: int) -> Any:
        return generator.normal(0, n**-0.5, (n, m)).astype(DTYPE), np.zeros(m, DTYPE)

    network = {
        "encode": layer(sizes.inputs, sizes.width),
        "mean": layer(sizes.width, sizes.code),
        "log_variance": layer(sizes.width, sizes.code),
        "decode": layer(sizes.code, sizes.width),
        "out": layer(sizes.width, sizes.inputs),
    }
    return network, generator.random((sizes.batch, sizes.inputs), dtype=DTYPE)


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""

    def affine(layer: Any, x: Any) -> Any:
        weight, bias = layer
        return x @ weight + bias

    def loss(network: Any, images: Any, key: Any) -> Any:
        hidden = np.maximum(affine(network["encode"], images), 0)
        mean, log_variance = (
            affine(network["mean"], hidden),
            affine(network["log_variance"], hidden),
        )
        noise = random.normal(key, mean.shape, mean.dtype)
        code = mean + np.exp(0.5 * log_variance) * noise
        logits = affine(network["out"], np.maximum(affine(network["decode"], code), 0))
        misfit = np.sum(np.logaddexp(0, logits) - images * logits, axis=1)
        distance = 0.5 * np.sum(np.exp(log_variance) + mean**2 - 1 - log_variance, axis=1)
        return np.mean(misfit + distance)

    def step(state: Any, images: Any) -> Any:
        key, network = state
        key, now = random.split(key)
        value, slope = library.value_and_grad(loss)(network, images, now)
        return (key, library.tree.map(lambda p, g: p - 1e-4 * g, network, slope)), value

    return step


fdbr = jax = program
