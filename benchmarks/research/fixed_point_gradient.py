"""The gradient of a layer that is a fixed point, by the implicit function theorem."""

from typing import Any

from benchmarks.research.fixed_point import (
    DTYPE,
    RTOL,
    TINY,
    Sizes,
    fdbr_solve,
    gradient_step,
    jax_solve,
    start,
)

__all__ = ["DTYPE", "RTOL", "TINY", "TITLE", "Sizes", "fdbr", "jax", "start"]

TITLE = "gradient of a fixed point"


def fdbr(np: Any, fdbr: Any, random: Any, sizes: Sizes) -> Any:
    """With `fdbr.fixed_point`."""
    return gradient_step(fdbr_solve(np, fdbr), np, fdbr)


def jax(np: Any, jax: Any, random: Any, sizes: Sizes) -> Any:
    """With ``while_loop`` and a derivative that is stated."""
    return gradient_step(jax_solve(np, jax), np, jax)
