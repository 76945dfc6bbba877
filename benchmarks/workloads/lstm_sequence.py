"""The training step of `lstm`, layer by layer: what can be computed for all times at once is.

A layer's products with its inputs and the output layer are batched over time, and the loop is
left with what recurs.  PyTorch has its own operation for such a stack of layers.
"""

from typing import Any

import numpy as np

from benchmarks import descent
from benchmarks.workloads.lstm import (
    PRODUCTS,
    RATE,
    TINY,
    Sizes,
    cell,
    make_batch,
    make_parameters,
)

__all__ = ["PRODUCTS", "TINY", "Sizes"]

TITLE = "LSTM language model, 35 steps x 20, layer by layer"
RTOL = 1e-4


def fdbr(sizes: Sizes) -> Any:
    """With frozen classes and `fdbr.ops`."""
    from fdbr import device_get, frozen, nn, ops

    @frozen
    class Layer:
        by_input: nn.Linear
        by_hidden: nn.Linear

        def __call__(self, xs: Any) -> Any:
            hidden = memory = zeros
            outs = []
            for gates in self.by_input(xs):
                gates = gates + self.by_hidden(hidden)
                parts = ops.reshape(gates, (sizes.batch, 4, sizes.units))
                write, keep, new, show = ops.unstack(parts, axis=1)
                memory = ops.sigmoid(keep) * memory + ops.sigmoid(write) * ops.tanh(new)
                hidden = ops.sigmoid(show) * ops.tanh(memory)
                outs.append(hidden)
            return ops.stack(outs)

    @frozen
    class Model:
        table: Any
        layers: tuple[Layer, ...]
        out: nn.Linear

        def __call__(self, words: Any) -> Any:
            x = ops.embed(self.table, words)
            for layer in self.layers:
                x = layer(x)
            return self.out(x)

    def loss(model: Any, batch: Any) -> Any:
        words, targets = batch
        return ops.softmax_cross_entropy(model(words), targets)

    zeros = np.zeros((sizes.batch, sizes.units), np.float32)
    zeros.setflags(write=False)
    values = make_parameters(sizes)
    layers = [Layer(nn.Linear(x, b), nn.Linear(h, None)) for x, h, b in values["cells"]]
    model = Model(values["table"], tuple(layers), nn.Linear(*values["out"]))
    step, state = descent.fdbr(loss, model, RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.lstm`, which `torch.nn.LSTM` calls."""
    import torch
    from torch.nn.functional import cross_entropy, embedding, linear

    zeros = torch.zeros(sizes.layers, sizes.batch, sizes.units)
    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        words, targets = batch
        x = embedding(words, parameters["table"])
        flat = [w for x, h, b in parameters["cells"] for w in (x, h, b, torch.zeros_like(b))]
        # has biases, layers, dropout, in training, bidirectional, batch first
        x, _, _ = torch.lstm(x, (zeros, zeros), flat, True, sizes.layers, 0.0, True, False, False)
        return cross_entropy(linear(x, *parameters["out"]).flatten(0, 1), targets.flatten())

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def jax(sizes: Sizes) -> Any:
    """With a `jax.lax.scan` for each layer."""
    import jax
    import jax.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        words, targets = batch
        zeros = np.zeros((sizes.batch, sizes.units), np.float32)
        x = parameters["table"][words]
        for by_input, by_hidden, shift in parameters["cells"]:

            def advance(state: Any, gates: Any, by_hidden: Any = by_hidden) -> Any:
                hidden, memory = state
                state = cell(np, jax.nn.sigmoid, gates + hidden @ by_hidden.T, memory)
                return state, state[0]

            _, x = jax.lax.scan(advance, (zeros, zeros), x @ by_input.T + shift)
        weight, bias = parameters["out"]
        return descent.jax_cross_entropy(x @ weight.T + bias, targets)

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))


def autograd(sizes: Sizes) -> Any:
    """With `autograd.numpy`."""
    import autograd.numpy as np
    from autograd.scipy.special import expit

    zeros = np.zeros((sizes.batch, sizes.units), np.float32)
    rows = sizes.length * sizes.batch

    def loss(parameters: Any, batch: Any) -> Any:
        words, targets = batch
        x = parameters["table"][words.reshape(rows)]
        for by_input, by_hidden, shift in parameters["cells"]:
            gates = np.reshape(np.dot(x, by_input.T) + shift, (sizes.length, sizes.batch, -1))
            hidden = memory = zeros
            outs = []
            for time in range(sizes.length):
                now = gates[time] + np.dot(hidden, by_hidden.T)
                hidden, memory = cell(np, expit, now, memory)
                outs.append(hidden)
            x = np.concatenate(outs)
        weight, bias = parameters["out"]
        return descent.autograd_cross_entropy(np.dot(x, weight.T) + bias, targets.reshape(rows))

    return descent.autograd(loss, make_parameters(sizes), RATE, make_batch(sizes))
