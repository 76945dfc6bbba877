"""What is no program is found out."""

from typing import Any

import numpy as np
import pytest

from fdbr.compiler.ir.check import InvalidProgramError, check
from fdbr.compiler.ir.program import Fused, Guard, Instruction, Program, Variable, kind_of
from fdbr.core.primitive import registry

ARRAY = kind_of(np.zeros(3))
EXP = registry["exp"]


def variables(count: int) -> list[Variable]:
    return [Variable(ARRAY) for _ in range(count)]


def step(x: Any, y: Variable) -> Instruction:
    return Instruction(EXP, (x,), {}, (y,))


def test_a_program_is_given_back() -> None:
    x, y, z = variables(3)
    program = Program("f", (x,), (step(x, y), step(y, z)), (z,))
    assert check(program) is program


def test_what_is_read_has_been_made() -> None:
    x, y, z = variables(3)
    with pytest.raises(InvalidProgramError, match=r"step 0 \(exp\) reads .* before it is made"):
        check(Program("f", (x,), (step(y, z), step(x, y)), (z,)))
    with pytest.raises(InvalidProgramError, match="is never made"):
        check(Program("f", (x,), (), (y,)))


def test_nothing_is_made_twice() -> None:
    x, y, _ = variables(3)
    with pytest.raises(InvalidProgramError, match=r"step 1 \(exp\) makes .* a second time"):
        check(Program("f", (x,), (step(x, y), step(x, y)), (y,)))


def test_guards_keep_their_order() -> None:
    (x,) = variables(1)
    guards = Guard(x, bool, True, 1), Guard(x, bool, True, 0)
    with pytest.raises(InvalidProgramError, match="comes after guard 1"):
        check(Program("f", (x,), guards, ()))


def test_kernels_keep_what_they_make_and_spare_what_is_read_later() -> None:
    x, y, z = variables(3)
    with pytest.raises(InvalidProgramError, match="keeps what it does not make"):
        check(Program("f", (x,), (Fused((step(x, y),), (3,), 1, (z,)),), ()))
    kernel = Fused((step(x, y),), (3,), 1, (y,), {y: x})
    with pytest.raises(InvalidProgramError, match="overwrites an input that is not donated"):
        check(Program("f", (x,), (kernel,), (y,)))
    with pytest.raises(InvalidProgramError, match="which is read later"):
        check(Program("f", (x,), (kernel, step(x, z)), (y, z), frozenset((x,))))


def test_outputs_stay_what_they_were() -> None:
    x, y, _ = variables(3)
    number = Variable(kind_of(1.0))
    before = Program("f", (x,), (step(x, y),), (y,))
    with pytest.raises(InvalidProgramError, match="the outputs are"):
        check(Program("f", (x,), (step(x, number),), (number,)), before)
    with pytest.raises(InvalidProgramError, match="the inputs are others"):
        check(Program("f", (y,), (), (y,)), before)
