"""Shares of long lists of cases: for the fast tests, the slow ones, and thorough runs."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["sampled", "shared"]


def shared(cases: Sequence[Any], parts: int = 3) -> list[Any]:
    """Return all cases, and mark all but every ``parts``-th as slow."""
    return [
        pytest.param(case, marks=pytest.mark.slow) if i % parts else case
        for i, case in enumerate(cases)
    ]


def sampled(cases: Sequence[Any], start: int, parts: int = 3) -> Sequence[Any]:
    """Return every ``parts``-th case from a position on, and all in a thorough run.

    Laws that start at other positions have other cases, so that each case is among those of some.
    """
    return cases if settings.default.max_examples > 100 else cases[start::parts]
