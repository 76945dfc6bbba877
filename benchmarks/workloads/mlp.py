"""One training step of a 784-100-100-10 classifier: batch 100, plain SGD, float32.

ReLU between the layers, mean softmax cross entropy, gradient, and update of all parameters.
"""

from itertools import pairwise
from typing import Any

import attrs
import numpy as np

from benchmarks import descent
from benchmarks.products import affine

TITLE = "training step of a 784-100-100-10 network, batch 100"
RTOL = 1e-4
RATE = 0.01


@attrs.frozen
class Sizes:
    """The lengths of everything; ``depth`` counts the hidden layers."""

    batch: int = 100
    inputs: int = 784
    width: int = 100
    depth: int = 2
    classes: int = 10

    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(pairwise((self.inputs, *(self.width,) * self.depth, self.classes)))


TINY = Sizes(batch=3, inputs=6, width=5, depth=2, classes=4)


def make_batch(sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    generator = np.random.default_rng(0)
    images = generator.random((sizes.batch, sizes.inputs), dtype=np.float32)
    return images, generator.integers(0, sizes.classes, sizes.batch)


def make_parameters(sizes: Sizes) -> list[tuple[np.ndarray, np.ndarray]]:
    """The weight and bias of each layer, the weight as (outputs, inputs)."""
    generator = np.random.default_rng(1)
    return [
        (
            generator.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in sizes.layers()
    ]


def fdbr_model(sizes: Sizes) -> Any:
    """The network as a frozen class."""
    from fdbr import device_get, nn, ops

    layers = [nn.Linear(*device_get(pair)) for pair in make_parameters(sizes)]
    between = [part for layer in layers[:-1] for part in (layer, ops.relu)]
    return nn.Sequential(*between, layers[-1])


def torch_logits(parameters: Any, x: Any) -> Any:
    """The network as a function of its parameters."""
    from torch.nn.functional import linear, relu

    for weight, bias in parameters[:-1]:
        x = relu(linear(x, weight, bias))
    return linear(x, *parameters[-1])


def numpy_logits(np: Any, parameters: Any, x: Any) -> Any:
    """The same for modules that are like NumPy."""
    for weight, bias in parameters[:-1]:
        x = np.maximum(x @ weight.T + bias, 0)
    weight, bias = parameters[-1]
    return x @ weight.T + bias


def fdbr(sizes: Sizes) -> Any:
    """With `fdbr.nn` and `fdbr.train.optim.sgd`."""
    from fdbr import device_get, ops

    def loss(model: Any, batch: Any) -> Any:
        images, labels = batch
        return ops.softmax_cross_entropy(model(images), labels)

    step, state = descent.fdbr(loss, fdbr_model(sizes), RATE)
    return step, state, device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.nn.functional` and `torch.optim.SGD`."""
    from torch.nn.functional import cross_entropy

    parameters = descent.torch_parameters(make_parameters(sizes))

    def loss(batch: Any) -> Any:
        images, labels = batch
        return cross_entropy(torch_logits(parameters, images), labels)

    return descent.torch(loss, parameters, RATE), None, descent.tensors(make_batch(sizes))


def jax(sizes: Sizes) -> Any:
    """With `jax.numpy`."""
    import jax.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels = batch
        return descent.jax_cross_entropy(numpy_logits(np, parameters, images), labels)

    return descent.jax(loss, make_parameters(sizes), RATE, make_batch(sizes))


def autograd(sizes: Sizes) -> Any:
    """With `autograd.numpy`."""
    import autograd.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels = batch
        return descent.autograd_cross_entropy(numpy_logits(np, parameters, images), labels)

    return descent.autograd(loss, make_parameters(sizes), RATE, make_batch(sizes))


def products(sizes: Sizes) -> Any:
    """Those of each layer: forward, by its weight, and but for the first by its input."""
    return affine(
        *[
            (sizes.batch, inputs, outputs, number > 0)
            for number, (inputs, outputs) in enumerate(sizes.layers())
        ]
    )


PRODUCTS = {"matrix products": products}
