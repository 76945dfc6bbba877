"""Metrics as numbers."""

import math
from collections.abc import Mapping
from typing import Any

from fdbr.errors.checks import describe

__all__ = ["number", "numbers", "text"]


def number(name: str, value: Any) -> float:
    """A metric as one of Python's floats.

    Raises
    ------
    TypeError
        If it is not a single number; the message names it.
    """
    if type(value) is float:
        return value
    if not isinstance(value, str | bytes) and not getattr(value, "shape", None):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(
        f"fdbr.train: metric {name!r} must be a single number, got {describe(value)}; return its "
        "mean, or one metric for each part"
    )


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
    return {name: number(name, value) for name, value in metrics.items()}


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
