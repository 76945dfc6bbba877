"""A step of finding out where heat was: 100 steps of finite differences on 64x64, float32."""

from typing import Any

import attrs
import numpy as np

TITLE = "heat equation, 100 steps of finite differences, 64x64"
DTYPE = np.float32
RTOL = 1e-3


@attrs.frozen
class Sizes:
    """Points along a side, and steps."""

    side: int = 64
    steps: int = 100


TINY = Sizes(side=5, steps=2)


def start(sizes: Sizes) -> Any:
    """A guess of the first temperature and of how fast heat spreads; the last temperature."""
    bumps = np.sin(np.linspace(0, 3 * np.pi, sizes.side, dtype=DTYPE))
    guess = {
        "first": np.zeros((sizes.side, sizes.side), DTYPE) + 0.1,
        "speed": np.full((), 0.2, DTYPE),
    }
    return guess, np.outer(bumps, bumps)


def _after(np: Any, u: Any, speed: Any) -> Any:
    """The temperature a step later; it is 0 at the border."""
    inner = u[1:-1, 1:-1]
    around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return np.pad(inner + speed * (around - 4 * inner), 1)


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With ``for``."""

    def loss(guess: Any, last: Any) -> Any:
        u = guess["first"]
        for _ in range(sizes.steps):
            u = _after(np, u, guess["speed"])
        return np.mean((u - last) ** 2)

    return _training(fdbr, loss)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``fori_loop``."""

    def loss(guess: Any, last: Any) -> Any:
        body = lambda _, u: _after(np, u, guess["speed"])
        u = jax.lax.fori_loop(0, sizes.steps, body, guess["first"])
        return np.mean((u - last) ** 2)

    return _training(jax, loss)


def _training(library: Any, loss: Any) -> Any:
    def step(guess: Any, last: Any) -> Any:
        value, slope = library.value_and_grad(loss)(guess, last)
        return library.tree.map(lambda p, g: p - 0.01 * g, guess, slope), value

    return step
