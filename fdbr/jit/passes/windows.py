"""Steps around windows that one kernel does: `relu` after a convolution, and before `max_pool`."""

from typing import Any

from fdbr.core import Primitive
from fdbr.jit.passes.dead import drop_dead
from fdbr.jit.passes.derived import PULLED, WITH_RELU
from fdbr.jit.passes.steps import count_reads
from fdbr.jit.program import Instruction, Program, Step, Variable, kind_of

__all__ = ["join_windows"]


def join_windows(program: Program) -> Program:
    """Join steps around windows; those that nobody reads any more are dropped."""
    if not any(type(s) is Instruction and s.primitive.name in _FINDERS for s in program.steps):
        return program
    makers: dict[Variable, Instruction] = {}
    reads = count_reads(program)
    steps: list[Step] = []
    for step in program.steps:
        if type(step) is Instruction:
            find = _FINDERS.get(step.primitive.name)
            step = (find and find(step, makers, reads)) or step
            makers.update(dict.fromkeys(step.outs, step))
        steps.append(step)
    return drop_dead(program.replace(steps))


def _maker(operand: Any, name: str, makers: dict[Variable, Instruction]) -> Instruction | None:
    maker = makers.get(operand) if type(operand) is Variable else None
    return maker if maker is not None and maker.primitive.name == name else None


def _made(step: Instruction, primitive: Primitive, operands: Any, params: Any) -> Instruction:
    return Instruction(primitive, tuple(operands), params, step.outs, False, step.region)


def _relu(
    step: Instruction, makers: dict[Variable, Instruction], reads: dict[Variable, int]
) -> Instruction | None:
    """``relu(conv(...))``, where nobody else reads what the convolution gives."""
    operand = step.operands[0]
    for name, primitive in WITH_RELU.items():
        maker = _maker(operand, name, makers)
        if maker is not None and reads[operand] == 1:
            return _made(step, primitive, maker.operands, maker.params)
    return None


def _to_winners(
    step: Instruction, makers: dict[Variable, Instruction], reads: dict[Variable, int]
) -> Instruction | None:
    """``to_winners(ct, window_winners(x, out))``."""
    ct, winners = step.operands
    suffix = step.primitive.name.removeprefix("to_winners")
    maker = _maker(winners, f"window_winners{suffix}", makers)
    if maker is None or reads[winners] != 1 or kind_of(ct).dtype != step.outs[0].kind.dtype:
        return None
    params = {**step.params, "positive": False}
    return _made(step, PULLED[step.primitive.name], (ct, *maker.operands), params)


def _multiply(
    step: Instruction, makers: dict[Variable, Instruction], reads: dict[Variable, int]
) -> Instruction | None:
    """``pulled_windows(ct, x, out) * (x > 0)``."""
    for pulled, sign in (step.operands, step.operands[::-1]):
        maker, mask = _maker(pulled, "pulled_windows", makers), _maker(sign, "greater", makers)
        maker = maker or _maker(pulled, "pulled_windows_last", makers)
        if maker is None or mask is None or reads[pulled] != 1 or maker.params["positive"]:
            continue
        x, least = mask.operands
        if x is maker.operands[1] and type(least) in (int, float) and least == 0:
            return _made(step, maker.primitive, maker.operands, {**maker.params, "positive": True})
    return None


_FINDERS = {
    "relu": _relu,
    "to_winners": _to_winners,
    "to_winners_last": _to_winners,
    "multiply": _multiply,
}
