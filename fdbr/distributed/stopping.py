"""Ctrl-C on many ranks: which iteration is the last one."""

import math
import time
from typing import Any

from fdbr.distributed.transports.notices import Notices
from fdbr.train.loop.interrupts import Interrupt

__all__ = ["Stopping"]


class Stopping:
    """Agreement of the ranks about the last iteration of a run of `fit` that Ctrl-C ends.

    A rank on which Ctrl-C was pressed, or which hears of that, says to all others which iteration
    it has begun: between iterations, or while it waits within one for the others.  The last
    iteration is the latest that any of them has begun.  So nobody waits in a collective of an
    iteration that others do not begin, and where ranks wait for one another nowhere, they stop
    within the time-out.

    Parameters
    ----------
    notices
        The post between all processes.
    timeout
        Seconds after which a rank that does not answer is left out.
    """

    def __init__(self, notices: Notices, timeout: float) -> None:
        self._notices = notices
        self._timeout = timeout
        self._run: Interrupt | None = None
        self._runs = 0
        self._begun = math.inf
        self._ended = 0  # how many times a run was ended so; notices of earlier ones are stale
        self._heard: dict[int, dict[int, tuple[int, float]]] = {}
        self._last: tuple[int, float] | None = None
        notices.listen("interrupt", self._hear)
        notices.beats.append(self._answer)

    @property
    def quiet(self) -> bool:
        """Whether another rank tells the user that Ctrl-C was heard."""
        return self._notices.rank > 0

    def begins(self, run: Interrupt) -> None:
        """A run begins within no other."""
        self._run = run
        self._runs += 1
        self._begun = 0

    def is_over(self, run: Interrupt) -> None:
        """It is over."""
        if self._run is run:
            self._run = None
            self._begun = math.inf
            if self._last is not None:
                self._heard.pop(self._ended, None)
                self._ended += 1
                self._last = None

    def ends(self, run: Interrupt, iteration: int) -> bool:
        """Whether a run has no iterations after one that is done."""
        if self._run is not run:
            return run.pressed
        if self._last is None:
            self._notices.read()
            if not self._is_known():
                self._begun = iteration + 1
                return False
            self._last = self._agreed(iteration)
        return (self._runs, iteration) >= self._last

    def _is_known(self) -> bool:
        pressed = self._run is not None and self._run.pressed
        return pressed or bool(self._heard.get(self._ended))

    def _agreed(self, iteration: int) -> tuple[int, float]:
        """The last iteration, and the number of its run."""
        self._say(iteration)
        deadline = time.monotonic() + self._timeout
        everyone = range(self._notices.size)
        while time.monotonic() < deadline:
            heard = self._heard.get(self._ended, {})
            if all(i in heard or i in self._notices.ended for i in everyone):
                break
            self._notices.read()
            time.sleep(0.0005)
        return max(self._heard[self._ended].values())

    def _answer(self) -> None:
        """Say what was begun, if that is asked and was not said yet."""
        if self._is_known():
            self._say(self._begun)

    def _say(self, iteration: float) -> None:
        mine = self._heard.setdefault(self._ended, {})
        if self._notices.rank not in mine:
            mine[self._notices.rank] = (self._runs, iteration)
            content = [self._ended, self._runs, None if math.isinf(iteration) else iteration]
            self._notices.post("interrupt", content, range(self._notices.size))

    def _hear(self, rank: int, content: Any) -> None:
        time_of_it, run, iteration = content
        if time_of_it >= self._ended:
            iteration = math.inf if iteration is None else iteration
            self._heard.setdefault(time_of_it, {})[rank] = (run, iteration)
