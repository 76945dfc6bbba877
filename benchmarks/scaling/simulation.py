"""Training steps of many ranks, event by event.

Each rank computes its buckets of gradients one after the other, at its own speed in each step.  A
bucket's all-reduce begins when the last rank has it and the one before has ended, and ends for all
at once.  (Closed forms of all-reduces are of ranks that come together; the messages of those that
come earlier wait for the last, which `messages` shows.)  A rank updates its parameters when its
gradients are reduced, and goes on with the next step while others may still be at this one.
"""

import heapq
import itertools

import attrs
import numpy as np

from benchmarks.scaling.delays import Delay, Steady
from benchmarks.scaling.steps import BUCKET, Reduce, buckets_of
from benchmarks.scaling.workload import Workload

__all__ = ["Simulated", "simulate"]


@attrs.frozen
class Simulated:
    """What a simulation gives.

    Attributes
    ----------
    ends
        When the last rank ended each step.
    waiting
        Which part of the time ranks waited for the network or each other; the mean over ranks.
    hidden
        In which part of the network's time ranks computed; the mean over ranks.
    spans
        What rank 0 and the network did: name, from, to.
    """

    ends: np.ndarray
    waiting: float
    hidden: float
    spans: tuple[tuple[str, float, float], ...]

    @property
    def seconds(self) -> float:
        """The mean time of a step; the first is left out where there are others."""
        if len(self.ends) == 1:
            return float(self.ends[0])
        return float((self.ends[-1] - self.ends[0]) / (len(self.ends) - 1))


def simulate(
    workload: Workload,
    ranks: int,
    reduce: Reduce,
    *,
    schedule: str = "overlap",
    bucket: float = BUCKET,
    delay: Delay | None = None,
    steps: int = 20,
    theft: float = 0.0,
    seed: int = 0,
) -> Simulated:
    """Simulate some steps.

    Parameters
    ----------
    workload, ranks, reduce
        What each rank computes, how many there are, and what an all-reduce takes by its bytes.
    schedule, bucket
        As in `step_seconds`.
    delay
        Stragglers; by default there are none.
    steps
        How many steps.
    theft
        Which part of a rank's speed an all-reduce takes that goes on meanwhile: with MPI on the
        core that computes, much; with a device's own copy engines, nearly nothing.
    seed
        Of the stragglers.
    """
    if not 0 <= theft < 1:
        raise ValueError(f"theft must be at least 0 and less than 1, got {theft}")
    return _Run(workload, ranks, reduce, schedule, bucket, delay, steps, theft, seed).run()


