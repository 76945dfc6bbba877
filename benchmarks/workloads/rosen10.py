"""The gradient of the 10-dimensional Rosenbrock function, float32.

Twelve operations on nine numbers each: what is timed is a library's cost per operation.
"""

from typing import Any

import attrs
import numpy as np

TITLE = "gradient of the 10-dimensional Rosenbrock function"
RTOL = 1e-4


@attrs.frozen
class Sizes:
    """The number of dimensions."""

    dimensions: int = 10


TINY = Sizes()


def make_point(sizes: Sizes) -> np.ndarray:
    """Where the gradient is taken."""
    return np.linspace(-1.2, 1.2, sizes.dimensions, dtype=np.float32)


def _rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def fdbr(sizes: Sizes) -> Any:
    """With `fdbr.grad`."""
    from fdbr import grad

    gradient = grad(_rosenbrock)
    return lambda point, _: (point, gradient(point)), make_point(sizes), None


def torch(sizes: Sizes) -> Any:
    """With `torch.autograd.grad`."""
    import torch

    def step(point: Any, _: Any) -> Any:
        return point, torch.autograd.grad(_rosenbrock(point), point)[0]

    return step, torch.from_numpy(make_point(sizes)).requires_grad_(), None


def jax(sizes: Sizes) -> Any:
    """With `jax.grad`."""
    import jax

    gradient = jax.grad(_rosenbrock)
    return lambda point, _: (point, gradient(point)), jax.numpy.asarray(make_point(sizes)), None


def autograd(sizes: Sizes) -> Any:
    """With `autograd.grad`."""
    import autograd
    import autograd.numpy as np

    gradient = autograd.grad(lambda x: np.sum(_rosenbrock(x)))
    return lambda point, _: (point, gradient(point)), make_point(sizes), None
