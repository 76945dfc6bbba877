"""What PyTorch gave, as ``python -m benchmarks.reference`` recorded it."""

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["recorded"]


def recorded(family: str) -> dict[str, dict[str, Any]]:
    """The arrays of a family of functions or layers, by case and name."""
    cases: dict[str, dict[str, Any]] = {}
    with np.load(Path(__file__).parent / "reference" / f"{family}.npz") as file:
        for key in file.files:
            case, _, name = key.rpartition("/")
            cases.setdefault(case, {})[name] = file[key]
    return cases
