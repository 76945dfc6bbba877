"""The budget of compilation, which keeps a jitted function about as fast as the function itself.

All calls with arguments of the same avals share an account of seconds.  It is credited with a share
of the time that the calls would take without `jit`, and with the time that replays save.  It is
charged for captures, passes, and replays that are slower than the function.  Work starts
only if the balance covers it; while the account is overdrawn the function runs eagerly, unless its
replays are known to be faster.

The share is 8 % at first.  A function that has run for half a second or often is likely to run as
long again, so the share is 48 % for the time beyond that half second, and for all time from call
128 on.  Two things are paid from the 8 % alone: captures after the first one, because they are due
to traces that did not hold, and everything for a function with many guards, until one of its
traces has held for a few calls.
Hence short runs take at most a tenth longer than without `jit`, and all calls together at most half
as long again, whatever the function does.
"""

import sys

__all__ = [
    *("UNLIMITED", "Budget", "Estimate", "capturing", "compiling", "passing"),
    *("patience", "set_patience"),
]

UNLIMITED = sys.maxsize  # a number of steps
_EARLY_SHARE = 0.08  # the promise in the docs is 10 %; the rest pays for looking up the trace
_LATE_SHARE = 0.48  # for calls that are likely to be followed by as many more; promised: 50 %
_WARMUP_SECONDS = 0.5  # of calls, after which as many more are expected
_AVERAGE_WEIGHT = 0.1  # of the newest run in the moving average
_LEAST_FACTOR = 0.2  # bounds how far one measurement moves an `Estimate` from its initial value
_SECONDS_PER_OPERATION = 1e-5  # to guess the steps of a function that records no tape
_STEPS_PER_TAPE_ENTRY = 3  # forward step, and about two of its vjp rule
_SAFETY_FACTOR = 1.6  # covers errors of estimates, and the preparation of the first replay
_SHORT_CALL_SECONDS = 1e-4  # below it only compiled code gains, so passes must be paid, too

_patience = 1.0


def set_patience(factor: float) -> float:
    """Set the factor by which estimated costs of compilation are multiplied; return the old one.

    With 0, programs are captured and compiled at once, and calls wait for kernels.
    """
    global _patience
    old, _patience = _patience, factor
    return old


def patience() -> float:
    """Return the factor that `set_patience` has set."""
    return _patience


class Estimate:
    """An estimate of the seconds that a task takes, from its size and from earlier measurements.

    Parameters
    ----------
    fixed, each
        Initial guess: seconds for size 0, and seconds for each unit of size.
    """

    def __init__(self, fixed: float, each: float) -> None:
        self.fixed, self.each = fixed, each
        self._factor = 1.0

    def of(self, size: int) -> float:
        """Return the estimated seconds for a size."""
        return self._factor * (self.fixed + self.each * size)

    def size(self, seconds: float) -> int:
        """Return the largest size that fits into some seconds."""
        return max(0, int((seconds / self._factor - self.fixed) / self.each))

    def saw(self, size: int, seconds: float) -> None:
        """Record that a task of a size took some seconds."""
        factor = seconds / (self.fixed + self.each * size)
        self._factor = min(max((self._factor + factor) / 2, _LEAST_FACTOR), 1 / _LEAST_FACTOR)


capturing = Estimate(2e-3, 8e-6)
"""A capture, without the run itself: it reads all captured variables; size: number of steps."""

passing = Estimate(4e-2, 1.5e-4)
"""The passes and the generation of code; size: number of steps."""

compiling = Estimate(3e-3, 4e-6)
"""The slowdown of calls while a kernel is compiled in the background; size: length of its source.

It is about half of the compile time: the processors share caches and execution units, and other
processes wait for threads that are held up."""


