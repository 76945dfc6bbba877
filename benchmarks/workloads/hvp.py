"""The Hessian of a loss times a vector: the network of `mlp`, batch 100, float32."""

from typing import Any

import numpy as np

from benchmarks import descent
from benchmarks.workloads.mlp import (
    TINY,
    Sizes,
    fdbr_model,
    make_batch,
    make_parameters,
    numpy_logits,
    torch_logits,
)

__all__ = ["TINY", "Sizes"]

TITLE = "Hessian-vector product of its loss"
RTOL = 1e-3


def fdbr(sizes: Sizes) -> Any:
    """With `fdbr.jvp` of `fdbr.grad`."""
    from fdbr import device_get, grad, jvp, ops, tree

    def step(model: Any, batch: Any) -> Any:
        images, labels, direction = batch

        def loss(model: Any) -> Any:
            return ops.softmax_cross_entropy(model(images), labels)

        return model, jvp(grad(loss), (model,), (direction,))[1]

    model = fdbr_model(sizes)
    return step, model, device_get((*make_batch(sizes), tree.map(np.ones_like, model)))


def torch(sizes: Sizes) -> Any:
    """With `torch.func.jvp` of `torch.func.grad`."""
    from torch.func import grad, jvp
    from torch.nn.functional import cross_entropy

    def step(parameters: Any, batch: Any) -> Any:
        images, labels, direction = batch

        def loss(parameters: Any) -> Any:
            return cross_entropy(torch_logits(parameters, images), labels)

        return parameters, jvp(grad(loss), (parameters,), (direction,))[1]

    return step, *descent.tensors(_values(sizes))


def jax(sizes: Sizes) -> Any:
    """With `jax.jvp` of `jax.grad`."""
    import jax

    def step(parameters: Any, batch: Any) -> Any:
        images, labels, direction = batch

        def loss(parameters: Any) -> Any:
            return descent.jax_cross_entropy(numpy_logits(jax.numpy, parameters, images), labels)

        return parameters, jax.jvp(jax.grad(loss), (parameters,), (direction,))[1]

    return step, *descent.mapped(jax.numpy.array, _values(sizes))


def autograd(sizes: Sizes) -> Any:
    """With `autograd.hessian_vector_product`."""
    import autograd
    import autograd.numpy as np

    def loss(parameters: Any, batch: Any) -> Any:
        images, labels, _ = batch
        return descent.autograd_cross_entropy(numpy_logits(np, parameters, images), labels)

    def slope(parameters: Any, batch: Any) -> Any:
        gradient = autograd.grad(loss)(parameters, batch)
        pairs = zip(gradient, batch[2], strict=True)
        return sum(np.sum(g * d) for layer in pairs for g, d in zip(*layer, strict=True))

    product = autograd.grad(slope)
    parameters, batch = _values(sizes)
    return lambda parameters, batch: (parameters, product(parameters, batch)), parameters, batch


def _values(sizes: Sizes) -> Any:
    """The parameters, and the images, labels and direction."""
    parameters = make_parameters(sizes)
    return parameters, (*make_batch(sizes), descent.mapped(np.ones_like, parameters))
