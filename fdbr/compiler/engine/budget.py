"""The budget of compilation, by which a jitted function takes hardly longer than it does itself.

The calls of a function with arguments of one kind have an account.  Of the time that they would
take without `jit` nearly a tenth is paid into it, and what replays save; captures, passes and
replays that take longer than the function are paid out of it.  Nothing is begun that the account
does not cover, and where it is overdrawn the function runs as it is, unless replays are known to be
faster.  A function that has run often or long is likely to run as often or as long again: from the
128th call on half of the time is paid, and of what is beyond two seconds before; of what is beyond
half a second where Python takes most of it, which compiled code saves.  So short runs take a tenth
longer than without `jit` at most, and all calls together half as long again at most, however many
there are and whatever the function does.
"""

import sys

__all__ = [
    *("ANY", "Budget", "Estimate", "capturing", "compiling", "passing"),
    *("patience", "set_patience"),
]

ANY = sys.maxsize  # number of steps
_SHARE = 0.08  # of the tenth: the rest is for looking up what to run
_LATER = 0.48  # of the time of calls that are likely to be followed by as many
_LONG, _SOON = 2.0, 0.5  # seconds
_PYTHON = 6e-6  # seconds that a step takes if most of it is Python's
_WEIGHT = 0.1  # of a run in the average
_LEAST = 0.2  # of what things took elsewhere
_BETWEEN = 1e-5  # seconds between two operations of a function that is not differentiated
_PER_ENTRY = 3  # steps of a program for each entry of a tape
_ROOM = 1.6  # what an estimate may be wrong by, and what the first replay takes to be prepared
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


class Estimate:
    """The seconds that something takes, by its size, as far as this process has seen it.

    Parameters
    ----------
    fixed, each
        What it took where this was written, whatever the size, and for each unit of that.
    """

    def __init__(self, fixed: float, each: float) -> None:
        self.fixed, self.each = fixed, each
        self._factor = 1.0

    def of(self, size: int) -> float:
        """The seconds for a size."""
        return self._factor * (self.fixed + self.each * size)

    def size(self, seconds: float) -> int:
        """For which size so many seconds do."""
        return max(0, int((seconds / self._factor - self.fixed) / self.each))

    def saw(self, size: int, seconds: float) -> None:
        """Note what it took for a size."""
        factor = seconds / (self.fixed + self.each * size)
        self._factor = min(max((self._factor + factor) / 2, _LEAST), 1 / _LEAST)


capturing = Estimate(2e-3, 8e-6)
"""A capture, beside the run itself: it looks at all around the function; by the number of steps."""

passing = Estimate(4e-2, 1.5e-4)
"""The passes and the generation of code; by the number of steps."""

compiling = Estimate(3e-3, 4e-6)
"""What is lost while a kernel is compiled beside the calls; by the length of its source.

That is half of what it takes: processors share caches and execution units, and processes wait for
threads that are held up."""


class Budget:
    """The account of calls with arguments of one kind.

    Parameters
    ----------
    often
        After how many calls as many are likely to follow.

    Attributes
    ----------
    eager
        Seconds that a call takes without `jit`, on the average.
    steps
        How many steps a capture will have, by what is known.
    varies
        Whether runs have made tapes of different lengths: they have taken different ways.
    """

    __slots__ = (
        "_calls",
        "_capture",
        "_entries",
        "_left",
        "_often",
        "_runs",
        "_whole",
        "eager",
        "steps",
        "varies",
    )

    def __init__(self, often: float = 128) -> None:
        self._often = often
        self.eager = 0.0
        self.steps = self._runs = self._calls = self._entries = 0
        self.varies = False
        self._capture = 0.0  # seconds that the last capture took beside the run
        self._whole = 0.0  # seconds that all calls would have taken without `jit`
        self._left = 0.0  # seconds that replays have saved, less those that were spent

    def ran(self, seconds: float, entries: int = 0, runs: int = 1, disturbed: bool = False) -> None:
        """Note runs of the function as it is, each of which took so long.

        Each made some ``entries`` of tapes.  Runs may have been ``disturbed`` by compilation.
        """
        if entries:
            self.varies |= self._entries not in (0, entries)
            self._entries = entries
        if disturbed and self._runs > 1:
            self.replayed(seconds, runs)
            return
        self._runs += runs
        # The first one may load what later ones find; of the last ones each counts for less.
        weight = max(1 / max(self._runs - 1, 1), _WEIGHT)
        self.eager += weight * (seconds - self.eager)
        self._calls += runs
        self._whole += seconds * runs
        if not self.steps:
            self.steps = _PER_ENTRY * entries or int(seconds / _BETWEEN) + 1

    def replayed(self, seconds: float, runs: int = 1) -> None:
        """Note replays, each of which took so long."""
        if self._runs:
            self._calls += runs
            self._whole += self.eager * runs
            saved = (self.eager - seconds) * runs
            self._left += saved if saved > 0 else _patience * saved

    def spend(self, seconds: float) -> None:
        """Note what was spent beside runs of the function and replays."""
        if self._runs:
            self._left -= _patience * seconds

    @property
    def balance(self) -> float:
        """Seconds that may be spent."""
        long = _SOON if self.eager < _PYTHON * self.steps else _LONG
        later = self._whole if self._calls >= self._often else max(self._whole - long, 0.0)
        return _SHARE * self._whole + (_LATER - _SHARE) * later + self._left

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
        cost = max(capturing.of(int(_ROOM * self.steps)), self._capture)
        if self.eager < _SHORT:  # replays step by step save nothing
            cost += passing.of(self.steps)
        missing = _patience * cost - self.balance
        if missing <= 0 or self._calls >= self._often:
            return missing / _LATER
        return min(missing / _SHARE, (self._often - self._calls) * self.eager)

    def steps_to_capture(self) -> int:
        """The number of steps that a capture may have now; 0 where none is to be tried."""
        if not _patience:
            return ANY
        if not self._runs or self.missing > 0:
            return 0
        return capturing.size(self.balance / _patience)

    def captured(self, seconds: float) -> None:
        """Note what a capture took beside the run: the next one may take as long."""
        self._capture = seconds

    def learns(self) -> None:
        """Note that a capture will learn how loops go on: the way back is not run for that."""
        self.steps //= _PER_ENTRY

    def cut(self, steps: int) -> None:
        """Note that a capture was broken off after so many steps."""
        self.steps = max(2 * steps, self.steps)
