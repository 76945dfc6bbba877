"""Errors of float32 values and derivatives, in units of the last place of the exact result."""

import math
from typing import Any

import numpy as np
from mpmath import mp

import fdbr
from benchmarks.accuracy.others import Row, in_large
from benchmarks.accuracy.references import Program

__all__ = ["measure"]

_MANTISSA = 23  # bits
_NORMAL = 2.0**-126  # the smallest number of full precision


def samples(program: Program, count: int, seed: int = 0) -> list[Any]:
    """Numbers of every magnitude in the domain, and as many of everyday size."""
    random = np.random.default_rng(seed)
    low, high = program.domain
    found = []
    for _ in program.derivatives:
        anything = random.integers(0, 2**32, 4 * count, dtype=np.uint32).view("float32")
        usual = random.standard_normal(2 * count) * 10.0 ** random.integers(-2, 3, 2 * count)
        both = np.concatenate([anything, usual.astype("float32")])
        both = both[(both > low) & (both < high) & (abs(both) >= _NORMAL)]
        found.append(random.permutation(both)[:count])
    least = min(map(len, found))
    return [x[:least] for x in found]


def ulps(found: Any, exact: Any) -> float:
    """The distance of a float32 number from an exact one."""
    if mp.isnan(exact):
        return 0.0
    most = mp.mpf(2) ** 128 * (1 - mp.mpf(2) ** -25)
    if abs(exact) >= most:
        return 0.0 if math.isinf(found) and (found > 0) == (exact > 0) else math.inf
    if not math.isfinite(found):
        return math.inf
    if abs(exact) < _NORMAL:
        return 0.0 if abs(found) <= _NORMAL else math.inf
    exponent = mp.frexp(exact)[1] - 1
    unit = mp.ldexp(1, int(exponent) - _MANTISSA)
    return float(abs(mp.mpf(float(found)) - exact) / unit)


def results(program: Program, operands: list[Any], how: str) -> list[Any]:
    """The value, and the derivative in each operand; as parts of large arrays, or by `jit`."""

    def everything(*operands: Any) -> Any:
        value, pullback = fdbr.vjp(program.function, *operands)
        return (value, *pullback(np.ones(value.shape, value.dtype)))

    run = fdbr.jit(everything) if how == "jit" else everything
    run = in_large(run) if how == "large" else run
    with np.errstate(all="ignore"):
        return list(run(*operands))


def measure(program: Program, count: int) -> Row:
    """The largest errors over a sample: of the value first, then of each derivative."""
    operands = samples(program, count)
    points = [tuple(map(float, numbers)) for numbers in zip(*operands, strict=True)]
    exact = [
        [mp.mpf(function(*map(mp.mpf, point))) for point in points]
        for function in (program.value, *program.derivatives)
    ]
    largest: dict[str, list[tuple[float, tuple[float, ...]]]] = {}
    for how in ("small", "large", "jit"):
        largest[how] = []
        for found, right in zip(results(program, operands, how), exact, strict=True):
            each = [ulps(f, e) for f, e in zip(found, right, strict=True)]
            at = int(np.argmax(each))
            largest[how].append((each[at], points[at]))
    eager = list(map(max, largest["small"], largest["large"]))
    jitted = largest["jit"]
    errors = tuple(error for error, _ in eager), tuple(error for error, _ in jitted)
    return Row(errors[0], errors[1], max(*eager, *jitted)[1])
