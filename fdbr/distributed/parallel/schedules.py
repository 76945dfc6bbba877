"""Schedules of pipelines: what each rank does with which micro-batch, in which order."""

from typing import Any

import attrs

from fdbr.errors.checks import integer
from fdbr.errors.public import public

__all__ = ["Schedule", "Timeline", "schedule"]

FORWARD, BACKWARD = "forward", "backward"
Task = tuple[str, int]


@public("fdbr.distributed")
@attrs.frozen
class Timeline:
    """The times of what each rank does, if each task takes as long as it is said to.

    Attributes
    ----------
    tasks
        For each rank, tuples of task, micro-batch, beginning and end.
    length
        The end of the last.
    bubble
        The share of the time in which ranks wait.
    """

    tasks: tuple[tuple[tuple[str, int, float, float], ...], ...]
    length: float
    bubble: float


@public("fdbr.distributed")
@attrs.frozen
class Schedule:
    """The tasks of each rank of a pipeline, in its order.

    Attributes
    ----------
    name
        ``"gpipe"`` or ``"1f1b"``.
    ranks
        For each rank, pairs of ``"forward"`` or ``"backward"`` and the number of a micro-batch.

    >>> from fdbr import distributed
    >>> print(distributed.schedule("1f1b", 2, 3))
    1f1b, 2 ranks, 3 micro-batches
    rank 0: F0 F1 B0 F2 B1 B2
    rank 1: F0 B0 F1 B1 F2 B2
    """

    name: str
    ranks: tuple[tuple[Task, ...], ...]

    def __str__(self) -> str:
        count = len(self.ranks[0]) // 2
        lines = [f"{self.name}, {len(self.ranks)} ranks, {count} micro-batches"]
        for rank, tasks in enumerate(self.ranks):
            said = " ".join(f"{kind[0].upper()}{number}" for kind, number in tasks)
            lines.append(f"rank {rank}: {said}")
        return "\n".join(lines)

    def live(self, rank: int) -> int:
        """The number of micro-batches for which a rank keeps activations, at most."""
        now = most = 0
        for kind, _ in self.ranks[rank]:
            now += 1 if kind == FORWARD else -1
            most = max(most, now)
        return most

    def timeline(self, forward: float = 1.0, backward: float = 2.0) -> Timeline:
        """The times of all tasks; messages take no time.

        Parameters
        ----------
        forward, backward
            How long a micro-batch takes on a rank.

        Raises
        ------
        ValueError
            If ranks would wait for each other for ever.

        >>> from fdbr import distributed
        >>> round(distributed.schedule("gpipe", 4, 8).timeline().bubble, 3)
        0.273
        """
        size = len(self.ranks)
        ends: dict[tuple[str, int, int], float] = {}
        done: list[list[tuple[str, int, float, float]]] = [[] for _ in range(size)]
        left = sum(map(len, self.ranks))
        while left:
            before = left
            for rank, tasks in enumerate(self.ranks):
                while len(done[rank]) < len(tasks):
                    kind, number = tasks[len(done[rank])]
                    needs = [(kind, number, rank + (-1 if kind == FORWARD else 1))]
                    if kind == BACKWARD:
                        needs.append((FORWARD, number, rank))
                    needs = [need for need in needs if 0 <= need[2] < size]
                    if any(need not in ends for need in needs):
                        break
                    ready = done[rank][-1][3] if done[rank] else 0.0
                    start = max([ready, *(ends[need] for need in needs)])
                    end = start + (forward if kind == FORWARD else backward)
                    ends[kind, number, rank] = end
                    done[rank].append((kind, number, start, end))
                    left -= 1
            if left == before:
                raise ValueError(
                    "fdbr.distributed.Schedule.timeline: ranks wait for each other: a task comes "
                    "before what it needs"
                )
        length = max(ends.values(), default=0.0)
        busy = sum(end - start for tasks in done for _, _, start, end in tasks)
        bubble = 1 - busy / (length * size) if length else 0.0
        return Timeline(tuple(map(tuple, done)), length, bubble)

    def draw(self, path: Any, forward: float = 1.0, backward: float = 2.0) -> None:
        """Draw the timeline, a row for each rank, with matplotlib.

        Parameters
        ----------
        path
            The picture's file.
        forward, backward
            As of `timeline`.
        """
        from matplotlib.figure import Figure

        found = self.timeline(forward, backward)
        figure = Figure(figsize=(8, 0.6 + 0.4 * len(self.ranks)), layout="constrained")
        axes = figure.add_subplot()
        for rank, tasks in enumerate(found.tasks):
            for kind, number, start, end in tasks:
                color = "tab:blue" if kind == FORWARD else "tab:orange"
                axes.barh(rank, end - start, left=start, color=color, edgecolor="white")
                axes.text((start + end) / 2, rank, str(number), ha="center", va="center")
        axes.set_yticks(range(len(self.ranks)), [f"rank {i}" for i in range(len(self.ranks))])
        axes.invert_yaxis()
        axes.set_title(f"{self.name}: {found.bubble:.0%} of the time is waited", fontsize=10)
        figure.savefig(path)


@public("fdbr.distributed")
def schedule(name: str, stages: int, micro_batches: int) -> Schedule:
    """The schedule of a pipeline, as a value.

    With ``"gpipe"`` all micro-batches go forward, then all backward (Huang et al., *GPipe*, 2019);
    a rank keeps the activations of all. With ``"1f1b"`` a rank goes backward as soon as it can,
    and keeps those of ``stages - rank`` at most (Narayanan et al., *PipeDream*, 2019). Both wait
    for ``(p - 1) / (m + p - 1)`` of the time, of ``p`` stages and ``m`` micro-batches.

    Parameters
    ----------
    name
        ``"gpipe"`` or ``"1f1b"``.
    stages
        How many ranks there are.
    micro_batches
        How many parts a batch has.

    Raises
    ------
    ValueError
        If ``name`` is another word, or a number is not positive.

    >>> from fdbr import distributed
    >>> print(distributed.schedule("gpipe", 2, 2))
    gpipe, 2 ranks, 2 micro-batches
    rank 0: F0 F1 B0 B1
    rank 1: F0 F1 B0 B1
    """
    where = "fdbr.distributed.schedule"
    if name not in ("gpipe", "1f1b"):
        raise ValueError(f"{where}: name must be 'gpipe' or '1f1b', got {name!r}")
    size = integer(where, "stages", stages, least=1)
    count = integer(where, "micro_batches", micro_batches, least=1)
    ranks = []
    for rank in range(size):
        ahead = count if name == "gpipe" else min(size - rank - 1, count)
        tasks: list[Task] = [(FORWARD, i) for i in range(ahead)]
        for i in range(count - ahead):
            tasks += [(FORWARD, ahead + i), (BACKWARD, i)]
        tasks += [(BACKWARD, i) for i in range(count - ahead, count)]
        ranks.append(tuple(tasks))
    return Schedule(name, tuple(ranks))
