"""The gradient of each example's own loss: the network of `mlp`, batch 100, float32.

The result is one gradient of all parameters for each of the examples.
"""

from typing import Any

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

TITLE = "per-example gradients of that network"
RTOL = 1e-3


def fdbr(sizes: Sizes) -> Any:
    """With `fdbr.vmap` of `fdbr.grad`."""
    from fdbr import device_get, grad, ops, vmap

    def loss(model: Any, image: Any, label: Any) -> Any:
        return ops.softmax_cross_entropy(model(image), label)

    gradients = vmap(grad(loss), in_axes=(None, 0, 0))
    return _keeping(gradients), fdbr_model(sizes), device_get(make_batch(sizes))


def torch(sizes: Sizes) -> Any:
    """With `torch.func.vmap` of `torch.func.grad`."""
    from torch.func import grad, vmap
    from torch.nn.functional import cross_entropy

    def loss(parameters: Any, image: Any, label: Any) -> Any:
        return cross_entropy(torch_logits(parameters, image), label)

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    parameters, batch = descent.tensors((make_parameters(sizes), make_batch(sizes)))
    return _keeping(gradients), parameters, batch


def jax(sizes: Sizes) -> Any:
    """With `jax.vmap` of `jax.grad`."""
    import jax

    def loss(parameters: Any, image: Any, label: Any) -> Any:
        return descent.jax_cross_entropy(numpy_logits(jax.numpy, parameters, image), label)

    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))
    values = make_parameters(sizes), make_batch(sizes)
    parameters, batch = descent.mapped(jax.numpy.array, values)
    return _keeping(gradients), parameters, batch


def autograd(sizes: Sizes) -> Any:
    """With `autograd.grad` of each example, for it has no vmap."""
    import autograd
    import autograd.numpy as np

    def loss(parameters: Any, image: Any, label: Any) -> Any:
        logits = numpy_logits(np, parameters, image[None])
        return descent.autograd_cross_entropy(logits, label[None])

    gradient = autograd.grad(loss)

    def gradients(parameters: Any, images: Any, labels: Any) -> Any:
        each = [gradient(parameters, *example) for example in zip(images, labels, strict=True)]
        return descent.mapped(lambda *parts: np.stack(parts), *each)

    return _keeping(gradients), make_parameters(sizes), make_batch(sizes)


def _keeping(gradients: Any) -> Any:
    """The step that leaves the parameters as they are."""
    return lambda parameters, batch: (parameters, gradients(parameters, *batch))
