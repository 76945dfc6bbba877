"""Values over the iterations, as a stage that draws them keeps them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fdbr.core.array_modules import lock

__all__ = ["History", "with_value"]

History = Mapping[str, Mapping[str, Any]]
"""By the name of a curve, its arrays ``x`` and ``y``."""


def with_value(history: History, name: str, x: float, y: float) -> dict[str, Mapping[str, Any]]:
    """A history with a point more at the end of a curve."""
    curve = history.get(name)
    added = {
        axis: lock(np.append(curve[axis] if curve else np.zeros(0), value))
        for axis, value in (("x", x), ("y", y))
    }
    return {**history, name: added}
