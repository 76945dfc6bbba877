"""The first weights of networks."""

from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["dense"]


def dense(generator: np.random.Generator, *widths: int) -> list[tuple[Any, Any]]:
    """Weights, (inputs, outputs), and biases of affine layers, in float32."""
    return [
        (
            generator.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(widths)
    ]
