"""Interleaved timing: every library gets its turn in every round.

A machine's speed drifts, and other programs come and go.  Timed one after the other, two
libraries would meet different machines; in turns they meet the same one, and their ratio holds.
The order of turns rotates, so that nobody always follows the same neighbour.
"""

import time
from collections.abc import Callable, Mapping

__all__ = ["interleaved"]

Loop = Callable[[int], float]
"""Makes some calls and gives the seconds they took."""

# Seconds that a repeat takes at least.  In the first calls of a turn a process asks for the memory
# that it gave back after the last; a training run does so once.
SHORTEST = 0.1

# Seconds between turns.  After its last call a library's worker threads wait for more, busily,
# for up to about 0.1 s; in that time they would take a core from whoever has the next turn.
REST = 0.2


def interleaved(
    loops: Mapping[str, Loop],
    rounds: int,
    shortest: float | None = None,
    rest: float | None = None,
) -> dict[str, list[float]]:
    """Seconds per call, for each round, of each function.

    A repeat takes at least ``shortest`` seconds, and there are ``rest`` seconds between turns.
    """
    shortest, rest = SHORTEST if shortest is None else shortest, REST if rest is None else rest
    numbers = {name: _enough(loop, shortest) for name, loop in loops.items()}
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    names = list(loops)
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(rest)
            loop, number = loops[name], numbers[name]
            loop(number // 4 + 1)  # brings its data and threads back
            seconds[name].append(loop(number) / number)
    return seconds


def _enough(loop: Loop, shortest: float) -> int:
    """How many calls take at least the shortest time."""
    number = 1
    while (taken := loop(number)) < shortest:
        number = max(2 * number, int(1.2 * number * shortest / max(taken, 1e-6)))
        number = min(number, 10_000_000)
    return number
