"""One training step of an LSTM language model, one word after the other: SGD, float32.

35 steps, batch 20; words out of 10,000 are embedded in 200 dimensions, two layers of 200 units
read them, and a linear layer predicts the next word.  The words are embedded at once; then a
loop over time applies both cells, the output layer and the loss, and adds up the losses.

That there are two layers follows from the matrix products, which take 10.5 billion
multiplications and additions with one layer and 11.1 with two.
"""

from typing import Any

import attrs
import numpy as np

from benchmarks import descent
from benchmarks.products import affine, repeated

TITLE = "LSTM language model, 35 steps x 20, step by step"
RTOL = 1e-4
RATE = 0.1


@attrs.frozen
class Sizes:
    """The lengths of everything."""

    length: int = 35
    batch: int = 20
    words: int = 10_000
    units: int = 200
    layers: int = 2


TINY = Sizes(length=4, batch=3, words=11, units=5, layers=2)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Words and the words after them, by time and example."""
    text = np.random.default_rng(0).integers(0, sizes.words, (sizes.length + 1, sizes.batch))
    return text[:-1].copy(), text[1:].copy()


def make_parameters(sizes: Sizes) -> dict[str, Any]:
    """The table of words, the cells (by input, by hidden state, bias), and the output layer.

    The gates of a cell lie one after the other as in PyTorch: input, forget, cell, output.
    """
    generator = np.random.default_rng(1)

    def uniform(*shape: int) -> np.ndarray:
        return generator.uniform(-0.1, 0.1, shape).astype(np.float32)

    units = sizes.units
    return {
        "table": uniform(sizes.words, units),
        "cells": [
            (uniform(4 * units, units), uniform(4 * units, units), np.zeros(4 * units, np.float32))
            for _ in range(sizes.layers)
        ],
        "out": (uniform(sizes.words, units), np.zeros(sizes.words, np.float32)),
    }


def fdbr(sizes: Sizes) -> Any:
    """With frozen classes and `fdbr.ops`."""
    from fdbr import device_get, frozen, nn, ops

    @frozen
    class Cell:
        by_input: nn.Linear
        by_hidden: nn.Linear

        def __call__(self, x: Any, hidden: Any, memory: Any) -> Any:
            gates = self.by_input(x) + self.by_hidden(hidden)
            write, keep, new, show = ops.unstack(ops.reshape(gates, (len(x), 4, -1)), axis=1)
            memory = ops.sigmoid(keep) * memory + ops.sigmoid(write) * ops.tanh(new)
            return ops.sigmoid(show) * ops.tanh(memory), memory

    @frozen
    class Model:
        table: Any
        cells: tuple[Cell, ...]
        out: nn.Linear

    def loss(model: Any, batch: Any) -> Any:
        words, targets = batch
        state = [(zeros, zeros) for _ in model.cells]
        total = 0.0
        for x, target in zip(ops.embed(model.table, words), targets, strict=True):
            for layer, cell in enumerate(model.cells):
                state[layer] = cell(x, *state[layer])
                x = state[layer][0]
            total = total + ops.softmax_cross_entropy(model.out(x), target)
        return total / sizes.length

    zeros = np.zeros((sizes.batch, sizes.units), np.float32)
    zeros.setflags(write=False)
    values = make_parameters(sizes)
    cells = [Cell(nn.Linear(x, b), nn.Linear(h, None)) for x, h, b in values["cells"]]
    model = Model(values["table"], tuple(cells), nn.Linear(*values["out"]))
    step, state = descent.fdbr(loss, model, RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.lstm_cell`."""
    import torch
    from torch.nn.functional import cross_entropy, embedding, linear

    zeros = torch.zeros(sizes.batch, sizes.units)
    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        words, targets = batch
        state = [(zeros, zeros) for _ in parameters["cells"]]
        total = 0.0
        for x, target in zip(embedding(words, parameters["table"]), targets, strict=True):
            for layer, (by_input, by_hidden, bias) in enumerate(parameters["cells"]):
                no_bias = torch.zeros_like(bias)
                state[layer] = torch.lstm_cell(x, state[layer], by_input, by_hidden, bias, no_bias)
                x = state[layer][0]
            total = total + cross_entropy(linear(x, *parameters["out"]), target)
        return total / sizes.length

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def cell(np: Any, sigmoid: Any, gates: Any, memory: Any) -> Any:
    """An LSTM cell's next hidden state and memory, for modules that are like NumPy."""
    write, keep, new, show = np.split(gates, 4, axis=1)
    memory = sigmoid(keep) * memory + sigmoid(write) * np.tanh(new)
    return sigmoid(show) * np.tanh(memory), memory


def jax(sizes: Sizes) -> Any:
    """With `jax.lax.scan`."""
    import jax
    import jax.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        words, targets = batch
        zeros = np.zeros((sizes.batch, sizes.units), np.float32)
        weight, bias = parameters["out"]

        def advance(state: Any, step: Any) -> Any:
            x, target = step
            following = []
            for (by_input, by_hidden, shift), (hidden, memory) in zip(
                parameters["cells"], state, strict=True
            ):
                gates = x @ by_input.T + hidden @ by_hidden.T + shift
                following.append(cell(np, jax.nn.sigmoid, gates, memory))
                x = following[-1][0]
            return following, descent.jax_cross_entropy(x @ weight.T + bias, target)

        state = [(zeros, zeros)] * sizes.layers
        return jax.lax.scan(advance, state, (parameters["table"][words], targets))[1].mean()

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))


def autograd(sizes: Sizes) -> Any:
    """With `autograd.numpy`."""
    import autograd.numpy as np
    from autograd.scipy.special import expit

    zeros = np.zeros((sizes.batch, sizes.units), np.float32)

    def loss(parameters: Any, batch: Any) -> Any:
        words, targets = batch
        table, (weight, bias) = parameters["table"][words], parameters["out"]
        state = [(zeros, zeros) for _ in parameters["cells"]]
        total = 0.0
        for time, target in enumerate(targets):
            x = table[time]
            for layer, (by_input, by_hidden, shift) in enumerate(parameters["cells"]):
                hidden, memory = state[layer]
                gates = np.dot(x, by_input.T) + np.dot(hidden, by_hidden.T) + shift
                state[layer] = cell(np, expit, gates, memory)
                x = state[layer][0]
            logits = np.dot(x, weight.T) + bias
            total = total + descent.autograd_cross_entropy(logits, target)
        return total / sizes.length

    return descent.autograd(loss, make_parameters(sizes), RATE, make_batch(sizes))


def stepwise_products(sizes: Sizes) -> Any:
    """Those of every step by itself."""
    units = sizes.units
    cells = [(sizes.batch, units, 4 * units, True)] * (2 * sizes.layers)
    return repeated(sizes.length, affine(*cells, (sizes.batch, units, sizes.words, True)))


def batched_products(sizes: Sizes) -> Any:
    """As if all could be batched over time, which those with hidden states can in part."""
    units, rows = sizes.units, sizes.length * sizes.batch
    cells = [(rows, units, 4 * units, True)] * (2 * sizes.layers)
    return affine(*cells, (rows, units, sizes.words, True))


PRODUCTS = {
    "products, step by step": stepwise_products,
    "products, batched over time": batched_products,
}
