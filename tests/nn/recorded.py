"""What PyTorch, or Optax, gave, as ``python -m benchmarks.reference`` recorded it."""

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["recorded"]


def recorded(family: str, room: str = "nn") -> dict[str, dict[str, Any]]:
    """The arrays of a family of functions or layers, by case and name."""
    cases: dict[str, dict[str, Any]] = {}
    with np.load(Path(__file__).parents[1] / room / "reference" / f"{family}.npz") as file:
        for key in file.files:
            case, _, name = key.rpartition("/")
            cases.setdefault(case, {})[name] = file[key]
    return {case: _unpacked(arrays) for case, arrays in cases.items()}


def _unpacked(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that `benchmarks.reference.packed` joined into one vector."""
    if "packed names" not in arrays:
        return arrays
    values, found, start = arrays["packed values"], {}, 0
    for text in arrays["packed names"].tolist():
        name, dtype, sizes = text.split("|")
        shape = tuple(int(n) for n in sizes.split(",") if n)
        stop = start + int(np.prod(shape))
        found[name] = values[start:stop].astype(dtype).reshape(shape)
        start = stop
    return found
