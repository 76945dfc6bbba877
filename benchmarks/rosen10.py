"""The gradient of the 10-dimensional Rosenbrock function, float64.

Twelve operations on nine numbers each: what is timed is the library's cost per operation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

TITLE = "rosen10: gradient, float64"
RTOL = 1e-10

POINT = np.linspace(-1.2, 1.2, 10)


def _rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def fdbr() -> Callable[[], Any]:
    """With `fdbr.grad`."""
    import fdbr

    gradient = fdbr.grad(_rosenbrock)
    point = POINT.copy()
    return lambda: gradient(point)


def torch() -> Callable[[], Any]:
    """With `torch.autograd.grad`."""
    import torch

    point = torch.tensor(POINT, requires_grad=True)
    return lambda: torch.autograd.grad(_rosenbrock(point), point)[0]
