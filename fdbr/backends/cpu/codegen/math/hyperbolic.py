"""Hyperbolic functions of nodes and their inverses, and roots, under NumPy's names."""

import math

import numpy as np

from fdbr.backends.cpu.codegen.math.arithmetic import absolute, fma, sqrt, where
from fdbr.backends.cpu.codegen.math.exponential import exp, fourth_of_expm1, log, log1p
from fdbr.backends.cpu.codegen.math.remainders import copysign
from fdbr.core.expr import Node

__all__ = ["arccosh", "arcsinh", "arctanh", "cbrt", "cosh", "sinh"]

_LARGE = {np.dtype(np.float32): 2.0**13, np.dtype(np.float64): 2.0**28}  # whose squares are all


def sinh(x: Node) -> Node:
    """By ``exp(x) - 1``, a fourth of which does not overflow before the result does."""
    size = absolute(x)
    fourth = fourth_of_expm1(size)
    out = copysign(2 * (fourth + fourth / fma(fourth, 4, 1)), x)
    return where(size < 1 / _LARGE[x.dtype], x, out)


def cosh(x: Node) -> Node:
    """By a fourth of the exponential, as `sinh`."""
    fourth = fourth_of_expm1(absolute(x)) + 0.25
    return 2 * (fourth + 0.0625 / fourth)


def arcsinh(x: Node) -> Node:
    """By a logarithm of what is added to 1; of large numbers by that of their double."""
    size = absolute(x)
    large = size > _LARGE[x.dtype]
    square = size * size
    near = log1p(where(large, size - 1, size + square / (1 + sqrt(1 + square))))
    return copysign(where(large, near + math.log(2), near), x)


def arccosh(x: Node) -> Node:
    """As `arcsinh`, and NaN below 1."""
    large = x > _LARGE[x.dtype]
    over = x - 1
    near = log1p(where(large, over, over + sqrt(over * (x + 1))))
    return where(x < 1, math.nan, where(large, near + math.log(2), near))


def arctanh(x: Node) -> Node:
    """By a logarithm, in which nothing cancels."""
    size = absolute(x)
    twice = 2 * size
    found = log1p(where(size < 0.5, twice + twice * size / (1 - size), twice / (1 - size)))
    return copysign(0.5 * found, x)


def cbrt(x: Node) -> Node:
    """By a logarithm, and a step of Newton's."""
    size = absolute(x)
    whole = (size > 0) & (size < math.inf)
    given = where(whole, size, 1)
    root = exp(log(given) / 3)
    root = root - (root - given / (root * root)) / 3
    return where(whole, copysign(root, x), x)
