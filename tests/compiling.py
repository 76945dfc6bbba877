"""A fixture that has programs compiled before their first run.

So the tests run kernels, and not the interpreter that replaces them until they are compiled.
Whatever a pass makes is checked.
"""

from collections.abc import Callable, Iterator

import pytest

from fdbr.compiler.engine import tiers
from fdbr.compiler.ir.check import check
from fdbr.compiler.ir.program import Program


def _checked(run: Callable[[Program], Program]) -> Callable[[Program], Program]:
    def checked(program: Program) -> Program:
        return check(run(program), program)

    return checked


@pytest.fixture(scope="module", autouse=True)
def at_once() -> Iterator[None]:
    before = tiers.set_patience(0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "PASSES", tuple(map(_checked, tiers.PASSES)))
        yield
    tiers.set_patience(before)
