"""A training step by plain gradient descent in each library, and its parameters and batches."""

from collections.abc import Callable
from typing import Any

import optree

mapped: Callable[..., Any] = optree.tree_map
"""Nested lists, tuples and dicts, with a function applied to what is in them."""

Loss = Callable[..., Any]
Step = Callable[[Any, Any], tuple[Any, Any]]


def fdbr(loss: Loss, model: Any, rate: float) -> tuple[Step, Any]:
    """The step for ``loss(model, batch)``, and its first state: the model and the optimizer's."""
    from fdbr import device_get, train, value_and_grad

    optimizer = train.optim.sgd(rate)
    value_and_gradient = value_and_grad(loss)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        model, memory = state
        value, updates = value_and_gradient(model, batch)
        # One name for both, so that the gradient's memory is free when the updates are applied.
        updates, memory = optimizer.update(updates, memory, model)
        return (train.optim.apply_updates(model, updates), memory), value

    model = device_get(model)
    return step, (model, optimizer.init(model))


def torch(loss: Loss, parameters: Any, rate: float) -> Step:
    """The step for ``loss(batch)``; the parameters change in place."""
    import torch

    optimizer = torch.optim.SGD(optree.tree_leaves(parameters), lr=rate)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        optimizer.zero_grad(set_to_none=True)
        value = loss(batch)
        value.backward()
        optimizer.step()
        return state, value

    return step


def tensors(values: Any) -> Any:
    """A tree of NumPy arrays as one of tensors of their own."""
    import torch

    return mapped(torch.tensor, values)


def torch_parameters(values: Any) -> Any:
    """A tree of NumPy arrays as one of tensors that want a gradient."""
    return mapped(lambda tensor: tensor.requires_grad_(), tensors(values))


def jax(loss: Loss, parameters: Any, rate: float, batch: Any) -> tuple[Step, Any, Any]:
    """The step for ``loss(parameters, batch)``, its first state, and its batch."""
    import jax

    parameters, batch = mapped(jax.numpy.array, (parameters, batch))
    return _pure(jax.value_and_grad(loss), rate), parameters, batch


def jax_cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean softmax cross entropy."""
    import jax

    shares = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(shares, labels[..., None], axis=-1).mean()


def autograd(loss: Loss, parameters: Any, rate: float, batch: Any) -> tuple[Step, Any, Any]:
    """The step for ``loss(parameters, batch)``, its first state, and its batch."""
    import autograd

    return _pure(autograd.value_and_grad(loss), rate), parameters, batch


def autograd_cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean softmax cross entropy; of logits with two axes."""
    import autograd.numpy as np
    from autograd.scipy.special import logsumexp

    chosen = logits[np.arange(len(labels)), labels]
    return np.mean(logsumexp(logits, axis=-1) - chosen)


def _pure(value_and_gradient: Callable[..., Any], rate: float) -> Step:
    def step(parameters: Any, batch: Any) -> tuple[Any, Any]:
        value, gradient = value_and_gradient(parameters, batch)
        return mapped(lambda p, g: p - rate * g, parameters, gradient), value

    return step
