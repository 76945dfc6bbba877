"""Programs are compiled at once here, so that kernels are tested and not what stands in for them.

How they come to be compiled is what test_tiers.py is about.
"""

from collections.abc import Iterator

import pytest

from fdbr.compiler.tiers import set_patience


@pytest.fixture(scope="package", autouse=True)
def at_once() -> Iterator[None]:
    before = set_patience(0.0)
    yield
    set_patience(before)
