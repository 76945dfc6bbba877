"""Metrics as numbers."""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["numbers", "text"]


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as Python's floats.

    Raises
    ------
    TypeError
        If one is not a single number; the message names it.

    >>> import numpy as np
    >>> numbers({"loss": np.float32(0.5)})
    {'loss': 0.5}
    """
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"fdbr.train: metric {name!r} must be a single number, got {type(value).__name__} "
                f"of shape {getattr(value, 'shape', None)}: {error}"
            ) from error
    return found


def text(metrics: Mapping[str, Any]) -> str:
    """Metrics on one line.

    >>> text({"loss": 0.123456, "accuracy": 1.0})
    'loss 0.1235  accuracy 1'
    """
    parts = (
        f"{name} {value:.4g}" if math.isfinite(value) else f"{name} {value}"
        for name, value in numbers(metrics).items()
    )
    return "  ".join(parts)
