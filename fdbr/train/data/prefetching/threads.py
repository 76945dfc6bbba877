"""Batches read by threads, and handed out in order."""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from fdbr.train.data.prefetching.workers import END, reader_of

__all__ = ["by_threads"]


def by_threads(
    source: Any, number: int, start: int, places: Iterable[int], workers: int, ahead: int
) -> Iterator[Any]:
    """The batches at some places of an epoch, in their order."""
    read = reader_of(source, number, start)
    rest = iter(places)
    with ThreadPoolExecutor(workers, "fdbr-prefetch") as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            waiting.extend(pool.submit(read, place) for place in itertools.islice(rest, ahead))
            while waiting:
                batch = waiting.popleft().result()
                if batch is END:
                    return
                waiting.extend(pool.submit(read, place) for place in itertools.islice(rest, 1))
                yield batch
        finally:
            for future in waiting:
                future.cancel()
