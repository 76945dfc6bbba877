"""The gradient of a solution of predators and prey by its parameters, by the adjoint."""

from typing import Any

from benchmarks.research.odeint import DTYPE, TINY, Sizes, jax_odeint, loss_by, start

__all__ = ["DTYPE", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "start"]

TITLE = "gradient of a solution by odeint"
RTOL = 1e-4


def _step(gradient: Any) -> Any:
    def step(parameters: Any, batch: Any) -> Any:
        value, slope = gradient(parameters, *batch)
        return parameters - 1e-6 * slope, (slope, value)

    return step


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.odeint`."""
    return _step(fdbr.value_and_grad(loss_by(np, fdbr.odeint, sizes)))


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.experimental.ode.odeint`."""
    return _step(jax.value_and_grad(loss_by(np, jax_odeint(), sizes)))
