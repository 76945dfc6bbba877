"""Loops are learnt from the second trace on here, whatever calls have earned."""

from collections.abc import Iterator

import pytest

from fdbr.compiler.engine import budget, specializations


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(specializations, "_LOOP_TRACES", 1)
    before = budget.set_patience(1e-12)
    yield
    budget.set_patience(before)
