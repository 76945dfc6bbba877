"""The step of Adam for large arrays: one pass over memory for each of its results."""

from typing import Any

import numpy as np

from fdbr.backends.cpu import kernels
from fdbr.backends.cpu.tuning import TUNING
from fdbr.core.primitive import implement
from fdbr.ops.elementwise.arithmetic import sqrt
from fdbr.ops.moments import adam_step, is_plain_step

__all__: list[str] = []


def _mean(mu: Any, g: Any, b1: Any, rest: Any) -> Any:
    return b1 * mu + rest * g


def _mean_of_squares(nu: Any, g: Any, b2: Any, rest: Any) -> Any:
    return b2 * nu + rest * (g * g)


def _change(mu: Any, nu: Any, weight1: Any, weight2: Any, eps: Any, eps_root: Any) -> Any:
    return mu / weight1 / (sqrt(nu / weight2 + eps_root) + eps)


@implement(adam_step, np)
def _adam_step(g: Any, mu: Any, nu: Any, constants: Any, weights: Any, nesterov: bool) -> Any:
    large = (
        g.nbytes * TUNING.kernel_passes >= TUNING.kernel_bytes
        and type(mu) is type(nu) is np.ndarray
    )
    if large and is_plain_step(g, mu, nu, constants, weights, nesterov):
        (b1, b2, eps, eps_root), (weight1, weight2, _) = constants, weights
        new_mu = kernels.elementwise(_mean, _mean, (mu, g, b1, 1 - b1))
        new_nu = kernels.elementwise(_mean_of_squares, _mean_of_squares, (nu, g, b2, 1 - b2))
        if new_mu is not None and new_nu is not None:
            operands = (new_mu, new_nu, weight1, weight2, eps, eps_root)
            change = kernels.elementwise(_change, _change, operands)
            if change is not None:
                return new_mu, new_nu, change
    return adam_step.definition(g, mu, nu, constants, weights, nesterov)