class _Run:
    """The state of a simulation."""

    def __init__(
        self,
        workload: Workload,
        ranks: int,
        reduce: Reduce,
        schedule: str,
        bucket: float,
        delay: Delay | None,
        steps: int,
        theft: float,
        seed: int,
    ) -> None:
        buckets = buckets_of(workload, schedule, bucket)
        self.work = [one.seconds for one in buckets] + [workload.update]
        self.taking = [reduce(one.size) for one in buckets]
        self.ranks, self.steps, self.theft = ranks, steps, theft
        self.lag = schedule == "double"  # in steps, between gradients and their use
        generator = np.random.default_rng(seed)
        delay = Steady() if delay is None else delay
        self.factors = np.array([delay.factors(generator, ranks) for _ in range(steps)])
        self.events: list[tuple[float, int, int, int]] = []  # time, order, rank, version
        self.counter = itertools.count()
        self.step = [0] * ranks
        self.part = [0] * ranks  # the bucket that is computed; after the last comes the update
        self.version = [0] * ranks  # of a rank's event; older ones are void
        self.left = [0.0] * ranks  # seconds of work at full speed
        self.since = [0.0] * ranks
        self.computing = [False] * ranks
        self.computed = [0.0] * ranks
        self.arrived = np.zeros((steps, len(buckets)), int)
        self.reduced = 0  # how many all-reduces have ended
        self.speed = 1.0
        self.busy = False
        self.busy_since = 0.0
        self.network = 0.0  # seconds that it was busy
        self.network_since = [0.0] * ranks
        self.hidden = 0.0
        self.ends = np.zeros(steps)
        self.spans: list[tuple[str, float, float]] = []

    def run(self) -> Simulated:
        for rank in range(self.ranks):
            self.begin(rank, 0.0)
        while self.events:
            time, _, rank, version = heapq.heappop(self.events)
            if rank < 0:
                self.reduction_ended(time)
            elif version == self.version[rank]:
                self.part_ended(rank, time)
        total = float(self.ends[-1])
        waiting = 1 - sum(self.computed) / (self.ranks * total) if total else 0.0
        hidden = self.hidden / (self.ranks * self.network) if self.network else 1.0
        return Simulated(self.ends, max(waiting, 0.0), hidden, tuple(self.spans))

    def begin(self, rank: int, time: float) -> None:
        """Begin the part that a rank has come to, which takes it longer the slower it is."""
        self.left[rank] = self.work[self.part[rank]] * self.factors[self.step[rank], rank]
        self.computing[rank] = True
        self.schedule(rank, time)

    def network_until(self, time: float) -> float:
        """How long the network has been busy."""
        return self.network + (time - self.busy_since if self.busy else 0.0)

    def account(self, rank: int, time: float) -> None:
        """Note what a rank has computed since its last event."""
        self.computed[rank] += time - self.since[rank]
        self.hidden += self.network_until(time) - self.network_since[rank]
        if rank == 0:
            last = self.part[0] == len(self.work) - 1
            name = "update" if last else f"compute {self.part[0]}"
            self.spans.append((name, self.since[0], time))

    def schedule(self, rank: int, time: float) -> None:
        self.since[rank] = time
        self.network_since[rank] = self.network_until(time)
        self.version[rank] += 1
        end = time + self.left[rank] / self.speed
        heapq.heappush(self.events, (end, next(self.counter), rank, self.version[rank]))

    def part_ended(self, rank: int, time: float) -> None:
        self.account(rank, time)
        self.computing[rank] = False
        part, step = self.part[rank], self.step[rank]
        if part < len(self.work) - 1:
            self.arrived[step, part] += 1
            self.part[rank] += 1
            self.start_reduction(time)
            self.go_on(rank, time)
            return
        self.ends[step] = max(self.ends[step], time)
        self.step[rank], self.part[rank] = step + 1, 0
        if step + 1 < self.steps:
            self.begin(rank, time)

    def go_on(self, rank: int, time: float) -> None:
        """Begin the next bucket, or the update if its gradients are there."""
        needed = (self.step[rank] + 1 - self.lag) * len(self.taking)
        if self.part[rank] < len(self.taking) or self.reduced >= needed:
            self.begin(rank, time)

    def start_reduction(self, time: float) -> None:
        """Begin the next all-reduce if all ranks are there."""
        if self.busy or self.reduced == self.arrived.size:
            return
        step, part = divmod(self.reduced, len(self.taking))
        if self.arrived[step, part] == self.ranks:
            self.change_speeds(time, 1 - self.theft)
            self.busy, self.busy_since = True, time
            end = time + self.taking[part]
            heapq.heappush(self.events, (end, next(self.counter), -1, 0))

    def reduction_ended(self, time: float) -> None:
        self.spans.append((f"reduce {self.reduced % len(self.taking)}", self.busy_since, time))
        self.network = self.network_until(time)
        self.busy = False
        self.change_speeds(time, 1.0)
        self.reduced += 1
        for rank in range(self.ranks):
            waits = not self.computing[rank] and self.part[rank] == len(self.taking)
            if waits and self.step[rank] < self.steps:
                self.go_on(rank, time)
        self.start_reduction(time)

    def change_speeds(self, time: float, speed: float) -> None:
        """Schedule the ranks anew that compute, if they get slower or faster."""
        was, self.speed = self.speed, speed
        if was == speed:
            return
        for rank in range(self.ranks):
            if self.computing[rank]:
                self.account(rank, time)
                self.left[rank] = max(self.left[rank] - (time - self.since[rank]) * was, 0.0)
                self.schedule(rank, time)
