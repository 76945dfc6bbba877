"""Guards first: one that does not hold shall have cost little."""

from fdbr.compiler.ir.loops import is_guarded
from fdbr.compiler.ir.program import Program, Step, Variable, has_effect, is_collective

__all__ = ["schedule_guards"]


def schedule_guards(program: Program) -> Program:
    """The program with each guard as early as can be: right after what it alone depends on.

    A loop with guards in it is one.

    What a guard does not depend on comes after the last guard, and effects come last of all, so
    that none is had twice where a guard does not hold or a step fails.  Guards keep their order,
    and so do the steps between two of them, and effects.  No step moves in front of a guard that
    was captured before it, so what the function did only because of an answer is done only after
    it.

    What all processes do together keeps its order, too, and comes before guards only if they, or
    what is done together after it, have to wait for it.

    >>> from fdbr.compiler.capture.tracing import capture
    >>> def f(xs):
    ...     y = xs[0] * 2
    ...     return [y if xs[0] > 0 else -y]
    >>> print(schedule_guards(capture(f, f, [2.0]).program))
    program f(v0: float)
      v1: bool = greater(v0, 0)
      guard bool(v1) == True
      v2: float = multiply(v0, 2)
      return v2
    """
    effects = [step for step in program.steps if has_effect(step)]
    guards = sum(map(is_guarded, program.steps))
    if not guards and not effects:
        return program
    urgency = _first_guards(program, guards)
    late = len(program.steps)
    read = {variable for step in program.steps for variable in step.reads}
    for step in effects:
        if read.isdisjoint(step.outs) and not is_collective(step):
            urgency[step] = late + 1
    order = sorted(program.steps, key=lambda step: urgency.get(step, late))  # it is stable
    if all(a is b for a, b in zip(order, program.steps, strict=True)):
        return program
    return program.replace(order)


def _first_guards(program: Program, number: int) -> dict[Step, int]:
    """For each guard, and each step that one depends on, the number of the first such guard."""
    wanted: dict[Variable, int] = {}
    urgency: dict[Step, int] = {}
    late = meeting = len(program.steps)
    for step in reversed(program.steps):
        if is_guarded(step):
            number -= 1
            mine = number
        else:
            mine = min([wanted.get(out, late) for out in step.outs], default=-1)
            if is_collective(step):
                mine = meeting = min(mine, meeting)
            if mine == late:
                continue
        urgency[step] = mine
        for variable in step.reads:
            wanted[variable] = min(mine, wanted.get(variable, mine))
    return urgency
