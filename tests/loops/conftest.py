"""What the tests of loops share."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def peak() -> Callable[[Callable[[], Any]], int]:
    """A function that gives the most memory, in bytes, that a call holds at once."""

    def measured(thunk: Callable[[], Any]) -> int:
        thunk()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            thunk()
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()

    return measured