class Budget:
    """The account of all calls with arguments of the same avals.

    Parameters
    ----------
    often
        The number of calls after which as many more are expected.

    Attributes
    ----------
    eager
        Seconds that a call takes without `jit`: a moving average.
    steps
        Estimated number of steps of a capture.
    doubtful
        Whether it is unlikely that traces hold for long; then only the early share is spent.
    """

    __slots__ = (
        *("_calls", "_capture", "_left", "_often", "_runs", "_whole", "doubtful", "eager", "steps"),
    )

    def __init__(self, often: float = 128) -> None:
        self._often = often
        self.eager = 0.0
        self.steps = self._runs = self._calls = 0
        self.doubtful = False
        self._capture = 0.0  # seconds of the last capture, without the run itself
        self._whole = 0.0  # seconds that all calls would have taken without `jit`
        self._left = 0.0  # seconds saved by replays, less those spent

    def ran(self, seconds: float, entries: int = 0, runs: int = 1, disturbed: bool = False) -> None:
        """Record eager runs that took ``seconds`` each, and recorded ``entries`` of a tape each.

        Runs that were ``disturbed`` by background compilation do not change the average.
        """
        if disturbed and self._runs > 1:
            self.replayed(seconds, runs)
            return
        self._runs += runs
        # The first run may load modules and fill caches, so it gets no weight beyond the second's.
        weight = max(1 / max(self._runs - 1, 1), _AVERAGE_WEIGHT)
        self.eager += weight * (seconds - self.eager)
        self._calls += runs
        self._whole += seconds * runs
        if not self.steps:
            self.steps = (
                _STEPS_PER_TAPE_ENTRY * entries or int(seconds / _SECONDS_PER_OPERATION) + 1
            )

    def replayed(self, seconds: float, runs: int = 1) -> None:
        """Record replays that took ``seconds`` each."""
        if self._runs:
            self._calls += runs
            self._whole += self.eager * runs
            saved = (self.eager - seconds) * runs
            self._left += saved if saved > 0 else _patience * saved

    def spend(self, seconds: float) -> None:
        """Charge seconds that were spent besides eager runs and replays."""
        if self._runs:
            self._left -= _patience * seconds

    @property
    def balance(self) -> float:
        """Seconds that may be spent now."""
        early = _EARLY_SHARE * self._whole
        if self.doubtful:  # what replays have saved is kept, for later traces may not be replayed
            return early + min(self._left, 0.0)
        later = (
            self._whole if self._calls >= self._often else max(self._whole - _WARMUP_SECONDS, 0.0)
        )
        return early + self._left + (_LATE_SHARE - _EARLY_SHARE) * later

    @property
    def _for_capture(self) -> float:
        """Seconds that a capture may take now."""
        if self._calls >= self._often or not self._capture:
            return self.balance
        return _EARLY_SHARE * self._whole + self._left

    def affords(self, seconds: float) -> bool:
        """Return whether the balance covers a task of some seconds."""
        return self.balance >= _patience * seconds

    @property
    def overdrawn(self) -> bool:
        """Whether replays have cost more than the balance allows."""
        return bool(_patience) and self.balance < -self.eager

    @property
    def missing(self) -> float:
        """Seconds for which the function must still run eagerly before a capture is affordable."""
        cost = max(capturing.of(int(_SAFETY_FACTOR * self.steps)), self._capture)
        if self.eager < _SHORT_CALL_SECONDS:  # step-by-step replays save nothing here
            cost += passing.of(self.steps)
        missing = _patience * cost - self._for_capture
        if missing <= 0 or self._calls >= self._often:
            return missing / _LATE_SHARE
        seconds = min(missing / _EARLY_SHARE, (self._often - self._calls) * self.eager)
        if self._capture:
            return seconds
        warmup = max(_WARMUP_SECONDS - self._whole, 0.0)
        return min(seconds, warmup + (missing - _EARLY_SHARE * warmup) / _LATE_SHARE)

    def steps_to_capture(self) -> int:
        """Return the number of steps that a capture may have now; 0 if none is affordable."""
        if not _patience:
            return UNLIMITED
        if not self._runs or self.missing > 0:
            return 0
        return capturing.size(self._for_capture / _patience)

    def borrow(self, other: "Budget", steps: int, prepare: float = 0.0) -> None:
        """Take what a capture of some steps and its passes cost from another account, if it has it.

        Nothing is taken if a capture was made or both are affordable without.  The passes may
        need ``prepare`` seconds first.
        """
        cost = _patience * (_SAFETY_FACTOR * (capturing.of(steps) + passing.of(steps)) + prepare)
        if self._runs and not self._capture and self.balance < cost <= other.balance:
            self.steps = steps
            self._left += cost
            other._left -= cost

    def captured(self, seconds: float) -> None:
        """Record the cost of a capture without the run itself; the next is expected to cost it."""
        self._capture = seconds

    def cut(self, steps: int) -> None:
        """Record that a capture was stopped after some steps."""
        self.steps = max(2 * steps, self.steps)
