"""One training step of a 784-100-100-10 classifier: batch 100, plain SGD, float32.

ReLU between the layers, mean softmax cross entropy, gradient, and update of all parameters.
Every library starts from the same parameters; a call returns the loss before its update.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

TITLE = "mlp 784-100-100-10: SGD step, batch 100, float32"
RTOL = 1e-4

SIZES = (784, 100, 100, 10)
BATCH = 100
RATE = 0.01


def make_batch() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    generator = np.random.default_rng(0)
    images = generator.random((BATCH, SIZES[0]), dtype=np.float32)
    return images, generator.integers(0, SIZES[-1], BATCH)


def make_parameters() -> list[tuple[np.ndarray, np.ndarray]]:
    """The weight and bias of each layer, the weight as (outputs, inputs)."""
    generator = np.random.default_rng(1)
    return [
        (
            generator.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(SIZES)
    ]


def fdbr() -> Callable[[], Any]:
    """With `fdbr.value_and_grad` and `fdbr.train.optim.sgd`."""
    import fdbr
    from fdbr import nn, ops, train

    images, labels = fdbr.device_get(make_batch())  # read-only, as `train.Batches` gives them
    layers = [nn.Linear(weight, bias) for weight, bias in make_parameters()]
    model = nn.Sequential(layers[0], ops.relu, layers[1], ops.relu, layers[2])
    optimizer = train.optim.sgd(RATE)
    state = optimizer.init(model)

    def loss(model: Any) -> Any:
        return ops.softmax_cross_entropy(model(images), labels)

    def step() -> Any:
        nonlocal model, state
        value, gradient = fdbr.value_and_grad(loss)(model)
        updates, state = optimizer.update(gradient, state, model)
        model = train.optim.apply_updates(model, updates)
        return value

    return step


def torch() -> Callable[[], Any]:
    """With `torch.nn.Sequential` and `torch.optim.SGD`."""
    import torch
    from torch import nn
    from torch.nn import functional

    images, labels = map(torch.from_numpy, make_batch())
    layers = [nn.Linear(inputs, outputs) for inputs, outputs in pairwise(SIZES)]
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, make_parameters(), strict=True):
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
