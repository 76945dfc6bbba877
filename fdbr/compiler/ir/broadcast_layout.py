"""The layout of a kernel's operands: which element belongs to a row and a column of the domain.

A kernel runs over a *domain*: the elements of one shape, split into rows and columns at some axis.
A *full* value has an element for each of them, a *row* value one for each row.  Broadcast operands
are read at an index computed from row and column.
"""

import math
from collections.abc import Collection, Sequence

import attrs

__all__ = ["Place", "best_split", "place", "splits"]


@attrs.frozen
class Place:
    """The index of an operand's element for row ``r`` and column ``c``.

    It is ``((r // repeat) % count) * width + c``, without ``c`` if the operand has no columns.

    Attributes
    ----------
    repeat
        The number of consecutive domain rows that share an operand row.
    count
        The number of operand rows.
    columns
        Whether the operand has columns.
    """

    repeat: int
    count: int
    columns: bool


def place(shape: Sequence[int], domain: Sequence[int], split: int) -> Place | None:
    """Return the index of an operand that broadcasts to a domain; `None` if the form cannot do it.

    ``split`` is the number of leading axes that make the rows.
    """
    if len(shape) > len(domain):
        return None
    aligned = (1,) * (len(domain) - len(shape)) + tuple(shape)
    lead, trail = aligned[:split], aligned[split:]
    columns = trail == tuple(domain[split:])
    if not columns and any(n != 1 for n in trail):
        return None
    own = [i for i, n in enumerate(lead) if n != 1]
    if not own:
        return Place(1, 1, columns)
    first, last = own[0], own[-1]
    if tuple(lead[first : last + 1]) != tuple(domain[first : last + 1]):
        return None
    return Place(math.prod(domain[last + 1 : split]), math.prod(lead), columns)


def splits(shape: Sequence[int], domain: Sequence[int]) -> frozenset[int]:
    """Return the splits of a domain at which an operand has an index of this form."""
    return frozenset(k for k in range(len(domain) + 1) if place(shape, domain, k) is not None)


def best_split(
    domain: Sequence[int],
    allowed: Collection[int],
    shapes: Collection[Sequence[int]],
    rows: int,
) -> int:
    """Return the split with the fewest repeated operand rows; among those, prefer long columns.

    Parameters
    ----------
    domain
        The shape that a kernel runs over.
    allowed
        The splits that are possible for all operands.
    shapes
        The shapes of the operands.
    rows
        The minimal number of rows.
    """
    if len(allowed) == 1:
        return next(iter(allowed))
    rank = len(domain)
    repeats = {k: sum(_repeats(shape, domain, k) for shape in shapes) for k in allowed}
    best = [k for k in sorted(allowed) if repeats[k] == min(repeats.values())]
    if rank in best:
        return rank
    return next((k for k in best if math.prod(domain[:k]) >= rows), best[-1])


def _repeats(shape: Sequence[int], domain: Sequence[int], split: int) -> bool:
    """Return whether operand rows belong to several rows of the domain."""
    found = place(shape, domain, split)
    return found is not None and found.count not in (1, math.prod(domain[:split]))
