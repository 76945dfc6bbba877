"""The steps of `fdbr.odeint` by hand: a loop of NumPy in eager mode, ``while_loop`` in jitted."""

from typing import Any

import numpy

from benchmarks.research.odeint import DTYPE, RTOL, TINY, Sizes, rates, start, value_step
from benchmarks.research.runge_kutta import ERROR, STAGES

__all__ = ["DTYPE", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "start"]

TITLE = "the steps of odeint, written by hand"


def python_loop(more: Any, body: Any, carry: Any) -> Any:
    """Run a loop of Python."""
    while more(carry):
        carry = body(carry)
    return carry


def _loss(np: Any, while_loop: Any, sizes: Sizes) -> Any:
    def loss(parameters: Any, y: Any, times: Any) -> Any:
        loop = python_loop if type(parameters) is numpy.ndarray else while_loop
        total, h, slope = np.sum(y**2), np.asarray(1e-3), rates(np, y, parameters)

        def body(carry: Any) -> Any:
            t, stop, h, y, slope = carry
            last = h >= stop - t
            size = np.minimum(h, stop - t)
            derivatives, new = [slope], y
            for row in STAGES:
                new = y + size * sum(w * k for w, k in zip(row, derivatives, strict=True) if w)
                derivatives.append(rates(np, new, parameters))
            away = size * sum(w * k for w, k in zip(ERROR, derivatives, strict=True) if w)
            allowed = sizes.tolerance * (1 + np.maximum(np.abs(y), np.abs(new)))
            error = np.sqrt(np.mean((away / allowed) ** 2))
            good = error <= 1
            grown = size * np.clip(0.9 * np.maximum(error, 1e-10) ** -0.2, 0.2, 10.0)
            h = np.where(good & last, np.maximum(grown, h), grown)
            t = np.where(good, np.where(last, stop, t + size), t)
            return t, stop, h, np.where(good, new, y), np.where(good, derivatives[-1], slope)

        for i in range(1, sizes.times):
            carry = times[i - 1], times[i], h, y, slope
            _, _, h, y, slope = loop(lambda carry: carry[0] < carry[1], body, carry)
            total = total + np.sum(y**2)
        return total

    return loss


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.while_loop`, or a loop of Python."""
    return value_step(_loss(np, fdbr.while_loop, sizes))


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.lax.while_loop`."""
    return value_step(_loss(np, jax.lax.while_loop, sizes))
