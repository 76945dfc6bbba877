"""Step times and efficiencies in closed form, of ranks that all take the same time."""

from collections.abc import Callable

import attrs

from benchmarks.scaling.collectives import all_reduce, fastest
from benchmarks.scaling.links import Cluster
from benchmarks.scaling.workload import Bucket, Workload

__all__ = ["BUCKET", "SCHEDULES", "Prediction", "Reduce", "predict", "reducing", "step_seconds"]

BUCKET = 4e6  # bytes, at least, of a bucket

SCHEDULES = ("after", "overlap", "double")
"""When gradients are reduced: after the way back; in buckets, while it goes on; while the next
step computes, which then uses the gradients of the step before."""

Reduce = Callable[[float], float]
"""Seconds of an all-reduce, by its bytes."""


def reducing(cluster: Cluster, algorithm: str | None = None) -> Reduce:
    """The time of an all-reduce on a cluster, by an algorithm or the fastest for each size."""
    if algorithm is None:
        return lambda size: fastest(cluster, size)[1]
    return lambda size: all_reduce(algorithm, cluster, size)


def buckets_of(workload: Workload, schedule: str, bucket: float = BUCKET) -> tuple[Bucket, ...]:
    """What is reduced at once under a schedule."""
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule {schedule!r}; there are {', '.join(SCHEDULES)}")
    return workload.buckets(bucket if schedule == "overlap" else None)


def step_seconds(
    workload: Workload, reduce: Reduce, schedule: str = "after", bucket: float = BUCKET
) -> float:
    """What a step takes when nobody waits for anybody but by the all-reduce.

    Buckets are reduced one after the other, each when it is there.  With double buffering it is
    the mean over many steps.
    """
    buckets = buckets_of(workload, schedule, bucket)
    if schedule == "double":
        return max(workload.seconds, sum(reduce(one.size) for one in buckets))
    ready = done = 0.0
    for one in buckets:
        ready += one.seconds
        done = max(ready, done) + reduce(one.size)
    return done + workload.update


@attrs.frozen
class Prediction:
    """A row of the table: what a step takes on so many ranks.

    Attributes
    ----------
    seconds, communication
        Of a step, and of all its all-reduces, hidden behind computation or not.
    efficiency
        The time of a step on one rank, which has as large a share, by that on these.
    """

    ranks: int
    algorithm: str
    seconds: float
    communication: float
    efficiency: float


def predict(
    workload: Workload,
    cluster: Cluster,
    schedule: str = "after",
    algorithm: str | None = None,
    bucket: float = BUCKET,
) -> Prediction:
    """The step on a cluster; by default each all-reduce by its fastest algorithm."""
    reduce = reducing(cluster, algorithm)
    buckets = buckets_of(workload, schedule, bucket)
    seconds = step_seconds(workload, reduce, schedule, bucket)
    largest = max(one.size for one in buckets)
    return Prediction(
        cluster.size,
        algorithm or fastest(cluster, largest)[0],
        seconds,
        sum(reduce(one.size) for one in buckets),
        workload.seconds / seconds,
    )
