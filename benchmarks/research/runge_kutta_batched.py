"""The same as `runge_kutta` for 16 beginnings at once, by ``vmap`` of the solver, float64."""

from typing import Any

import attrs
import numpy as np

from benchmarks.research import runge_kutta
from benchmarks.research.runge_kutta import DTYPE, RTOL, fdbr_solve, jax_solve

__all__ = ["DTYPE", "RTOL"]

TITLE = "the same, vmap over 16 beginnings"


@attrs.frozen
class Sizes(runge_kutta.Sizes):
    """How many beginnings."""

    batch: int = 16


TINY = Sizes(end=0.1, tolerance=1e-3, batch=2)


def start(sizes: Sizes) -> Any:
    """The equation's parameters; where it begins, and where it shall end."""
    parameters, (_, last) = runge_kutta.start(sizes)
    return parameters, (np.random.default_rng(0).uniform(0.5, 1.5, (sizes.batch, 2)), last)


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.value_and_grad` of `fdbr.vmap`."""
    solve = fdbr_solve(np, sizes)

    def loss(parameters: Any, first: Any, last: Any) -> Any:
        ends = fdbr.vmap(solve, in_axes=(0, None))(first, parameters)
        return np.mean(np.sum((ends - last) ** 2, axis=1))

    def step(parameters: Any, batch: Any) -> Any:
        value, slope = fdbr.value_and_grad(loss)(parameters, *batch)
        return parameters - 1e-4 * slope, value

    return step


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.jacfwd` of `jax.vmap`."""
    solve = jax_solve(np, jax, sizes)

    def loss(parameters: Any, first: Any, last: Any) -> Any:
        ends = jax.vmap(solve, in_axes=(0, None))(first, parameters)
        value = np.mean(np.sum((ends - last) ** 2, axis=1))
        return value, value

    def step(parameters: Any, batch: Any) -> Any:
        slope, value = jax.jacfwd(loss, has_aux=True)(parameters, *batch)
        return parameters - 1e-4 * slope, value

    return step
