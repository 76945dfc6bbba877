"""What passes make is checked here.

Every call of a jitted function is compared with the function itself, but in tests that are marked
``unchecked``.
"""

import pytest
from compiling import at_once

__all__ = ["at_once"]


@pytest.fixture(autouse=True)
def checked(request, monkeypatch):
    if request.node.get_closest_marker("unchecked") is None:
        monkeypatch.setenv("FDBR_CHECK_JIT", "1")
