"""Fixtures of the tests of examples."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def ended_runs() -> Iterator[None]:
    """End runs that an example has left, so that Ctrl-C has its usual handler in later tests.

    Matplotlib keeps frames of examples, and so their generators, in reference cycles.
    """
    yield
    gc.collect()
