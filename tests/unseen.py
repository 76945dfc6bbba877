"""A queue that `jit` does not see, to count runs: it lies in a variable of a library."""

import itertools
import logging
from queue import SimpleQueue
from typing import Any

_numbers = itertools.count()


class Unseen:
    """What `jit` takes as constant: see the table in docs/jit.md."""

    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, value: Any) -> None:
        logging.getLogger(self.name).queue.put(value)  # type: ignore[attr-defined]

    def get(self) -> Any:
        return logging.getLogger(self.name).queue.get()  # type: ignore[attr-defined]

    def qsize(self) -> int:
        return logging.getLogger(self.name).queue.qsize()  # type: ignore[attr-defined, no-any-return]


def unseen_queue() -> Unseen:
    """Make a queue.  A method that made it would show `jit` what it is made with."""
    name = f"fdbr.tests.{next(_numbers)}"
    logging.getLogger(name).queue = SimpleQueue()  # type: ignore[attr-defined]
    return Unseen(name)
