"""Guard scheduling: guards run early, so that a failing one has cost little."""

from fdbr.compiler.ir.loops import is_guarded
from fdbr.compiler.ir.program import Program, Step, Variable, has_effect, is_collective

__all__ = ["schedule_guards"]


def schedule_guards(program: Program) -> Program:
    """Move each guard as early as possible, right after the steps that it depends on.

    A loop with guards in it counts as a guard.

    Steps that no guard depends on come after the last guard, and side effects come last of all, so
    that none happens twice when a guard fails or a step raises.  Guards keep their order, and so do
    the steps between two of them, and side effects.  No step moves before a guard that was
    captured before it, so what the function did only because of an outcome still follows the
    guard.

    Collectives keep their order, too, and come before a guard only if it, or a collective that it
    depends on, needs their result.

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
    order = sorted(program.steps, key=lambda step: urgency.get(step, late))  # stable
    if all(a is b for a, b in zip(order, program.steps, strict=True)):
        return program
    return program.replace(order)


def _first_guards(program: Program, number: int) -> dict[Step, int]:
    """Return for each guard, and each step that one depends on, the number of the first guard."""
    wanted: dict[Variable, int] = {}
    urgency: dict[Step, int] = {}
    late = collective = len(program.steps)
    for step in reversed(program.steps):
        if is_guarded(step):
            number -= 1
            mine = number
        else:
            mine = min([wanted.get(out, late) for out in step.outs], default=-1)
            if is_collective(step):
                mine = collective = min(mine, collective)
            if mine == late:
                continue
        urgency[step] = mine
        for variable in step.reads:
            wanted[variable] = min(mine, wanted.get(variable, mine))
    return urgency
