"""Interleaved timing: every library gets its turn in every round.

A machine's speed drifts, and other programs come and go.  Timed one after the other, two
libraries would meet different machines; in turns they meet the same one, and their ratio holds.
"""

import time
from collections.abc import Callable
from typing import Any

SHORTEST = 0.02  # seconds: a repeat is long enough that the clock and its call do not matter

# Seconds between turns.  After its last call a library's worker threads wait for more, busily,
# for up to about 0.1 s; in that time they would take a core from whoever has the next turn.
REST = 0.2


def interleaved(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds per call, for each round, of each function."""
    loops = {name: _enough(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(REST)
            _loop(call, loops[name] // 4 + 1)  # brings its data and threads back
            seconds[name].append(_loop(call, loops[name]) / loops[name])
    return seconds


def _enough(call: Callable[[], Any]) -> int:
    """How many calls take at least the shortest time."""
    number = 1
    while (taken := _loop(call, number)) < SHORTEST:
        number = max(2 * number, int(1.2 * number * SHORTEST / max(taken, 1e-6)))
        number = min(number, 10_000_000)
    return number


def _loop(call: Callable[[], Any], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start
