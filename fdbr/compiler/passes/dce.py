"""Dead code elimination: drop steps whose results are not read."""

from fdbr.compiler.ir.loops import is_guarded
from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, has_effect

__all__ = ["dce"]


def dce(program: Program) -> Program:
    """Drop the steps that neither the outputs nor the guards depend on.

    Guards stay, and the values that they read; so do side effects.

    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = lambda xs: [xs[0] * 2, xs[0] * 3][:1]
    >>> print(dce(capture(f, f, [2.0]).program))
    program <lambda>(v0: float)
      v1: float = multiply(v0, 2)
      return v1
    """
    needed = {output for output in program.outputs if type(output) is Variable}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if needed.isdisjoint(step.outs) and not has_effect(step) and not is_guarded(step):
            continue
        kept.append(step)
        operands = step.operands if type(step) is Instruction else step.reads
        needed.update([operand for operand in operands if type(operand) is Variable])
    if len(kept) == len(program.steps):
        return program
    return program.replace(reversed(kept))
