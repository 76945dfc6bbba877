"""What the tests of loops share."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fdbr.control_flow import body_tracing


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


@pytest.fixture(scope="module")
def compiled_at_once() -> Iterator[None]:
    """Bodies of eager loops are compiled before they run for the first time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_tracing, "_INTERPRETED", 0)
        yield
