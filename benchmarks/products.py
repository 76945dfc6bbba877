"""Matrix products in NumPy and nothing else: what no library can be much faster than.

Operands and results lie in memory beforehand, so that nothing but the products is timed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]


def affine(*layers: tuple[int, int, int, bool]) -> Call:
    """The products of affine layers: forward, by the weight, and where asked for by the input.

    A layer is ``(rows, inputs, outputs, whether by the input)``.
    """
    return sequence(*(_affine(*layer) for layer in layers))


def sequence(*calls: Call) -> Call:
    """One after the other."""

    def call() -> None:
        for part in calls:
            part()

    return call


def repeated(times: int, *calls: Call) -> Call:
    """One after the other, many times."""
    return sequence(*calls * times)


def random(*shape: int) -> np.ndarray:
    """An array of the shape."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _affine(rows: int, inputs: int, outputs: int, by_input: bool) -> Call:
    x, weight, ct = random(rows, inputs), random(outputs, inputs), random(rows, outputs)
    out, by_x, by_weight = np.empty_like(ct), np.empty_like(x), np.empty_like(weight)

    def call() -> None:
        np.dot(x, weight.T, out=out)
        np.dot(ct.T, x, out=by_weight)
        if by_input:
            np.dot(ct, weight, out=by_x)

    return call
