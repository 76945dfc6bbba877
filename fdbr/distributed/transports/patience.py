"""How a rank waits for others: eagerly at first, and then so that they have the cores."""

import os
import threading
import time
from collections.abc import Callable

__all__ = ["wait"]

_EAGER = 8
"""Questions in a row, before others get the core in between."""

_BRIEF = 0.002
"""Seconds after which a rank that waits for others sleeps between its questions: what comes later
than that is late by more than a sleep."""

_MOVING = 0.05
"""The same for data on its way, which move only while both ends ask."""

_NAP, _LONGEST_NAP = 2e-5, 1e-3
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


def wait(
    ready: Callable[[], bool], look: Callable[[], None], seconds: float, moving: bool = False
) -> bool:
    """Wait until ``ready()``; false if that takes longer than some seconds.

    Parameters
    ----------
    ready
        Asked again and again.
    look
        Called now and then, and whenever the wait is long; it may raise what ends the wait.
    seconds
        How long.
    moving
        Whether data are on their way, so that it will not take long.
    """
    for _ in range(_EAGER):
        if ready():
            return True
    began = time.monotonic()
    # A thread beside the main one leaves Python to that: giving way keeps the interpreter's lock.
    if threading.current_thread() is threading.main_thread():
        brief = _MOVING if moving else _BRIEF
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
        if not moving:
            nap = min(1.05 * nap, _LONGEST_NAP)
    return True
