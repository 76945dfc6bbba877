"""A step of natural gradient descent for a small classifier, batch 128, float32.

The Fisher matrix times vectors, by forward mode and reverse mode, in ten steps of conjugate
gradients.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks.research.layers import dense

TITLE = "natural gradient by ten steps of conjugate gradients"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """The lengths of everything."""

    batch: int = 128
    inputs: int = 20
    width: int = 50
    classes: int = 5
    iterations: int = 10


TINY = Sizes(batch=3, inputs=2, width=3, classes=2, iterations=2)


def start(sizes: Sizes) -> Any:
    """The network; examples and their classes, of which one is one."""
    generator = np.random.default_rng(0)
    network = dense(generator, sizes.inputs, sizes.width, sizes.classes)
    x = generator.normal(size=(sizes.batch, sizes.inputs)).astype(DTYPE)
    truth = np.argmax(x @ generator.normal(size=(sizes.inputs, sizes.classes)), axis=1)
    return network, (x, np.eye(sizes.classes, dtype=DTYPE)[truth])


def _network(np: Any, network: Any, x: Any) -> Any:
    (weight, bias), (out, out_bias) = network
    return np.tanh(x @ weight + bias) @ out + out_bias


def _softmax(np: Any, logits: Any) -> Any:
    powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


def _parts(np: Any, library: Any) -> Any:
    """What both libraries' steps are made of."""
    add = lambda s, x, y: library.tree.map(lambda a, b: a + s * b, x, y)
    leaves = library.tree.leaves
    dot = lambda x, y: sum(np.sum(a * b) for a, b in zip(leaves(x), leaves(y), strict=True))

    def loss(network: Any, x: Any, classes: Any) -> Any:
        return -np.mean(np.sum(classes * np.log(_softmax(np, _network(np, network, x))), axis=1))

    def fisher(network: Any, x: Any, vector: Any) -> Any:
        logits = lambda network: _network(np, network, x)
        out, moved = library.jvp(logits, (network,), (vector,))
        shares = _softmax(np, out)
        moved = shares * moved - shares * np.sum(shares * moved, axis=1, keepdims=True)
        (product,) = library.vjp(logits, network)[1](moved / len(x))
        return add(0.01, product, vector)

    def iteration(network: Any, x: Any, carry: Any) -> Any:
        found, rest, direction, square = carry
        product = fisher(network, x, direction)
        length = square / dot(direction, product)
        found, rest = add(length, found, direction), add(-length, rest, product)
        new = dot(rest, rest)
        return found, rest, add(new / square, rest, direction), new

    return loss, iteration, add, dot


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With ``for``."""
    loss, iteration, add, dot = _parts(np, fdbr)

    def step(network: Any, batch: Any) -> Any:
        value, slope = fdbr.value_and_grad(loss)(network, *batch)
        carry = fdbr.tree.zeros_like(slope), slope, slope, dot(slope, slope)
        for _ in range(sizes.iterations):
            carry = iteration(network, batch[0], carry)
        return add(-0.1, network, carry[0]), value

    return step


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``fori_loop``."""
    loss, iteration, add, dot = _parts(np, jax)

    def step(network: Any, batch: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(network, *batch)
        carry = jax.tree.map(np.zeros_like, slope), slope, slope, dot(slope, slope)
        body = lambda _, carry: iteration(network, batch[0], carry)
        carry = jax.lax.fori_loop(0, sizes.iterations, body, carry)
        return add(-0.1, network, carry[0]), value

    return step
