"""The iterations of a fixed point by hand: a loop of NumPy eagerly, ``while_loop`` jitted."""

from typing import Any

import numpy

from benchmarks.research.fixed_point import (
    DTYPE,
    RTOL,
    TINY,
    Sizes,
    iterated,
    jax_solve,
    layer,
    start,
    value_step,
)
from benchmarks.research.odeint_by_hand import python_loop

__all__ = ["DTYPE", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "start"]

TITLE = "the iterations of fixed_point, written by hand"


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.while_loop`, or a loop of Python."""

    def solve(w: Any, b: Any) -> Any:
        loop = python_loop if type(b) is numpy.ndarray else fdbr.while_loop
        return iterated(np, loop, lambda x: layer(np, x, w, b), 0 * b)

    return value_step(solve, np)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With `jax.lax.while_loop`."""
    return value_step(jax_solve(np, jax), np)
