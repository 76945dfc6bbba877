"""A step of fitting predators and prey, by Dormand and Prince's method with adaptive steps.

Float64.  The gradient is that of the numbers computed, the sizes of the steps included.  For fdbr
the solver is a Python ``while``; JAX's ``while_loop`` has no reverse mode, and for four parameters
forward mode is what its users take.
"""

from typing import Any

import attrs
import numpy as np

TITLE = "gradient of an adaptive Runge-Kutta method"
DTYPE = np.float64
RTOL = 1e-6

STAGES = [
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
ERROR = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]


@attrs.frozen
class Sizes:
    """How long, and how exactly, the equation is solved."""

    end: float = 10.0
    tolerance: float = 1e-5


TINY = Sizes(end=0.2, tolerance=1e-3)


def start(sizes: Sizes) -> Any:
    """The equation's parameters; where it begins, and where it shall end."""
    return np.array([1.4, 0.9, 1.1, 0.9]), (np.array([1.0, 0.5]), np.array([1.5, 1.0]))


def rates(np: Any, y: Any, parameters: Any) -> Any:
    """Lotka's and Volterra's."""
    a, b, c, d = parameters
    prey, predators = y
    return np.stack([a * prey - b * prey * predators, d * prey * predators - c * predators])


def attempt(np: Any, y: Any, h: Any, parameters: Any, tolerance: float) -> Any:
    """Where a step leads, and its error in units of what is allowed."""
    derivatives = [rates(np, y, parameters)]
    for row in STAGES:
        new = y + h * sum(weight * k for weight, k in zip(row, derivatives, strict=True))
        derivatives.append(rates(np, new, parameters))
    away = h * sum(weight * k for weight, k in zip(ERROR, derivatives, strict=True))
    allowed = tolerance * (1 + np.maximum(np.abs(y), np.abs(new)))
    return new, np.sqrt(np.mean((away / allowed) ** 2))


def fdbr_solve(np: Any, sizes: Sizes) -> Any:
    """With ``while`` and ``if``."""

    def solve(y: Any, parameters: Any) -> Any:
        t, h = 0.0, 0.1
        while sizes.end - t > 1e-9:
            h = np.minimum(h, sizes.end - t)
            new, error = attempt(np, y, h, parameters, sizes.tolerance)
            if error <= 1:
                t, y = t + h, new
            h = h * np.clip(0.9 * error**-0.2, 0.2, 5.0)
        return y

    return solve


def jax_solve(np: Any, jax: Any, sizes: Sizes) -> Any:
    """With ``while_loop`` and ``where``."""

    def solve(y: Any, parameters: Any) -> Any:
        def body(carry: Any) -> Any:
            t, h, y = carry
            h = np.minimum(h, sizes.end - t)
            new, error = attempt(np, y, h, parameters, sizes.tolerance)
            good = error <= 1
            grown = h * np.clip(0.9 * error**-0.2, 0.2, 5.0)
            return np.where(good, t + h, t), grown, np.where(good, new, y)

        more = lambda carry: sizes.end - carry[0] > 1e-9
        return jax.lax.while_loop(more, body, (np.array(0.0), np.array(0.1), y))[-1]

    return solve


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.value_and_grad`."""
    solve = fdbr_solve(np, sizes)

    def loss(parameters: Any, first: Any, last: Any) -> Any:
        return np.sum((solve(first, parameters) - last) ** 2)

    def step(parameters: Any, batch: Any) -> Any:
        value, slope = fdbr.value_and_grad(loss)(parameters, *batch)
        return parameters - 1e-4 * slope, value

    return step


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.jacfwd`."""
    solve = jax_solve(np, jax, sizes)

    def loss(parameters: Any, first: Any, last: Any) -> Any:
        value = np.sum((solve(first, parameters) - last) ** 2)
        return value, value

    def step(parameters: Any, batch: Any) -> Any:
        slope, value = jax.jacfwd(loss, has_aux=True)(parameters, *batch)
        return parameters - 1e-4 * slope, value

    return step
