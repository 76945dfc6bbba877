"""A step of RealNVP (Dinh et al., 2017): eight coupling layers, batch 256, float32."""

import math
from typing import Any

import attrs
import numpy as np

from benchmarks.research.layers import dense

TITLE = "RealNVP, eight coupling layers, batch 256"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """Coordinates of a point, an even number; coupling layers, and their networks' width."""

    batch: int = 256
    features: int = 6
    layers: int = 8
    width: int = 64


TINY = Sizes(batch=3, features=2, layers=2, width=3)


def start(sizes: Sizes) -> Any:
    """The layers' networks, and points."""
    generator = np.random.default_rng(0)
    half = sizes.features // 2
    layers = [
        dense(generator, half, sizes.width, sizes.width, sizes.features)
        for _ in range(sizes.layers)
    ]
    return layers, generator.normal(size=(sizes.batch, sizes.features)).astype(DTYPE)


def program(np: Any, library: Any, random: Any, sizes: Sizes) -> Any:
    """The same text for both libraries."""
    half = sizes.features // 2

    def scale_and_shift(network: Any, x: Any) -> Any:
        for weight, bias in network[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = network[-1]
        out = x @ weight + bias
        return np.tanh(out[:, :half]), out[:, half:]

    def log_likelihood(layers: Any, x: Any) -> Any:
        volume = 0.0
        for network in layers:
            kept, changed = x[:, :half], x[:, half:]
            scale, shift = scale_and_shift(network, kept)
            x = np.concatenate([changed * np.exp(scale) + shift, kept], axis=1)
            volume = volume + np.sum(scale, axis=1)
        normal = -0.5 * np.sum(x**2 + math.log(2 * math.pi), axis=1)
        return np.mean(normal + volume)

    def step(layers: Any, points: Any) -> Any:
        value, slope = library.value_and_grad(log_likelihood)(layers, points)
        return library.tree.map(lambda p, g: p + 0.001 * g, layers, slope), value

    return step


fdbr = jax = program
