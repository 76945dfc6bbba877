"""Cases of a long list, a share of which run with the fast tests and the others with the slow."""

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["shared"]


def shared(cases: Sequence[Any], parts: int = 2) -> list[Any]:
    """Return all cases, of which all but every ``parts``-th are marked as slow."""
    return [
        pytest.param(case, marks=pytest.mark.slow) if i % parts else case
        for i, case in enumerate(cases)
    ]
