"""A layer that is a fixed point, ``x = tanh(w @ x + b)``.  Float64."""

from typing import Any

import attrs
import numpy as np

TITLE = "fixed point of a layer"
DTYPE = np.float64
RTOL = 1e-8


@attrs.frozen
class Sizes:
    """The number of unknowns."""

    unknowns: int = 2048


TINY = Sizes(unknowns=4)


def start(sizes: Sizes) -> Any:
    """The offsets; the weights."""
    random = np.random.default_rng(0)
    weights = random.normal(size=(sizes.unknowns,) * 2)
    return random.normal(size=sizes.unknowns), weights * 0.25 / sizes.unknowns**0.5


def layer(np: Any, x: Any, w: Any, b: Any) -> Any:
    """What the solution does not change."""
    return np.tanh(w @ x + b)


def iterated(np: Any, while_loop: Any, f: Any, x: Any) -> Any:
    """The fixed point by iterations, as many as `fdbr.fixed_point` makes."""

    def body(carry: Any) -> Any:
        x, best, size = carry
        new = f(x)
        return new, np.minimum(best, size), np.max(np.abs(new - x))

    def more(carry: Any) -> Any:
        x, best, size = carry
        return (size != 0) & ((size < best) | (size > 1e-12 * (1 + np.max(np.abs(x)))))

    first = np.asarray(np.inf)
    return while_loop(more, body, body((x, first, first)))[0]


def value_step(solve: Any, np: Any) -> Any:
    """A step that computes a value."""

    def step(b: Any, w: Any) -> Any:
        value = np.sum(solve(w, b) ** 2)
        return b * (1 - 1e-6 * value), value

    return step


def gradient_step(solve: Any, np: Any, library: Any) -> Any:
    """A step along the gradient."""
    gradient = library.value_and_grad(lambda b, w: np.sum(solve(w, b) ** 2))

    def step(b: Any, w: Any) -> Any:
        value, slope = gradient(b, w)
        return b - 1e-3 * slope, (slope, value)

    return step


def fdbr_solve(np: Any, fdbr: Any) -> Any:
    """With `fdbr.fixed_point`."""
    return lambda w, b: fdbr.fixed_point(lambda x, w, b: layer(np, x, w, b), 0 * b, w, b).x


def jax_solve(np: Any, jax: Any) -> Any:
    """With ``while_loop``, whose derivative is stated: that of the implicit function theorem."""

    @jax.custom_vjp
    def solve(w: Any, b: Any) -> Any:
        return iterated(np, jax.lax.while_loop, lambda x: layer(np, x, w, b), 0 * b)

    def forward(w: Any, b: Any) -> Any:
        x = solve(w, b)
        return x, (x, w, b)

    def backward(kept: Any, ct: Any) -> Any:
        x, w, b = kept
        _, pull = jax.vjp(lambda x: layer(np, x, w, b), x)
        v = iterated(np, jax.lax.while_loop, lambda v: pull(v)[0] + ct, ct)
        _, pull = jax.vjp(lambda w, b: layer(np, x, w, b), w, b)
        return pull(v)

    solve.defvjp(forward, backward)
    return solve


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.fixed_point`."""
    return value_step(fdbr_solve(np, fdbr), np)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``while_loop``."""
    return value_step(jax_solve(np, jax), np)
