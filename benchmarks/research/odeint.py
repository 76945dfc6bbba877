"""Predators and prey over time, by each library's ``odeint``.

Float64.  JAX's interpolates at the times, where fdbr's ends a step at each.
"""

import importlib
from typing import Any

import attrs
import numpy as np

TITLE = "solution of a differential equation by odeint"
DTYPE = np.float64
RTOL = 1e-5


@attrs.frozen
class Sizes:
    """How long, at how many times, and how exactly the equation is solved."""

    end: float = 5.0
    times: int = 10
    tolerance: float = 1e-8


TINY = Sizes(end=0.2, times=3, tolerance=1e-5)


def start(sizes: Sizes) -> Any:
    """The equation's parameters; where it begins, and the times."""
    times = np.linspace(0.0, sizes.end, sizes.times)
    return np.array([1.5, 1.0, 3.0, 1.0]), (np.array([1.0, 1.0]), times)


def rates(np: Any, y: Any, parameters: Any) -> Any:
    """Lotka's and Volterra's."""
    a, b, c, d = parameters
    prey, predators = y
    return np.stack([a * prey - b * prey * predators, d * prey * predators - c * predators])


def loss_by(np: Any, odeint: Any, sizes: Sizes) -> Any:
    """The sum of squares of a solution by some ``odeint``."""

    def loss(parameters: Any, y: Any, times: Any) -> Any:
        tolerance = sizes.tolerance
        field = lambda y, t, parameters: rates(np, y, parameters)
        return np.sum(odeint(field, y, times, parameters, rtol=tolerance, atol=tolerance) ** 2)

    return loss


def value_step(loss: Any) -> Any:
    """A step that computes a value."""

    def step(parameters: Any, batch: Any) -> Any:
        value = loss(parameters, *batch)
        return parameters * (1 - 1e-9 * value), value

    return step


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.odeint`."""
    return value_step(loss_by(np, fdbr.odeint, sizes))


def jax_odeint() -> Any:
    """JAX's function."""
    return importlib.import_module("jax.experimental.ode").odeint


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.experimental.ode.odeint`."""
    return value_step(loss_by(np, jax_odeint(), sizes))
