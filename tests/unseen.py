"""A queue that `jit` does not see, to count runs: it lies in a variable of a library."""

import itertools
import logging
from queue import SimpleQueue
from typing import Any

_numbers = itertools.count()


class Unseen:
    """What `jit` takes as constant: see the table in docs/jit.md."""

    def __init__(self) -> None:
        self.name = f"fdbr.tests.{next(_numbers)}"
        self._logger.queue = SimpleQueue()

    @property
    def _logger(self) -> Any:
        return logging.getLogger(self.name)

    def put(self, value: Any) -> None:
        self._logger.queue.put(value)

    def get(self) -> Any:
        return self._logger.queue.get()

    def qsize(self) -> int:
        return self._logger.queue.qsize()
