"""Algebraic simplification: replace steps by simpler ones, or by an operand.

Results stay equal up to a few units in the last place.  NaN, infinities and the signs of zeros stay
the same, except that a sum of several terms that is zero may have the other sign.
"""

from typing import Any

from fdbr.compiler.ir.program import Instruction, Program, Step, Variable, kind_of
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.rules import Facts, Same, rules_for
from fdbr.compiler.passes.rules.table import Rule
from fdbr.compiler.passes.steps import count_reads, renamed, renamed_outputs
from fdbr.core.primitive import Primitive

__all__ = ["simplify"]

_MOST = 16  # rounds; a program that needs more is left as it is then


def simplify(program: Program) -> Program:
    """Apply the rules of `fdbr.compiler.passes.rules` until none applies.

    Each variable keeps its aval.  A rule that pays only if an intermediate result becomes unused
    checks for other readers first; so dead steps are dropped after each round, and the rules that
    were blocked are tried again.

    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = lambda xs: [-(xs[0] * 1 - 0) * 3]
    >>> print(simplify(capture(f, f, [2.0]).program))
    program <lambda>(v0: float)
      v1: float = multiply(v0, -3)
      return v1
    """
    for _ in range(_MOST):
        facts = Facts(count_reads(program))
        simpler = _round(program, facts)
        if simpler is program:
            break
        program = dce(simpler)
        if not facts.waits:
            break
    return program


def _round(program: Program, facts: Facts) -> Program:
    """Try the rules on each step, once its operands are simplified."""
    tables: dict[Primitive, list[Rule]] = {}
    names: dict[Variable, Any] = {}
    steps: list[Step] = []
    changed = False
    for captured in program.steps:
        waiting = [captured]
        while waiting:
            step = renamed(waiting.pop(), names)
            if type(step) is not Instruction:
                steps.append(step)
                continue
            rules = tables.get(step.primitive)
            if rules is None:
                rules = tables[step.primitive] = rules_for(step.primitive)
            found = _first(rules, step, facts) if rules else None
            if found is None:
                steps.append(step)
                for out in step.outs:
                    facts.makers[out] = step
                continue
            changed = True
            if type(found) is Same:
                names[step.outs[0]] = found.operand
            else:
                waiting += [found] if type(found) is Instruction else reversed(found)
    return renamed_outputs(program, steps, names) if changed else program


def _first(rules: list[Rule], step: Instruction, facts: Facts) -> Any:
    """Apply the first rule that matches."""
    for rule in rules:
        found = rule(step, facts)
        if found is not None and (
            type(found) is not Same or kind_of(found.operand) == step.outs[0].kind
        ):
            return found
    return None
