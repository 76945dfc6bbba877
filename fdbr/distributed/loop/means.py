"""Sums of metrics over all ranks."""

import math
from collections.abc import Sequence

from fdbr.train.metrics import number
from fdbr.train.stages.averages import Sums

__all__ = ["plain", "together"]


def plain(sums: Sums) -> dict[str, tuple[float, float]]:
    """Sums as numbers of Python, which can be sent."""
    return {name: (number(name, total), float(w)) for name, (total, w) in sums.items()}


def together(ranks: Sequence[Sums]) -> dict[str, tuple[float, float]]:
    """The sums of all ranks as one, to the last bit the same wherever that is computed.

    >>> together([{"loss": (1.0, 2.0)}, {}, {"loss": (0.5, 1.0)}])
    {'loss': (1.5, 3.0)}
    """
    names = dict.fromkeys(name for sums in ranks for name in sums)
    return {
        name: (
            _added([sums[name][0] for sums in ranks if name in sums]),
            _added([sums[name][1] for sums in ranks if name in sums]),
        )
        for name in names
    }


def _added(numbers: list[float]) -> float:
    if all(map(math.isfinite, numbers)):
        return math.fsum(numbers)
    return sum(numbers)
