"""Waiting for other ranks: eagerly at first, and then so that they have the cores."""

import os
import threading
import time
from collections.abc import Callable

__all__ = ["cores", "wait"]

_EAGER = 8
"""Questions in a row, before anything else."""

_NAP, _LONGEST_NAP = 2e-5, 1e-3
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wait(
    ready: Callable[[], bool],
    look: Callable[[], None],
    seconds: float,
    eager: float = 0.0,
    brief: float = 0.002,
    longest_nap: float = _LONGEST_NAP,
) -> bool:
    """Wait until ``ready()``; false if that takes longer than some seconds.

    Parameters
    ----------
    ready
        Asked again and again.
    look
        Called now and then, once the wait is not brief; it may raise what ends the wait.
    seconds
        How long.
    eager
        Seconds in which this rank does nothing but ask, where it has a core to itself.
    brief
        Seconds in which the core is left to others that want it; then this rank sleeps between its
        questions.
    longest_nap
        Seconds; sleeps grow to that.
    """
    for _ in range(_EAGER):
        if ready():
            return True
    began = time.monotonic()
    # A thread beside the main one leaves Python to that: giving way keeps the interpreter's lock.
    if threading.current_thread() is threading.main_thread():
        while time.monotonic() - began < eager:
            for _ in range(16):
                if ready():
                    return True
        while time.monotonic() - began < brief:
            for _ in range(16):
                _give_way()
                if ready():
                    return True
    nap = _NAP
    while not ready():
        look()
        if time.monotonic() - began > seconds:
            return ready()
        time.sleep(nap)
        nap = min(1.05 * nap, longest_nap)
    return True
