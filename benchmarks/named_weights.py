"""Weights that depend on nothing but their names: models of two libraries get the same ones."""

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["named_weights", "numbers"]


def named_weights(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """For each name and shape an array of float64, with which a deep network stays in bounds."""
    return {name: _weight(name, tuple(shape)) for name, shape in shapes.items()}


def numbers(name: str, shape: Any) -> Any:
    """Normal numbers of float64, which depend on the name."""
    return np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)


def _weight(name: str, shape: tuple[int, ...]) -> Any:
    draws = numbers(name, shape)
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if name.endswith("running_var"):
        return np.exp(draws / 10)
    if "layer_scale" in name:
        return 0.3 + draws / 10
    if len(shape) < 2:
        return draws / 10 + name.endswith("weight")
    return draws * math.sqrt(2 / math.prod(shape[1:]))
