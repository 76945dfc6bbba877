"""The loop nest of a kernel with reductions along any axes.

Neighbouring axes of the domain are merged if every operand has all of them or none; the merged axes
are the *loops* of the kernel, from the outermost to the innermost.  An operand is indexed by the
loops that it has.
"""

import math
from collections.abc import Iterable, Sequence

__all__ = ["Has", "axes_of", "joined_axes"]

Has = tuple[bool, ...]
"""For each axis of a domain, or each loop of a kernel, whether an array has it."""


def axes_of(shape: Sequence[int], domain: Sequence[int]) -> Has | None:
    """Return which axes of a domain a broadcast array has; `None` if it does not broadcast.

    >>> axes_of((3, 1), (2, 3, 4))
    (False, True, False)
    """
    apart = len(domain) - len(shape)
    if apart < 0 or any(n not in (1, m) for n, m in zip(shape, domain[apart:], strict=True)):
        return None
    return (False,) * apart + tuple([n != 1 for n in shape])


def joined_axes(domain: Sequence[int], arrays: Iterable[Has]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the merged loops over a domain for some arrays: each one's length and axes.

    >>> joined_axes((2, 3, 4, 5), [(False, True, False, False)])
    [(2, (0,)), (3, (1,)), (20, (2, 3))]
    """
    arrays = list(arrays)
    found: list[tuple[Has, list[int]]] = []
    for axis, length in enumerate(domain):
        if length == 1:
            continue
        here = tuple([has[axis] for has in arrays])
        if found and found[-1][0] == here:
            found[-1][1].append(axis)
        else:
            found.append((here, [axis]))
    return [(math.prod(domain[axis] for axis in axes), tuple(axes)) for _, axes in found]
