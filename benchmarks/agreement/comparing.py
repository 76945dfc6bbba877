"""How far results are apart."""

import attrs
import numpy as np

from benchmarks.agreement.libraries import Results
from benchmarks.agreement.programs import Program

__all__ = ["LIMIT", "Worst", "distance"]

LIMIT = 1e-10


def distance(ours: Results, theirs: Results, name: str) -> float:
    """The largest difference of some arrays, relative to the largest element, or to 1."""
    worst = 0.0
    for mine, other in zip(ours[name], theirs[name], strict=True):
        if mine.shape != other.shape:
            return float("inf")
        scale = max(1.0, float(np.abs(mine).max(initial=0)))
        away = float(np.abs(mine - other).max(initial=0)) / scale
        worst = max(worst, away) if away == away else float("inf")
    return worst


@attrs.define
class Worst:
    """The worst disagreement so far with a library, by what is compared."""

    programs: int = 0
    by_name: dict[str, tuple[float, int]] = attrs.field(factory=dict)

    def note(self, program: Program, ours: Results, theirs: Results) -> float:
        """Take a program in, and tell how far it is apart."""
        self.programs += 1
        distances = {name: distance(ours, theirs, name) for name in ours}
        for name, away in distances.items():
            self.by_name[name] = max(self.by_name.get(name, (0.0, -1)), (away, program.seed))
        return max(distances.values())
