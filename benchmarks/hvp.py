"""The Hessian of a loss times a vector: the MLP of `mlp`, batch 100, float32."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.mlp import make_batch, make_parameters

TITLE = "Hessian-vector product of the mlp, batch 100, float32"
RTOL = 1e-3


def fdbr() -> Callable[[], Any]:
    """With `fdbr.jvp` of `fdbr.grad`."""
    import fdbr
    from fdbr import nn, ops

    images, labels = fdbr.device_get(make_batch())
    layers = [nn.Linear(*fdbr.device_get(pair)) for pair in make_parameters()]
    model = nn.Sequential(layers[0], ops.relu, layers[1], ops.relu, layers[2])
    direction = fdbr.device_get(fdbr.tree.map(np.ones_like, model))

    def loss(model: Any) -> Any:
        return ops.softmax_cross_entropy(model(images), labels)

    gradient = fdbr.grad(loss)

    def call() -> Any:
        return fdbr.jvp(gradient, (model,), (direction,))[1][4].weight

    return call


def torch() -> Callable[[], Any]:
    """With `torch.func.jvp` of `torch.func.grad`."""
    import torch
    from torch.func import grad, jvp
    from torch.nn import functional

    images, labels = map(torch.from_numpy, make_batch())
    parameters = [tuple(map(torch.from_numpy, pair)) for pair in make_parameters()]
    direction = [tuple(map(torch.ones_like, pair)) for pair in parameters]

    def loss(parameters: Any) -> Any:
        h = images
        for weight, bias in parameters[:-1]:
            h = functional.relu(functional.linear(h, weight, bias))
        logits = functional.linear(h, *parameters[-1])
        return functional.cross_entropy(logits, labels)

    gradient = grad(loss)
    return lambda: jvp(gradient, (parameters,), (direction,))[1][2][0]
