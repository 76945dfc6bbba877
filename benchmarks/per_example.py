"""The gradient of each example's own loss: the MLP of `mlp`, batch 100, float32.

The result is one gradient of all parameters for each of the hundred examples.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.mlp import make_batch, make_parameters

TITLE = "per-example gradients of the mlp, batch 100, float32"
RTOL = 1e-3


def fdbr() -> Callable[[], Any]:
    """With `fdbr.vmap` of `fdbr.grad`."""
    import fdbr
    from fdbr import nn, ops

    images, labels = fdbr.device_get(make_batch())
    layers = [nn.Linear(*fdbr.device_get(pair)) for pair in make_parameters()]
    model = nn.Sequential(layers[0], ops.relu, layers[1], ops.relu, layers[2])

    def loss(model: Any, image: Any, label: Any) -> Any:
        return ops.softmax_cross_entropy(model(image), label)

    gradients = fdbr.vmap(fdbr.grad(loss), in_axes=(None, 0, 0))

    def call() -> Any:
        return gradients(model, images, labels)[4].weight

    return call


def torch() -> Callable[[], Any]:
    """With `torch.func.vmap` of `torch.func.grad`."""
    import torch
    from torch.func import grad, vmap
    from torch.nn import functional

    images, labels = map(torch.from_numpy, make_batch())
    parameters = [tuple(map(torch.from_numpy, pair)) for pair in make_parameters()]

    def loss(parameters: Any, image: Any, label: Any) -> Any:
        h = image
        for weight, bias in parameters[:-1]:
            h = functional.relu(functional.linear(h, weight, bias))
        logits = functional.linear(h, *parameters[-1])
        return functional.cross_entropy(logits, label)

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    return lambda: gradients(parameters, images, labels)[2][0]
