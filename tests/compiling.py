"""A fixture that checks what each pass makes, and has bodies of eager loops compiled."""

from collections.abc import Callable, Iterator

import pytest

from fdbr.compiler.engine import compile
from fdbr.compiler.ir.check import check
from fdbr.compiler.ir.program import Program
from fdbr.control_flow import body_tracing


def _checked(run: Callable[[Program], Program]) -> Callable[[Program], Program]:
    def checked(program: Program) -> Program:
        return check(run(program), program)

    return checked


@pytest.fixture(scope="module", autouse=True)
def at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile, "PASSES", tuple(map(_checked, compile.PASSES)))
        patch.setattr(body_tracing, "_INTERPRETED", 0)
        yield
