"""A training step of an LSTM written by hand: 25 steps, batch 32, 128 units, float32."""

from typing import Any

import attrs
import numpy as np

TITLE = "LSTM by hand, 25 steps, batch 32, 128 units"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """The lengths of everything."""

    steps: int = 25
    batch: int = 32
    inputs: int = 64
    units: int = 128
    classes: int = 10


TINY = Sizes(steps=2, batch=2, inputs=3, units=4, classes=3)


def start(sizes: Sizes) -> Any:
    """The network; sequences and their classes, of which one is one."""
    generator = np.random.default_rng(0)
    together, units = sizes.inputs + sizes.units, sizes.units
    network = {
        "weight": generator.normal(0, together**-0.5, (together, 4 * units)).astype(DTYPE),
        "bias": np.zeros(4 * units, DTYPE),
        "out": generator.normal(0, units**-0.5, (units, sizes.classes)).astype(DTYPE),
    }
    x = generator.normal(size=(sizes.steps, sizes.batch, sizes.inputs)).astype(DTYPE)
    classes = np.eye(sizes.classes, dtype=DTYPE)[generator.integers(0, sizes.classes, sizes.batch)]
    return network, (x, classes)


def cell(np: Any, network: Any, h: Any, c: Any, x: Any) -> Any:
    """One step of the cell."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    gates = np.concatenate([x, h], axis=1) @ network["weight"] + network["bias"]
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def cross_entropy(np: Any, logits: Any, classes: Any) -> Any:
    """Its mean over the examples."""
    logits = logits - np.max(logits, axis=1, keepdims=True)
    shares = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    return -np.mean(np.sum(classes * shares, axis=1))


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With ``for``."""

    def loss(network: Any, x: Any, classes: Any) -> Any:
        h = c = np.zeros((sizes.batch, sizes.units), DTYPE)
        for now in x:
            h, c = cell(np, network, h, c, now)
        return cross_entropy(np, h @ network["out"], classes)

    return _training(fdbr, loss)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``scan``."""

    def loss(network: Any, x: Any, classes: Any) -> Any:
        h = np.zeros((sizes.batch, sizes.units), DTYPE)
        body = lambda carry, now: (cell(np, network, carry[0], carry[1], now), None)
        (h, _), _ = jax.lax.scan(body, (h, h), x)
        return cross_entropy(np, h @ network["out"], classes)

    return _training(jax, loss)


def _training(library: Any, loss: Any) -> Any:
    def step(network: Any, batch: Any) -> Any:
        value, slope = library.value_and_grad(loss)(network, *batch)
        return library.tree.map(lambda p, g: p - 0.1 * g, network, slope), value

    return step
