"""The verifier: invariants of programs that every pass relies on and must preserve."""

from collections.abc import Sequence
from typing import Any

from fdbr.compiler.ir.loops import guards_in, loop_of, stack_kind
from fdbr.compiler.ir.program import (
    Fused,
    Instruction,
    Kind,
    Program,
    Small,
    Step,
    Variable,
    has_effect,
    is_collective,
    kind_of,
)

__all__ = ["InvalidProgramError", "check"]


class InvalidProgramError(AssertionError):
    """A program violates an invariant, because of a bug in a pass."""


def check(program: Program, before: Program | None = None) -> Program:
    """Return the program if it satisfies the invariants.

    - Each variable is defined once, by an input or a step, before any step reads it.
    - A kernel returns only values of its own steps.  It overwrites only donated inputs that have
      the aval of the new value and that no later step reads.
    - Guards come in the order in which they were captured; those of loops, iteration by iteration.
    - The operands and results of a loop match those of its body, which satisfies the invariants.
    - Side effects and collectives are those of the program ``before`` the pass, if it is given, in
      the same order.
    - Inputs, and the number and avals of outputs, are those of the program ``before``.

    Raises
    ------
    InvalidProgramError
        If an invariant is violated; the message says where.
    """
    made: set[Variable] = set()

    def make(variable: Variable, where: str) -> None:
        _require(variable not in made, f"{where} makes {_named(variable)} a second time")
        made.add(variable)

    for variable in program.inputs:
        make(variable, "the list of inputs")
    last = -1
    for number, step in enumerate(program.steps):
        where = f"step {number} ({_title(step)})"
        for variable in step.reads:
            _require(variable in made, f"{where} reads {_named(variable)} before it is made")
        for index in guards_in([step]):
            _require(index > last, f"{where} comes after guard {last}")
            last = index
        _check_loop(step, where)
        if isinstance(step, Fused | Small):
            _check_kernel(step, where)
        if type(step) is Fused:
            _check_overwritten(program, number, step, where)
        for variable in step.outs:
            make(variable, where)
    for output in program.outputs:
        known = type(output) is not Variable or output in made
        _require(known, f"the output {_named(output)} is never made")
    if before is not None:
        _compare(program, before)
    return program


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidProgramError(message)


def _check_loop(step: Step, where: str) -> None:
    loop = loop_of(step)
    if loop is None:
        return
    assert type(step) is Instruction
    body = check(loop.body)
    _require(not any(map(has_effect, body.steps)), f"{where} has a side effect in its body")
    first, kept = loop.carried, loop.carried + loop.lasts
    second = first + len(loop.rows)
    data = second + len(loop.data)
    _require(all(len(values) == loop.length for values in loop.data), f"{where} lacks data")
    given = [kind_of(operand) for operand in step.operands]
    taken = [variable.kind for variable in body.inputs]
    if loop.back is not None:
        _check_back(step, loop.back, given, taken[first:], where)
        return
    whole = [*taken[:first], *taken[data:]]
    _require(whole == [*given[:first], *given[second:]], f"{where} takes other avals than it gets")
    made = list(map(kind_of, body.outputs))
    closed = not loop.is_open or (not loop.rows and not loop.data and len(made) == kept)
    _require(closed, f"{where} has rows for a fixed number of iterations")
    _require(made[:first] == taken[:first], f"{where} carries other avals than it takes")
    made[kept:] = [stack_kind(kind, loop.length) for kind in made[kept:]]
    _require(made == [out.kind for out in step.outs], f"{where} makes other avals than it says")


def _check_back(
    step: Instruction, back: Program, given: list[Kind], consts: list[Kind], where: str
) -> None:
    """Check the pullback of an iteration of a loop."""
    check(back)
    made, count = list(map(kind_of, back.outputs)), len(given) - len(back.outputs)
    taken = [variable.kind for variable in back.inputs]
    _require(made == given[count:] == [out.kind for out in step.outs], f"{where} makes other avals")
    _require(taken == [*made, *given[:count]], f"{where} goes back over other avals than it gets")
    _require(given[len(given) - len(made) - len(consts) : count] == consts, f"{where} takes others")


def _check_kernel(step: Fused | Small, where: str) -> None:
    inside = {out for part in step.steps for out in part.outs}
    _require(inside.issuperset(step.outs), f"{where} keeps what it does not make")
    known = set(step.reads)
    for part in step.steps:
        _require(known.issuperset(part.reads), f"{where}: {_title(part)} reads what comes later")
        _require(not has_effect(part), f"{where}: {_title(part)} has a side effect")
        known.update(part.outs)


def _check_overwritten(program: Program, number: int, step: Fused, where: str) -> None:
    later = {v for other in program.steps[number + 1 :] for v in other.reads}
    later.update(v for v in program.outputs if type(v) is Variable)
    for out, place in step.over.items():
        _require(place in program.donated, f"{where} overwrites an input that is not donated")
        _require(out.kind == place.kind, f"{where} writes {out.kind} over {place.kind}")
        _require(place not in later, f"{where} overwrites {_named(place)}, which is read later")


def _compare(program: Program, before: Program) -> None:
    _require(program.inputs == before.inputs, "the inputs have changed")
    kinds, old = (list(map(_kind, p.outputs)) for p in (program, before))
    _require(kinds == old, f"the outputs are {kinds}, and were {old}")
    mine, theirs = _effects(program.steps), _effects(before.steps)
    _require(mine == theirs, "the side effects or their order have changed")


def _kind(output: Any) -> Any:
    """Return the aval of an output, or the type of a static one."""
    static = isinstance(output, type) or not hasattr(output, "dtype")
    return type(output) if static and type(output) is not Variable else kind_of(output)


def _effects(steps: Sequence[Step]) -> list[Any]:
    effects: list[Any] = [step for step in steps if has_effect(step)]
    alone = [step.params.get("function") for step in effects if not is_collective(step)]
    together = [
        (step.primitive, step.params.get("call")) for step in effects if is_collective(step)
    ]
    return [alone, together]


def _title(step: Step) -> str:
    return step.primitive.name if type(step) is Instruction else type(step).__name__.lower()


def _named(value: Any) -> str:
    return f"the variable of aval {value.kind}" if type(value) is Variable else repr(value)
