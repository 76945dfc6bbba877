"""What compilation may cost, so that a jitted function takes no longer than the function itself.

The calls of a function with arguments of one kind have an account.  Of the time that each would
take without `jit` nearly a tenth is paid into it, and what replays save; captures, passes and
replays that take longer than the function are paid out of it.  Nothing is begun that the account
does not cover, and where it is overdrawn the function runs as it is.  So the calls take a tenth
longer than without `jit` at most, however many there are and whatever the function does.
"""

import sys

__all__ = ["ANY", "Budget", "kernel_takes", "passes_take", "patience", "set_patience"]

ANY = sys.maxsize  # number of steps
_SHARE = 0.08  # of the tenth: the rest is for looking up what to run
_WEIGHT = 0.1  # of a run in the average
_FIXED = 2e-3  # seconds that every capture takes: it looks at all that is around the function
_STEP = 1.2e-5  # and, with what prepares the replays, for each step
_BETWEEN = 1e-5  # seconds between two operations of a function that is not differentiated
_PER_ENTRY = 3  # steps of a program for each entry of a tape
_ROOM = 1.3  # what an estimate may be wrong by
_SHORT = 1e-4  # seconds of a run

_patience = 1.0


def set_patience(factor: float) -> float:
    """Change what must have been paid for compilation, in what it takes; the old factor.

    With 0, programs are captured and compiled at once, and kernels are waited for.
    """
    global _patience
    old, _patience = _patience, factor
    return old


def patience() -> float:
    """The factor that `set_patience` has set."""
    return _patience


def passes_take(steps: int) -> float:
    """The seconds that the passes and the generation of code take for so many steps."""
    return 1e-3 + 1e-4 * steps


def kernel_takes(length: int) -> float:
    """The seconds that are lost while a kernel with so long a source is compiled beside the calls.

    That is half of what it takes: processors share caches and execution units, and processes wait
    for threads that are held up.
    """
    return 6e-3 + 1.2e-5 * length


class Budget:
    """The account of calls with arguments of one kind.

    Attributes
    ----------
    eager
        Seconds that a call takes without `jit`, on the average.
    balance
        Seconds that may be spent.
    steps
        How many steps a capture will have, by what is known.
    """

    __slots__ = ("_runs", "balance", "eager", "steps")

    def __init__(self) -> None:
        self.eager = self.balance = 0.0
        self.steps = self._runs = 0

    def ran(self, seconds: float, entries: int = 0, runs: int = 1, disturbed: bool = False) -> None:
        """Note runs of the function as it is, each of which took so long.

        Each made some ``entries`` of tapes.  Runs may have been ``disturbed`` by compilation.
        """
        if disturbed and self._runs > 1:
            self.replayed(seconds)
            return
        self._runs += runs
        # The first one may load what later ones find; of the last ones each counts for less.
        weight = max(1 / max(self._runs - 1, 1), _WEIGHT)
        self.eager += weight * (seconds - self.eager)
        self.balance += _SHARE * seconds * runs
        if not self.steps:
            self.steps = _PER_ENTRY * entries or int(seconds / _BETWEEN) + 1

    def replayed(self, seconds: float) -> None:
        """Note a replay."""
        if self._runs:
            saved = (1 + _SHARE) * self.eager - seconds
            self.balance += saved if saved > 0 else _patience * saved

    def spend(self, seconds: float) -> None:
        """Note what was spent beside runs of the function and replays."""
        if self._runs:
            self.balance -= _patience * seconds

    def affords(self, seconds: float) -> bool:
        """Whether something may be begun that takes so long."""
        return self.balance >= _patience * seconds

    @property
    def overdrawn(self) -> bool:
        """Whether replays have cost more than they may."""
        return bool(_patience) and self.balance < -self.eager

    @property
    def missing(self) -> float:
        """For how long the function has to run as it is before a capture may be tried."""
        cost = _FIXED + _ROOM * _STEP * self.steps
        if self.eager < _SHORT:  # replays step by step save nothing
            cost += passes_take(self.steps)
        return (_patience * cost - self.balance) / _SHARE

    def steps_to_capture(self) -> int:
        """How many steps a capture may have now; 0 where none is to be tried."""
        if not _patience:
            return ANY
        if not self._runs or self.missing > 0:
            return 0
        return int(min((self.balance / _patience - _FIXED) / _STEP, ANY))

    def cut(self, steps: int) -> None:
        """Note that a capture was broken off after so many steps."""
        self.steps = max(2 * steps, self.steps)
