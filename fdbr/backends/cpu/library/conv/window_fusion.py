"""Fusion of steps around windows: `relu` after a convolution, and before `max_pool`."""

from typing import Any

from fdbr.backends.cpu.library.conv.program_primitives import VJP, WITH_RELU, last
from fdbr.compiler.backend import backend_of
from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, Program, Step, kind_of
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.rules.table import Facts
from fdbr.compiler.passes.steps import count_reads
from fdbr.core.primitive import Primitive

__all__ = ["fuse_windows"]


def fuse_windows(program: Program) -> Program:
    """Fuse steps around windows; drop those that become unused."""
    if not any(type(s) is Instruction and s.primitive in _FINDERS for s in program.steps):
        return program
    backend, facts = backend_of(program), Facts(count_reads(program))
    steps: list[Step] = []
    for step in program.steps:
        if type(step) is Instruction:
            find = _FINDERS.get(step.primitive)
            found = find and find(step, facts)
            step = found if found and backend.has_own(found.primitive) else step
            facts.makers.update(dict.fromkeys(step.outs, step))
        steps.append(step)
    return dce(program.replace(steps))


def _made(step: Instruction, primitive: Primitive, operands: Any, params: Any) -> Instruction:
    return Instruction(primitive, tuple(operands), params, step.outs, False, step.remat)


def _relu(step: Instruction, facts: Facts) -> Instruction | None:
    """Match ``relu(conv(...))``, if the convolution has no other readers."""
    maker = facts.only_made_by(step.operands[0], *WITH_RELU)
    if maker is None:
        return None
    return _made(step, WITH_RELU[maker.primitive], maker.operands, maker.params)


def _to_winners(step: Instruction, facts: Facts) -> Instruction | None:
    """Match ``to_winners(ct, window_winners(x, out))``."""
    ct, winners = step.operands
    first = step.primitive is op.TO_WINNERS
    wanted = op.WINDOW_WINNERS if first else last[op.WINDOW_WINNERS]
    maker = facts.only_made_by(winners, wanted)
    if maker is None or kind_of(ct).dtype != step.outs[0].kind.dtype:
        return None
    params = {**step.params, "positive": False}
    return _made(step, VJP[step.primitive], (ct, *maker.operands), params)


def _multiply(step: Instruction, facts: Facts) -> Instruction | None:
    """Match ``pulled_windows(ct, x, out) * (x > 0)``."""
    for cotangents_in, sign in (step.operands, step.operands[::-1]):
        maker = facts.only_made_by(cotangents_in, *VJP.values())
        mask = facts.made_by(sign, op.GREATER)
        if maker is None or mask is None or maker.params["positive"]:
            continue
        x, least = mask.operands
        if x is maker.operands[1] and type(least) in (int, float) and least == 0:
            return _made(step, maker.primitive, maker.operands, {**maker.params, "positive": True})
    return None


_FINDERS = {
    op.RELU: _relu,
    op.TO_WINNERS: _to_winners,
    last[op.TO_WINNERS]: _to_winners,
    op.MULTIPLY: _multiply,
}
